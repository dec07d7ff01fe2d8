/* Collectives of blocks by every way that CUDA has for them, eager and as replayed graphs whose
 * inputs change, in registered memory and elsewhere: every element of the result, and what lies
 * around it. Types, reductions and placements are alnico-conformance's, which registers nothing.
 *
 *     gpu_collectives_cuda                  ranks as threads, on 1 to 4 GPUs one after the other
 *     mpirun -n 4 gpu_collectives_cuda      a process a GPU
 * */
#include "comm/tuning/tuning.h"
#include "tests/gpu/support/graph.h"
#include "tests/gpu/support/site.h"
#include "tests/support/reference.h"

#include <stdlib.h>
#include <string.h>

enum { AROUND = 64, REPLAYS = 5, CALLS = 3, ROOM = 24 << 20, UNTOUCHED = 0x5a5a5a5a };

#define LENGTH(array) ((int)(sizeof(array) / sizeof *(array)))

struct job {
    struct gpu_site *site;
    alnico_collective_t collective;
    const char *way;
    size_t count, misplaced; /* elements before the buffers' aligned beginning */
    int root, rank, size;
    bool in_place;
    int *send, *recv; /* on the GPU, with so many elements around */
    int *host;
    size_t length; /* of the buffers, with what is around */
};

/* ---- What it must be ---- */

static bool is_reduced_in_place(const struct job *job)
{
    return job->in_place && job->collective == ALNICO_REDUCE_SCATTER;
}

static int value(const struct job *job, int turn, int from, int block, size_t i)
{
    uint64_t where = (uint64_t)from * 64 + (uint64_t)block;
    return (int)(reference_random(job->site->rank->seed + (uint64_t)turn, where, i) >> 36);
}

static bool has_blocks(const struct job *job)
{
    return job->collective == ALNICO_ALLTOALL || job->collective == ALNICO_REDUCE_SCATTER;
}

static int expected(const struct job *job, int turn, int block, size_t i)
{
    int sum = 0;
    if (is_reduced_in_place(job) && block != job->rank)
        return value(job, turn, job->rank, block, i);
    switch (job->collective) {
    case ALNICO_ALLGATHER:
        return value(job, turn, block, 0, i);
    case ALNICO_ALLTOALL:
        return value(job, turn, block, job->rank, i);
    case ALNICO_BROADCAST:
        return value(job, turn, job->root, 0, i);
    default:
        for (int r = 0; r < job->size; r++)
            sum += value(job, turn, r, job->rank, i);
        return sum;
    }
}

static int blocks_of_result(const struct job *job)
{
    bool all = job->collective == ALNICO_ALLGATHER || job->collective == ALNICO_ALLTOALL;
    return all || is_reduced_in_place(job) ? job->size : 1;
}

static void fail(const struct job *job, const char *how, int turn, size_t at, int is, int want)
{
    fprintf(stderr, "%s of %zu by %s, %s%s, turn %d, rank %d of %d: element %ld is %d, not %d\n",
            collectives[job->collective].name, job->count, *job->way ? job->way : "the table", how,
            job->in_place ? " in place" : "", turn, job->rank, job->size,
            (long)at - (long)(AROUND + job->misplaced), is, want);
    abort();
}

static void check(const struct job *job, const char *how, int turn)
{
    size_t first = AROUND + job->misplaced, length = (size_t)blocks_of_result(job) * job->count;
    bool in_send = job->collective == ALNICO_BROADCAST || is_reduced_in_place(job);
    const int *from = in_send ? job->send : job->recv;
    CUDA(cudaMemcpyAsync(job->host, from, job->length * sizeof(int), cudaMemcpyDeviceToHost,
                         job->site->stream));
    CUDA(cudaStreamSynchronize(job->site->stream));
    for (size_t i = 0; i < job->length; i++) {
        bool inside = i >= first && i - first < length;
        int want =
            inside ? expected(job, turn, (int)((i - first) / job->count), (i - first) % job->count)
                   : UNTOUCHED;
        if (job->host[i] != want)
            fail(job, how, turn, i, job->host[i], want);
    }
}

/* ---- Calls ---- */

static int *own_block(const struct job *job, int *buffer)
{
    return buffer + AROUND + job->misplaced + (size_t)job->rank * job->count;
}

static void fill(const struct job *job, int turn)
{
    size_t first = AROUND + job->misplaced;
    int blocks = has_blocks(job) ? job->size : 1;
    bool has_input = job->collective != ALNICO_BROADCAST || job->rank == job->root;
    for (size_t i = 0; i < job->length; i++)
        job->host[i] = UNTOUCHED;
    for (int b = 0; b < blocks && has_input; b++)
        for (size_t i = 0; i < job->count; i++)
            job->host[first + (size_t)b * job->count + i] = value(job, turn, job->rank, b, i);
    CUDA(cudaMemcpyAsync(job->send, job->host, job->length * sizeof(int), cudaMemcpyHostToDevice,
                         job->site->stream));
    CUDA(cudaMemsetAsync(job->recv, 0x5a, job->length * sizeof(int), job->site->stream));
    if (job->in_place && job->collective == ALNICO_ALLGATHER)
        CUDA(cudaMemcpyAsync(own_block(job, job->recv), job->host + first, job->count * sizeof(int),
                             cudaMemcpyHostToDevice, job->site->stream));
    CUDA(cudaStreamSynchronize(job->site->stream));
}

static alnico_status_t call(const struct job *job)
{
    int *send = job->send + AROUND + job->misplaced, *recv = job->recv + AROUND + job->misplaced;
    alnico_comm_t comm = job->site->comm;
    if (is_reduced_in_place(job))
        recv = own_block(job, job->send);
    else if (job->in_place)
        send = own_block(job, job->recv);
    switch (job->collective) {
    case ALNICO_ALLGATHER:
        return alnico_allgather(send, recv, job->count, ALNICO_INT32, comm);
    case ALNICO_ALLTOALL:
        return alnico_alltoall(send, recv, job->count, ALNICO_INT32, comm);
    case ALNICO_BROADCAST:
        return alnico_broadcast(send, job->count, ALNICO_INT32, job->root, comm);
    default:
        return alnico_reduce_scatter(send, recv, job->count, ALNICO_INT32, ALNICO_SUM, comm);
    }
}

/* False: this way cannot do it, on any rank. */
static bool run_eager(const struct job *job)
{
    for (int turn = 0; turn < REPLAYS; turn++) {
        fill(job, turn);
        alnico_status_t status = call(job);
        if (status == ALNICO_ERROR_UNSUPPORTED && *job->way)
            return false;
        REQUIRE_STATUS(status, ALNICO_SUCCESS);
        check(job, "eager", turn);
    }
    return true;
}

/* Several calls and a barrier in a graph; the last ones overtake nothing. What is reduced in place
 * is the next one's input, so that there is only one. */
static void run_captured(const struct job *job)
{
    gpu_capture_begin(job->site);
    for (int i = 0; i < (is_reduced_in_place(job) ? 1 : CALLS); i++) {
        REQUIRE_STATUS(call(job), ALNICO_SUCCESS);
        if (i == 0 && job->size > 1)
            REQUIRE_STATUS(alnico_barrier(job->site->comm), ALNICO_SUCCESS);
    }
    cudaGraphExec_t graph = gpu_capture_end(job->site);
    for (int turn = 10; turn < 10 + REPLAYS; turn++) {
        fill(job, turn);
        gpu_replay(job->site, graph);
        check(job, "captured", turn);
    }
    CUDA(cudaGraphExecDestroy(graph));
}

/* ---- Ways ---- */

static bool is_capturable(const struct job *job, const struct backend *backend)
{
    return backend && backend->ops->capturable && job->size > 1;
}

static const size_t counts[] = {1,    2,     3,      29,     30,     31,    1000,
                                4099, 20000, 131072, 200001, 140004, 400000};

/* How many of them are blocks for one_shot_direct: multiples of 16 bytes. */
static int direct_counts(void)
{
    int number = 0;
    for (int i = 0; i < LENGTH(counts); i++)
        number += counts[i] * sizeof(int) % 16 == 0;
    return number;
}

static int run_counts(struct job *job, const struct backend *backend, struct gpu_arena *memory)
{
    int run = 0;
    for (int i = 0; i < LENGTH(counts); i++) {
        job->count = counts[i];
        job->misplaced = (size_t)i % 3;
        job->root = i % job->size;
        job->length = (size_t)job->size * job->count + 2 * AROUND;
        job->send = (int *)gpu_arena_take(memory, job->length * sizeof(int));
        job->recv = (int *)gpu_arena_take(memory, job->length * sizeof(int));
        bool done = run_eager(job);
        if (done && is_capturable(job, backend))
            run_captured(job);
        run += done;
        gpu_arena_give(memory);
        gpu_arena_give(memory);
    }
    return run;
}

static void run_way(struct job *job, const struct algorithm *way, const struct backend *backend)
{
    job->way = way ? way->name : "";
    alnico_status_t status =
        alnico_comm_set_algorithm(job->site->comm, job->collective, way ? way->name : NULL);
    if (status == ALNICO_ERROR_UNSUPPORTED && way)
        return;
    REQUIRE_STATUS(status, ALNICO_SUCCESS);
    int plain = run_counts(job, backend, &job->site->plain);
    int shared = run_counts(job, backend, &job->site->shared);
    bool direct = strcmp(job->way, "one_shot_direct") == 0 && job->size > 1;
    REQUIRE(!direct || (plain == 0 && shared == direct_counts()));
    if (job->collective == ALNICO_ALLGATHER || job->collective == ALNICO_REDUCE_SCATTER) {
        job->in_place = true;
        int placed = run_counts(job, backend, &job->site->shared);
        job->in_place = false;
        REQUIRE(!direct || placed == direct_counts());
        shared += placed;
    }
    gpu_note(job->site->rank, "%s %d", way ? way->name : "table", plain + shared);
}

static void run_collective(struct gpu_rank *rank, alnico_collective_t collective)
{
    const struct backend *backend;
    const struct algorithm *way;
    struct gpu_site site;
    gpu_site_open(&site, rank, ROOM);
    struct job job = {.site = &site, .collective = collective};
    job.rank = rank->rank;
    job.size = rank->size;
    job.host = malloc(ROOM);
    REQUIRE(job.host != NULL);
    run_way(&job, NULL, NULL);
    for (int i = 0; (way = backend_algorithm_at(ALNICO_DEVICE_CUDA, collective, i, &backend)); i++)
        run_way(&job, way, backend);
    free(job.host);
    gpu_site_close(&site);
}

static void allgather(struct gpu_rank *rank)
{
    run_collective(rank, ALNICO_ALLGATHER);
}

static void alltoall(struct gpu_rank *rank)
{
    run_collective(rank, ALNICO_ALLTOALL);
}

static void broadcast(struct gpu_rank *rank)
{
    run_collective(rank, ALNICO_BROADCAST);
}

static void reduce_scatter(struct gpu_rank *rank)
{
    run_collective(rank, ALNICO_REDUCE_SCATTER);
}

int main(void)
{
    static const struct gpu_test tests[] = {
        GPU_TEST(allgather, 1),
        GPU_TEST(alltoall, 1),
        GPU_TEST(broadcast, 1),
        GPU_TEST(reduce_scatter, 1),
    };
    return gpu_world_run(tests, LENGTH(tests));
}
