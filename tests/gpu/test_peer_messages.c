/*
 * The peer kernel of messages without a communicator, on as many GPUs as there are; with more ranks
 * than GPUs, several ranks run on one GPU, so that one is enough. Random lists of messages, in
 * groups that each rank cuts otherwise; counts that wrap around; lengths that differ; and a rank
 * that does not come. Arguments: the seed of the inputs, and a limit of ranks.
 */
#include "comm/backends/peer_cuda/messages.h"

#include "comm/algorithms/algorithm.h"
#include "tests/gpu/support/peer_ranks.h"
#include "tests/support/ranks.h"
#include "tests/support/reference.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { ROOM = 4 << 20, MESSAGES = 40, LISTS = 30, POISON = 0x5a, RANKS = PEER_GPUS };

static const uint64_t timeout_ns = 20000000000u;

/* At the same place of the sender's `send` and the receiver's `recv`. */
struct message {
    int from, to;
    size_t at, bytes;
};

static struct fixture {
    int size, gpus;
    struct peer_node nodes[RANKS];
    char *send[RANKS], *recv[RANKS]; /* on the devices */
    char *host, *expected;
    struct message messages[MESSAGES];
    struct peer_messages plan;
} fixture;

static uint64_t seed, drawn;

static uint64_t draw(uint64_t below)
{
    return reference_random(seed, drawn++, 0) % below;
}

/* ---- Ranks ---- */

static void use(const struct fixture *f, int rank)
{
    REQUIRE_CUDA(cudaSetDevice(f->nodes[rank].device));
}

static void fixture_create(struct fixture *f, int size, int gpus)
{
    f->size = size;
    f->gpus = gpus;
    peer_ranks_create(f->nodes, size, gpus, timeout_ns);
    for (int r = 0; r < size; r++) {
        use(f, r);
        REQUIRE_CUDA(cudaMalloc((void **)&f->send[r], ROOM));
        REQUIRE_CUDA(cudaMalloc((void **)&f->recv[r], ROOM));
    }
    f->host = malloc(ROOM);
    f->expected = malloc(ROOM);
    REQUIRE(f->host && f->expected);
}

static void fixture_destroy(struct fixture *f)
{
    for (int r = 0; r < f->size; r++) {
        use(f, r);
        REQUIRE_CUDA(cudaFree(f->send[r]));
        REQUIRE_CUDA(cudaFree(f->recv[r]));
    }
    free(f->host);
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

static void require_no_fault(const struct fixture *f, int list)
{
    for (int r = 0; r < f->size; r++) {
        const struct peer_words *w = f->nodes[r].words;
        if (*(const volatile uint32_t *)&w->fault != PEER_FAULT_NONE)
            fprintf(stderr, "seed %llu, list %d: rank %d of %d: fault %u, rank %u, %llu and %llu\n",
                    (unsigned long long)seed, list, r, f->size, w->fault, w->rank,
                    (unsigned long long)w->sent, (unsigned long long)w->received);
        REQUIRE(w->fault == PEER_FAULT_NONE);
    }
}

/* All units so far, in each strand of each channel. */
static void set_counts(const struct fixture *f, uint32_t units)
{
    enum { WORDS = (PEER_AT_RINGS - PEER_AT_SENT) / 4 };
    static uint32_t counts[WORDS];
    for (int i = 0; i < WORDS; i++)
        counts[i] = units;
    for (int r = 0; r < f->size; r++) {
        use(f, r);
        REQUIRE_CUDA(cudaMemcpy(f->nodes[r].world.own + PEER_AT_SENT, counts, sizeof counts,
                                cudaMemcpyHostToDevice));
        REQUIRE_CUDA(cudaDeviceSynchronize());
    }
}

/* ---- Lists ---- */

static void make_list(struct fixture *f)
{
    static const size_t limits[] = {1, 130, 500, 500, 5000, 70000, 600000};
    uint64_t size = (uint64_t)f->size;
    size_t next = 0;
    for (int m = 0; m < MESSAGES; m++) {
        struct message *message = &f->messages[m];
        *message = (struct message){.from = (int)draw(size), .to = (int)draw(size)};
        message->bytes = draw(limits[draw(sizeof limits / sizeof *limits)]);
        if (next + message->bytes > ROOM - MESSAGES * 1024)
            message->bytes = draw(500);
        message->at = (next + 15) / 16 * 16 + (draw(4) ? 16 : draw(16));
        next = message->at + message->bytes;
    }
    REQUIRE(next <= ROOM);
}

static void put_message(const struct fixture *f, char *to, int m, int list)
{
    const struct message *message = &f->messages[m];
    for (size_t i = 0; i < message->bytes; i += 8) {
        uint64_t word = reference_random(seed + (uint64_t)list, (uint64_t)m, i);
        size_t left = message->bytes - i;
        memcpy(to + message->at + i, &word, left < 8 ? left : 8);
    }
}

static void fill(struct fixture *f, int list)
{
    for (int r = 0; r < f->size; r++) {
        memset(f->host, POISON, ROOM);
        for (int m = 0; m < MESSAGES; m++)
            if (f->messages[m].from == r)
                put_message(f, f->host, m, list);
        use(f, r);
        REQUIRE_CUDA(cudaMemcpy(f->send[r], f->host, ROOM, cudaMemcpyHostToDevice));
        REQUIRE_CUDA(cudaMemset(f->recv[r], POISON, ROOM));
        REQUIRE_CUDA(cudaDeviceSynchronize());
    }
}

static void check(struct fixture *f, int list)
{
    for (int r = 0; r < f->size; r++) {
        memset(f->expected, POISON, ROOM);
        for (int m = 0; m < MESSAGES; m++)
            if (f->messages[m].to == r)
                put_message(f, f->expected, m, list);
        use(f, r);
        REQUIRE_CUDA(cudaMemcpy(f->host, f->recv[r], ROOM, cudaMemcpyDeviceToHost));
        size_t i = 0;
        while (i < ROOM && f->host[i] == f->expected[i])
            i++;
        if (i < ROOM)
            fprintf(stderr, "seed %llu, list %d, rank %d of %d: byte %zu is %02x, not %02x\n",
                    (unsigned long long)seed, list, r, f->size, i, (unsigned char)f->host[i],
                    (unsigned char)f->expected[i]);
        REQUIRE(i == ROOM);
    }
}

static void launch(struct fixture *f, int rank, const struct exchange *list, int count, int blocks)
{
    struct peer_grid grid;
    if (count == 0)
        return;
    struct peer_arguments *base = &f->plan.group.base;
    *base = (struct peer_arguments){
        .world = f->nodes[rank].world, .send = f->send[rank], .recv = f->recv[rank]};
    REQUIRE(peer_messages_plan(&f->plan, &grid, list, count, blocks) == 0);
    use(f, rank);
    REQUIRE_CUDA(peer_kernel_launch(&f->nodes[rank].functions, base, &grid, f->nodes[rank].stream));
}

static int add_own(const struct fixture *f, int rank, int m, struct exchange *list)
{
    const struct message *message = &f->messages[m];
    int count = 0;
    struct span span = {BUFFER_SEND, message->at, message->bytes};
    if (message->from == rank)
        list[count++] = (struct exchange){.to = message->to, .from = -1, .send = span};
    if (message->to == rank)
        list[count++] = (struct exchange){.to = -1, .from = message->from, .recv = span};
    return count;
}

/* The rank's next group of at most so many messages of the list; where the list goes on. */
static int launch_group(struct fixture *f, int rank, int first, int blocks)
{
    struct exchange list[2 * MESSAGES];
    int count = 0, end = first + 1 + (int)draw(12);
    for (; first < end && first < MESSAGES; first++)
        count += add_own(f, rank, first, list + count);
    launch(f, rank, list, count, blocks);
    return first;
}

/* Ranks that share a GPU must all be resident on it. */
static void run_list(struct fixture *f, int list)
{
    int next[RANKS] = {0}, left = f->size;
    int blocks = f->size > f->gpus ? 1 + (int)draw(2) : (int)draw(2) * (1 + (int)draw(32));
    make_list(f);
    fill(f, list);
    while (left > 0) {
        int r = (int)draw((uint64_t)f->size);
        if (next[r] == MESSAGES)
            continue;
        next[r] = launch_group(f, r, next[r], blocks);
        left -= next[r] == MESSAGES;
    }
    synchronize(f);
    require_no_fault(f, list);
    check(f, list);
}

/* ---- What goes wrong ---- */

static void send_one(struct fixture *f, size_t bytes)
{
    struct exchange x = {.to = 1, .from = -1, .send = {BUFFER_SEND, 0, bytes}};
    launch(f, 0, &x, 1, 1);
}

static void receive_one(struct fixture *f, size_t bytes)
{
    struct exchange x = {.to = -1, .from = 0, .recv = {BUFFER_RECV, 0, bytes}};
    launch(f, 1, &x, 1, 1);
}

static void test_lengths(struct fixture *f)
{
    static const size_t lengths[][2] = {{0, 1}, {1, 0}, {480, 481}, {100000, 99999}, {9, 700000}};
    for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++) {
        const struct peer_words *w = f->nodes[1].words;
        send_one(f, lengths[i][0]);
        receive_one(f, lengths[i][1]);
        synchronize(f);
        if (w->fault != PEER_FAULT_MISMATCH || w->sent != lengths[i][0])
            fprintf(stderr, "%zu and %zu: fault %u, %llu and %llu\n", lengths[i][0], lengths[i][1],
                    w->fault, (unsigned long long)w->sent, (unsigned long long)w->received);
        REQUIRE(w->fault == PEER_FAULT_MISMATCH && w->rank == 0);
        REQUIRE(w->sent == lengths[i][0] && w->received == lengths[i][1]);
        send_one(f, 1); /* nobody is there: it learns what was wrong */
        synchronize(f);
        REQUIRE(f->nodes[0].words->fault == PEER_FAULT_REPORTED);
        REQUIRE(PEER_REPORT_FAULT(f->nodes[0].words->report) == PEER_FAULT_MISMATCH);
        peer_ranks_clear(f->nodes, f->size, 1);
    }
}

/* The sender's ring is full, or the receiver's empty. */
static void test_lost(struct fixture *f)
{
    for (int lost = 0; lost < 2; lost++) {
        for (int r = 0; r < f->size; r++)
            f->nodes[r].world.timeout_ns = 200000000;
        if (lost == 1)
            send_one(f, 1 << 20);
        else
            receive_one(f, 100);
        synchronize(f);
        REQUIRE(f->nodes[1 - lost].words->fault == PEER_FAULT_TIMEOUT);
        REQUIRE((int)f->nodes[1 - lost].words->rank == lost);
        for (int r = 0; r < f->size; r++)
            f->nodes[r].world.timeout_ns = timeout_ns;
        peer_ranks_clear(f->nodes, f->size, 1);
    }
}

static void run_size(int size, int gpus)
{
    struct fixture *f = &fixture;
    fixture_create(f, size, gpus);
    for (int list = 0; list < LISTS; list++)
        run_list(f, list);
    set_counts(f, UINT32_MAX - 3 * PEER_DEPTH);
    for (int list = LISTS; list < 2 * LISTS; list++)
        run_list(f, list);
    test_lengths(f);
    test_lost(f);
    run_list(f, 0);
    fixture_destroy(f);
    printf("%d ranks on %d GPUs: %d lists right\n", size, gpus, 2 * LISTS + 1);
    fflush(stdout);
}

int main(int argc, char **argv)
{
    setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", 1); /* no two ranks' streams in one queue */
    seed = argc > 1 ? strtoull(argv[1], NULL, 10) : (uint64_t)time(NULL);
    int limit = argc > 2 ? atoi(argv[2]) : RANKS, gpus = peer_ranks_gpus();
    if (gpus == 0) {
        printf("no GPU: skipped\n");
        return 77;
    }
    printf("seed %llu, %d GPUs\n", (unsigned long long)seed, gpus);
    for (int size = 2; size <= limit; size++)
        run_size(size, size < gpus ? size : gpus);
    return 0;
}
