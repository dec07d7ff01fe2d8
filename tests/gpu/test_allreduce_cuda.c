/*
 * Every type, operation and algorithm of CUDA by the table of cases that the CPU passes too: in and
 * out of place, blocking and not, registered and not, at counts around every switch point and tail,
 * at any alignment; the same bits on every rank and in every run; streams of each kind, and what
 * they order.
 *
 *     gpu_allreduce_cuda                  ranks as threads, on 1 to 4 GPUs one after the other
 *     mpirun -n 4 gpu_allreduce_cuda      a process a GPU
 */
#include "base/datatype.h"
#include "comm/communicator/comm.h"
#include "tests/gpu/support/site.h"
#include "tests/support/reference.h"

#include <stdlib.h>
#include <string.h>

enum { MEGABYTE = 1 << 20, SMALL = MEGABYTE, LARGE = 24 * MEGABYTE };

#define LENGTH(array) ((int)(sizeof(array) / sizeof *(array)))

/* ---- The table of cases ---- */

static void every_type_and_operation(struct gpu_rank *rank)
{
    static const size_t counts[] = {37};
    struct gpu_site site;
    gpu_site_open(&site, rank, SMALL);
    struct cases cases = {.memory = &site.memory,
                          .comm = site.comm,
                          .counts = counts,
                          .number = LENGTH(counts),
                          .seed = rank->seed};
    cases_run_table(&cases);
    gpu_note(rank, "%d cases", cases.run);
    gpu_site_close(&site);
}

/* Types x operations for each way, by turns in and out of place, blocking, registered, at small
 * counts. */
static void run_ways(struct gpu_site *site, bool tell)
{
    static const size_t counts[] = {0, 1, 2, 3, 7, 8, 31, 120, 127, 128, 1000};
    struct gpu_way way;
    for (int i = 0; gpu_way_at(i, &way); i++) {
        if (!gpu_force(site, &way))
            continue;
        struct cases cases = {.memory = &site->memory,
                              .comm = site->comm,
                              .counts = counts,
                              .number = LENGTH(counts),
                              .thin = true,
                              .seed = site->rank->seed + (uint64_t)i * 10000,
                              .may_refuse = gpu_may_refuse,
                              .argument = &way};
        cases_run_table(&cases);
        if (tell)
            gpu_note(site->rank, "%s %d", gpu_way_name(&way), cases.run - cases.refused);
        if (!gpu_way_is(&way, "nccl"))
            REQUIRE(cases.refused < cases.run);
    }
}

static void every_algorithm(struct gpu_rank *rank)
{
    struct gpu_site site;
    gpu_site_open(&site, rank, SMALL);
    run_ways(&site, true);
    gpu_site_close(&site);
}

/* Registered memory of the driver's calls, and the legacy default stream. */
static void every_algorithm_in_mapped_memory(struct gpu_rank *rank)
{
    struct gpu_site site;
    gpu_site_open_on(&site, rank, SMALL, NULL, GPU_MAPPED);
    run_ways(&site, false);
    gpu_site_close(&site);
}

/* ---- Counts ---- */

struct kind {
    alnico_datatype_t type;
    alnico_op_t op;
};

/* Those with kernels of their own, and others. */
static const struct kind kinds[] = {
    {ALNICO_FLOAT32, ALNICO_SUM},     {ALNICO_BFLOAT16, ALNICO_SUM},
    {ALNICO_INT8, ALNICO_SUM},        {ALNICO_FLOAT64, ALNICO_AVERAGE},
    {ALNICO_FLOAT16, ALNICO_AVERAGE}, {ALNICO_FLOAT32, ALNICO_MAXIMUM},
    {ALNICO_INT64, ALNICO_PRODUCT},
};

/* One turn of the way at a count: kinds, ways to call and alignments follow each other. */
static bool run_count(struct gpu_site *site, const struct gpu_way *way, size_t count, int turn)
{
    const struct kind *kind = &kinds[turn % LENGTH(kinds)];
    struct allreduce_case c = {.count = count,
                               .type = kind->type,
                               .op = kind->op,
                               .in_place = turn & 1,
                               .registered = turn & 2,
                               .how = turn & 4 ? HOW_NONBLOCKING : HOW_BLOCKING,
                               .offset = turn & 8 ? (size_t)(turn % 5) : 0};
    c.may_refuse = gpu_may_refuse(&c, way);
    return cases_run_in(&site->memory, site->comm, &c, site->rank->seed + (uint64_t)turn);
}

static void every_count(struct gpu_rank *rank)
{
    static const size_t counts[] = {4095, 4096, 4097, 10007, 65535, 65536, 65537, 262145, 1000003};
    static const int aligned[] = {112, 35,
                                  50}; /* turns of float32 and bfloat16, registered or not */
    struct gpu_site site;
    struct gpu_way way;
    int turn = 0, run = 0;
    gpu_site_open(&site, rank, LARGE);
    for (int i = 0; gpu_way_at(i, &way); i++) {
        if (!gpu_force(&site, &way))
            continue;
        for (int k = 0; k < LENGTH(counts); k++)
            for (int again = 0; again < (counts[k] < 10000    ? 16
                                         : counts[k] < 200000 ? 3
                                                              : 1);
                 again++)
                run += run_count(&site, &way, counts[k], turn++);
        for (int again = 0; again < LENGTH(aligned); again++)
            run += run_count(&site, &way, 1000003, aligned[again]);
    }
    gpu_note(rank, "%d calls", run);
    gpu_site_close(&site);
}

/* By the table, at and around the bytes at which it goes another way. */
static void switch_points(struct gpu_rank *rank)
{
    struct gpu_site site;
    struct gpu_way table;
    int turn = 0;
    gpu_site_open(&site, rank, LARGE);
    gpu_way_at(0, &table);
    for (int mode = 0; mode <= MODE_REGISTERED; mode++) {
        const struct tuning_step *step = site.comm->tuning.of[ALNICO_ALLREDUCE][mode];
        for (; step->choice.backend; step++)
            for (int off = -1; off <= 1 && step->bytes <= 8 * MEGABYTE; off++) {
                struct allreduce_case c = {.count = step->bytes / 4 + (size_t)off,
                                           .type = ALNICO_FLOAT32,
                                           .op = ALNICO_SUM,
                                           .in_place = turn++ % 2,
                                           .registered = mode == MODE_REGISTERED};
                cases_run_in(&site.memory, site.comm, &c, rank->seed + (uint64_t)turn);
            }
    }
    REQUIRE(turn > 0);
    gpu_note(rank, "%d calls", turn);
    gpu_site_close(&site);
}

/* 64 MB and a little, in one piece and through the table. */
static void large_vectors(struct gpu_rank *rank)
{
    enum { COUNT = 16 * MEGABYTE + 5 };
    struct gpu_site site;
    gpu_site_open(&site, rank, 160 * MEGABYTE);
    struct allreduce_case c = {.count = COUNT, .type = ALNICO_FLOAT32, .op = ALNICO_SUM};
    cases_run_in(&site.memory, site.comm, &c, rank->seed);
    c.registered = c.in_place = true;
    cases_run_in(&site.memory, site.comm, &c, rank->seed + 1);
    gpu_site_close(&site);
}

/* ---- The same bits ---- */

static uint64_t hash_once(struct gpu_site *site, const struct gpu_vector *v, char *send, char *recv,
                          bool check)
{
    CUDA(cudaMemsetAsync(recv, 0x5a, gpu_vector_bytes(v), site->stream));
    REQUIRE_STATUS(alnico_allreduce(send, recv, v->count, v->type, v->op, site->comm),
                   ALNICO_SUCCESS);
    REQUIRE_STATUS(alnico_synchronize(site->comm), ALNICO_SUCCESS);
    return check ? gpu_verify(site, recv, v, "a repeated run")
                 : gpu_hash(site, recv, gpu_vector_bytes(v));
}

/* The bits of ten runs, on this communicator, are those of the first. */
static uint64_t repeat(struct gpu_site *site, const struct gpu_way *way, size_t count)
{
    struct gpu_vector v = {count, ALNICO_FLOAT32, ALNICO_SUM, site->rank->seed};
    char *send = gpu_arena_take(&site->shared, gpu_vector_bytes(&v));
    char *recv = gpu_arena_take(&site->shared, gpu_vector_bytes(&v));
    struct allreduce_case c = {.count = count, .type = v.type, .op = v.op, .registered = true};
    uint64_t first = 0;
    gpu_fill(site, send, &v);
    for (int again = 0; again < 10 && !gpu_may_refuse(&c, way); again++) {
        uint64_t hash = hash_once(site, &v, send, recv, again == 0);
        first = again ? first : hash;
        REQUIRE(hash == first);
    }
    REQUIRE(gpu_same(site, first));
    gpu_arena_give(&site->shared);
    gpu_arena_give(&site->shared);
    return first;
}

static void repeated_runs(struct gpu_rank *rank)
{
    static const size_t counts[] = {1000, 8000, 70001};
    struct gpu_site a, b;
    struct gpu_way way;
    gpu_site_open(&a, rank, SMALL);
    gpu_site_open(&b, rank, SMALL);
    for (int i = 0; gpu_way_at(i, &way); i++)
        for (int k = 0; k < LENGTH(counts); k++)
            if (gpu_force(&a, &way) && gpu_force(&b, &way))
                REQUIRE(repeat(&a, &way, counts[k]) == repeat(&b, &way, counts[k]));
    gpu_site_close(&b);
    gpu_site_close(&a);
}

/* ---- Streams ---- */

static void streams_of_each_kind(struct gpu_rank *rank)
{
    cudaStream_t blocking, urgent;
    int least, greatest;
    CUDA(cudaStreamCreate(&blocking));
    CUDA(cudaDeviceGetStreamPriorityRange(&least, &greatest));
    CUDA(cudaStreamCreateWithPriority(&urgent, cudaStreamNonBlocking, greatest));
    cudaStream_t streams[] = {NULL, blocking, urgent};
    for (int i = 0; i < LENGTH(streams); i++) {
        struct gpu_site site;
        gpu_site_open_on(&site, rank, LARGE, streams[i], GPU_MALLOC);
        struct gpu_way table;
        gpu_way_at(0, &table);
        for (int turn = 0; turn < 16; turn++)
            run_count(&site, &table, turn < 12 ? 1000 : 300001, turn);
        gpu_site_close(&site);
    }
    CUDA(cudaStreamDestroy(blocking));
    CUDA(cudaStreamDestroy(urgent));
}

/* What was enqueued before is seen, what comes after sees it, and the host waits for nothing in
 * between: each result is the next input. After k sums of equal inputs an element has grown by
 * size^k. */
static void chain(struct gpu_site *site, size_t count, bool nonblocking)
{
    enum { STEPS = 8 };
    size_t bytes = count * sizeof(uint64_t);
    uint64_t *host = malloc(bytes), expected = 1;
    char *a = gpu_arena_take(&site->plain, bytes), *b = gpu_arena_take(&site->plain, bytes);
    for (size_t i = 0; i < count; i++)
        host[i] = i;
    CUDA(cudaMemcpyAsync(a, host, bytes, cudaMemcpyHostToDevice, site->stream));
    for (int k = 0; k < STEPS; k++) {
        alnico_request_t request;
        CUDA(cudaMemsetAsync(b, 0x5a, bytes, site->stream));
        if (nonblocking) {
            REQUIRE_STATUS(
                alnico_iallreduce(a, b, count, ALNICO_UINT64, ALNICO_SUM, site->comm, &request),
                ALNICO_SUCCESS);
            REQUIRE_STATUS(alnico_wait(&request), ALNICO_SUCCESS);
        } else {
            REQUIRE_STATUS(alnico_allreduce(a, b, count, ALNICO_UINT64, ALNICO_SUM, site->comm),
                           ALNICO_SUCCESS);
        }
        CUDA(cudaMemcpyAsync(a, b, bytes, cudaMemcpyDeviceToDevice, site->stream));
        expected *= (uint64_t)site->rank->size;
    }
    CUDA(cudaMemcpyAsync(host, a, bytes, cudaMemcpyDeviceToHost, site->stream));
    CUDA(cudaStreamSynchronize(site->stream));
    for (size_t i = 0; i < count; i++)
        REQUIRE(host[i] == i * expected);
    free(host);
    gpu_arena_give(&site->plain);
    gpu_arena_give(&site->plain);
}

static void the_stream_orders_it(struct gpu_rank *rank)
{
    struct gpu_site site;
    struct gpu_way way;
    gpu_site_open(&site, rank, LARGE);
    for (int i = 0; gpu_way_at(i, &way); i++)
        if (strcmp(gpu_way_name(&way), "nccl_symmetric") != 0 &&
            strcmp(gpu_way_name(&way), "two_shot_direct") != 0 && gpu_force(&site, &way))
            for (int k = 0; k < 4; k++)
                chain(&site, k < 2 ? 100 : 4000, k % 2);
    gpu_site_close(&site);
}

/* ---- Requests and parts ---- */

static void end(alnico_request_t *request, int how)
{
    bool done = false;
    if (how == 0)
        REQUIRE_STATUS(alnico_wait(request), ALNICO_SUCCESS);
    else if (how == 1)
        REQUIRE_STATUS(alnico_request_synchronize(request), ALNICO_SUCCESS);
    else
        while (!done)
            REQUIRE_STATUS(alnico_test(request, &done), ALNICO_SUCCESS);
    REQUIRE(*request == NULL);
}

static void requests_in_any_order(struct gpu_rank *rank)
{
    enum { JOBS = 12, COUNT = 3000 };
    struct gpu_site site;
    alnico_request_t requests[JOBS];
    struct gpu_vector v[JOBS];
    char *memory[JOBS];
    gpu_site_open(&site, rank, SMALL);
    for (int j = 0; j < JOBS; j++) {
        v[j] = (struct gpu_vector){COUNT, j % 2 ? ALNICO_INT32 : ALNICO_FLOAT32,
                                   j % 3 ? ALNICO_SUM : ALNICO_MAXIMUM, rank->seed + (uint64_t)j};
        memory[j] = gpu_arena_take(j % 4 ? &site.plain : &site.shared, gpu_vector_bytes(&v[j]));
        gpu_fill(&site, memory[j], &v[j]);
    }
    for (int j = 0; j < JOBS; j++)
        REQUIRE_STATUS(alnico_iallreduce(ALNICO_IN_PLACE, memory[j], COUNT, v[j].type, v[j].op,
                                         site.comm, &requests[j]),
                       ALNICO_SUCCESS);
    for (int k = 0; k < JOBS; k++)
        end(&requests[(k * 7 + rank->rank) % JOBS], k % 3);
    for (int j = 0; j < JOBS; j++) {
        gpu_verify(&site, memory[j], &v[j], "a request");
        gpu_arena_give(j % 4 ? &site.plain : &site.shared);
    }
    gpu_site_close(&site);
}

/* Parts whose ranks are in the reverse order; ways of their own, also for one rank of an odd
 * number. */
static void parts_and_duplicates(struct gpu_rank *rank)
{
    struct gpu_site site, part;
    alnico_comm_t comm, twin;
    cudaStream_t stream;
    CUDA(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    gpu_site_open(&site, rank, SMALL);
    for (int whole = 0; whole < 2; whole++) {
        int color = whole ? 0 : rank->rank % 2;
        REQUIRE_STATUS(alnico_comm_split(site.comm, color, -rank->rank, stream, &comm),
                       ALNICO_SUCCESS);
        REQUIRE_STATUS(alnico_comm_split(site.twin, color, -rank->rank, NULL, &twin),
                       ALNICO_SUCCESS);
        gpu_site_wrap(&part, rank, SMALL, stream, GPU_MALLOC, comm, twin);
        run_ways(&part, false);
        gpu_try(&site, 999, "beside a part");
        gpu_site_close(&part);
    }
    REQUIRE_STATUS(alnico_comm_duplicate(site.comm, stream, &comm), ALNICO_SUCCESS);
    REQUIRE_STATUS(alnico_comm_duplicate(site.twin, NULL, &twin), ALNICO_SUCCESS);
    gpu_site_close(&site);
    gpu_site_wrap(&part, rank, SMALL, stream, GPU_MAPPED, comm, twin);
    gpu_try(&part, 5000, "a duplicate that outlives its origin");
    gpu_site_close(&part);
    CUDA(cudaStreamDestroy(stream));
}

int main(void)
{
    static const struct gpu_test tests[] = {
        GPU_TEST(every_type_and_operation, 1),
        GPU_TEST(every_algorithm, 1),
        GPU_TEST(every_algorithm_in_mapped_memory, 1),
        GPU_TEST(every_count, 1),
        GPU_TEST(switch_points, 1),
        GPU_TEST(large_vectors, 2),
        GPU_TEST(repeated_runs, 1),
        GPU_TEST(streams_of_each_kind, 1),
        GPU_TEST(the_stream_orders_it, 1),
        GPU_TEST(requests_in_any_order, 1),
        GPU_TEST(parts_and_duplicates, 1),
    };
    return gpu_world_run(tests, LENGTH(tests));
}
