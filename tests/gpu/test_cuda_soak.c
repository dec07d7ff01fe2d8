/*
 * Many operations on GPUs: random ones on three communicators and three streams, in a random order
 * that all ranks share, blocking, nonblocking and in graphs, every result checked; and eight
 * communicators at once, in orders that differ between the ranks.
 *
 *     gpu_cuda_soak                  ranks as threads, on 1 to 4 GPUs one after the other
 *     mpirun -n 4 gpu_cuda_soak      a process a GPU
 *
 * GPU_OPERATIONS: random operations, 20000 by default; as threads, a quarter of them on each number
 * of ranks.
 */
#include "base/datatype.h"
#include "tests/gpu/support/graph.h"
#include "tests/support/reference.h"

#include <stdio.h>
#include <stdlib.h>

enum { MEGABYTE = 1 << 20, SLOTS = 6, LANES = 3, COUNT_MOST = 8192, CHECKED = 512 };

/* ---- Random operations ---- */

/* One call after the other, with its own buffers; what it does is the same on all ranks. */
struct slot {
    struct gpu_vector v;
    char *send, *recv;        /* on the GPU */
    char *input, *output;     /* pinned */
    alnico_request_t request; /* until it is waited for */
    cudaEvent_t done;         /* the output is there */
    bool used, in_place;
    int end;               /* how a request ends */
    cudaGraphExec_t graph; /* NULL: eager */
};

/* A communicator with its stream. The last slots are the graphs'. */
struct lane {
    struct gpu_site site;
    struct slot slots[SLOTS];
    struct gpu_way way;
    int next;
};

static void slot_open(struct slot *slot, struct gpu_site *site, bool registered)
{
    size_t bytes = COUNT_MOST * 8;
    struct gpu_arena *arena = registered ? &site->shared : &site->plain;
    void *memory;
    *slot =
        (struct slot){.send = gpu_arena_take(arena, bytes), .recv = gpu_arena_take(arena, bytes)};
    CUDA(cudaMallocHost(&memory, 2 * bytes));
    slot->input = memory;
    slot->output = slot->input + bytes;
    CUDA(cudaEventCreateWithFlags(&slot->done, cudaEventDisableTiming));
}

static void slot_close(struct slot *slot, struct gpu_site *site, bool registered)
{
    struct gpu_arena *arena = registered ? &site->shared : &site->plain;
    CUDA(cudaEventDestroy(slot->done));
    CUDA(cudaFreeHost(slot->input));
    if (slot->graph)
        CUDA(cudaGraphExecDestroy(slot->graph));
    gpu_arena_give(arena);
    gpu_arena_give(arena);
}

/* Few are large. What the way may refuse becomes what no way does. */
static void choose_vector(struct slot *slot, const struct gpu_way *way, uint64_t random)
{
    do {
        slot->v.type = (alnico_datatype_t)(random % DATATYPES);
        slot->v.op = (alnico_op_t)((random >> 8) % OPS);
        random = random * 0x9e3779b97f4a7c15u + 1;
        random ^= random >> 29;
    } while (!op_supports(slot->v.op, slot->v.type));
    slot->v.count = (random >> 16) % ((size_t)1 << ((random >> 40) % 14)); /* below COUNT_MOST */
    struct allreduce_case c = {.count = slot->v.count, .type = slot->v.type, .op = slot->v.op};
    if (gpu_may_refuse(&c, way))
        slot->v = (struct gpu_vector){slot->v.count % 1000, ALNICO_FLOAT32, ALNICO_SUM, 0};
    slot->in_place = random >> 50 & 1;
    slot->end = (int)(random >> 52 & 3);
}

static void fetch(struct slot *slot, struct gpu_site *site)
{
    CUDA(cudaMemcpyAsync(slot->output, slot->recv, gpu_vector_bytes(&slot->v),
                         cudaMemcpyDeviceToHost, site->stream));
    CUDA(cudaEventRecord(slot->done, site->stream));
}

static void end_request(struct slot *slot)
{
    bool done = false;
    if (slot->end == 1)
        REQUIRE_STATUS(alnico_request_synchronize(&slot->request), ALNICO_SUCCESS);
    else if (slot->end == 2)
        while (!done)
            REQUIRE_STATUS(alnico_test(&slot->request, &done), ALNICO_SUCCESS);
    else
        REQUIRE_STATUS(alnico_wait(&slot->request), ALNICO_SUCCESS);
}

/* A part of a long vector, another one each time. */
static void check(const struct slot *slot, const struct gpu_rank *rank)
{
    const struct gpu_vector *v = &slot->v;
    size_t first = v->count > CHECKED ? v->seed % (v->count - CHECKED) : 0;
    size_t last = v->count > CHECKED ? first + CHECKED : v->count;
    int ranks[GPU_RANKS] = {0, 1, 2, 3};
    char text[128];
    REQUIRE(rank->size <= GPU_RANKS);
    if (!reference_check_part(slot->output, first, last, v->type, v->op, v->seed, ranks, rank->size,
                              text, sizeof text))
        return;
    fprintf(stderr, "rank %d of %d, seed %llu, %zu %s, %s, in place %d, graph %d: %s\n", rank->rank,
            rank->size, (unsigned long long)v->seed, v->count, datatype_name(v->type),
            op_name(v->op), slot->in_place, slot->graph != NULL, text);
    REQUIRE(!"right");
}

static void finish(struct slot *slot, struct gpu_site *site)
{
    if (!slot->used)
        return;
    if (slot->request) {
        end_request(slot);
        fetch(slot, site);
    }
    CUDA(cudaEventSynchronize(slot->done));
    check(slot, site->rank);
    slot->used = false;
}

static void supply(struct slot *slot, struct gpu_site *site, uint64_t seed)
{
    slot->v.seed = seed;
    slot->used = true;
    reference_fill(slot->input, slot->v.count, slot->v.type, slot->v.op, seed, site->rank->rank);
    CUDA(cudaMemcpyAsync(slot->in_place ? slot->recv : slot->send, slot->input,
                         gpu_vector_bytes(&slot->v), cudaMemcpyHostToDevice, site->stream));
}

static alnico_status_t call(struct slot *slot, struct gpu_site *site, bool nonblocking)
{
    const void *send = slot->in_place ? ALNICO_IN_PLACE : slot->send;
    const struct gpu_vector *v = &slot->v;
    if (nonblocking)
        return alnico_iallreduce(send, slot->recv, v->count, v->type, v->op, site->comm,
                                 &slot->request);
    return alnico_allreduce(send, slot->recv, v->count, v->type, v->op, site->comm);
}

/* The graph is ordered with the communicator's stream only. */
static void join_all(struct lane *lane)
{
    for (int k = 0; k < SLOTS; k++) {
        struct slot *slot = &lane->slots[k];
        if (slot->used && slot->request) {
            end_request(slot);
            fetch(slot, &lane->site);
        }
    }
}

static void operate(struct lane *lane, uint64_t random, uint64_t seed)
{
    struct slot *slot = &lane->slots[lane->next++ % SLOTS];
    finish(slot, &lane->site);
    if (!slot->graph)
        choose_vector(slot, &lane->way, random >> 8);
    supply(slot, &lane->site, seed);
    if (slot->graph) {
        join_all(lane);
        gpu_replay(&lane->site, slot->graph);
    } else {
        REQUIRE_STATUS(call(slot, &lane->site, random & 1), ALNICO_SUCCESS);
    }
    if (!slot->request)
        fetch(slot, &lane->site);
}

/* Slots with a graph of one call on their buffers; one is nonblocking in it. */
static void capture_slot(struct lane *lane, struct slot *slot, int k)
{
    slot->v =
        (struct gpu_vector){k ? 3001 : 200, k ? ALNICO_BFLOAT16 : ALNICO_FLOAT32, ALNICO_SUM, 0};
    slot->in_place = k;
    gpu_capture_begin(&lane->site);
    REQUIRE_STATUS(call(slot, &lane->site, k), ALNICO_SUCCESS);
    if (slot->request)
        REQUIRE_STATUS(alnico_wait(&slot->request), ALNICO_SUCCESS);
    slot->graph = gpu_capture_end(&lane->site);
}

static void lane_open(struct lane *lane, struct gpu_rank *rank)
{
    *lane = (struct lane){.next = 0};
    gpu_site_open(&lane->site, rank, MEGABYTE);
    gpu_way_at(0, &lane->way);
    bool captures = gpu_can_capture(&lane->site);
    for (int k = 0; k < SLOTS; k++) {
        slot_open(&lane->slots[k], &lane->site, k % 2);
        if (captures && k >= SLOTS - 2)
            capture_slot(lane, &lane->slots[k], k % 2);
    }
}

static void lane_close(struct lane *lane)
{
    for (int k = 0; k < SLOTS; k++)
        finish(&lane->slots[k], &lane->site);
    REQUIRE_STATUS(alnico_synchronize(lane->site.comm), ALNICO_SUCCESS);
    for (int k = 0; k < SLOTS; k++)
        slot_close(&lane->slots[k], &lane->site, k % 2);
    gpu_site_close(&lane->site);
}

/* Now and then another way for a communicator's calls. */
static void change_way(struct lane *lane, uint64_t random)
{
    static const char *const names[] = {
        "one_shot_line", "two_shot_staged", "nccl", "recursive_doubling", "ring", "two_shot_line"};
    gpu_way_at(0, &lane->way);
    if (random % 3)
        lane->way = gpu_way_named(names[random / 3 % (sizeof names / sizeof *names)]);
    if (gpu_force(&lane->site, &lane->way))
        return;
    gpu_way_at(0, &lane->way);
    gpu_force(&lane->site, &lane->way);
}

static void random_operations(struct gpu_rank *rank)
{
    struct lane lanes[LANES];
    int operations = gpu_number("GPU_OPERATIONS", 20000) / (rank->mpi ? 1 : GPU_RANKS);
    for (int l = 0; l < LANES; l++)
        lane_open(&lanes[l], rank);
    for (int i = 0; i < operations; i++) {
        uint64_t random = reference_random(rank->seed, (uint64_t)i, 1);
        struct lane *lane = &lanes[random % LANES];
        if (i % 1000 == 999)
            change_way(lane, random >> 20);
        operate(lane, random >> 2, rank->seed + 7 * (uint64_t)i);
    }
    for (int l = 0; l < LANES; l++)
        lane_close(&lanes[l]);
    gpu_note(rank, "%d operations", operations);
}

/* ---- Orders that differ ---- */

enum { CROWD = 8 };

/* A permutation of the communicators. */
static void shuffle(int *order, uint64_t seed, uint64_t salt)
{
    for (int i = 0; i < CROWD; i++) {
        int j = (int)(reference_random(seed, salt, (uint64_t)i) % (uint64_t)(i + 1));
        order[i] = order[j];
        order[j] = i;
    }
}

/* Every rank issues on the communicators in an order of its own, each on a stream of its own: all
 * must be resident on the GPU at once. Nothing but the allreduces is in the streams, and the host
 * waits after each round. */
static void eight_communicators_in_any_order(struct gpu_rank *rank)
{
    enum { ROUNDS = 300, COUNT = 400 };
    static const size_t counts[] = {1, 30, COUNT, 100};
    struct gpu_site sites[CROWD];
    struct gpu_tally tallies[CROWD];
    struct gpu_way one_shot = gpu_way_named("one_shot");
    for (int i = 0; i < CROWD; i++) {
        gpu_site_open(&sites[i], rank, 1 << 16);
        REQUIRE(gpu_force(&sites[i], &one_shot));
        gpu_tally_open(&tallies[i], &sites[i], counts[i % 4]);
    }
    for (uint64_t round = 0; round < ROUNDS; round++) {
        int order[CROWD];
        shuffle(order, rank->seed, round * 64 + (uint64_t)rank->rank);
        for (int k = 0; k < CROWD; k++)
            gpu_tally_call(&tallies[order[k]], sites[order[k]].comm, false);
        for (int k = 0; k < CROWD; k++) {
            REQUIRE_STATUS(alnico_synchronize(sites[k].comm), ALNICO_SUCCESS);
            gpu_tally_add(&tallies[k], 1);
        }
    }
    for (int i = 0; i < CROWD; i++)
        gpu_tally_close(&tallies[i], "one of eight communicators");
    for (int i = 0; i < CROWD; i++)
        gpu_site_close(&sites[i]);
}

int main(void)
{
    static const struct gpu_test tests[] = {
        GPU_TEST(random_operations, 1),
        GPU_TEST(eight_communicators_in_any_order, 2),
    };
    char watchdog[16];
    snprintf(watchdog, sizeof watchdog, "%d", 60 + gpu_number("GPU_OPERATIONS", 20000) / 200);
    setenv("GPU_WATCHDOG", watchdog, 0);
    return gpu_world_run(tests, sizeof tests / sizeof *tests);
}
