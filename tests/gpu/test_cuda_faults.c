/*
 * What goes wrong between ranks on GPUs: one that is late, that never calls, that calls another
 * size, and aborts from another thread. Whoever waits gets a status that says so within twice the
 * deadline, which is three seconds; the communicator can be destroyed, the GPU be used on and a new
 * communicator be made.
 *
 *     gpu_cuda_faults                  ranks as threads, on as many GPUs as there are, at most 4
 *     mpirun -n 4 gpu_cuda_faults      a process a GPU
 */
#include "tests/gpu/support/graph.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define DEADLINE_TEXT "3"
static const double deadline = 3, soon = 1.5;

enum { MEGABYTE = 1 << 20, COUNT_MOST = 200000 };

#define LENGTH(array) ((int)(sizeof(array) / sizeof *(array)))

/* ---- One communicator for each trial ---- */

enum kind { BLOCKING, REQUEST, TEST, GRAPH };

struct trial {
    const char *way; /* NULL: the table's */
    size_t count;
    enum kind kind;
    struct gpu_site site;
    float *memory; /* registered; zeros */
    cudaGraphExec_t graph;
    alnico_request_t request;
};

static alnico_status_t call(struct trial *t, size_t count, alnico_request_t *request)
{
    if (request)
        return alnico_iallreduce(ALNICO_IN_PLACE, t->memory, count, ALNICO_FLOAT32, ALNICO_SUM,
                                 t->site.comm, request);
    return alnico_allreduce(ALNICO_IN_PLACE, t->memory, count, ALNICO_FLOAT32, ALNICO_SUM,
                            t->site.comm);
}

/* With one call that goes well, or one replay. */
static void trial_open(struct trial *t, struct gpu_rank *rank)
{
    struct gpu_way way;
    gpu_way_at(0, &way);
    if (t->way)
        way = gpu_way_named(t->way);
    gpu_site_open(&t->site, rank, MEGABYTE);
    REQUIRE(gpu_force(&t->site, &way));
    t->memory = gpu_arena_take(&t->site.shared, COUNT_MOST * sizeof(float));
    CUDA(cudaMemsetAsync(t->memory, 0, COUNT_MOST * sizeof(float), t->site.stream));
    if (t->kind == GRAPH) {
        gpu_capture_begin(&t->site);
        REQUIRE_STATUS(call(t, t->count, NULL), ALNICO_SUCCESS);
        t->graph = gpu_capture_end(&t->site);
        gpu_replay(&t->site, t->graph);
    } else {
        REQUIRE_STATUS(call(t, t->count, NULL), ALNICO_SUCCESS);
    }
    REQUIRE_STATUS(alnico_synchronize(t->site.comm), ALNICO_SUCCESS);
}

static void trial_begin(struct trial *t, size_t count)
{
    if (t->kind == GRAPH)
        gpu_replay(&t->site, t->graph);
    else
        REQUIRE_STATUS(call(t, count, t->kind == BLOCKING ? NULL : &t->request), ALNICO_SUCCESS);
}

/* How it ended. */
static alnico_status_t trial_end(struct trial *t)
{
    alnico_status_t status = ALNICO_SUCCESS;
    bool done = false;
    if (t->kind == REQUEST)
        return alnico_request_synchronize(&t->request);
    if (t->kind != TEST)
        return alnico_synchronize(t->site.comm);
    while (!done && status == ALNICO_SUCCESS) {
        status = alnico_test(&t->request, &done);
        usleep(1000);
    }
    return status;
}

/* With an error, destroy waits for nobody; without, it may for those who have one. */
static void trial_close(struct trial *t)
{
    bool failed = alnico_comm_status(t->site.comm) != ALNICO_SUCCESS;
    double start = ranks_seconds();
    alnico_comm_destroy(t->site.comm);
    double waited = ranks_seconds() - start;
    if (waited > (failed ? soon : 2 * deadline))
        fprintf(stderr, "%s: destroy, failed %d, takes %.2f s\n", t->way ? t->way : "table", failed,
                waited);
    REQUIRE(waited < (failed ? soon : 2 * deadline));
    t->site.comm = NULL;
    if (t->kind == GRAPH)
        CUDA(cudaGraphExecDestroy(t->graph));
    gpu_arena_give(&t->site.shared);
    gpu_site_close(&t->site);
}

static void open_all(struct trial *trials, int number, struct gpu_rank *rank)
{
    for (int i = 0; i < number; i++)
        trial_open(&trials[i], rank);
    gpu_barrier(rank);
}

/* The GPU works, and a new communicator on it. */
static void close_all(struct trial *trials, int number, struct gpu_rank *rank)
{
    struct gpu_site site;
    gpu_barrier(rank);
    for (int i = 0; i < number; i++)
        trial_close(&trials[i]);
    gpu_require_alive(rank);
    gpu_site_open(&site, rank, MEGABYTE);
    gpu_try(&site, 5000, "after a fault");
    gpu_site_close(&site);
}

/* As threads, all numbers of ranks would take too long: the largest only. */
static bool is_left_out(struct gpu_rank *rank)
{
    bool out = !rank->mpi && rank->size < GPU_RANKS && rank->size < gpu_count();
    if (out)
        gpu_note(rank, "left out");
    return out;
}

static void complain(const struct trial *t, const struct gpu_rank *rank, alnico_status_t status,
                     double waited)
{
    fprintf(stderr, "%s, kind %d, rank %d of %d: status %d (%s) after %.2f s\n",
            t->way ? t->way : "table", (int)t->kind, rank->rank, rank->size, (int)status,
            alnico_status_string(status), waited);
}

/* ---- A rank that is late, and one that never calls ---- */

/* The last one is waited for first, and at once. */
#define EVERY_WAY                                                                                  \
    {                                                                                              \
        {.way = NULL, .count = 100, .kind = TEST},                                                 \
            {.way = "one_shot", .count = 500, .kind = GRAPH},                                      \
            {.way = "one_shot_line", .count = 1000, .kind = REQUEST},                              \
            {.way = "two_shot_line", .count = 20000, .kind = BLOCKING},                            \
            {.way = "two_shot_direct", .count = 20000, .kind = BLOCKING},                          \
            {.way = "two_shot_staged", .count = COUNT_MOST, .kind = REQUEST},                      \
            {.way = "peer_recursive_doubling", .count = 1000, .kind = BLOCKING},                   \
            {.way = "shared_one_shot", .count = 1000, .kind = GRAPH},                              \
            {.way = "shared_two_shot", .count = 50000, .kind = BLOCKING},                          \
            {.way = "recursive_doubling", .count = 10, .kind = TEST},                              \
            {.way = "ring", .count = 5000, .kind = BLOCKING},                                      \
            {.way = "one_shot", .count = 1000, .kind = BLOCKING},                                  \
    }

static void a_late_rank_is_waited_for(struct gpu_rank *rank)
{
    struct trial trials[] = EVERY_WAY;
    if (is_left_out(rank))
        return;
    open_all(trials, LENGTH(trials), rank);
    if (rank->rank == rank->size - 1)
        sleep(2);
    for (int i = 0; i < LENGTH(trials); i++)
        trial_begin(&trials[i], trials[i].count);
    for (int i = 0; i < LENGTH(trials); i++) {
        alnico_status_t status = trial_end(&trials[i]);
        if (status != ALNICO_SUCCESS)
            complain(&trials[i], rank, status, 2);
        REQUIRE_STATUS(status, ALNICO_SUCCESS);
    }
    close_all(trials, LENGTH(trials), rank);
}

/* A communicator that has been used, on a stream of its own, with no memory registered. */
static alnico_comm_t make_used(struct gpu_rank *rank, cudaStream_t *stream)
{
    enum { COUNT = 5000 };
    float *memory;
    CUDA(cudaStreamCreateWithFlags(stream, cudaStreamNonBlocking));
    alnico_comm_t comm = gpu_comm(rank, *stream);
    CUDA(cudaMalloc((void **)&memory, COUNT * sizeof *memory));
    for (int host = 0; host < 2; host++) {
        REQUIRE_STATUS(
            alnico_comm_set_algorithm(comm, ALNICO_ALLREDUCE, host ? "ring" : "one_shot"),
            ALNICO_SUCCESS);
        REQUIRE_STATUS(
            alnico_allreduce(ALNICO_IN_PLACE, memory, COUNT, ALNICO_FLOAT32, ALNICO_MAXIMUM, comm),
            ALNICO_SUCCESS);
    }
    REQUIRE_STATUS(alnico_synchronize(comm), ALNICO_SUCCESS);
    CUDA(cudaFree(memory));
    return comm;
}

/* Other communicators' kernels wait for ranks that come only when they are through with destroy,
 * which must not wait for those kernels. */
static void destroying_waits_for_no_other_kernel(struct gpu_rank *rank)
{
    struct trial waiting[] = {
        {.way = "one_shot", .count = 500, .kind = BLOCKING},
        {.way = "shared_one_shot", .count = 500, .kind = BLOCKING},
    };
    cudaStream_t stream;
    bool first = rank->rank == 0;
    if (is_left_out(rank))
        return;
    open_all(waiting, LENGTH(waiting), rank);
    alnico_comm_t comm = make_used(rank, &stream);
    gpu_barrier(rank);
    for (int i = 0; i < LENGTH(waiting) && first; i++)
        trial_begin(&waiting[i], waiting[i].count);
    gpu_barrier(rank);
    double start = ranks_seconds();
    alnico_comm_destroy(comm);
    gpu_note(rank, "destroy took %.3f s", ranks_seconds() - start);
    gpu_barrier(rank);
    for (int i = 0; i < LENGTH(waiting) && !first; i++)
        trial_begin(&waiting[i], waiting[i].count);
    for (int i = 0; i < LENGTH(waiting); i++)
        REQUIRE_STATUS(trial_end(&waiting[i]), ALNICO_SUCCESS);
    CUDA(cudaStreamDestroy(stream));
    close_all(waiting, LENGTH(waiting), rank);
}

/* Another communicator's operation waits for a rank that comes only when this call has returned,
 * the first nonblocking one of its communicator. */
static void a_first_nonblocking_call_waits_for_no_other(struct gpu_rank *rank)
{
    enum { COUNT = 1000 };
    struct trial waiting[] = {{.way = "ring", .count = 5000, .kind = REQUEST}};
    cudaStream_t stream;
    alnico_request_t request;
    float *memory;
    if (is_left_out(rank))
        return;
    open_all(waiting, LENGTH(waiting), rank);
    alnico_comm_t comm = make_used(rank, &stream);
    CUDA(cudaMalloc((void **)&memory, COUNT * sizeof *memory));
    gpu_barrier(rank);
    if (rank->rank == 0)
        trial_begin(&waiting[0], waiting[0].count);
    gpu_barrier(rank);
    double start = ranks_seconds();
    REQUIRE_STATUS(alnico_iallreduce(ALNICO_IN_PLACE, memory, COUNT, ALNICO_FLOAT32, ALNICO_MAXIMUM,
                                     comm, &request),
                   ALNICO_SUCCESS);
    gpu_note(rank, "the call took %.3f s", ranks_seconds() - start);
    gpu_barrier(rank);
    if (rank->rank > 0)
        trial_begin(&waiting[0], waiting[0].count);
    REQUIRE_STATUS(trial_end(&waiting[0]), ALNICO_SUCCESS);
    REQUIRE_STATUS(alnico_request_synchronize(&request), ALNICO_SUCCESS);
    alnico_comm_destroy(comm);
    CUDA(cudaFree(memory));
    CUDA(cudaStreamDestroy(stream));
    close_all(waiting, LENGTH(waiting), rank);
}

/* In rounds, whoever has not met the missing rank only knows whom it waited for itself. */
static void require_named(const struct trial *t, int missing)
{
    char expected[64];
    snprintf(expected, sizeof expected, "rank %d did not come", missing);
    bool in_rounds = t->way && strcmp(t->way, "peer_recursive_doubling") == 0;
    ranks_require_detail(in_rounds ? "rank" : expected);
}

static void require_timeout(struct trial *t, const struct gpu_rank *rank, double start)
{
    alnico_status_t status = trial_end(t);
    double waited = ranks_seconds() - start;
    if (status != ALNICO_ERROR_TIMEOUT || waited > 2 * deadline)
        complain(t, rank, status, waited);
    REQUIRE_STATUS(status, ALNICO_ERROR_TIMEOUT);
    require_named(t, rank->size - 1);
    REQUIRE(waited < 2 * deadline);
    REQUIRE_STATUS(alnico_comm_status(t->site.comm), ALNICO_ERROR_TIMEOUT);
    REQUIRE_STATUS(call(t, t->count, NULL), ALNICO_ERROR_TIMEOUT); /* latched */
    require_named(t, rank->size - 1);
}

static void a_rank_that_never_calls_is_named(struct gpu_rank *rank)
{
    struct trial trials[] = EVERY_WAY;
    if (is_left_out(rank))
        return;
    open_all(trials, LENGTH(trials), rank);
    double start = ranks_seconds();
    for (int i = 0; i < LENGTH(trials) && rank->rank < rank->size - 1; i++)
        trial_begin(&trials[i], trials[i].count);
    for (int i = LENGTH(trials); i-- > 0 && rank->rank < rank->size - 1;)
        require_timeout(&trials[i], rank, start);
    gpu_note(rank, "all within %.2f s", ranks_seconds() - start);
    close_all(trials, LENGTH(trials), rank);
}

static bool has_nccl(struct gpu_rank *rank)
{
    struct gpu_site site;
    struct gpu_way nccl = gpu_way_named("nccl");
    gpu_site_open(&site, rank, MEGABYTE);
    bool here = gpu_force(&site, &nccl);
    gpu_site_close(&site);
    if (!here)
        gpu_note(rank, "not in this build");
    return here;
}

/* NCCL's kernels do not know of it, so among the last tests, where it hangs if nobody frees them.
 * What one rank aborts may end well on another, which must not take that for a result. */
static void nccl_gives_up_too(struct gpu_rank *rank)
{
    struct trial trial = {.way = "nccl", .count = 1000, .kind = BLOCKING};
    if (is_left_out(rank) || !has_nccl(rank))
        return;
    open_all(&trial, 1, rank);
    if (rank->rank < rank->size - 1) {
        double start = ranks_seconds();
        trial_begin(&trial, trial.count);
        alnico_status_t status = trial_end(&trial);
        double waited = ranks_seconds() - start;
        complain(&trial, rank, status, waited);
        REQUIRE_STATUS(status, ALNICO_ERROR_TIMEOUT);
        require_named(&trial, rank->size - 1);
        REQUIRE(waited < 2 * deadline);
    }
    close_all(&trial, 1, rank);
}

/* The first blocking call of this size waits for all ranks while NCCL is made, where there is NCCL;
 * otherwise its kernel waits. */
static void making_nccl_has_a_deadline(struct gpu_rank *rank)
{
    enum { COUNT = 6 << 20 };
    struct trial trial = {.way = NULL, .count = 100, .kind = BLOCKING};
    void *memory;
    if (is_left_out(rank))
        return;
    open_all(&trial, 1, rank);
    CUDA(cudaMalloc(&memory, COUNT * sizeof(float)));
    CUDA(cudaMemsetAsync(memory, 0, COUNT * sizeof(float), trial.site.stream));
    gpu_barrier(rank);
    if (rank->rank < rank->size - 1) {
        double start = ranks_seconds();
        alnico_status_t called = alnico_allreduce(ALNICO_IN_PLACE, memory, COUNT, ALNICO_FLOAT32,
                                                  ALNICO_SUM, trial.site.comm);
        double in_call = ranks_seconds() - start;
        alnico_status_t status = trial_end(&trial);
        double waited = ranks_seconds() - start;
        complain(&trial, rank, status, waited);
        gpu_note(rank, "%.2f s in the call", in_call);
        REQUIRE(called == ALNICO_SUCCESS || called == ALNICO_ERROR_TIMEOUT);
        REQUIRE_STATUS(status, ALNICO_ERROR_TIMEOUT);
        require_named(&trial, rank->size - 1);
        REQUIRE(waited < 2 * deadline);
    }
    close_all(&trial, 1, rank);
    CUDA(cudaFree(memory));
}

/* ---- Abort ---- */

struct abort {
    struct trial *trials;
    int number;
};

static void *abort_soon(void *argument)
{
    const struct abort *abort = argument;
    usleep(300000);
    for (int i = 0; i < 2 * abort->number; i++)
        REQUIRE_STATUS(alnico_comm_abort(abort->trials[i % abort->number].site.comm),
                       ALNICO_SUCCESS);
    return NULL;
}

/* Rank 0 is freed by another thread of its own; others learn it, or their deadline ends it. */
static void require_end(struct trial *t, const struct gpu_rank *rank, double start)
{
    alnico_status_t status = trial_end(t);
    double waited = ranks_seconds() - start, most = rank->rank ? 2 * deadline : soon;
    bool right = status == ALNICO_ERROR_ABORTED || (rank->rank && status == ALNICO_ERROR_TIMEOUT);
    if (!right || waited > most)
        complain(t, rank, status, waited);
    REQUIRE(right);
    REQUIRE(waited < most);
}

static void an_abort_frees_what_spins(struct gpu_rank *rank)
{
    struct trial trials[] = {
        {.way = "one_shot", .count = 1000, .kind = BLOCKING},
        {.way = "two_shot_line", .count = 20000, .kind = REQUEST},
        {.way = "two_shot_staged", .count = COUNT_MOST, .kind = BLOCKING},
        {.way = "one_shot", .count = 500, .kind = GRAPH},
        {.way = "shared_one_shot", .count = 1000, .kind = REQUEST},
        {.way = "shared_two_shot", .count = COUNT_MOST, .kind = BLOCKING},
        {.way = "ring", .count = 5000, .kind = BLOCKING},
    };
    struct abort abort = {trials, LENGTH(trials)};
    pthread_t thread;
    if (is_left_out(rank))
        return;
    open_all(trials, LENGTH(trials), rank);
    double start = ranks_seconds();
    for (int i = 0; i < LENGTH(trials) && rank->rank < rank->size - 1; i++)
        trial_begin(&trials[i], trials[i].count);
    if (rank->rank == 0)
        REQUIRE(pthread_create(&thread, NULL, abort_soon, &abort) == 0);
    for (int i = 0; i < LENGTH(trials) && rank->rank < rank->size - 1; i++)
        require_end(&trials[i], rank, start);
    if (rank->rank == 0)
        pthread_join(thread, NULL);
    close_all(trials, LENGTH(trials), rank);
}

/* The others' kernels may end well when rank 0's is aborted, or before they hear. */
static void nccl_aborted_is_no_success(struct gpu_rank *rank)
{
    struct trial trial = {.way = "nccl", .count = 1000, .kind = REQUEST};
    struct abort abort = {&trial, 1};
    pthread_t thread;
    if (is_left_out(rank) || !has_nccl(rank))
        return;
    open_all(&trial, 1, rank);
    double start = ranks_seconds();
    if (rank->rank < rank->size - 1)
        trial_begin(&trial, trial.count);
    if (rank->rank == 0)
        REQUIRE(pthread_create(&thread, NULL, abort_soon, &abort) == 0);
    if (rank->rank < rank->size - 1) {
        alnico_status_t status = trial_end(&trial);
        double waited = ranks_seconds() - start;
        complain(&trial, rank, status, waited);
        REQUIRE_STATUS(status, ALNICO_ERROR_ABORTED);
        ranks_require_detail("rank 0");
        REQUIRE(waited < deadline);
    }
    if (rank->rank == 0)
        pthread_join(thread, NULL);
    close_all(&trial, 1, rank);
}

/* Nobody waits first: destroy itself must not wait for the rank that does not come. */
static void aborted_and_destroyed_at_once(struct gpu_rank *rank)
{
    struct trial trials[] = {
        {.way = "one_shot", .count = 1000, .kind = BLOCKING},
        {.way = "two_shot_staged", .count = COUNT_MOST, .kind = BLOCKING},
        {.way = "shared_two_shot", .count = COUNT_MOST, .kind = BLOCKING},
    };
    if (is_left_out(rank))
        return;
    open_all(trials, LENGTH(trials), rank);
    for (int i = 0; i < LENGTH(trials) && rank->rank < rank->size - 1; i++)
        trial_begin(&trials[i], trials[i].count);
    for (int i = 0; i < LENGTH(trials); i++)
        REQUIRE_STATUS(alnico_comm_abort(trials[i].site.comm), ALNICO_SUCCESS);
    close_all(trials, LENGTH(trials), rank);
}

/* ---- Another size ---- */

/* Everybody is back in time. The host's ways say on every rank what it is; kernels whose data carry
 * flags wait for what does not come until their deadline, where others may find that all came;
 * barriers alone cannot tell. */
static void another_size_on_one_rank(struct gpu_rank *rank)
{
    struct trial trials[] = {
        {.way = "one_shot", .count = 10, .kind = BLOCKING},
        {.way = "shared_one_shot", .count = 10, .kind = BLOCKING},
        {.way = "two_shot_line", .count = 2000, .kind = BLOCKING},
        {.way = "recursive_doubling", .count = 10, .kind = BLOCKING},
        {.way = "ring", .count = 5000, .kind = BLOCKING},
        {.way = "two_shot_staged", .count = COUNT_MOST / 2, .kind = REQUEST},
    };
    enum { FLAGS = 3, TELLING = 5 }; /* the first trials are by flags, and all of these tell */
    int mine[LENGTH(trials)], all[GPU_RANKS * 2 * LENGTH(trials)] = {0};
    if (is_left_out(rank) || rank->size > 2 * GPU_RANKS)
        return;
    open_all(trials, LENGTH(trials), rank);
    double start = ranks_seconds();
    for (int i = 0; i < LENGTH(trials); i++)
        trial_begin(&trials[i], rank->rank == 1 ? 2 * trials[i].count : trials[i].count);
    for (int i = 0; i < LENGTH(trials); i++) {
        alnico_status_t status = trial_end(&trials[i]);
        mine[i] = (int)status;
        if (ranks_seconds() - start > 2 * deadline)
            complain(&trials[i], rank, status, ranks_seconds() - start);
        REQUIRE(ranks_seconds() - start < 2 * deadline);
    }
    gpu_allgather(rank, mine, all, sizeof mine);
    for (int i = 0; i < LENGTH(trials); i++) {
        int errors = 0;
        for (int r = 0; r < rank->size; r++)
            errors += all[r * LENGTH(trials) + i] != ALNICO_SUCCESS;
        gpu_note(rank, "%s: error on %d", trials[i].way, errors);
        REQUIRE(errors > 0 || i >= TELLING);
        REQUIRE(i < FLAGS || i >= TELLING || mine[i] == ALNICO_ERROR_MISMATCH);
    }
    close_all(trials, LENGTH(trials), rank);
}

int main(void)
{
    static const struct gpu_test tests[] = {
        GPU_TEST(a_late_rank_is_waited_for, 2),
        GPU_TEST(destroying_waits_for_no_other_kernel, 2),
        GPU_TEST(a_first_nonblocking_call_waits_for_no_other, 2),
        GPU_TEST(a_rank_that_never_calls_is_named, 2),
        GPU_TEST(an_abort_frees_what_spins, 2),
        GPU_TEST(aborted_and_destroyed_at_once, 2),
        GPU_TEST(another_size_on_one_rank, 2),
        GPU_TEST(making_nccl_has_a_deadline, 2),
        GPU_TEST(nccl_aborted_is_no_success, 2),
        GPU_TEST(nccl_gives_up_too, 2),
    };
    setenv("ALNICO_TIMEOUT", DEADLINE_TEXT, 1); /* before the library reads its environment */
    setenv("GPU_WATCHDOG", "30", 0);
    return gpu_world_run(tests, LENGTH(tests));
}
