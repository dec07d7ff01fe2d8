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

static bool fake_capturing(void *stream)
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
    const struct CMUnitTest tests[] = {cmocka_unit_test(calls_run_in_their_order),
                                       cmocka_unit_test(an_event_goes_from_eager_to_captured)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
