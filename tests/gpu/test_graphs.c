/*
 * CUDA graphs of allreduces: captured once and replayed with new inputs, by every way that can be
 * captured, between eager calls, several graphs and several communicators; nonblocking calls that
 * are waited for before the capture ends; and what cannot be captured, which is refused and leaves
 * stream and communicator usable.
 *
 *     gpu_graphs                  ranks as threads, on 1 to 4 GPUs one after the other
 *     mpirun -n 4 gpu_graphs      a process a GPU; captures there forbid unsafe calls of all threads
 */
#include "tests/gpu/support/graph.h"
#include "tests/support/reference.h"

#include <stddef.h>

enum { MEGABYTE = 1 << 20 };

#define LENGTH(array) ((int)(sizeof(array) / sizeof *(array)))

/* ---- By every way ---- */

static void every_way_is_replayed(struct gpu_rank *rank)
{
    struct gpu_site site;
    struct gpu_way way;
    gpu_site_open(&site, rank, 4 * MEGABYTE);
    bool can = gpu_can_capture(&site);
    for (int i = 0; can && gpu_way_at(i, &way); i++) {
        struct gpu_recording a, b;
        if (!gpu_way_captures(&way) || !gpu_force(&site, &way))
            continue;
        gpu_record(&site, &a, &way, 3 * i);
        gpu_record(&site, &b, &way, 3 * i + 1);
        for (int again = 0; again < 3; again++) {
            uint64_t seed = rank->seed + (uint64_t)(100 * i + 30 * again);
            gpu_recording_run(&site, &a, seed, true);
            gpu_recording_run(&site, again ? &a : &b, seed + 10, false); /* eager */
            gpu_recording_run(&site, &b, seed + 20, true);
        }
        gpu_note(rank, "%s %d", gpu_way_name(&way), a.count + b.count);
        gpu_recording_close(&a);
        gpu_recording_close(&b);
    }
    if (!can)
        gpu_note(rank, "nothing to capture without NCCL on one rank");
    gpu_site_close(&site);
}

/* ---- Order ---- */

static cudaGraphExec_t capture_sums(struct gpu_tally *tally, int sums)
{
    gpu_capture_begin(tally->site);
    for (int i = 0; i < sums; i++)
        gpu_tally_call(tally, tally->site->comm, i % 3 == 2);
    return gpu_capture_end(tally->site);
}

/* Replays of three graphs and eager calls of both kinds, without the host waiting for any. */
static void interleave(struct gpu_site *site, size_t count, uint64_t seed)
{
    enum { GRAPHS = 3, STEPS = 120 };
    struct gpu_tally tally;
    cudaGraphExec_t graphs[GRAPHS];
    gpu_tally_open(&tally, site, count);
    for (int g = 0; g < GRAPHS; g++)
        graphs[g] = capture_sums(&tally, g + 1);
    for (uint64_t i = 0; i < STEPS; i++) {
        int what = (int)(reference_random(seed, i, count) % (GRAPHS + 2));
        if (what < GRAPHS)
            gpu_replay(site, graphs[what]);
        else
            gpu_tally_call(&tally, site->comm, what == GRAPHS);
        gpu_tally_add(&tally, what < GRAPHS ? what + 1 : 1);
    }
    REQUIRE_STATUS(alnico_synchronize(site->comm), ALNICO_SUCCESS);
    gpu_tally_close(&tally, "replays among eager calls");
    for (int g = 0; g < GRAPHS; g++)
        CUDA(cudaGraphExecDestroy(graphs[g]));
}

static void replays_among_eager_calls(struct gpu_rank *rank)
{
    static const size_t counts[] = {1, 100, 3000, 20000, 100000};
    struct gpu_site site;
    struct gpu_way way;
    gpu_site_open(&site, rank, 2 * MEGABYTE);
    bool can = gpu_can_capture(&site);
    for (int i = 0; can && gpu_way_at(i, &way); i++) {
        if (!gpu_way_captures(&way) || !gpu_force(&site, &way))
            continue;
        for (int k = 0; k < LENGTH(counts); k++) {
            struct allreduce_case c = {.count = counts[k], .type = ALNICO_UINT64, .op = ALNICO_SUM};
            if (!gpu_may_refuse(&c, &way))
                interleave(&site, counts[k], rank->seed);
        }
    }
    gpu_site_close(&site);
}

/* Captured once, replayed a thousand times in a row. */
static void many_replays(struct gpu_rank *rank)
{
    enum { REPLAYS = 1000, SUMS = 20 };
    struct gpu_site site;
    struct gpu_tally tally;
    gpu_site_open(&site, rank, MEGABYTE);
    if (gpu_can_capture(&site)) {
        gpu_tally_open(&tally, &site, 500);
        cudaGraphExec_t graph = capture_sums(&tally, SUMS);
        for (int i = 0; i < REPLAYS; i++) {
            gpu_replay(&site, graph);
            gpu_tally_add(&tally, SUMS);
        }
        REQUIRE_STATUS(alnico_synchronize(site.comm), ALNICO_SUCCESS);
        gpu_tally_close(&tally, "a thousand replays");
        CUDA(cudaGraphExecDestroy(graph));
    }
    gpu_site_close(&site);
}

/* ---- Several communicators ---- */

/* Two on one stream, one after the other in each graph and between the replays. */
static void two_communicators_on_a_stream(struct gpu_rank *rank)
{
    struct gpu_site site;
    struct gpu_tally tally;
    alnico_comm_t other;
    gpu_site_open(&site, rank, MEGABYTE);
    REQUIRE_STATUS(alnico_comm_duplicate(site.comm, site.stream, &other), ALNICO_SUCCESS);
    if (gpu_can_capture(&site)) {
        gpu_tally_open(&tally, &site, 2000);
        gpu_capture_begin(&site);
        for (int i = 0; i < 4; i++)
            gpu_tally_call(&tally, i % 2 ? other : site.comm, i > 1);
        cudaGraphExec_t graph = gpu_capture_end(&site);
        for (int i = 0; i < 20; i++) {
            gpu_replay(&site, graph);
            gpu_tally_call(&tally, i % 3 ? other : site.comm, i % 2);
            gpu_tally_add(&tally, 5);
        }
        REQUIRE_STATUS(alnico_synchronize(other), ALNICO_SUCCESS);
        REQUIRE_STATUS(alnico_synchronize(site.comm), ALNICO_SUCCESS);
        gpu_tally_close(&tally, "two communicators on a stream");
        CUDA(cudaGraphExecDestroy(graph));
    }
    alnico_comm_destroy(other);
    gpu_site_close(&site);
}

/* The second stream joins the capture of the first, and runs beside it. */
static cudaGraphExec_t capture_fork(struct gpu_site *site, cudaStream_t beside, cudaEvent_t fork,
                                    cudaEvent_t join, struct gpu_tally *a, struct gpu_tally *b,
                                    alnico_comm_t other)
{
    gpu_capture_begin(site);
    CUDA(cudaEventRecord(fork, site->stream));
    CUDA(cudaStreamWaitEvent(beside, fork, 0));
    gpu_tally_call(b, other, false);
    gpu_tally_call(a, site->comm, false);
    gpu_tally_call(b, other, true);
    gpu_tally_call(a, site->comm, true);
    CUDA(cudaEventRecord(join, beside));
    CUDA(cudaStreamWaitEvent(site->stream, join, 0));
    return gpu_capture_end(site);
}

static void two_streams_in_a_graph(struct gpu_rank *rank)
{
    struct gpu_site site;
    struct gpu_tally a, b;
    cudaStream_t beside;
    cudaEvent_t fork, join;
    alnico_comm_t other;
    gpu_site_open(&site, rank, MEGABYTE);
    CUDA(cudaStreamCreateWithFlags(&beside, cudaStreamNonBlocking));
    CUDA(cudaEventCreateWithFlags(&fork, cudaEventDisableTiming));
    CUDA(cudaEventCreateWithFlags(&join, cudaEventDisableTiming));
    REQUIRE_STATUS(alnico_comm_duplicate(site.comm, beside, &other), ALNICO_SUCCESS);
    if (gpu_can_capture(&site)) {
        gpu_tally_open(&a, &site, 300);
        gpu_tally_open(&b, &site, 700);
        cudaGraphExec_t graph = capture_fork(&site, beside, fork, join, &a, &b, other);
        for (int i = 0; i < 50; i++) {
            gpu_replay(&site, graph);
            gpu_tally_add(&a, 2);
            gpu_tally_add(&b, 2);
        }
        REQUIRE_STATUS(alnico_synchronize(site.comm), ALNICO_SUCCESS);
        REQUIRE_STATUS(alnico_synchronize(other), ALNICO_SUCCESS);
        gpu_tally_close(&b, "a second stream in a graph");
        gpu_tally_close(&a, "the first stream of a graph");
        CUDA(cudaGraphExecDestroy(graph));
    }
    alnico_comm_destroy(other);
    CUDA(cudaEventDestroy(fork));
    CUDA(cudaEventDestroy(join));
    gpu_site_close(&site);
    CUDA(cudaStreamDestroy(beside));
}

/* ---- Nonblocking ---- */

/* Two in flight, other work of the stream meanwhile, waited for in the reverse order. */
static void requests_end_in_the_capture(struct gpu_rank *rank)
{
    struct gpu_site site;
    struct gpu_tally a, b;
    alnico_request_t first, second;
    gpu_site_open(&site, rank, MEGABYTE);
    if (gpu_can_capture(&site)) {
        char *other = gpu_arena_take(&site.plain, 4096);
        gpu_tally_open(&a, &site, 900);
        gpu_tally_open(&b, &site, 50);
        gpu_capture_begin(&site);
        REQUIRE_STATUS(alnico_iallreduce(ALNICO_IN_PLACE, a.memory, a.count, ALNICO_UINT64,
                                         ALNICO_SUM, site.comm, &first),
                       ALNICO_SUCCESS);
        CUDA(cudaMemsetAsync(other, 1, 4096, site.stream));
        REQUIRE_STATUS(alnico_iallreduce(ALNICO_IN_PLACE, b.memory, b.count, ALNICO_UINT64,
                                         ALNICO_SUM, site.comm, &second),
                       ALNICO_SUCCESS);
        REQUIRE_STATUS(alnico_wait(&second), ALNICO_SUCCESS);
        REQUIRE_STATUS(alnico_wait(&first), ALNICO_SUCCESS);
        gpu_tally_call(&b, site.comm, false);
        cudaGraphExec_t graph = gpu_capture_end(&site);
        for (int i = 0; i < 10; i++) {
            gpu_replay(&site, graph);
            gpu_tally_call(&a, site.comm, i % 2);
            gpu_tally_add(&a, 2);
            gpu_tally_add(&b, 2);
        }
        REQUIRE_STATUS(alnico_synchronize(site.comm), ALNICO_SUCCESS);
        gpu_tally_close(&b, "the second request");
        gpu_tally_close(&a, "the first request");
        gpu_arena_give(&site.plain);
        CUDA(cudaGraphExecDestroy(graph));
    }
    gpu_site_close(&site);
}

/* ---- The first call ---- */

static bool has_nccl(struct gpu_site *site)
{
    struct gpu_way way, table;
    bool has = false;
    gpu_way_at(0, &table);
    for (int i = 0; !has && gpu_way_at(i, &way); i++)
        has = gpu_way_is(&way, "nccl") && gpu_force(site, &way);
    REQUIRE(gpu_force(site, &table));
    return has;
}

/* A rooted reduce of whole numbers, which is NCCL's, as the first call of a communicator. */
static void the_first_call_is_captured(struct gpu_rank *rank)
{
    struct gpu_site site;
    alnico_comm_t first;
    gpu_site_open(&site, rank, MEGABYTE);
    if (rank->size > 1 && has_nccl(&site)) {
        int64_t *value = gpu_arena_take(&site.plain, sizeof *value), host = 1;
        REQUIRE_STATUS(alnico_comm_duplicate(site.comm, site.stream, &first), ALNICO_SUCCESS);
        CUDA(cudaMemcpy(value, &host, sizeof host, cudaMemcpyHostToDevice));
        gpu_capture_begin(&site);
        REQUIRE_STATUS(alnico_reduce(rank->rank ? value : ALNICO_IN_PLACE, value, 1, ALNICO_INT64,
                                     ALNICO_SUM, 0, first),
                       ALNICO_SUCCESS);
        cudaGraphExec_t graph = gpu_capture_end(&site);
        gpu_replay(&site, graph);
        REQUIRE_STATUS(alnico_synchronize(first), ALNICO_SUCCESS);
        CUDA(cudaMemcpy(&host, value, sizeof host, cudaMemcpyDeviceToHost));
        REQUIRE(host == (rank->rank ? 1 : rank->size));
        gpu_arena_give(&site.plain);
        CUDA(cudaGraphExecDestroy(graph));
        alnico_comm_destroy(first);
    }
    gpu_site_close(&site);
}

/* ---- What cannot be captured ---- */

static void refuse_in_a_capture(struct gpu_site *site, const struct gpu_way *way)
{
    float *memory = gpu_arena_take(&site->plain, 4000);
    alnico_request_t request = NULL;
    REQUIRE(gpu_force(site, way));
    gpu_capture_begin(site);
    REQUIRE_STATUS(
        alnico_allreduce(ALNICO_IN_PLACE, memory, 1000, ALNICO_FLOAT32, ALNICO_SUM, site->comm),
        ALNICO_ERROR_UNSUPPORTED);
    ranks_require_detail("not capturable");
    ranks_require_detail(gpu_way_name(way));
    REQUIRE_STATUS(alnico_iallreduce(ALNICO_IN_PLACE, memory, 1000, ALNICO_FLOAT32, ALNICO_SUM,
                                     site->comm, &request),
                   ALNICO_ERROR_UNSUPPORTED);
    ranks_require_detail("not capturable");
    REQUIRE(request == NULL);
    CUDA(cudaGraphExecDestroy(gpu_capture_end(site)));
    REQUIRE_STATUS(alnico_comm_status(site->comm), ALNICO_SUCCESS);
    gpu_arena_give(&site->plain);
    gpu_try(site, 1000, "after a refused capture");
}

static void the_host_cannot_be_captured(struct gpu_rank *rank)
{
    struct gpu_site site;
    struct gpu_way way, table;
    gpu_site_open(&site, rank, 4 * MEGABYTE);
    gpu_way_at(0, &table);
    for (int i = 0; gpu_way_at(i, &way); i++)
        if (!gpu_way_captures(&way) && gpu_force(&site, &way))
            refuse_in_a_capture(&site, &way);
    REQUIRE(gpu_force(&site, &table));
    gpu_try(&site, 1000, "by the table again");
    if (gpu_can_capture(&site)) {
        struct gpu_recording r;
        gpu_record(&site, &r, &table, 0);
        gpu_recording_run(&site, &r, rank->seed, true);
        gpu_recording_close(&r);
    }
    gpu_site_close(&site);
}

/* An operation that perhaps only the host has: refused with a reason, or captured. */
static void the_table_leaves_the_host_out(struct gpu_rank *rank)
{
    struct gpu_site site;
    gpu_site_open(&site, rank, MEGABYTE);
    uint8_t *memory = gpu_arena_take(&site.plain, 1000);
    gpu_capture_begin(&site);
    alnico_status_t status = alnico_allreduce(ALNICO_IN_PLACE, memory, 1000, ALNICO_UINT8,
                                              ALNICO_BITWISE_XOR, site.comm);
    if (status != ALNICO_SUCCESS) {
        REQUIRE_STATUS(status, ALNICO_ERROR_UNSUPPORTED);
        ranks_require_detail("captured");
    }
    CUDA(cudaGraphExecDestroy(gpu_capture_end(&site)));
    gpu_note(rank, "bitwise xor is %s", status == ALNICO_SUCCESS ? "captured" : "refused");
    gpu_arena_give(&site.plain);
    gpu_try(&site, 10, "after the capture");
    gpu_site_close(&site);
}

/* ---- Streams that change ---- */

static void move(struct gpu_tally *tally, void *stream, bool nonblocking)
{
    REQUIRE_STATUS(alnico_comm_set_stream(tally->site->comm, stream), ALNICO_SUCCESS);
    gpu_tally_call(tally, tally->site->comm, nonblocking);
}

static void follow(void *next, void *before)
{
    cudaEvent_t event;
    CUDA(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
    CUDA(cudaEventRecord(event, before));
    CUDA(cudaStreamWaitEvent(next, event, 0));
    CUDA(cudaEventDestroy(event));
}

/* Three sums, on two streams of one capture, to which the communicator comes from the legacy stream. */
static cudaGraphExec_t capture_on_two_streams(struct gpu_tally *tally, cudaStream_t other)
{
    cudaStream_t first = (cudaStream_t)tally->site->stream;
    gpu_capture_begin(tally->site);
    move(tally, first, false);
    follow(other, first);
    move(tally, other, true);
    move(tally, first, false);
    follow(first, other);
    return gpu_capture_end(tally->site);
}

static void the_stream_changes(struct gpu_rank *rank)
{
    enum { STEPS = 200, REPLAYS = 10 };
    struct gpu_site site;
    struct gpu_tally tally;
    cudaStream_t other;
    gpu_site_open(&site, rank, MEGABYTE);
    bool can = gpu_can_capture(&site);
    CUDA(cudaStreamCreateWithFlags(&other, cudaStreamNonBlocking));
    void *streams[] = {site.stream, other, NULL};
    gpu_tally_open(&tally, &site, 3000);
    for (uint64_t i = 0; i < STEPS; i++)
        move(&tally, streams[reference_random(rank->seed, i, 1) % LENGTH(streams)], i % 4 == 3);
    gpu_tally_add(&tally, STEPS);
    if (can) {
        move(&tally, NULL, false);
        cudaGraphExec_t graph = capture_on_two_streams(&tally, other);
        move(&tally, site.stream, false);
        gpu_tally_add(&tally, 2);
        for (int i = 0; i < REPLAYS; i++) {
            gpu_replay(&site, graph);
            move(&tally, site.stream, i % 2);
            gpu_tally_add(&tally, 4);
        }
        REQUIRE_STATUS(alnico_synchronize(site.comm), ALNICO_SUCCESS);
        CUDA(cudaGraphExecDestroy(graph));
    }
    REQUIRE_STATUS(alnico_comm_set_stream(site.comm, site.stream), ALNICO_SUCCESS);
    REQUIRE_STATUS(alnico_synchronize(site.comm), ALNICO_SUCCESS);
    gpu_tally_close(&tally, "a stream that changes");
    gpu_site_close(&site);
    CUDA(cudaStreamDestroy(other));
}

int main(void)
{
    static const struct gpu_test tests[] = {
        GPU_TEST(every_way_is_replayed, 1),
        GPU_TEST(replays_among_eager_calls, 1),
        GPU_TEST(many_replays, 1),
        GPU_TEST(two_communicators_on_a_stream, 1),
        GPU_TEST(two_streams_in_a_graph, 1),
        GPU_TEST(requests_end_in_the_capture, 1),
        GPU_TEST(the_stream_changes, 1),
        GPU_TEST(the_first_call_is_captured, 1),
        GPU_TEST(the_host_cannot_be_captured, 1),
        GPU_TEST(the_table_leaves_the_host_out, 1),
    };
    return gpu_world_run(tests, LENGTH(tests));
}
