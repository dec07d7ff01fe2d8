/* The composed backend on GPUs: reductions that NCCL lacks, alltoalls in place, and without NCCL all
 * that moves blocks. Each is captured as the table chooses, blocks too long for one
 * kernel, and leaves in every replay what an eager call leaves.
 *
 *     gpu_composed_cuda                  ranks as threads, on 2 to 4 GPUs one after the other
 *     mpirun -n 4 gpu_composed_cuda      a process a GPU
 */
#include "tests/gpu/support/graph.h"
#include "tests/gpu/support/site.h"
#include "tests/support/reference.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { COUNT = 150001, REPLAYS = 3, RANKS_MOST = 8, ROOM = 16 << 20 };

#define LENGTH(array) ((int)(sizeof(array) / sizeof *(array)))

struct buffers {
    struct gpu_site *site;
    alnico_comm_t comm;
    int *send, *recv;          /* on the GPU */
    int *host, *eager;         /* what recv holds after a replay, and after an eager call */
    size_t length, bytes;      /* of each */
    int rank, root;            /* the last rank */
    size_t counts[RANKS_MOST]; /* one rank has none */
    size_t pairs[RANKS_MOST];  /* to each rank and from it */
};

typedef alnico_status_t call_function(const struct buffers *b, alnico_request_t *r);

#define CALL(NAME, ...)                                                                            \
    static alnico_status_t NAME(const struct buffers *b, alnico_request_t *r)                      \
    {                                                                                              \
        (void)r;                                                                                   \
        return __VA_ARGS__;                                                                        \
    }
#define I32 ALNICO_INT32
#define XOR ALNICO_BITWISE_XOR

CALL(reduce, alnico_reduce(b->send, b->recv, COUNT, I32, XOR, b->root, b->comm))
CALL(reduce_later, alnico_ireduce(b->send, b->recv, COUNT, I32, ALNICO_LOGICAL_OR, 0, b->comm, r))
CALL(reduce_floats,
     alnico_reduce(b->send, b->recv, 100, ALNICO_FLOAT8_E4M3, ALNICO_MAXIMUM, 0, b->comm))
CALL(reduce_scatter, alnico_reduce_scatter(b->send, b->recv, COUNT, I32, XOR, b->comm))
CALL(reduce_scatter_in_place,
     alnico_reduce_scatter(ALNICO_IN_PLACE, b->recv, COUNT, I32, ALNICO_BITWISE_AND, b->comm))
CALL(reduce_scatterv, alnico_reduce_scatterv(b->send, b->recv, b->counts, I32, XOR, b->comm))
CALL(broadcast, alnico_broadcast(b->recv, COUNT, I32, b->root, b->comm))
CALL(allgather, alnico_allgather(b->send, b->recv, COUNT, I32, b->comm))
CALL(allgatherv,
     alnico_allgatherv(b->send, b->counts[b->rank], b->recv, b->counts, NULL, I32, b->comm))
CALL(gather, alnico_gather(b->send, b->recv, COUNT, I32, b->root, b->comm))
CALL(scatter, alnico_scatter(b->send, b->recv, COUNT, I32, b->root, b->comm))
CALL(alltoall, alnico_alltoall(b->send, b->recv, COUNT, I32, b->comm))
CALL(alltoall_in_place, alnico_alltoall(ALNICO_IN_PLACE, b->recv, COUNT, I32, b->comm))
CALL(alltoall_later, alnico_ialltoall(ALNICO_IN_PLACE, b->recv, COUNT, I32, b->comm, r))
CALL(alltoallv, alnico_alltoallv(b->send, b->pairs, NULL, b->recv, b->pairs, NULL, I32, b->comm))
CALL(alltoallv_in_place,
     alnico_alltoallv(ALNICO_IN_PLACE, NULL, NULL, b->recv, b->pairs, NULL, I32, b->comm))

static const struct test_call {
    const char *name;
    call_function *function;
} calls[] = {
    {"reduce", reduce},
    {"ireduce", reduce_later},
    {"reduce of float8", reduce_floats},
    {"reduce_scatter", reduce_scatter},
    {"reduce_scatter in place", reduce_scatter_in_place},
    {"reduce_scatterv", reduce_scatterv},
    {"broadcast", broadcast},
    {"allgather", allgather},
    {"allgatherv", allgatherv},
    {"gather", gather},
    {"scatter", scatter},
    {"alltoall", alltoall},
    {"alltoall in place", alltoall_in_place},
    {"ialltoall in place", alltoall_later},
    {"alltoallv", alltoallv},
    {"alltoallv in place", alltoallv_in_place},
};

static void fill(const struct buffers *b, int turn)
{
    cudaStream_t stream = b->site->stream;
    uint64_t seed = b->site->rank->seed + (uint64_t)turn;
    for (size_t i = 0; i < b->length; i++) /* of float8 no NaN, which has several encodings */
        b->host[i] = (int)(reference_random(seed, (uint64_t)b->rank, i) & 0x3f3f3f3f);
    CUDA(cudaMemcpyAsync(b->send, b->host, b->bytes, cudaMemcpyHostToDevice, stream));
    CUDA(cudaMemcpyAsync(b->recv, b->host, b->bytes, cudaMemcpyHostToDevice, stream));
    CUDA(cudaStreamSynchronize(stream));
}

static alnico_status_t call(const struct test_call *call, const struct buffers *b)
{
    alnico_request_t request = NULL;
    alnico_status_t status = call->function(b, &request);
    if (request)
        REQUIRE_STATUS(alnico_wait(&request), ALNICO_SUCCESS);
    return status;
}

static void fetch(const struct buffers *b, int *to)
{
    CUDA(cudaMemcpyAsync(to, b->recv, b->bytes, cudaMemcpyDeviceToHost, b->site->stream));
    REQUIRE_STATUS(alnico_synchronize(b->comm), ALNICO_SUCCESS);
}

static void replay(const struct test_call *tried, const struct buffers *b, cudaGraphExec_t graph)
{
    for (int turn = 0; turn < REPLAYS; turn++) {
        fill(b, turn);
        REQUIRE_STATUS(call(tried, b), ALNICO_SUCCESS);
        fetch(b, b->eager);
        fill(b, turn);
        gpu_replay(b->site, graph);
        fetch(b, b->host);
        if (memcmp(b->host, b->eager, b->bytes))
            fprintf(stderr, "rank %d, turn %d: %s\n", b->rank, turn, tried->name);
        REQUIRE(memcmp(b->host, b->eager, b->bytes) == 0);
    }
}

/* False: nothing here captures it. */
static bool capture(const struct test_call *tried, const struct buffers *b)
{
    gpu_capture_begin(b->site);
    alnico_status_t status = call(tried, b);
    if (status != ALNICO_SUCCESS) {
        REQUIRE_STATUS(status, ALNICO_ERROR_UNSUPPORTED);
        ranks_require_detail("while a graph is captured");
    }
    cudaGraphExec_t graph = gpu_capture_end(b->site);
    if (status == ALNICO_SUCCESS)
        replay(tried, b, graph);
    CUDA(cudaGraphExecDestroy(graph));
    return status == ALNICO_SUCCESS;
}

static void open_buffers(struct buffers *b, struct gpu_site *site)
{
    int size = site->rank->size;
    REQUIRE(size <= RANKS_MOST);
    *b = (struct buffers){
        .site = site, .comm = site->comm, .rank = site->rank->rank, .root = size - 1};
    b->length = (size_t)size * COUNT;
    b->bytes = b->length * sizeof(int);
    for (int r = 0; r < size; r++) {
        b->counts[r] = r == 1 ? 0 : (size_t)(COUNT - 1000 * r);
        b->pairs[r] = b->rank + r == 2 ? 0 : (size_t)(COUNT - 1000 * (b->rank + r));
    }
    b->send = gpu_arena_take(&site->plain, b->bytes);
    b->recv = gpu_arena_take(&site->plain, b->bytes);
    b->host = malloc(b->bytes);
    b->eager = malloc(b->bytes);
    REQUIRE(b->host && b->eager);
}

static void close_buffers(struct buffers *b)
{
    free(b->host);
    free(b->eager);
    gpu_arena_give(&b->site->plain);
    gpu_arena_give(&b->site->plain);
}

/* The first call of every kind is captured, before an eager one could have made anything. */
static void every_operation_is_captured(struct gpu_rank *rank)
{
    struct gpu_site site;
    struct buffers b;
    int captured = 0;
    gpu_site_open(&site, rank, ROOM);
    open_buffers(&b, &site);
    for (int i = 0; i < LENGTH(calls); i++)
        captured += capture(&calls[i], &b);
    gpu_note(rank, "%d of %d", captured, LENGTH(calls));
    close_buffers(&b);
    gpu_site_close(&site);
}

int main(void)
{
    static const struct gpu_test tests[] = {
        GPU_TEST(every_operation_is_captured, 2),
    };
    return gpu_world_run(tests, LENGTH(tests));
}
