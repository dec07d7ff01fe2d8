/* The hierarchical backend on a made-up device, whose ranks are on made-up hosts: what the table
 * chooses, how calls are cut, and failures, which name ranks as the caller numbers them.
 * alnico-conformance --device hierarchical has every operation. */
#include "comm/api/create.h"
#include "comm/backends/hierarchical/hierarchical.h"
#include "comm/operations/stream_operation.h"
#include "comm/rendezvous/callback.h"

#include "base/status.h"
#include "tests/support/far.h"
#include "tests/support/forks.h"
#include "tests/support/ranks.h"

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "tests/support/patience.h"

enum { MOST = 6, COUNT = 100000 };

/* The ranks of each host: even and uneven, neighbours or not. */
struct layout {
    int size;
    uint64_t hosts[MOST];
};

static const struct layout layouts[] = {{3, {0, 1, 1}},          {4, {0, 0, 1, 1}},
                                        {4, {0, 1, 0, 1}},       {5, {0, 0, 1, 1, 1}},
                                        {6, {0, 0, 1, 1, 2, 2}}, {6, {0, 1, 1, 2, 2, 2}}};
enum { LAYOUTS = sizeof layouts / sizeof *layouts };
static const struct layout *const square = &layouts[1];

struct seat {
    alnico_stream_t stream;
    alnico_comm_t comm;
    struct hierarchical_state *state;
    int32_t *x;
};

static void force_all(alnico_comm_t comm)
{
    for (int c = 0; c < COLLECTIVES; c++)
        far_force(comm, (alnico_collective_t)c, "hierarchical");
}

static void seat_open_on(struct seat *s, alnico_comm_t comm, alnico_stream_t stream,
                         const uint64_t *hosts)
{
    *s = (struct seat){.stream = stream, .comm = comm};
    far_be_hierarchical(s->comm, hosts);
    force_all(s->comm);
    s->state = hierarchical_state_of(s->comm);
    s->x = calloc(COUNT + 1, sizeof *s->x);
    REQUIRE(s->x != NULL && s->state && s->state->comms[INSIDE]);
}

static void seat_open(struct seat *s, struct rank *rank, const struct layout *layout)
{
    alnico_stream_t stream;
    REQUIRE_STATUS(alnico_stream_create(&stream), ALNICO_SUCCESS);
    seat_open_on(s, far_comm(rank, stream), stream, layout->hosts);
}

static void seat_close(struct seat *s)
{
    alnico_comm_destroy(s->comm);
    alnico_stream_destroy(s->stream);
    free(s->x);
}

static alnico_status_t add(struct seat *s, size_t count)
{
    alnico_status_t status =
        alnico_allreduce(ALNICO_IN_PLACE, far_of(s->x), count, ALNICO_INT32, ALNICO_SUM, s->comm);
    return status == ALNICO_SUCCESS ? alnico_synchronize(s->comm) : status;
}

static void require_sum(struct seat *s, int size)
{
    for (int i = 0; i < COUNT; i++)
        s->x[i] = i + s->comm->rank;
    REQUIRE_STATUS(add(s, COUNT), ALNICO_SUCCESS);
    for (int i = 0; i < COUNT; i++)
        REQUIRE(s->x[i] == size * i + size * (size - 1) / 2);
}

/* ---- The communicators ---- */

static void run_members(struct rank *rank)
{
    const struct layout *layout = rank->argument;
    struct seat s;
    seat_open(&s, rank, layout);
    const struct host_map *map = s.comm->map;
    alnico_comm_t inside = s.state->comms[INSIDE], between = s.state->comms[BETWEEN];
    int seat = map->place[rank->rank], inside_size = 0;
    for (int i = 0; i < layout->size; i++)
        if (layout->hosts[i] == layout->hosts[rank->rank])
            REQUIRE(comm_name(inside, inside_size++) == i);
    REQUIRE(inside->size == inside_size && inside->rank == seat);
    REQUIRE((between != NULL) == (seat < map->fewest));
    REQUIRE(!between || (between->size == map->hosts && between->rank == map->host[rank->rank]));
    REQUIRE(!between || comm_name(between, between->rank) == rank->rank);
    require_sum(&s, layout->size);
    seat_close(&s);
}

static void levels_have_the_ranks_of_hosts_and_seats(void **state)
{
    (void)state;
    for (int i = 0; i < LAYOUTS; i++)
        ranks_run(layouts[i].size, run_members, (void *)&layouts[i]);
}

/* An algorithm that is forced on a communicator is not forced on its levels, which may lack it. */
static void run_forced(struct rank *rank)
{
    alnico_stream_t stream;
    struct seat s;
    REQUIRE_STATUS(alnico_stream_create(&stream), ALNICO_SUCCESS);
    alnico_comm_t comm = far_comm(rank, stream);
    strcpy(comm->family->settings.algorithm[ALNICO_ALLREDUCE], "ring");
    seat_open_on(&s, comm, stream, square->hosts);
    for (int level = 0; level < LEVELS; level++)
        REQUIRE(!s.state->comms[level]->forced[ALNICO_ALLREDUCE].algorithm);
    seat_close(&s);
}

static void what_is_forced_is_not_on_the_levels(void **state)
{
    (void)state;
    ranks_run(4, run_forced, NULL);
}

static void run_one_level(struct rank *rank)
{
    const struct layout *layout = rank->argument;
    alnico_stream_t stream;
    REQUIRE_STATUS(alnico_stream_create(&stream), ALNICO_SUCCESS);
    alnico_comm_t comm = far_comm(rank, stream);
    far_be_hierarchical(comm, layout->hosts);
    REQUIRE(!hierarchical_state_of(comm));
    REQUIRE(!hierarchical_ops.supports(comm, NULL, &algorithm_hierarchical));
    alnico_comm_destroy(comm);
    alnico_stream_destroy(stream);
}

static void one_host_or_one_rank_a_host_needs_none(void **state)
{
    static const struct layout one_host = {3, {5, 5, 5}}, alone = {3, {1, 2, 3}};
    (void)state;
    ranks_run(3, run_one_level, (void *)&one_host);
    ranks_run(3, run_one_level, (void *)&alone);
}

/* The limit of scratch leaves room for one staging, not for two more. */
static void run_limited(struct rank *rank)
{
    alnico_stream_t stream;
    REQUIRE_STATUS(alnico_stream_create(&stream), ALNICO_SUCCESS);
    alnico_comm_t comm = far_comm(rank, stream);
    comm->limits.scratch = 4 << 20;
    comm->scratch_left = 1 << 20;
    far_be_hierarchical(comm, square->hosts);
    REQUIRE(!hierarchical_state_of(comm));
    alnico_comm_destroy(comm);
    alnico_stream_destroy(stream);
}

static void a_limit_of_scratch_leaves_it_out(void **state)
{
    (void)state;
    ranks_run(4, run_limited, NULL);
}

static alnico_status_t fail_to_create(void **out)
{
    *out = NULL;
    return error_set(ALNICO_ERROR_SYSTEM, "no stream");
}

/* One rank cannot make them: then there are none, and the host backend goes on. */
static void run_refused(struct rank *rank)
{
    alnico_stream_t stream;
    REQUIRE_STATUS(alnico_stream_create(&stream), ALNICO_SUCCESS);
    alnico_comm_t comm = far_comm(rank, stream);
    const struct device_ops *device = comm->device;
    struct device_ops failing = *device;
    failing.stream_create = fail_to_create;
    if (rank->rank == 2)
        comm->device = &failing;
    far_be_hierarchical(comm, square->hosts);
    comm->device = device;
    REQUIRE(hierarchical_ops.prepared(comm, &algorithm_hierarchical));
    REQUIRE(!hierarchical_ops.supports(comm, NULL, &algorithm_hierarchical));
    int32_t x = rank->rank;
    REQUIRE_STATUS(alnico_comm_set_algorithm(comm, ALNICO_ALLREDUCE, "ring"), ALNICO_SUCCESS);
    REQUIRE_STATUS(alnico_allreduce(ALNICO_IN_PLACE, far_of(&x), 1, ALNICO_INT32, ALNICO_SUM, comm),
                   ALNICO_SUCCESS);
    REQUIRE_STATUS(alnico_synchronize(comm), ALNICO_SUCCESS);
    REQUIRE(x == 6);
    alnico_comm_destroy(comm);
    alnico_stream_destroy(stream);
}

static void what_one_rank_cannot_make_none_has(void **state)
{
    (void)state;
    ranks_run(4, run_refused, NULL);
}

/* Levels that cannot be made at once (NCCL between hosts) are made by the first call that may wait. */
static void run_later(struct rank *rank)
{
    struct seat s;
    seat_open(&s, rank, square);
    hierarchical_end(s.comm);
    s.state->tried = false;
    REQUIRE(!hierarchical_ops.prepared(s.comm, &algorithm_hierarchical));
    REQUIRE(hierarchical_ops.supports(s.comm, NULL, &algorithm_hierarchical));
    REQUIRE_STATUS(hierarchical_ops.prepare(s.comm, &algorithm_hierarchical, "test"),
                   ALNICO_SUCCESS);
    REQUIRE(hierarchical_ops.prepared(s.comm, &algorithm_hierarchical));
    REQUIRE(s.state->comms[INSIDE] && s.state->comms[BETWEEN]);
    seat_close(&s);
}

static void a_call_that_may_wait_makes_them_later(void **state)
{
    (void)state;
    ranks_run(4, run_later, NULL);
}

/* ---- What the table chooses, and how calls are cut ---- */

static void use_table(struct seat *s)
{
    memset(s->comm->forced, 0, sizeof s->comm->forced);
    tuning_steps_finish(&s->comm->tuning);
    REQUIRE_STATUS(tuning_steps_init(&s->comm->tuning, NULL, ALNICO_DEVICE_CUDA, s->comm->size,
                                     s->comm->hosts),
                   ALNICO_SUCCESS);
}

static void run_chosen(struct rank *rank)
{
    struct seat s;
    seat_open(&s, rank, square);
    use_table(&s);
    alnico_comm_t inside = s.state->comms[INSIDE];
    REQUIRE_STATUS(alnico_alltoall(far_of(s.x), far_of(s.x + 100), 10, ALNICO_INT32, s.comm),
                   ALNICO_SUCCESS);
    REQUIRE_STATUS(alnico_synchronize(s.comm), ALNICO_SUCCESS);
    REQUIRE(!inside->called_on);
    require_sum(&s, 4);
    REQUIRE(inside->called_on);
    static const int others[] = {ALNICO_REDUCE, ALNICO_BROADCAST, ALNICO_ALLGATHER,
                                 ALNICO_REDUCE_SCATTER, ALNICO_BARRIER};
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        const struct tuning_step *step =
            tuning_choose(&s.comm->tuning, (alnico_collective_t)others[i], 0, 1000);
        while (step && step->choice.backend != &backend_hierarchical) {
            const struct backend_ops *ops = step->choice.backend->ops;
            REQUIRE(!ops || !ops->supports || !ops->supports(s.comm, NULL, step->choice.algorithm));
            step = tuning_next(step, 1000);
        }
        REQUIRE(step != NULL);
    }
    seat_close(&s);
}

static void the_table_takes_it_over_several_hosts(void **state)
{
    (void)state;
    ranks_run(4, run_chosen, NULL);
}

/* Each chunk is one message between hosts: a seat's part, or the whole, which leaders carry. */
static void run_cut(struct rank *rank)
{
    enum { CHUNK = 48000, CHUNKS = COUNT * sizeof(int32_t) / CHUNK + 1 };
    struct seat s;
    seat_open(&s, rank, rank->argument);
    s.comm->family->settings.chunk_bytes = CHUNK;
    require_sum(&s, rank->size);
    alnico_comm_t between = s.state->comms[BETWEEN];
    bool carries = s.comm->map->fewest == s.comm->map->most || s.comm->map->place[rank->rank] == 0;
    REQUIRE(!between || between->next_chunk == (carries ? CHUNKS : 0));
    seat_close(&s);
}

static void calls_are_cut_into_chunks(void **state)
{
    (void)state;
    ranks_run(3, run_cut, (void *)&layouts[0]);
    ranks_run(4, run_cut, (void *)&layouts[1]);
    ranks_run(5, run_cut, (void *)&layouts[3]);
}

/* ---- Captures ---- */

static uint64_t always_capturing(void *stream)
{
    (void)stream;
    return 1;
}

static void run_captured(struct rank *rank)
{
    struct seat s;
    seat_open(&s, rank, square);
    const struct device_ops *device = s.comm->device;
    struct device_ops capturing = *device;
    capturing.capturing = always_capturing;
    s.comm->device = &capturing;
    REQUIRE_STATUS(
        alnico_allreduce(ALNICO_IN_PLACE, far_of(s.x), COUNT, ALNICO_INT32, ALNICO_SUM, s.comm),
        ALNICO_ERROR_UNSUPPORTED);
    ranks_require_detail(
        "hierarchical is not capturable, and a graph is being captured on the stream");
    s.comm->device = device;
    require_sum(&s, 4);
    seat_close(&s);
}

static void captures_are_refused(void **state)
{
    (void)state;
    ranks_run(4, run_captured, NULL);
}

/* ---- Failures ---- */

/* Seconds of a deadline within which ranks that wait report. */
static double soon(void)
{
    return ranks_sanitized() ? 8 : 0.5;
}

/* All but one call: it is the one that all name. */
static void run_without(struct rank *rank)
{
    int absent = *(int *)rank->argument;
    char expected[64];
    struct seat s;
    seat_open(&s, rank, square);
    require_sum(&s, 4);
    s.comm->family->settings.timeout = soon();
    ranks_barrier(rank);
    if (rank->rank != absent) {
        REQUIRE_STATUS(add(&s, COUNT), ALNICO_ERROR_TIMEOUT);
        snprintf(expected, sizeof expected, "of communicator %d: rank %d did not come", s.comm->id,
                 absent);
        ranks_require_detail(expected);
        ranks_require_detail("alnico_allreduce, operation 2");
        REQUIRE_STATUS(alnico_barrier(s.comm), ALNICO_ERROR_TIMEOUT);
        ranks_require_detail(expected);
    }
    ranks_barrier(rank);
    seat_close(&s);
}

static void a_missing_rank_is_named(void **state)
{
    (void)state;
    for (int absent = 0; absent < 4; absent++)
        ranks_run(4, run_without, &absent);
}

static void run_mismatch(struct rank *rank)
{
    struct seat s;
    seat_open(&s, rank, square);
    s.comm->family->settings.timeout = soon();
    REQUIRE_STATUS(add(&s, rank->rank == 3 ? COUNT - 1 : COUNT), ALNICO_ERROR_MISMATCH);
    ranks_require_detail("allreduce of 100000 elements");
    ranks_require_detail("allreduce of 99999 elements");
    ranks_barrier(rank);
    seat_close(&s);
}

static void different_calls_are_a_mismatch(void **state)
{
    (void)state;
    ranks_run(4, run_mismatch, NULL);
}

/* A backend of a level, which counts or finds what the tests want. */
static void add_backend(alnico_comm_t comm, const struct backend_ops *ops)
{
    int last = 0;
    while (comm->backends[last])
        last++;
    REQUIRE(last < BACKENDS);
    comm->backends[last] = ops;
}

static atomic_int aborts;

static void count_abort(alnico_comm_t comm)
{
    (void)comm;
    atomic_fetch_add(&aborts, 1);
}

static const struct backend_ops counting = {.abort = count_abort};

static void run_abort(struct rank *rank)
{
    struct seat s;
    seat_open(&s, rank, square);
    for (int level = 0; level < LEVELS && rank->rank == 2; level++)
        add_backend(s.state->comms[level], &counting);
    ranks_barrier(rank);
    if (rank->rank == 2)
        REQUIRE_STATUS(alnico_comm_abort(s.comm), ALNICO_SUCCESS);
    REQUIRE(rank->rank != 2 || atomic_load(&aborts) == LEVELS);
    REQUIRE_STATUS(add(&s, COUNT), ALNICO_ERROR_ABORTED);
    ranks_require_detail(rank->rank == 2 ? "was aborted by this rank 2" : "rank 2 gave up");
    ranks_barrier(rank);
    seat_close(&s);
}

static void an_abort_ends_the_levels(void **state)
{
    (void)state;
    atomic_store(&aborts, 0);
    ranks_run(4, run_abort, NULL);
}

static void run_error(struct rank *rank)
{
    struct seat s;
    seat_open(&s, rank, square);
    comm_latch(s.state->comms[BETWEEN], ALNICO_ERROR_SYSTEM, "between hosts");
    REQUIRE_STATUS(comm_latched(s.comm), ALNICO_ERROR_SYSTEM);
    ranks_require_detail("between hosts");
    REQUIRE_STATUS(add(&s, COUNT), ALNICO_ERROR_SYSTEM);
    ranks_barrier(rank);
    seat_close(&s);
}

static void an_error_of_a_level_is_the_owners(void **state)
{
    (void)state;
    ranks_run(4, run_error, NULL);
}

/* ---- A kernel's error, found before its result is sent on ---- */

static atomic_bool faulty;

static alnico_status_t find_fault(alnico_comm_t comm)
{
    (void)comm;
    return atomic_load(&faulty) ? error_set(ALNICO_ERROR_SYSTEM, "a kernel failed")
                                : ALNICO_SUCCESS;
}

static const struct backend_ops fault = {.health = find_fault};

static void hold(void *argument)
{
    const atomic_bool *go = argument;
    while (!atomic_load(go))
        nap_us(50);
}

static void run_fault(struct rank *rank)
{
    struct seat s;
    atomic_bool go = false;
    seat_open(&s, rank, square);
    if (rank->rank == 1)
        add_backend(s.state->comms[INSIDE], &fault);
    REQUIRE_STATUS(alnico_stream_enqueue(s.stream, hold, &go), ALNICO_SUCCESS);
    REQUIRE_STATUS(
        alnico_allreduce(ALNICO_IN_PLACE, far_of(s.x), COUNT, ALNICO_INT32, ALNICO_SUM, s.comm),
        ALNICO_SUCCESS);
    ranks_barrier(rank);
    atomic_store(&faulty, true);
    atomic_store(&go, true);
    REQUIRE_STATUS(alnico_stream_synchronize(s.stream), ALNICO_SUCCESS);
    REQUIRE_STATUS(comm_latched(s.comm), ALNICO_ERROR_SYSTEM);
    ranks_require_detail(rank->rank == 1 ? "a kernel failed" : "rank 1 gave up");
    ranks_barrier(rank);
    seat_close(&s);
}

static void what_a_kernel_failed_to_make_is_not_sent_on(void **state)
{
    (void)state;
    atomic_store(&faulty, false);
    ranks_run(4, run_fault, NULL);
}

/* ---- Deaths ---- */

enum { VICTIM = 3 };

static alnico_comm_t far_comm_of_processes(struct rank *rank, alnico_stream_t stream)
{
    struct transport *transport;
    alnico_comm_t comm;
    REQUIRE_STATUS(transport_from_callback(&rank->bootstrap, 60, "test", &transport),
                   ALNICO_SUCCESS);
    REQUIRE_STATUS(comm_build_over(transport, far_device(), stream, "test", &comm), ALNICO_SUCCESS);
    return comm;
}

/* The survivors go on, each on the host that it was on. */
static void go_on(struct seat *s, const struct layout *layout)
{
    struct seat next;
    alnico_comm_t comm;
    alnico_stream_t stream;
    uint64_t hosts[MOST];
    int count = 0;
    for (int i = 0; i < layout->size; i++)
        if (i != VICTIM)
            hosts[count++] = layout->hosts[i];
    REQUIRE_STATUS(alnico_stream_create(&stream), ALNICO_SUCCESS);
    REQUIRE_STATUS(alnico_comm_shrink(s->comm, stream, &comm), ALNICO_SUCCESS);
    seat_open_on(&next, comm, stream, hosts);
    require_sum(&next, count);
    seat_close(&next);
}

static void run_victim(struct rank *rank)
{
    const struct layout *layout = rank->argument;
    struct seat s;
    alnico_stream_t stream;
    REQUIRE_STATUS(alnico_stream_create(&stream), ALNICO_SUCCESS);
    seat_open_on(&s, far_comm_of_processes(rank, stream), stream, layout->hosts);
    require_sum(&s, layout->size);
    forks_barrier(rank);
    if (rank->rank == VICTIM)
        kill(getpid(), SIGKILL);
    double begin = ranks_seconds();
    alnico_status_t status = ALNICO_SUCCESS;
    while (status == ALNICO_SUCCESS)
        status = add(&s, COUNT);
    REQUIRE_STATUS(status, ALNICO_ERROR_TIMEOUT);
    ranks_require_detail("rank 3 did not come: its process has ended");
    REQUIRE(ranks_seconds() - begin < (ranks_sanitized() ? 20 : 5));
    go_on(&s, layout);
    seat_close(&s);
}

static void a_killed_rank_is_named_and_the_others_go_on(void **state)
{
    (void)state;
    forks_run_victim(4, VICTIM, SIGKILL, run_victim, (void *)&layouts[1]);
    forks_run_victim(5, VICTIM, SIGKILL, run_victim, (void *)&layouts[3]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(levels_have_the_ranks_of_hosts_and_seats),
        cmocka_unit_test(what_is_forced_is_not_on_the_levels),
        cmocka_unit_test(one_host_or_one_rank_a_host_needs_none),
        cmocka_unit_test(a_limit_of_scratch_leaves_it_out),
        cmocka_unit_test(what_one_rank_cannot_make_none_has),
        cmocka_unit_test(a_call_that_may_wait_makes_them_later),
        cmocka_unit_test(the_table_takes_it_over_several_hosts),
        cmocka_unit_test(calls_are_cut_into_chunks),
        cmocka_unit_test(captures_are_refused),
        cmocka_unit_test(a_missing_rank_is_named),
        cmocka_unit_test(different_calls_are_a_mismatch),
        cmocka_unit_test(an_abort_ends_the_levels),
        cmocka_unit_test(an_error_of_a_level_is_the_owners),
        cmocka_unit_test(what_a_kernel_failed_to_make_is_not_sent_on),
        cmocka_unit_test(a_killed_rank_is_named_and_the_others_go_on),
    };
    alarm(WATCHDOG_S);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
