/*
 * The peer kernels of blocks without a communicator, in lines and between the ranks' own buffers:
 * 2 to 8 ranks on as many GPUs as there are, several on one where ranks are more. After every call
 * all bytes of all buffers, and around them, are what they must be. Arguments: the seed of the
 * inputs, and a limit of ranks.
 */
#include "tests/gpu/support/peer_ranks.h"

#include "base/datatype.h"
#include "device/cpu/math.h"
#include "tests/support/ranks.h"
#include "tests/support/reference.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum {
    MARGIN = 256,
    POISON = 0x5a,
    RANKS = PEER_GPUS,
    BLOCK_MOST = 600000,
    ROOM = RANKS * BLOCK_MOST + 2 * MARGIN,
    LARGE = 10000,       /* elements, of which not every type is tried */
    RESIDENT_BLOCKS = 8, /* of a grid, where ranks share a GPU */
};

struct call {
    int kernel; /* its place in the table */
    alnico_datatype_t type;
    alnico_op_t op;
    size_t count, from_offset, to_offset; /* elements */
    bool in_place;
    int blocks, root;
    bool separate; /* launched after the kernel before it has ended */
};

/* Two buffers of each rank, as they are on the GPU and on the host. */
struct fixture {
    int size, gpus;
    struct peer_node nodes[RANKS];
    char *from[RANKS], *to[RANKS];
    char *from_image[RANKS], *to_image[RANKS], *seen;
};

static uint64_t seed;
static long calls;

static void use(const struct fixture *f, int rank)
{
    REQUIRE_CUDA(cudaSetDevice(f->nodes[rank].device));
}

static void fixture_create(struct fixture *f, int size, int gpus)
{
    *f = (struct fixture){.size = size, .gpus = gpus, .seen = malloc(ROOM)};
    peer_ranks_create(f->nodes, size, gpus, 10000000000);
    for (int r = 0; r < size; r++) {
        use(f, r);
        REQUIRE_CUDA(cudaMalloc((void **)&f->from[r], ROOM));
        REQUIRE_CUDA(cudaMalloc((void **)&f->to[r], ROOM));
        f->from_image[r] = malloc(ROOM);
        f->to_image[r] = malloc(ROOM);
        REQUIRE(f->from_image[r] && f->to_image[r] && f->seen);
    }
}

static void fixture_destroy(struct fixture *f)
{
    for (int r = 0; r < f->size; r++) {
        use(f, r);
        REQUIRE_CUDA(cudaFree(f->from[r]));
        REQUIRE_CUDA(cudaFree(f->to[r]));
        free(f->from_image[r]);
        free(f->to_image[r]);
    }
    free(f->seen);
    peer_ranks_destroy(f->nodes, f->size);
}

/* ---- Where a call's blocks are ---- */

static bool is_allgather(const struct call *c)
{
    return c->kernel == PEER_CUDA_ALLGATHER_LINE || c->kernel == PEER_CUDA_ALLGATHER_DIRECT;
}

static bool is_alltoall(const struct call *c)
{
    return c->kernel == PEER_CUDA_ALLTOALL_LINE || c->kernel == PEER_CUDA_ALLTOALL_DIRECT;
}

static bool is_broadcast(const struct call *c)
{
    return c->kernel == PEER_CUDA_BROADCAST_LINE;
}

static bool reduces(const struct call *c)
{
    return c->kernel == PEER_CUDA_REDUCE_SCATTER_LINE ||
           c->kernel == PEER_CUDA_REDUCE_SCATTER_DIRECT;
}

static size_t block_bytes(const struct call *c)
{
    return c->count * datatype_bytes(c->type);
}

/* Block b of what rank r reads, in its `from`; in place of an allgather, in its `to`. */
static char *source(const struct call *c, char *from, char *to, int r, int b)
{
    size_t bytes = block_bytes(c), element = datatype_bytes(c->type);
    if (is_allgather(c) && c->in_place)
        return to + MARGIN + c->to_offset * element + (size_t)r * bytes;
    return from + MARGIN + c->from_offset * element + (size_t)b * bytes;
}

/* Block b of what rank r writes, in its `to`; in place of a reduction, in its `from`. */
static char *target(const struct call *c, char *from, char *to, int r, int b)
{
    size_t bytes = block_bytes(c);
    if (reduces(c) && c->in_place)
        return source(c, from, to, r, r);
    return to + MARGIN + c->to_offset * datatype_bytes(c->type) + (size_t)b * bytes;
}

/* ---- On the GPUs ---- */

static void find_buffers(const struct fixture *f, const struct call *c, int rank,
                         struct peer_arguments *a)
{
    for (int i = 0; i < f->size; i++) {
        bool sums = reduces(c);
        a->sends[i] = sums ? source(c, f->from[i], f->to[i], i, rank)
                           : source(c, f->from[rank], f->to[rank], rank, is_alltoall(c) ? i : 0);
        a->recvs[i] = sums ? target(c, f->from[rank], f->to[rank], rank, 0)
                           : target(c, f->from[i], f->to[i], i, rank);
    }
}

static void launch(const struct fixture *f, const struct call *c, int rank)
{
    struct peer_arguments a;
    use(f, rank);
    find_buffers(f, c, rank, &a);
    a.world = f->nodes[rank].world;
    a.world.modern &= !c->separate;
    a.send = source(c, f->from[rank], f->to[rank], rank, 0);
    a.recv = target(c, f->from[rank], f->to[rank], rank, 0);
    a.bytes = block_bytes(c);
    a.type = (int32_t)c->type;
    a.op = (int32_t)c->op;
    a.kernel = c->kernel;
    a.root = c->root;
    REQUIRE_STATUS(peer_call_launch(&f->nodes[rank].functions, &peer_cuda_kernels[c->kernel], &a,
                                    c->blocks, f->nodes[rank].stream),
                   ALNICO_SUCCESS);
}

static void synchronize(const struct fixture *f)
{
    for (int r = 0; r < f->size; r++) {
        use(f, r);
        REQUIRE_CUDA(cudaStreamSynchronize(f->nodes[r].stream));
    }
}

/* ---- What it must be ---- */

static void expect_block(const struct fixture *f, const struct call *c, int rank, int b, char *out)
{
    const void *sources[RANKS];
    for (int r = 0; r < f->size; r++)
        sources[r] =
            source(c, f->from_image[r], f->to_image[r], r, reduces(c) || is_alltoall(c) ? rank : 0);
    if (reduces(c))
        math_combine(out, sources, f->size, c->count, c->type, c->op);
    else
        memcpy(out, sources[is_broadcast(c) ? c->root : b], block_bytes(c));
}

static bool receives(const struct call *c, int rank)
{
    return !is_broadcast(c) || rank != c->root;
}

/* All results first: in place they take the place of inputs. */
static void expect(const struct fixture *f, const struct call *c)
{
    int blocks = is_allgather(c) || is_alltoall(c) ? f->size : 1;
    size_t bytes = block_bytes(c);
    char *results = malloc((size_t)f->size * (size_t)blocks * bytes), *next = results;
    REQUIRE(results != NULL);
    for (int r = 0; r < f->size; r++)
        for (int b = 0; b < blocks; b++, next += bytes)
            expect_block(f, c, r, b, next);
    next = results;
    for (int r = 0; r < f->size; r++)
        for (int b = 0; b < blocks; b++, next += bytes)
            if (receives(c, r))
                memcpy(target(c, f->from_image[r], f->to_image[r], r, b), next, bytes);
    free(results);
}

static void describe(const struct fixture *f, const struct call *c, int rank)
{
    fprintf(
        stderr,
        "seed %llu, call %ld: rank %d of %d, %s, %s %s, count %zu, offsets %zu and %zu, in place "
        "%d, blocks %d, root %d, separate %d\n",
        (unsigned long long)seed, calls, rank, f->size, peer_cuda_kernels[c->kernel].name,
        op_name(c->op), datatype_name(c->type), c->count, c->from_offset, c->to_offset, c->in_place,
        c->blocks, c->root, c->separate);
}

static void verify(const struct fixture *f, const struct call *c, int rank, const char *memory,
                   const char *image, size_t bytes)
{
    use(f, rank);
    REQUIRE_CUDA(cudaMemcpy(f->seen, memory, bytes, cudaMemcpyDeviceToHost));
    if (memcmp(f->seen, image, bytes) == 0)
        return;
    for (size_t i = 0; i < bytes; i++)
        if (f->seen[i] != image[i]) {
            describe(f, c, rank);
            fprintf(stderr, "byte %zu of %s is %02x, expected %02x\n", i,
                    memory == f->from[rank] ? "from" : "to", (unsigned char)f->seen[i],
                    (unsigned char)image[i]);
            REQUIRE(!"right");
        }
}

/* ---- One call ---- */

static void fill(const struct fixture *f, const struct call *c, int rank, size_t bytes)
{
    int blocks = reduces(c) || is_alltoall(c) ? f->size : 1;
    memset(f->from_image[rank], POISON, bytes);
    memset(f->to_image[rank], POISON, bytes);
    for (int b = 0; b < blocks; b++)
        reference_fill(source(c, f->from_image[rank], f->to_image[rank], rank, b), c->count,
                       c->type, c->op, seed + (uint64_t)calls, rank * RANKS + b);
    use(f, rank);
    REQUIRE_CUDA(cudaMemcpy(f->from[rank], f->from_image[rank], bytes, cudaMemcpyHostToDevice));
    REQUIRE_CUDA(cudaMemcpy(f->to[rank], f->to_image[rank], bytes, cudaMemcpyHostToDevice));
    REQUIRE_CUDA(cudaDeviceSynchronize()); /* other ranks' streams wait for no copy */
}

static void run_call(const struct fixture *f, const struct call *c)
{
    size_t bytes = (size_t)f->size * block_bytes(c) + 2 * MARGIN;
    if (block_bytes(c) > BLOCK_MOST ||
        !peer_kernel_fits(&peer_cuda_kernels[c->kernel], &f->nodes[0].world, block_bytes(c)))
        return;
    calls++;
    for (int r = 0; r < f->size; r++)
        fill(f, c, r, bytes);
    for (int r = 0; r < f->size; r++)
        launch(f, c, r);
    synchronize(f);
    expect(f, c);
    for (int r = 0; r < f->size; r++) {
        if (*(volatile uint32_t *)&f->nodes[r].words->fault != PEER_FAULT_NONE) {
            describe(f, c, r);
            REQUIRE(!"no fault");
        }
        verify(f, c, r, f->from[r], f->from_image[r], bytes);
        verify(f, c, r, f->to[r], f->to_image[r], bytes);
    }
}

/* ---- All of them ---- */

static const struct {
    alnico_datatype_t type;
    alnico_op_t op;
} sums[] = {{ALNICO_FLOAT32, ALNICO_SUM},     {ALNICO_FLOAT16, ALNICO_AVERAGE},
            {ALNICO_BFLOAT16, ALNICO_SUM},    {ALNICO_INT8, ALNICO_MAXIMUM},
            {ALNICO_FLOAT64, ALNICO_AVERAGE}, {ALNICO_UINT32, ALNICO_PRODUCT}};

enum { SUMS = sizeof sums / sizeof *sums };

static void run_kernel(const struct fixture *f, int kernel)
{
    static const size_t counts[] = {1,   2,   4,    7,    8,     16,    29,    30,    31,
                                    120, 241, 1000, 4096, 30720, 65540, 70001, 130000};
    for (int i = 0; i < (int)(sizeof counts / sizeof *counts); i++)
        for (int s = 0; s < SUMS; s++) {
            int turn = i + s;
            if (counts[i] > LARGE && turn % SUMS > 0)
                continue;
            struct call c = {.kernel = kernel,
                             .type = sums[s].type,
                             .op = sums[s].op,
                             .count = counts[i],
                             .from_offset = (size_t)(turn % 4 == 1),
                             .to_offset = (size_t)(turn % 5 == 2),
                             .in_place = turn % 3 == 0,
                             .root = turn % f->size,
                             .separate = turn % 5 == 1};
            c.blocks = f->size > f->gpus ? RESIDENT_BLOCKS : turn % 2 ? 0 : 1 + turn;
            run_call(f, &c);
        }
}

static void run_size(int size, int gpus)
{
    struct fixture f;
    fixture_create(&f, size, gpus);
    for (int k = PEER_CUDA_ALLREDUCES; k < PEER_CUDA_MESSAGES_FEW; k++)
        run_kernel(&f, k);
    fixture_destroy(&f);
    printf("%d ranks on %d GPUs: %ld calls so far\n", size, gpus < size ? gpus : size, calls);
    fflush(stdout);
}

int main(int argc, char **argv)
{
    int gpus = peer_ranks_gpus(), most = argc > 2 ? atoi(argv[2]) : RANKS;
    if (gpus == 0) {
        fprintf(stderr, "no GPU\n");
        return 77;
    }
    seed = argc > 1 ? strtoull(argv[1], NULL, 10) : (uint64_t)time(NULL);
    printf("seed %llu, %d GPUs\n", (unsigned long long)seed, gpus);
    for (int size = 2; size <= most && size <= RANKS; size++)
        run_size(size, gpus);
    return 0;
}
