/*
 * Times the peer backend's kernels, one by one: every kernel x blocks x threads over 8 B to 256 MB,
 * in CUDA graphs of 20 calls and eager, in place, float32 sum, ranks as threads with a GPU each;
 * and NCCL beside them. Each configuration's results are checked first. Small kernels are also
 * launched separately, after the one before has ended ("/1" in the tables). Prints the best few of each size; --json
 * FILE gets all.
 *
 * peer_kernels [--gpus N] [--json FILE] [--seconds LIMIT] [--from BYTES] [--to BYTES] [--type
 * float32|bfloat16]
 */
#include "base/replace.h"
#include "comm/backends/peer_cuda/peer_cuda.h"
#include "tests/gpu/support/peer_ranks.h"
#include "tools/common/program.h"

#include <alnico/alnico.h>

#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#ifdef HAVE_NCCL
#include <nccl.h>
#endif

enum { CALLS = 20, CONFIGS = 4096, BEST = 4, REPEATS = 5 };

enum way { WAY_PEER, WAY_NCCL, WAY_SYMMETRIC };

struct config {
    enum way way;
    int kernel; /* its place in peer_cuda_kernels; PEER_CUDA_KERNELS: none */
    size_t bytes;
    struct peer_grid grid;
    bool separate;
    bool checked;
    double graph_us, eager_us; /* a call; 0: not measured */
};

static struct {
    int gpus, type;
    double seconds;
    size_t from, to;
    const char *json;
    int count;
    struct config configs[CONFIGS];
    struct peer_node nodes[PEER_GPUS];
    char *buffers[PEER_GPUS][2]; /* cudaMalloc'ed: vector, result */
    double times[PEER_GPUS];
    bool failed, late;
    pthread_barrier_t barrier;
#ifdef HAVE_NCCL
    ncclUniqueId id;
    void *symmetric[PEER_GPUS];
    bool have_symmetric;
#endif
} bench = {.gpus = 0, .type = ALNICO_FLOAT32, .seconds = 75, .from = 8, .to = 256 << 20};

static const char *name_of(const struct config *c)
{
    return c->way == WAY_NCCL        ? "nccl"
           : c->way == WAY_SYMMETRIC ? "nccl_symmetric"
                                     : peer_cuda_kernels[c->kernel].name;
}

static double now_us(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e6 + (double)t.tv_nsec * 1e-3;
}

/* ---- What is measured ---- */

static void append(const struct config *c)
{
    for (int i = bench.count - 1; i >= 0 && bench.configs[i].bytes == c->bytes; i--) {
        const struct config *other = &bench.configs[i];
        if (other->way == c->way && other->kernel == c->kernel && other->separate == c->separate &&
            memcmp(&other->grid, &c->grid, sizeof c->grid) == 0)
            return;
    }
    if (bench.count < CONFIGS)
        bench.configs[bench.count++] = *c;
}

static void add_peer(int kernel, size_t bytes, int blocks, int threads, bool separate)
{
    struct config c = {.way = WAY_PEER, .kernel = kernel, .bytes = bytes, .separate = separate};
    if (!peer_kernel_fits(&peer_cuda_kernels[kernel], &bench.nodes[0].world, bytes))
        return;
    peer_kernel_grid(&peer_cuda_kernels[kernel], &bench.nodes[0].world, bytes, blocks, &c.grid);
    if (threads && c.grid.threads > threads)
        c.grid.threads = threads;
    append(&c);
}

/* `threads` ends with 0; grids with far too much or too little for a lane are left out. */
static void add_grids(int kernel, size_t bytes, const int *threads, bool separate_too)
{
    static const int blocks[] = {1, 2, 4, 8, 16, 24, 32, 48, 64, 80, 96};
    size_t lanes = kernel == PEER_CUDA_ONE_SHOT ? bytes / 8 : bytes / 15;
    for (size_t b = 0; b < sizeof blocks / sizeof *blocks; b++) {
        size_t each = lanes / (size_t)blocks[b];
        for (int t = 0; threads[t] && each <= 4096 && (each >= 24 || blocks[b] == 1); t++)
            for (int separate = 0; separate <= separate_too; separate++)
                add_peer(kernel, bytes, blocks[b], threads[t], separate);
    }
}

static void plan(void)
{
    static const int few[] = {512, 256, 0}, more[] = {512, 256, 128, 0};
    for (size_t bytes = bench.from; bytes <= bench.to; bytes *= 2) {
#ifdef HAVE_NCCL
        append(&(struct config){.way = WAY_NCCL, .kernel = PEER_CUDA_KERNELS, .bytes = bytes});
        append(&(struct config){.way = WAY_SYMMETRIC, .kernel = PEER_CUDA_KERNELS, .bytes = bytes});
#endif
        if (bytes <= 16 << 10)
            add_grids(PEER_CUDA_ONE_SHOT, bytes, few, false);
        if (bytes <= 512 << 10)
            add_grids(PEER_CUDA_ONE_SHOT_LINE, bytes, more, true);
        if (bytes >= 64 << 10 && bytes <= 4 << 20)
            add_grids(PEER_CUDA_TWO_SHOT_LINE, bytes, few, true);
        if (bytes <= 64 << 10)
            add_peer(PEER_CUDA_RECURSIVE_DOUBLING, bytes, 0, 0, false);
        for (int blocks = 16; bytes >= 4 << 20 && blocks <= 80; blocks += 16)
            add_peer(PEER_CUDA_TWO_SHOT_STAGED, bytes, blocks, 0, false);
        for (int blocks = 8; bytes >= 256 << 10 && blocks <= 64; blocks *= 2)
            add_peer(PEER_CUDA_TWO_SHOT_DIRECT, bytes, blocks, 0, false);
    }
}

/* ---- One rank ---- */

struct rank {
    int rank;
    struct peer_node *node;
#ifdef HAVE_NCCL
    ncclComm_t comm;
#endif
};

#ifdef HAVE_NCCL
static void require_nccl(ncclResult_t result, const char *what)
{
    if (result == ncclSuccess)
        return;
    fprintf(stderr, "%s: %s\n", what, ncclGetErrorString(result));
    exit(1);
}
#endif

static void enqueue(const struct rank *self, const struct config *c, const struct peer_arguments *a)
{
#ifdef HAVE_NCCL
    if (c->way != WAY_PEER) {
        void *buffer =
            c->way == WAY_NCCL ? bench.buffers[self->rank][1] : bench.symmetric[self->rank];
        size_t count = c->bytes / (bench.type == ALNICO_FLOAT32 ? 4 : 2);
        require_nccl(ncclAllReduce(buffer, buffer, count,
                                   bench.type == ALNICO_FLOAT32 ? ncclFloat32 : ncclBfloat16,
                                   ncclSum, self->comm, self->node->stream),
                     "ncclAllReduce");
        return;
    }
#endif
    int error = peer_kernel_launch(&self->node->functions, a, &c->grid, self->node->stream);
    if (error)
        fprintf(stderr, "%s, %zu bytes, %d x %d, separate %d\n", name_of(c), c->bytes,
                c->grid.blocks, c->grid.threads, c->separate);
    REQUIRE_CUDA(error);
}

static void prepare(const struct rank *self, const struct config *c, bool in_place,
                    struct peer_arguments *a)
{
    char **own = bench.buffers[self->rank];
    if (c->way != WAY_PEER)
        return;
    for (int r = 0; r < bench.gpus; r++) {
        a->sends[r] = bench.buffers[r][in_place ? 1 : 0];
        a->recvs[r] = bench.buffers[r][1];
    }
    a->world = self->node->world;
    a->world.modern &= !c->separate;
    a->send = own[in_place ? 1 : 0];
    a->recv = own[1];
    a->bytes = c->bytes;
    a->type = bench.type;
    a->op = ALNICO_SUM;
    a->kernel = c->kernel;
    a->root = 0;
    peer_arguments_finish(a, &peer_cuda_kernels[c->kernel], &c->grid);
}

/* Small integers, which every type holds exactly with their sum. */
static float input(size_t i, int rank)
{
    return (float)((i * 7 + (size_t)rank * 3) % 31);
}

static float element_at(const char *vector, size_t i)
{
    uint32_t bits;
    float value;
    uint16_t half;
    if (bench.type == ALNICO_FLOAT32) {
        memcpy(&bits, vector + 4 * i, 4);
    } else {
        memcpy(&half, vector + 2 * i, 2);
        bits = (uint32_t)half << 16;
    }
    memcpy(&value, &bits, 4);
    return value;
}

static void fill(int rank, size_t bytes)
{
    size_t element = bench.type == ALNICO_FLOAT32 ? 4 : 2, count = bytes / element;
    char *vector = malloc(bytes);
    for (size_t i = 0; i < count; i++) {
        float value = input(i, rank);
        uint32_t bits;
        memcpy(&bits, &value, 4);
        memcpy(vector + i * element, (char *)&bits + 4 - element, element);
    }
    REQUIRE_CUDA(cudaMemcpy(bench.buffers[rank][0], vector, bytes, cudaMemcpyHostToDevice));
    free(vector);
}

/* The first and last megabyte of one call's result. */
static void check(const struct rank *self, const struct config *c, char *host)
{
    size_t element = bench.type == ALNICO_FLOAT32 ? 4 : 2, part = 1 << 20;
    size_t begins[2] = {0, c->bytes > part ? c->bytes - part : 0};
    struct peer_arguments a;
    prepare(self, c, false, &a);
    REQUIRE_CUDA(cudaMemsetAsync(bench.buffers[self->rank][1], 0xff, c->bytes, self->node->stream));
    enqueue(self, c, &a);
    REQUIRE_CUDA(cudaStreamSynchronize(self->node->stream));
    for (int p = 0; p < 2; p++) {
        size_t bytes = c->bytes - begins[p] < part ? c->bytes - begins[p] : part;
        REQUIRE_CUDA(cudaMemcpy(host, bench.buffers[self->rank][1] + begins[p], bytes,
                                cudaMemcpyDeviceToHost));
        for (size_t i = 0; i < bytes / element; i++) {
            size_t at = begins[p] / element + i;
            float expected = 0;
            for (int r = 0; r < bench.gpus; r++)
                expected += input(at, r);
            if (element_at(host, i) == expected)
                continue;
            fprintf(stderr,
                    "WRONG: rank %d, %s, %zu bytes, %d x %d, separate %d: [%zu] is %g, not %g\n",
                    self->rank, name_of(c), c->bytes, c->grid.blocks, c->grid.threads, c->separate,
                    at, (double)element_at(host, i), (double)expected);
            bench.failed = true;
            return;
        }
    }
    const volatile struct peer_words *words = self->node->words;
    if (words->fault) {
        fprintf(stderr, "FAULT %u: rank %d misses %u in epoch %llu: %s, %zu bytes, %d x %d\n",
                words->fault, self->rank, words->rank, (unsigned long long)words->epoch, name_of(c),
                c->bytes, c->grid.blocks, c->grid.threads);
        bench.failed = true;
    }
}

/* The longest of all ranks. */
static double agree(const struct rank *self, double mine)
{
    bench.times[self->rank] = mine;
    pthread_barrier_wait(&bench.barrier);
    double longest = 0;
    for (int r = 0; r < bench.gpus; r++)
        longest = bench.times[r] > longest ? bench.times[r] : longest;
    pthread_barrier_wait(&bench.barrier);
    return longest;
}

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* One more launch before the first event, so that all ranks are together when time begins. */
static double time_calls(const struct rank *self, const struct config *c,
                         const struct peer_arguments *a, cudaGraphExec_t graph, int launches,
                         int calls, cudaEvent_t *events)
{
    cudaStream_t stream = self->node->stream;
    double times[REPEATS];
    for (int k = 0; k < REPEATS; k++) {
        pthread_barrier_wait(&bench.barrier);
        for (int i = -1; i < launches; i++) {
            if (i == 0)
                REQUIRE_CUDA(cudaEventRecord(events[0], stream));
            if (graph)
                REQUIRE_CUDA(cudaGraphLaunch(graph, stream));
            else
                for (int j = 0; j < calls; j++)
                    enqueue(self, c, a);
        }
        REQUIRE_CUDA(cudaEventRecord(events[1], stream));
        REQUIRE_CUDA(cudaStreamSynchronize(stream));
        float ms;
        REQUIRE_CUDA(cudaEventElapsedTime(&ms, events[0], events[1]));
        times[k] = agree(self, (double)ms * 1e3 / launches / calls);
    }
    qsort(times, REPEATS, sizeof *times, compare);
    return times[REPEATS / 2];
}

static void measure(const struct rank *self, struct config *c, char *host, cudaEvent_t *events)
{
    struct peer_arguments a;
    cudaStream_t stream = self->node->stream;
    int calls = c->bytes > 16 << 20 ? 4 : CALLS, launches = c->bytes > 1 << 20 ? 1 : 3;
    cudaGraph_t graph;
    cudaGraphExec_t executable;
    if (c->way == WAY_PEER)
        check(self, c, host);
    REQUIRE_CUDA(cudaMemsetAsync(bench.buffers[self->rank][1], 0, c->bytes, stream));
    REQUIRE_CUDA(cudaStreamSynchronize(stream));
    pthread_barrier_wait(&bench.barrier);
    if (bench.failed)
        return;
    prepare(self, c, true, &a);
    if (c->way != WAY_PEER) { /* NCCL connects at its first call */
        enqueue(self, c, &a);
        REQUIRE_CUDA(cudaStreamSynchronize(stream));
    }
    REQUIRE_CUDA(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
    for (int i = 0; i < calls; i++)
        enqueue(self, c, &a);
    REQUIRE_CUDA(cudaStreamEndCapture(stream, &graph));
    REQUIRE_CUDA(cudaGraphInstantiateWithFlags(&executable, graph, 0));
    double graph_us = time_calls(self, c, &a, executable, launches, calls, events);
    double eager_us = 0;
    if (c->bytes <= 1 << 20 || c->way != WAY_PEER)
        eager_us = time_calls(self, c, &a, NULL, launches, calls, events);
    REQUIRE_CUDA(cudaGraphExecDestroy(executable));
    REQUIRE_CUDA(cudaGraphDestroy(graph));
    if (self->rank == 0) {
        c->graph_us = graph_us;
        c->eager_us = eager_us;
    }
}

/* Microseconds of the host for one launch, with the device behind. */
static double host_us(const struct rank *self, const struct config *c)
{
    enum { LAUNCHES = 200, TIMES = 20 };
    struct peer_arguments a;
    double best = 1e9;
    for (int k = 0; k < TIMES; k++) {
        prepare(self, c, true, &a);
        REQUIRE_CUDA(cudaStreamSynchronize(self->node->stream));
        pthread_barrier_wait(&bench.barrier);
        double begin = now_us();
        for (int i = 0; i < LAUNCHES; i++)
            enqueue(self, c, &a);
        double us = (now_us() - begin) / LAUNCHES;
        best = us < best ? us : best;
        REQUIRE_CUDA(cudaStreamSynchronize(self->node->stream));
    }
    return best;
}

static void measure_host(const struct rank *self)
{
    struct config c = {.way = WAY_PEER, .kernel = PEER_CUDA_ONE_SHOT, .bytes = 8};
    peer_kernel_grid(&peer_cuda_kernels[c.kernel], &bench.nodes[0].world, c.bytes, 0, &c.grid);
    double call = host_us(self, &c);
    if (self->rank == 0)
        printf("host: a launch of one_shot of 8 B %.2f us\n", call);
}

#ifdef HAVE_NCCL
static void connect_nccl(struct rank *self)
{
    require_nccl(ncclCommInitRank(&self->comm, bench.gpus, bench.id, self->rank),
                 "ncclCommInitRank");
    require_nccl(ncclMemAlloc(&bench.symmetric[self->rank], bench.to), "ncclMemAlloc");
    ncclWindow_t window;
    ncclResult_t result = ncclCommWindowRegister(self->comm, bench.symmetric[self->rank], bench.to,
                                                 &window, NCCL_WIN_COLL_SYMMETRIC);
    if (self->rank == 0 && result != ncclSuccess)
        printf("no symmetric windows: %s\n", ncclGetErrorString(result));
}
#endif

static void *run_rank(void *argument)
{
    struct rank *self = argument;
    char *host = malloc(1 << 20);
    cudaEvent_t events[2];
    REQUIRE_CUDA(cudaSetDevice(self->node->device));
    for (int i = 0; i < 2; i++) {
        REQUIRE_CUDA(cudaMalloc((void **)&bench.buffers[self->rank][i], bench.to));
        REQUIRE_CUDA(cudaEventCreate(&events[i]));
    }
    fill(self->rank, bench.to);
#ifdef HAVE_NCCL
    connect_nccl(self);
#endif
    pthread_barrier_wait(&bench.barrier);
    measure_host(self);
    double begin = now_us();
    for (int i = 0; i < bench.count && !bench.failed; i++) {
        measure(self, &bench.configs[i], host, events);
        if (self->rank == 0)
            bench.late = now_us() - begin > bench.seconds * 1e6;
        pthread_barrier_wait(&bench.barrier);
        if (bench.late)
            break;
    }
    free(host);
    return NULL;
}

/* ---- What is printed ---- */

static double time_of(const struct config *c, bool eager)
{
    return eager ? c->eager_us : c->graph_us;
}

/* The fastest of ours that is slower than `than`; of other kernels only, if `other`. */
static const struct config *next_best(size_t bytes, bool eager, const struct config *const *chosen,
                                      int number)
{
    const struct config *best = NULL;
    for (int i = 0; i < bench.count; i++) {
        const struct config *c = &bench.configs[i];
        bool fits = c->way == WAY_PEER && c->bytes == bytes && time_of(c, eager) > 0;
        for (int k = 0; k < number && fits; k++)
            fits = c != chosen[k];
        if (fits && (!best || time_of(c, eager) < time_of(best, eager)))
            best = c;
    }
    return best;
}

static double peer_time(size_t bytes, enum way way, bool eager)
{
    for (int i = 0; i < bench.count; i++)
        if (bench.configs[i].way == way && bench.configs[i].bytes == bytes)
            return time_of(&bench.configs[i], eager);
    return 0;
}

static void print_size(size_t bytes, bool eager)
{
    const struct config *chosen[BEST];
    double plain = peer_time(bytes, WAY_NCCL, eager),
           symmetric = peer_time(bytes, WAY_SYMMETRIC, eager);
    double least = symmetric > 0 && symmetric < plain ? symmetric : plain;
    printf("%10zu %8.2f %8.2f", bytes, plain, symmetric);
    for (int k = 0; k < BEST; k++) {
        const struct config *c = chosen[k] = next_best(bytes, eager, chosen, k);
        if (!c)
            break;
        if (k == 0)
            printf("  %5.2f", least > 0 ? time_of(c, eager) / least : 0);
        printf(" | %8.2f %s %dx%d/%d", time_of(c, eager), name_of(c), c->grid.blocks,
               c->grid.threads, c->separate);
    }
    printf("\n");
}

/* The best grid of every kernel. */
static void print_kernels(size_t bytes, bool eager)
{
    printf("%10zu", bytes);
    for (int kernel = 0; kernel < PEER_CUDA_ALLREDUCES; kernel++) {
        const struct config *best = NULL;
        for (int i = 0; i < bench.count; i++) {
            const struct config *c = &bench.configs[i];
            if (c->way == WAY_PEER && c->bytes == bytes && c->kernel == kernel &&
                time_of(c, eager) > 0 && (!best || time_of(c, eager) < time_of(best, eager)))
                best = c;
        }
        if (best)
            printf(" | %8.2f %3dx%4d/%d", time_of(best, eager), best->grid.blocks,
                   best->grid.threads, best->separate);
        else
            printf(" | %-19s", "");
    }
    printf("\n");
}

static void print_tables(void)
{
    for (int eager = 0; eager < 2; eager++) {
        printf("\n%s, us: bytes, nccl, symmetric, ours/best nccl | best of ours\n",
               eager ? "eager" : "graph");
        for (size_t bytes = bench.from; bytes <= bench.to; bytes *= 2)
            print_size(bytes, eager);
        printf("\n%s, us, best of: ", eager ? "eager" : "graph");
        for (int kernel = 0; kernel < PEER_CUDA_ALLREDUCES; kernel++)
            printf(" %s", peer_cuda_kernels[kernel].name);
        printf("\n");
        for (size_t bytes = bench.from; bytes <= bench.to; bytes *= 2)
            print_kernels(bytes, eager);
    }
}

static void write_json(void)
{
    struct replacement json;
    program_check(replacement_begin(bench.json, REPLACEMENT_ANY, &json), "--json");
    fprintf(json.file, "{\"gpus\": %d, \"type\": \"%s\", \"results\": [", bench.gpus,
            bench.type == ALNICO_FLOAT32 ? "float32" : "bfloat16");
    for (int i = 0; i < bench.count; i++) {
        const struct config *c = &bench.configs[i];
        fprintf(json.file,
                "%s\n{\"bytes\": %zu, \"name\": \"%s\", \"blocks\": %d, \"threads\": %d, "
                "\"separate\": %d, \"graph_us\": %.3f, \"eager_us\": %.3f}",
                i ? "," : "", c->bytes, name_of(c), c->grid.blocks, c->grid.threads, c->separate,
                c->graph_us, c->eager_us);
    }
    fprintf(json.file, "\n]}\n");
    program_check(replacement_finish(&json), "--json");
}

static bool read_arguments(int argc, char **argv)
{
    for (int i = 1; i < argc; i += 2) {
        const char *value = i + 1 < argc ? argv[i + 1] : NULL;
        if (!value)
            return false;
        if (strcmp(argv[i], "--gpus") == 0)
            bench.gpus = atoi(value);
        else if (strcmp(argv[i], "--json") == 0)
            bench.json = value;
        else if (strcmp(argv[i], "--seconds") == 0)
            bench.seconds = atof(value);
        else if (strcmp(argv[i], "--from") == 0)
            bench.from = (size_t)atoll(value);
        else if (strcmp(argv[i], "--to") == 0)
            bench.to = (size_t)atoll(value);
        else if (strcmp(argv[i], "--type") == 0)
            bench.type = strcmp(value, "bfloat16") == 0 ? ALNICO_BFLOAT16 : ALNICO_FLOAT32;
        else
            return false;
    }
    return bench.from >= 8 && bench.to >= bench.from;
}

int main(int argc, char **argv)
{
    pthread_t threads[PEER_GPUS];
    struct rank ranks[PEER_GPUS] = {0};
    program_start();
    if (!read_arguments(argc, argv)) {
        fprintf(stderr,
                "usage: %s [--gpus N] [--json FILE] [--seconds LIMIT] [--from BYTES] "
                "[--to BYTES] [--type float32|bfloat16]\n",
                argv[0]);
        return 2;
    }
    int gpus = peer_ranks_gpus();
    bench.gpus = bench.gpus && bench.gpus < gpus ? bench.gpus : gpus;
    if (bench.gpus < 2 || bench.gpus > PEER_GPUS) {
        printf("peer_kernels needs 2 to %d GPUs that reach each other; there are %d\n", PEER_GPUS,
               gpus);
        return 77;
    }
    setvbuf(stdout, NULL, _IOLBF, 0);
    peer_ranks_create(bench.nodes, bench.gpus, bench.gpus, 5000000000u);
    plan();
    printf("%d GPUs, %d configurations\n", bench.gpus, bench.count);
#ifdef HAVE_NCCL
    setenv("NCCL_NVLS_ENABLE", "0", 0);
    require_nccl(ncclGetUniqueId(&bench.id), "ncclGetUniqueId");
#endif
    pthread_barrier_init(&bench.barrier, NULL, (unsigned)bench.gpus);
    for (int r = 0; r < bench.gpus; r++) {
        ranks[r] = (struct rank){.rank = r, .node = &bench.nodes[r]};
        if (pthread_create(&threads[r], NULL, run_rank, &ranks[r]) != 0)
            return 1;
    }
    for (int r = 0; r < bench.gpus; r++)
        pthread_join(threads[r], NULL);
    print_tables();
    if (bench.json)
        write_json();
    printf("%s%s\n", bench.failed ? "FAILED" : "all right",
           bench.late ? ", cut short by --seconds" : "");
    return bench.failed;
}
