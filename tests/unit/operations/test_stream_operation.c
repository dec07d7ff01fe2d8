/* Operations that the device carries out follow each other as their calls did, blocking or not,
 * shown with functions on CPU streams that write down when they ran. */
#include "comm/operations/stream_operation.h"
#include "tests/support/ranks.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <unistd.h>

#include <cmocka.h>

enum { ENTRIES = 64 };

static struct {
    atomic_int count;
    int entry[ENTRIES];
} book;

/* Late on purpose, so that what does not wait comes first. */
static void write_down(void *argument)
{
    usleep(2000);
    book.entry[atomic_fetch_add(&book.count, 1)] = (int)(intptr_t)argument;
}

/* The stream of the newest launch. */
static void *launched;

static alnico_status_t launch(alnico_comm_t comm, const struct call *call,
                              const struct choice *choice, void *stream)
{
    (void)comm, (void)choice;
    launched = stream;
    return alnico_stream_enqueue(stream, write_down, (void *)(intptr_t)call->root);
}

static const struct backend_ops fake_ops = {
    .start = stream_operation_start,
    .launch = launch,
};

static void *call(alnico_comm_t comm, int number, alnico_request_t *request)
{
    const struct backend fake = {.name = "fake", .ops = &fake_ops};
    const struct choice choice = {.backend = &fake};
    const struct call numbered = {.root = number};
    REQUIRE_STATUS(fake_ops.start(comm, &numbered, &choice, request), ALNICO_SUCCESS);
    return launched;
}

static void mix(struct rank *rank)
{
    alnico_stream_t stream;
    alnico_request_t request[3];
    bool done = false;
    REQUIRE_STATUS(alnico_stream_create(&stream), ALNICO_SUCCESS);
    alnico_comm_t comm = ranks_comm(rank, stream);
    REQUIRE(call(comm, 0, NULL) == stream);
    void *other = call(comm, 1, &request[0]);
    REQUIRE(other != stream);
    REQUIRE(call(comm, 2, &request[1]) == other);
    REQUIRE(call(comm, 3, NULL) == stream); /* behind 2, which nobody waited for */
    REQUIRE(call(comm, 4, &request[2]) == other);
    REQUIRE_STATUS(alnico_wait(&request[2]), ALNICO_SUCCESS);
    REQUIRE_STATUS(alnico_stream_enqueue(stream, write_down, (void *)(intptr_t)5), ALNICO_SUCCESS);
    REQUIRE_STATUS(alnico_request_synchronize(&request[1]), ALNICO_SUCCESS);
    REQUIRE(atomic_load(&book.count) >= 3);
    while (!done)
        REQUIRE_STATUS(alnico_test(&request[0], &done), ALNICO_SUCCESS);
    REQUIRE(call(comm, 6, &request[0]) == other);
    REQUIRE_STATUS(alnico_synchronize(comm), ALNICO_SUCCESS);
    REQUIRE(atomic_load(&book.count) == 7);
    for (int i = 0; i < 7; i++)
        REQUIRE(book.entry[i] == i);
    REQUIRE_STATUS(alnico_wait(&request[0]), ALNICO_SUCCESS);
    alnico_comm_destroy(comm);
    alnico_stream_destroy(stream);
}

static void calls_run_in_their_order(void **state)
{
    (void)state;
    ranks_run(1, mix, NULL);
}

/* ---- While a graph is captured ---- */

/* What CUDA refuses: a stream that is captured waits for an event outside, or another for one that
 * was captured. */
enum { EVENTS = 8 };

static struct {
    bool capturing;
    int count;
    struct device_event *events[EVENTS];
    bool captured[EVENTS]; /* last recorded in a graph */
} graph;

static struct device_ops device_fake;

static uint64_t fake_capturing(void *stream)
{
    (void)stream;
    return graph.capturing;
}

static bool *mark_of(struct device_event *event)
{
    int i = 0;
    while (i < graph.count && graph.events[i] != event)
        i++;
    REQUIRE(i < EVENTS);
    graph.count += i == graph.count;
    graph.events[i] = event;
    return &graph.captured[i];
}

static alnico_status_t fake_record(struct device_event *event, void *stream)
{
    *mark_of(event) = graph.capturing;
    return device_cpu.event_record(event, stream);
}

static alnico_status_t fake_wait(void *stream, struct device_event *event)
{
    REQUIRE(*mark_of(event) == graph.capturing);
    return device_cpu.stream_wait(stream, event);
}

/* The stream that is captured. */
static alnico_stream_t captured_stream;

static uint64_t one_capturing(void *stream)
{
    return stream == captured_stream ? 7 : 0;
}

/* Between the streams of the two calls there is an order, or there must be none. */
static struct {
    void *recorded[ENTRIES], *waited[ENTRIES];
    int records, waits;
} links;

static alnico_status_t note_record(struct device_event *event, void *stream)
{
    links.recorded[links.records++] = stream;
    return device_cpu.event_record(event, stream);
}

static alnico_status_t note_wait(void *stream, struct device_event *event)
{
    links.waited[links.waits++] = stream;
    return device_cpu.stream_wait(stream, event);
}

static void note_links(alnico_comm_t comm, uint64_t (*capturing)(void *stream))
{
    device_fake = device_cpu;
    device_fake.capturing = capturing;
    device_fake.event_record = note_record;
    device_fake.stream_wait = note_wait;
    comm->device = &device_fake;
}

/* Whether the move linked exactly these two streams. */
static void expect_link(alnico_comm_t comm, void *before, void *next)
{
    links.records = links.waits = 0;
    REQUIRE_STATUS(alnico_comm_set_stream(comm, next), ALNICO_SUCCESS);
    REQUIRE(comm->stream == next);
    REQUIRE(links.records == (before != NULL) && links.waits == links.records);
    REQUIRE(!before || (links.recorded[0] == before && links.waited[0] == next));
}

/* Eager A, captured S, eager again: what follows A is never linked to the capture. */
static void move_around_a_capture(struct rank *rank)
{
    alnico_stream_t a, b, s;
    REQUIRE_STATUS(alnico_stream_create(&a), ALNICO_SUCCESS);
    REQUIRE_STATUS(alnico_stream_create(&b), ALNICO_SUCCESS);
    REQUIRE_STATUS(alnico_stream_create(&s), ALNICO_SUCCESS);
    alnico_comm_t comm = ranks_comm(rank, a);
    note_links(comm, one_capturing);
    captured_stream = s;
    expect_link(comm, NULL, a); /* the same */
    expect_link(comm, a, b);
    expect_link(comm, NULL, s);
    expect_link(comm, b, a);
    expect_link(comm, NULL, s);
    captured_stream = NULL; /* the capture has ended; s is used as it is */
    expect_link(comm, a, s);
    expect_link(comm, NULL, s);
    expect_link(comm, s, b);
    comm->device = &device_cpu;
    alnico_comm_destroy(comm);
    alnico_stream_destroy(a);
    alnico_stream_destroy(b);
    alnico_stream_destroy(s);
}

/* The stream that has ended, which nobody may ask. */
static alnico_stream_t ended_stream;

static uint64_t living_capturing(void *stream)
{
    REQUIRE(!ended_stream || stream != ended_stream);
    return one_capturing(stream);
}

static void end_stream(alnico_stream_t stream)
{
    alnico_stream_destroy(stream);
    ended_stream = stream;
    links.records = links.waits = 0;
}

static alnico_stream_t move_to_new_stream(alnico_comm_t comm)
{
    alnico_stream_t stream;
    ended_stream = NULL;
    REQUIRE_STATUS(alnico_stream_create(&stream), ALNICO_SUCCESS);
    REQUIRE_STATUS(alnico_comm_set_stream(comm, stream), ALNICO_SUCCESS);
    return stream;
}

/* A call, a nonblocking one, and one that is waited for: the next stream follows the mark of each. */
static void move_from_an_ended_stream(struct rank *rank)
{
    enum { BLOCKING, NONBLOCKING, WAITED, WAYS };
    alnico_stream_t home, next;
    alnico_request_t request;
    float x = 1;
    REQUIRE_STATUS(alnico_stream_create(&home), ALNICO_SUCCESS);
    REQUIRE_STATUS(alnico_stream_create(&next), ALNICO_SUCCESS);
    alnico_comm_t comm = ranks_comm(rank, home);
    note_links(comm, living_capturing);
    for (int way = 0; way < WAYS; way++) {
        alnico_stream_t stream = move_to_new_stream(comm);
        if (way == BLOCKING)
            REQUIRE_STATUS(
                alnico_allreduce(ALNICO_IN_PLACE, &x, 1, ALNICO_FLOAT32, ALNICO_SUM, comm),
                ALNICO_SUCCESS);
        else
            REQUIRE_STATUS(alnico_iallreduce(ALNICO_IN_PLACE, &x, 1, ALNICO_FLOAT32, ALNICO_SUM,
                                             comm, &request),
                           ALNICO_SUCCESS);
        if (way == WAITED) {
            links.records = 0;
            REQUIRE_STATUS(alnico_wait(&request), ALNICO_SUCCESS);
            REQUIRE(links.records > 0 && links.recorded[links.records - 1] == stream);
        }
        end_stream(stream);
        REQUIRE_STATUS(alnico_comm_set_stream(comm, next), ALNICO_SUCCESS);
        REQUIRE(links.records == 0 && links.waits == 1 && links.waited[0] == next);
        if (way == NONBLOCKING)
            REQUIRE_STATUS(alnico_wait(&request), ALNICO_SUCCESS);
    }
    ended_stream = NULL;
    REQUIRE_STATUS(alnico_allreduce(ALNICO_IN_PLACE, &x, 1, ALNICO_FLOAT32, ALNICO_SUM, comm),
                   ALNICO_SUCCESS);
    REQUIRE_STATUS(alnico_comm_set_stream(comm, home), ALNICO_SUCCESS);
    expect_link(comm, home, next); /* no call was made on home, whose mark would be next's */
    comm->device = &device_cpu;
    alnico_comm_destroy(comm);
    alnico_stream_destroy(home);
    alnico_stream_destroy(next);
}

/* One that ends with its capture: what follows is linked to the last eager stream. */
static void move_from_an_ended_capture(struct rank *rank)
{
    alnico_stream_t home, next;
    REQUIRE_STATUS(alnico_stream_create(&home), ALNICO_SUCCESS);
    REQUIRE_STATUS(alnico_stream_create(&next), ALNICO_SUCCESS);
    REQUIRE_STATUS(alnico_stream_create(&captured_stream), ALNICO_SUCCESS);
    alnico_comm_t comm = ranks_comm(rank, home);
    ended_stream = NULL;
    note_links(comm, living_capturing);
    expect_link(comm, NULL, captured_stream);
    end_stream(captured_stream);
    captured_stream = NULL;
    expect_link(comm, home, next);
    comm->device = &device_cpu;
    alnico_comm_destroy(comm);
    alnico_stream_destroy(home);
    alnico_stream_destroy(next);
}

static void a_stream_may_end_after_its_calls(void **state)
{
    (void)state;
    ranks_run(1, move_from_an_ended_stream, NULL);
    ranks_run(1, move_from_an_ended_capture, NULL);
}

static void a_capture_keeps_no_order_with_other_streams(void **state)
{
    (void)state;
    ranks_run(1, move_around_a_capture, NULL);
}

static uint64_t all_capturing(void *stream)
{
    (void)stream;
    return 7;
}

static void move_in_a_capture(struct rank *rank)
{
    alnico_stream_t a, b;
    float x = 1;
    REQUIRE_STATUS(alnico_stream_create(&a), ALNICO_SUCCESS);
    REQUIRE_STATUS(alnico_stream_create(&b), ALNICO_SUCCESS);
    alnico_comm_t comm = ranks_comm(rank, a);
    note_links(comm, all_capturing);
    expect_link(comm, a, b);
    expect_link(comm, b, a);
    device_fake.capturing = NULL;
    REQUIRE_STATUS(alnico_comm_set_stream(comm, b), ALNICO_SUCCESS);
    REQUIRE_STATUS(alnico_allreduce(ALNICO_IN_PLACE, &x, 1, ALNICO_FLOAT32, ALNICO_SUM, comm),
                   ALNICO_SUCCESS);
    device_fake.capturing = all_capturing;
    expect_link(comm, NULL, a); /* behind an eager call */
    expect_link(comm, a, b);
    comm->device = &device_cpu;
    alnico_comm_destroy(comm);
    alnico_stream_destroy(a);
    alnico_stream_destroy(b);
}

static void streams_of_one_capture_keep_their_order(void **state)
{
    (void)state;
    ranks_run(1, move_in_a_capture, NULL);
}

/* Calls on three streams, each slow, run in their order; the inline one last, so that the host waits. */
static void move_between_calls(struct rank *rank)
{
    alnico_stream_t stream[3] = {NULL};
    alnico_request_t request;
    atomic_store(&book.count, 0);
    for (int i = 0; i < 2; i++)
        REQUIRE_STATUS(alnico_stream_create(&stream[i]), ALNICO_SUCCESS);
    alnico_comm_t comm = ranks_comm(rank, stream[0]);
    for (int i = 0; i < 6; i++) {
        REQUIRE_STATUS(alnico_comm_set_stream(comm, stream[i % 3]), ALNICO_SUCCESS);
        REQUIRE(call(comm, i, NULL) == stream[i % 3]);
        REQUIRE(stream[i % 3] || atomic_load(&book.count) == i + 1);
    }
    call(comm, 6, &request);
    REQUIRE_STATUS(alnico_comm_set_stream(comm, stream[0]), ALNICO_SUCCESS);
    REQUIRE_STATUS(alnico_wait(&request), ALNICO_SUCCESS);
    REQUIRE_STATUS(alnico_stream_enqueue(stream[0], write_down, (void *)7), ALNICO_SUCCESS);
    REQUIRE_STATUS(alnico_stream_synchronize(stream[0]), ALNICO_SUCCESS);
    REQUIRE(atomic_load(&book.count) == 8);
    for (int i = 0; i < 8; i++)
        REQUIRE(book.entry[i] == i);
    alnico_comm_destroy(comm);
    for (int i = 0; i < 2; i++)
        alnico_stream_destroy(stream[i]);
}

static void operations_keep_their_order_over_streams(void **state)
{
    (void)state;
    ranks_run(1, move_between_calls, NULL);
}

static void recycle(struct rank *rank)
{
    alnico_stream_t stream;
    alnico_request_t request;
    bool done = false;
    REQUIRE_STATUS(alnico_stream_create(&stream), ALNICO_SUCCESS);
    alnico_comm_t comm = ranks_comm(rank, stream);
    device_fake = device_cpu;
    device_fake.capturing = fake_capturing;
    device_fake.event_record = fake_record;
    device_fake.stream_wait = fake_wait;
    comm->device = &device_fake;
    call(comm, 0, &request);
    while (!done)
        REQUIRE_STATUS(alnico_test(&request, &done), ALNICO_SUCCESS);
    int events = graph.count;
    graph.capturing = true;
    call(comm, 1, &request);
    REQUIRE(graph.count == events); /* recycled, or this shows nothing */
    REQUIRE_STATUS(alnico_wait(&request), ALNICO_SUCCESS);
    graph.capturing = false;
    call(comm, 2, NULL);
    call(comm, 3, &request);
    call(comm, 4, NULL);
    REQUIRE_STATUS(alnico_wait(&request), ALNICO_SUCCESS);
    comm->device = &device_cpu;
    alnico_comm_destroy(comm);
    alnico_stream_destroy(stream);
}

static void an_event_goes_from_eager_to_captured(void **state)
{
    (void)state;
    atomic_store(&book.count, 0);
    ranks_run(1, recycle, NULL);
    for (int i = 0; i < 5; i++)
        assert_int_equal(book.entry[i], i);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(calls_run_in_their_order),
        cmocka_unit_test(an_event_goes_from_eager_to_captured),
        cmocka_unit_test(a_stream_may_end_after_its_calls),
        cmocka_unit_test(a_capture_keeps_no_order_with_other_streams),
        cmocka_unit_test(streams_of_one_capture_keep_their_order),
        cmocka_unit_test(operations_keep_their_order_over_streams)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
