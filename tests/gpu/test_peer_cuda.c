/*
 * The peer kernels and the shared ones without a communicator, on as many GPUs as there are; with
 * more ranks than GPUs, several ranks run on one GPU, so that one is enough. Every kernel's results
 * are compared bit for bit with the CPU's arithmetic. Arguments: the seed of the inputs, and a
 * limit of ranks.
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

enum { MARGIN = 256, POISON = 0x5a, LARGEST = 3 << 20, RANKS = PEER_GPUS };

/* Of one number of ranks. */
struct fixture {
    int size, gpus;
    const struct peer_kernel *table; /* the peer kernels, or the shared ones */
    int kernels;                     /* of its allreduces, which come first */
    struct peer_node nodes[RANKS];
    char *send[RANKS], *recv[RANKS];    /* on the devices, LARGEST bytes between margins */
    char *input[RANKS], *output[RANKS]; /* pinned */
    char *expected;
};

struct peer_case {
    int kernel; /* its place in the table */
    alnico_datatype_t type;
    alnico_op_t op;
    size_t count;
    size_t send_offset, recv_offset; /* elements */
    bool in_place, random_bits;
    int blocks;
    bool separate; /* launched after the kernel before it has ended */
};

static uint64_t seed;
static long cases;

static double seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/* ---- Ranks ---- */

static bool has_shared_kernels(const struct fixture *f)
{
    return f->table == shared_kernels;
}

static int one_shot_of(const struct fixture *f)
{
    return has_shared_kernels(f) ? (int)SHARED_ONE_SHOT : (int)PEER_CUDA_ONE_SHOT;
}

static int two_shot_of(const struct fixture *f)
{
    return has_shared_kernels(f) ? (int)SHARED_TWO_SHOT : (int)PEER_CUDA_TWO_SHOT_LINE;
}

static void use(const struct fixture *f, int rank)
{
    REQUIRE_CUDA(cudaSetDevice(f->nodes[rank].device));
}

static void fixture_create(struct fixture *f, int size, int gpus, bool shared, double timeout)
{
    *f = (struct fixture){.size = size,
                          .gpus = gpus,
                          .table = shared ? shared_kernels : peer_cuda_kernels,
                          .kernels = shared ? (int)SHARED_KERNELS : PEER_CUDA_ALLREDUCES};
    (shared ? peer_ranks_create_shared : peer_ranks_create)(f->nodes, size, gpus,
                                                            (uint64_t)(timeout * 1e9));
    for (int r = 0; r < size; r++) {
        use(f, r);
        REQUIRE_CUDA(cudaMalloc((void **)&f->send[r], LARGEST + 2 * MARGIN));
        REQUIRE_CUDA(cudaMalloc((void **)&f->recv[r], LARGEST + 2 * MARGIN));
        REQUIRE_CUDA(cudaHostAlloc((void **)&f->input[r], LARGEST, cudaHostAllocPortable));
        REQUIRE_CUDA(
            cudaHostAlloc((void **)&f->output[r], LARGEST + 2 * MARGIN, cudaHostAllocPortable));
    }
    f->expected = malloc(LARGEST);
    REQUIRE(f->expected != NULL);
}

static void fixture_destroy(struct fixture *f)
{
    for (int r = 0; r < f->size; r++) {
        use(f, r);
        REQUIRE_CUDA(cudaFree(f->send[r]));
        REQUIRE_CUDA(cudaFree(f->recv[r]));
        REQUIRE_CUDA(cudaFreeHost(f->input[r]));
        REQUIRE_CUDA(cudaFreeHost(f->output[r]));
    }
    free(f->expected);
    peer_ranks_destroy(f->nodes, f->size);
}

static void synchronize(const struct fixture *f)
{
    for (int r = 0; r < f->size; r++) {
        use(f, r);
        REQUIRE_CUDA(cudaStreamSynchronize(f->nodes[r].stream));
    }
}

static uint32_t fault_of(const struct fixture *f, int rank)
{
    return *(volatile uint32_t *)&f->nodes[rank].words->fault;
}

static void require_no_fault(const struct fixture *f, const char *what)
{
    for (int r = 0; r < f->size; r++) {
        const struct peer_words *w = f->nodes[r].words;
        if (fault_of(f, r) == PEER_FAULT_NONE)
            continue;
        fprintf(stderr, "%s: rank %d of %d: fault %u, missing rank %u, kernel %s, epoch %llu\n",
                what, r, f->size, w->fault, w->rank, f->table[w->kernel].name,
                (unsigned long long)w->epoch);
        REQUIRE(!"no fault");
    }
}

/* ---- One case ---- */

static char *send_at(const struct fixture *f, const struct peer_case *c, int rank)
{
    size_t offset = c->in_place ? c->recv_offset : c->send_offset;
    char *buffer = c->in_place ? f->recv[rank] : f->send[rank];
    return buffer + MARGIN + offset * datatype_bytes(c->type);
}

static char *recv_at(const struct fixture *f, const struct peer_case *c, int rank)
{
    return f->recv[rank] + MARGIN + c->recv_offset * datatype_bytes(c->type);
}

static void launch(const struct fixture *f, const struct peer_case *c, int rank)
{
    struct peer_arguments a;
    for (int r = 0; r < f->size; r++) {
        a.sends[r] = send_at(f, c, r);
        a.recvs[r] = recv_at(f, c, r);
    }
    use(f, rank);
    a.world = f->nodes[rank].world;
    a.world.modern &= !c->separate;
    a.send = a.sends[rank];
    a.recv = a.recvs[rank];
    a.bytes = c->count * datatype_bytes(c->type);
    a.type = (int32_t)c->type;
    a.op = (int32_t)c->op;
    a.kernel = c->kernel;
    a.root = 0;
    REQUIRE_STATUS(peer_call_launch(&f->nodes[rank].functions, &f->table[c->kernel], &a, c->blocks,
                                    f->nodes[rank].stream),
                   ALNICO_SUCCESS);
}

static void fill(const struct fixture *f, const struct peer_case *c, int rank)
{
    size_t bytes = c->count * datatype_bytes(c->type);
    if (!c->random_bits) {
        reference_fill(f->input[rank], c->count, c->type, c->op, seed + (uint64_t)cases, rank);
        return;
    }
    for (size_t i = 0; i < bytes; i += 8) {
        uint64_t word = reference_random(seed + (uint64_t)cases, i, (uint64_t)rank);
        memcpy(f->input[rank] + i, &word, bytes - i < 8 ? bytes - i : 8);
    }
}

static void upload(const struct fixture *f, const struct peer_case *c, int rank)
{
    size_t bytes = c->count * datatype_bytes(c->type);
    cudaStream_t stream = f->nodes[rank].stream;
    fill(f, c, rank);
    use(f, rank);
    REQUIRE_CUDA(cudaMemsetAsync(f->recv[rank], POISON, bytes + 2 * MARGIN, stream));
    REQUIRE_CUDA(cudaMemcpyAsync(send_at(f, c, rank), f->input[rank], bytes, cudaMemcpyHostToDevice,
                                 stream));
}

static void describe(const struct fixture *f, const struct peer_case *c, int rank)
{
    fprintf(
        stderr,
        "seed %llu, case %ld: rank %d of %d, %s, %s %s, count %zu, offsets %zu and %zu, in place "
        "%d, random bits %d, blocks %d, separate %d\n",
        (unsigned long long)seed, cases, rank, f->size, f->table[c->kernel].name, op_name(c->op),
        datatype_name(c->type), c->count, c->send_offset, c->recv_offset, c->in_place,
        c->random_bits, c->blocks, c->separate);
}

static void show_difference(const char *seen, const char *expected, size_t bytes, size_t element)
{
    size_t wrong = 0, first = bytes;
    for (size_t i = 0; i < bytes; i++)
        if (seen[i] != expected[i]) {
            wrong++;
            first = first == bytes ? i / element * element : first;
        }
    fprintf(stderr, "%zu bytes of %zu differ, first in element %zu:", wrong, bytes,
            first / element);
    for (int k = 0; k < 2; k++) {
        fprintf(stderr, k ? ", expected" : " it is");
        for (size_t i = 0; i < element && first < bytes; i++)
            fprintf(stderr, " %02x", (unsigned char)(k ? expected : seen)[first + i]);
    }
    fprintf(stderr, "\n");
}

/* Recursive doubling rounds in every step, so it has no one order; it is compared with float64, and
 * all ranks with rank 0. */
static void expect(const struct fixture *f, const struct peer_case *c)
{
    size_t bytes = c->count * datatype_bytes(c->type);
    const void *sources[RANKS];
    int ranks[RANKS];
    char text[256];
    for (int r = 0; r < f->size; r++) {
        sources[r] = f->input[r];
        ranks[r] = r;
    }
    if (has_shared_kernels(f) || c->kernel != PEER_CUDA_RECURSIVE_DOUBLING) {
        math_combine(f->expected, sources, f->size, c->count, c->type, c->op);
        return;
    }
    memcpy(f->expected, f->output[0] + MARGIN + c->recv_offset * datatype_bytes(c->type), bytes);
    if (!c->random_bits &&
        reference_check(f->expected, c->count, c->type, c->op, seed + (uint64_t)cases, ranks,
                        f->size, text, sizeof text)) {
        describe(f, c, 0);
        fprintf(stderr, "%s\n", text);
        REQUIRE(!"right");
    }
}

static void verify(const struct fixture *f, const struct peer_case *c, int rank)
{
    size_t element = datatype_bytes(c->type), bytes = c->count * element;
    const char *output = f->output[rank];
    size_t begin = MARGIN + c->recv_offset * element;
    if (memcmp(output + begin, f->expected, bytes) != 0) {
        describe(f, c, rank);
        show_difference(output + begin, f->expected, bytes, element);
        REQUIRE(!"the same bits");
    }
    for (size_t i = 0; i < bytes + 2 * MARGIN; i++)
        if ((i < begin || i >= begin + bytes) && output[i] != POISON) {
            describe(f, c, rank);
            fprintf(stderr, "byte %zd before or after the vector of %zu bytes was written\n",
                    (ssize_t)i - (ssize_t)begin, bytes);
            REQUIRE(!"nothing else is written");
        }
}

static bool fits(const struct fixture *f, const struct peer_case *c)
{
    size_t bytes = c->count * datatype_bytes(c->type);
    return bytes <= LARGEST - 64 &&
           peer_kernel_fits(&f->table[c->kernel], &f->nodes[0].world, bytes);
}

static void run_case(const struct fixture *f, const struct peer_case *c)
{
    size_t bytes = c->count * datatype_bytes(c->type);
    if (!fits(f, c))
        return;
    cases++;
    for (int r = 0; r < f->size; r++)
        upload(f, c, r);
    synchronize(f); /* a peer may store into a vector that is still being poisoned otherwise */
    for (int r = 0; r < f->size; r++)
        launch(f, c, r);
    for (int r = 0; r < f->size; r++) {
        use(f, r);
        REQUIRE_CUDA(cudaMemcpyAsync(f->output[r], f->recv[r], bytes + 2 * MARGIN,
                                     cudaMemcpyDeviceToHost, f->nodes[r].stream));
    }
    synchronize(f);
    for (int r = 0; r < f->size; r++)
        if (fault_of(f, r)) {
            describe(f, c, r);
            require_no_fault(f, "a call");
        }
    expect(f, c);
    for (int r = 0; r < f->size; r++)
        verify(f, c, r);
}

/* ---- All cases ---- */

/* Counts on and around the ends of words, lines, warps, blocks and slices. */
static const size_t small_counts[] = {1,  2,  3,   7,   15,  16,   17,  29,
                                      31, 61, 119, 121, 241, 1000, 3073};
static const size_t large_counts[] = {8191, 30720, 65537, 262145, 700001};

static bool is_shared(const struct fixture *f)
{
    return f->size > f->gpus;
}

/* Ranks that share a GPU must all be resident on it. */
static int few_blocks(const struct fixture *f)
{
    return is_shared(f) ? 8 : 0;
}

static void run_counts(const struct fixture *f, struct peer_case c, const size_t *counts,
                       size_t number)
{
    for (size_t i = 0; i < number; i++) {
        c.count = counts[i];
        for (int way = 0; way < 4; way++) {
            c.in_place = way & 1;
            c.random_bits = way & 2;
            c.send_offset = (i + (size_t)way) % 3;
            c.recv_offset = (i + (size_t)way) % 4 == 3 ? 1 : 0;
            c.blocks = way == 1 ? 3 : few_blocks(f);
            c.separate = way == 1;
            run_case(f, &c);
        }
    }
}

static void test_all_kinds(const struct fixture *f)
{
    for (int kernel = 0; kernel < f->kernels; kernel++)
        for (int type = 0; type < DATATYPES; type++)
            for (int op = 0; op < OPS; op++) {
                struct peer_case c = {
                    .kernel = kernel, .type = (alnico_datatype_t)type, .op = (alnico_op_t)op};
                size_t number = sizeof small_counts / sizeof *small_counts;
                if (op_supports(c.op, c.type))
                    run_counts(f, c, small_counts, c.op > ALNICO_AVERAGE ? 4 : number);
            }
}

static void test_large(const struct fixture *f)
{
    static const alnico_datatype_t types[] = {ALNICO_FLOAT32, ALNICO_BFLOAT16, ALNICO_INT8,
                                              ALNICO_FLOAT64};
    for (int kernel = 0; kernel < f->kernels; kernel++)
        for (size_t t = 0; t < sizeof types / sizeof *types; t++) {
            struct peer_case c = {.kernel = kernel, .type = types[t], .op = ALNICO_SUM};
            run_counts(f, c, large_counts, sizeof large_counts / sizeof *large_counts);
        }
}

/* Grids of every size one after the other, on the same scratch. */
static void test_random_calls(const struct fixture *f, int calls)
{
    for (int i = 0; i < calls; i++) {
        uint64_t x = reference_random(seed, 77, (uint64_t)i);
        struct peer_case c = {.kernel = (int)(x % (unsigned)f->kernels),
                              .type = (alnico_datatype_t)(x / 8 % DATATYPES),
                              .op = (alnico_op_t)(x / 128 % 5),
                              .count = (x >> 16) % (1u << (x >> 12) % 17) + 1,
                              .in_place = x >> 40 & 1,
                              .random_bits = x >> 41 & 1,
                              .send_offset = x >> 42 & 3,
                              .recv_offset = x >> 44 & 3};
        c.blocks = 1 + (int)((x >> 48) % (is_shared(f) ? 12 : 64));
        c.separate = (x >> 58) % 4 == 1;
        run_case(f, &c);
    }
}

/* ---- Many calls without a look between ---- */

/* Every kernel with every count, one after the other, each on a part of the buffers of its own; in
 * each round other inputs. */
enum { CHAIN_ROUNDS = 4, CHAIN_EACH = 25302 }; /* elements of a kernel's four calls */

static size_t chain_count(const struct fixture *f)
{
    return (size_t)CHAIN_EACH * (size_t)f->kernels;
}

static struct peer_case chain_case(const struct fixture *f, int i)
{
    static const size_t counts[] = {2, 300, 5000, 20000};
    size_t before = (size_t)(i / 4) * CHAIN_EACH;
    for (int k = 0; k < i % 4; k++)
        before += counts[k];
    return (struct peer_case){.kernel = i / 4,
                              .type = ALNICO_UINT32,
                              .op = ALNICO_SUM,
                              .count = counts[i % 4],
                              .send_offset = before,
                              .recv_offset = before,
                              .separate = i / 4 % 4 == 1,
                              .blocks = is_shared(f) ? 1 + i % 8
                                        : i % 5      ? 0
                                                     : 1 + i % 64};
}

static uint32_t chain_input(int round, int rank, size_t element)
{
    return (uint32_t)reference_random(seed, element, (uint64_t)(round * RANKS + rank));
}

/* The small and the large ones in turns, so that grids of all sizes follow each other. */
static void chain_launch(const struct fixture *f, int rank)
{
    for (int k = 0; k < 4 * f->kernels; k++) {
        struct peer_case c = chain_case(f, k % f->kernels * 4 + k / f->kernels);
        launch(f, &c, rank);
    }
}

static void chain_fill(const struct fixture *f)
{
    for (int r = 0; r < f->size; r++) {
        uint32_t *values = (uint32_t *)(void *)f->input[r];
        for (int round = 0; round < CHAIN_ROUNDS; round++)
            for (size_t i = 0; i < chain_count(f); i++)
                *values++ = chain_input(round, r, i);
    }
}

/* In, all calls, out; nothing waits for the host. */
static void chain_round(const struct fixture *f, int rank, int round, cudaGraphExec_t graph)
{
    size_t bytes = chain_count(f) * 4, at = (size_t)round * bytes;
    cudaStream_t stream = f->nodes[rank].stream;
    use(f, rank);
    REQUIRE_CUDA(cudaMemcpyAsync(f->send[rank] + MARGIN, f->input[rank] + at, bytes,
                                 cudaMemcpyHostToDevice, stream));
    if (graph)
        REQUIRE_CUDA(cudaGraphLaunch(graph, stream));
    else
        chain_launch(f, rank);
    REQUIRE_CUDA(cudaMemcpyAsync(f->output[rank] + at, f->recv[rank] + MARGIN, bytes,
                                 cudaMemcpyDeviceToHost, stream));
}

static void chain_check(const struct fixture *f)
{
    for (int i = 0; i < f->size * CHAIN_ROUNDS; i++) {
        int rank = i / CHAIN_ROUNDS, round = i % CHAIN_ROUNDS;
        const uint32_t *seen =
            (const uint32_t *)(void *)f->output[rank] + (size_t)round * chain_count(f);
        for (size_t e = 0; e < chain_count(f); e++) {
            uint32_t expected = 0;
            for (int r = 0; r < f->size; r++)
                expected += chain_input(round, r, e);
            if (seen[e] == expected)
                continue;
            fprintf(
                stderr,
                "seed %llu: graphs and eager calls: round %d, rank %d of %d, element %zu, kernel "
                "%s: %u, expected %u\n",
                (unsigned long long)seed, round, rank, f->size, e, f->table[e / CHAIN_EACH].name,
                seen[e], expected);
            REQUIRE(!"right");
        }
    }
}

static cudaGraphExec_t chain_capture(const struct fixture *f, int rank)
{
    cudaGraph_t graph;
    cudaGraphExec_t executable;
    use(f, rank);
    REQUIRE_CUDA(cudaStreamBeginCapture(f->nodes[rank].stream, cudaStreamCaptureModeThreadLocal));
    chain_launch(f, rank);
    REQUIRE_CUDA(cudaStreamEndCapture(f->nodes[rank].stream, &graph));
    REQUIRE_CUDA(cudaGraphInstantiateWithFlags(&executable, graph, 0));
    REQUIRE_CUDA(cudaGraphDestroy(graph));
    return executable;
}

static void test_graphs(const struct fixture *f)
{
    cudaGraphExec_t graphs[RANKS];
    chain_fill(f);
    for (int r = 0; r < f->size; r++)
        graphs[r] = chain_capture(f, r);
    for (int round = 0; round < CHAIN_ROUNDS; round++)
        for (int r = 0; r < f->size; r++)
            chain_round(f, r, round, round % 2 ? NULL : graphs[r]);
    synchronize(f);
    require_no_fault(f, "graphs and eager calls");
    chain_check(f);
    for (int r = 0; r < f->size; r++)
        REQUIRE_CUDA(cudaGraphExecDestroy(graphs[r]));
}

/* Epochs pass 2^32, and where old flags are cleared. */
static void test_wrap(struct fixture *f)
{
    static const uint64_t epochs[] = {0x3ffffffe, 0xbffffffd, 0xfffffffc, 0xffffffffd, 0x1bffffffe};
    for (size_t k = 0; k < sizeof epochs / sizeof *epochs; k++) {
        peer_ranks_clear(f->nodes, f->size, epochs[k]);
        for (int i = 0; i < 8; i++) {
            struct peer_case c = {.kernel = i % 4 == 3 ? two_shot_of(f) : one_shot_of(f),
                                  .type = ALNICO_FLOAT32,
                                  .op = ALNICO_SUM,
                                  .count = 700 + 100 * (size_t)i,
                                  .blocks = few_blocks(f)};
            run_case(f, &c);
        }
    }
}

/* Slots that hold the flag of the epoch that comes again must have been cleared between. */
static void test_stale_flags(struct fixture *f)
{
    enum { SLOTS = 1000 };
    uint32_t *slots = (uint32_t *)(void *)f->input[0];
    struct peer_case c = {.kernel = one_shot_of(f),
                          .type = ALNICO_FLOAT32,
                          .op = ALNICO_SUM,
                          .count = 2,
                          .blocks = few_blocks(f)};
    uint32_t again = 0x40000004;
    for (int i = 0; i < SLOTS * 4; i++)
        slots[i] = i % 2 ? again : 0xdeadbeef;
    peer_ranks_clear(f->nodes, f->size, 0x40000000);
    for (int r = 0; r < f->size; r++) {
        use(f, r);
        size_t at = has_shared_kernels(f) ? (size_t)SHARED_AT_SLOTS : (size_t)PEER_AT_LL;
        REQUIRE_CUDA(
            cudaMemcpy(f->nodes[r].world.scratch[r] + at, slots, SLOTS * 16, cudaMemcpyDefault));
        REQUIRE_CUDA(cudaDeviceSynchronize());
    }
    for (int i = 0; i < 4; i++)
        run_case(f, &c); /* the first two clear, and write few slots themselves */
    c.count = 300;
    run_case(f, &c);
    run_case(f, &c);
}

/* ---- Late, lost and aborted ranks ---- */

static void pause_for(double duration)
{
    struct timespec t = {(time_t)duration, (long)((duration - (double)(time_t)duration) * 1e9)};
    nanosleep(&t, NULL);
}

static void fill_all(const struct fixture *f, const struct peer_case *c)
{
    for (int r = 0; r < f->size; r++)
        upload(f, c, r);
    synchronize(f);
}

static void test_late_rank(const struct fixture *f)
{
    for (int kernel = 0; kernel < f->kernels; kernel++) {
        struct peer_case c = {.kernel = kernel,
                              .type = ALNICO_FLOAT32,
                              .op = ALNICO_SUM,
                              .count = 1000,
                              .blocks = few_blocks(f)};
        fill_all(f, &c);
        for (int r = 1; r < f->size; r++)
            launch(f, &c, r);
        pause_for(0.3);
        launch(f, &c, 0);
        synchronize(f);
        require_no_fault(f, "a late rank");
    }
}

/* All ranks but the last; each must leave before `limit` seconds. */
static void launch_others(const struct fixture *f, const struct peer_case *c)
{
    fill_all(f, c);
    for (int r = 0; r < f->size - 1; r++)
        launch(f, c, r);
}

static void require_left(const struct fixture *f, double limit)
{
    double end = seconds() + limit;
    for (int r = 0; r < f->size - 1; r++) {
        use(f, r);
        cudaError_t error;
        while ((error = cudaStreamQuery(f->nodes[r].stream)) == cudaErrorNotReady)
            if (seconds() > end) {
                fprintf(stderr, "rank %d still spins after %g s\n", r, limit);
                REQUIRE(!"left");
            }
        REQUIRE_CUDA(error);
    }
}

static void test_lost_rank(struct fixture *f)
{
    for (int kernel = 0; kernel < f->kernels; kernel++) {
        struct peer_case c = {.kernel = kernel,
                              .type = ALNICO_FLOAT32,
                              .op = ALNICO_SUM,
                              .count = 1000,
                              .blocks = few_blocks(f)};
        int lost = f->size - 1;
        for (int r = 0; r < f->size; r++)
            f->nodes[r].world.timeout_ns = 200000000;
        double begin = seconds();
        launch_others(f, &c);
        require_left(f, 3);
        REQUIRE(seconds() - begin > 0.15);
        for (int r = 0; r < lost; r++) {
            const struct peer_words *w = f->nodes[r].words;
            bool heard = fault_of(f, r) == PEER_FAULT_REPORTED &&
                         PEER_REPORT_FAULT(w->report) == PEER_FAULT_TIMEOUT;
            int missed = heard ? (int)PEER_REPORT_MISSED(w->report) : (int)w->rank;
            if (missed != lost)
                fprintf(stderr, "%s: rank %d: fault %u, of rank %u, heard %x\n",
                        f->table[kernel].name, r, fault_of(f, r), w->rank, w->report);
            REQUIRE(heard || fault_of(f, r) == PEER_FAULT_TIMEOUT);
            REQUIRE(missed == lost);
            REQUIRE((int)w->kernel == kernel && w->epoch > 0);
        }
        begin = seconds(); /* later kernels leave at once */
        launch(f, &c, 0);
        use(f, 0);
        REQUIRE_CUDA(cudaStreamSynchronize(f->nodes[0].stream));
        REQUIRE(seconds() - begin < 0.1);
        for (int r = 0; r < f->size; r++)
            f->nodes[r].world.timeout_ns = 20000000000u;
        peer_ranks_clear(f->nodes, f->size, 1);
        run_case(f, &c);
    }
}

static void test_abort(struct fixture *f)
{
    struct peer_case c = {.kernel = two_shot_of(f),
                          .type = ALNICO_FLOAT32,
                          .op = ALNICO_SUM,
                          .count = 1000,
                          .blocks = few_blocks(f)};
    if (f->size < 3)
        return;
    launch_others(f, &c);
    pause_for(0.05);
    use(f, 0);
    REQUIRE(cudaStreamQuery(f->nodes[0].stream) == cudaErrorNotReady);
    *(volatile uint32_t *)&f->nodes[0].words->abort = 1;
    require_left(f, 2);
    REQUIRE(fault_of(f, 0) == PEER_FAULT_ABORTED);
    for (int r = 1; r < f->size - 1; r++) {
        REQUIRE(fault_of(f, r) == PEER_FAULT_REPORTED);
        REQUIRE(f->nodes[r].words->rank == 0);
    }
    peer_ranks_clear(f->nodes, f->size, 1);
    run_case(f, &c);
}

static void test_two_at_once(struct fixture *f)
{
    struct peer_case c = {.kernel = one_shot_of(f),
                          .type = ALNICO_FLOAT32,
                          .op = ALNICO_SUM,
                          .count = 100,
                          .blocks = 1};
    cudaStream_t own = f->nodes[0].stream, other;
    use(f, 0);
    REQUIRE_CUDA(cudaStreamCreateWithFlags(&other, cudaStreamNonBlocking));
    fill_all(f, &c);
    launch(f, &c, 0);
    f->nodes[0].stream = other;
    launch(f, &c, 0);
    f->nodes[0].stream = own;
    use(f, 0);
    REQUIRE_CUDA(cudaStreamSynchronize(own));
    REQUIRE_CUDA(cudaStreamSynchronize(other));
    if (fault_of(f, 0) != PEER_FAULT_BUSY)
        fprintf(stderr, "fault %u\n", fault_of(f, 0));
    REQUIRE(fault_of(f, 0) == PEER_FAULT_BUSY);
    REQUIRE_CUDA(cudaStreamDestroy(other));
    peer_ranks_clear(f->nodes, f->size, 1);
    run_case(f, &c);
}

/* ---- All numbers of ranks ---- */

#define RUN(call)                                                                                  \
    do {                                                                                           \
        double begin_ = seconds();                                                                 \
        call;                                                                                      \
        printf("  %-36s %6.2f s, %ld cases so far\n", #call, seconds() - begin_, cases);           \
        fflush(stdout);                                                                            \
    } while (0)

static void run_size(int size, int gpus, bool shared)
{
    static struct fixture fixture;
    struct fixture *f = &fixture;
    printf("%d ranks on %d GPUs, %s memory\n", size, gpus, shared ? "the host's" : "their own");
    fixture_create(f, size, gpus, shared, 20);
    RUN(test_all_kinds(f));
    RUN(test_large(f));
    RUN(test_random_calls(f, 500));
    RUN(test_graphs(f));
    RUN(test_wrap(f));
    RUN(test_stale_flags(f));
    RUN(test_late_rank(f));
    RUN(test_lost_rank(f));
    RUN(test_abort(f));
    RUN(test_two_at_once(f));
    fixture_destroy(f);
}

int main(int argc, char **argv)
{
    static const int more[] = {2, 3, 4, 5, 8};
    setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", 1); /* no two ranks' streams in one queue */
    seed = argc > 1 ? strtoull(argv[1], NULL, 10) : (uint64_t)time(NULL);
    int limit = argc > 2 ? atoi(argv[2]) : RANKS, gpus = peer_ranks_gpus();
    if (gpus == 0) {
        printf("no GPU: skipped\n");
        return 77;
    }
    printf("seed %llu, %d GPUs\n", (unsigned long long)seed, gpus);
    gpus = gpus > RANKS ? RANKS : gpus;
    for (size_t i = 0; i < sizeof more / sizeof *more; i++)
        for (int shared = 0; shared < 2 && more[i] <= limit; shared++)
            run_size(more[i], more[i] < gpus ? more[i] : more[i] % gpus == 0 ? gpus : 1, shared);
    printf("all %ld cases right\n", cases);
    return 0;
}
