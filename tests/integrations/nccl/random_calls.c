/* Random calls of every operation, alone and in groups of several, by one thread that is all ranks, threads and processes:
 * results are compared with plain loops, and what a call must not write stays as it was. */
#include "tests/integrations/nccl/crew.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { MOST = 700, FUSED = 3, RANKS = 4, POISON = 77, PREMULTIPLIED = ncclNumOps };

enum kind {
    ALL_REDUCE,
    REDUCE,
    BCAST,
    BROADCAST,
    REDUCE_SCATTER,
    ALL_GATHER,
    ALL_TO_ALL,
    GATHER,
    SCATTER,
    MESSAGES,
    KINDS
};

struct call {
    enum kind kind;
    ncclDataType_t type;
    ncclRedOp_t op; /* or PREMULTIPLIED */
    int root, shift, stream;
    size_t count;
    bool in_place;
    unsigned seed;
};

/* A rank's memory in a call; what it sends is also kept as it was. */
struct buffers {
    char send[RANKS * MOST * 8], recv[RANKS * MOST * 8];
};

/* ---- Values ---- */

static const struct {
    ncclDataType_t type;
    size_t bytes;
} types[] = {{ncclInt8, 1},    {ncclUint8, 1},      {ncclInt32, 4},     {ncclUint32, 4},
             {ncclInt64, 8},   {ncclUint64, 8},     {ncclBfloat16, 2},  {ncclFloat32, 4},
             {ncclFloat64, 8}, {ncclFloat8e4m3, 1}, {ncclFloat8e5m2, 1}};

static size_t bytes_of(ncclDataType_t type)
{
    for (size_t i = 0; i < sizeof types / sizeof *types; i++)
        if (types[i].type == type)
            return types[i].bytes;
    abort();
}

static bool is_integer(ncclDataType_t type)
{
    return type < ncclFloat16;
}

static bool is_byte_float(ncclDataType_t type)
{
    return type == ncclFloat8e4m3 || type == ncclFloat8e5m2;
}

/* Small whole numbers as floats of 8 bits. */
static uint8_t to_byte_float(ncclDataType_t type, double value)
{
    int mantissa_bits = type == ncclFloat8e4m3 ? 3 : 2, bias = type == ncclFloat8e4m3 ? 7 : 15;
    int exponent = value > 0 ? ilogb(value) : 0;
    double mantissa = ldexp(value, mantissa_bits - exponent) - (1 << mantissa_bits);
    return value > 0 ? (uint8_t)((exponent + bias) << mantissa_bits | (int)mantissa) : 0;
}

static double of_byte_float(ncclDataType_t type, uint8_t byte)
{
    double value = 0;
    while (value < 16 && to_byte_float(type, value) != byte)
        value++;
    return value;
}

static void put(ncclDataType_t type, void *array, size_t i, double value)
{
    float f = (float)value;
    uint32_t word;
    memcpy(&word, &f, sizeof word);
    switch (bytes_of(type)) {
    case 1:
        ((uint8_t *)array)[i] = is_byte_float(type) ? to_byte_float(type, value) : (uint8_t)value;
        return;
    case 2:
        ((uint16_t *)array)[i] = (uint16_t)(word >> 16);
        return;
    case 4:
        ((uint32_t *)array)[i] = type == ncclFloat32 ? word : (uint32_t)value;
        return;
    default:
        if (type == ncclFloat64)
            ((double *)array)[i] = value;
        else
            ((uint64_t *)array)[i] = (uint64_t)value;
    }
}

static double get(ncclDataType_t type, const void *array, size_t i)
{
    uint32_t word;
    float f;
    switch (bytes_of(type)) {
    case 1:
        word = ((const uint8_t *)array)[i];
        return is_byte_float(type) ? of_byte_float(type, (uint8_t)word) : word;
    case 2:
        word = (uint32_t)((const uint16_t *)array)[i] << 16;
        memcpy(&f, &word, sizeof f);
        return f;
    case 4:
        return type == ncclFloat32 ? ((const float *)array)[i] : ((const uint32_t *)array)[i];
    default:
        return type == ncclFloat64 ? ((const double *)array)[i]
                                   : (double)((const uint64_t *)array)[i];
    }
}

/* What rank has at element i: 0 to 3, so that every result is exact in every type. */
static double value(const struct call *c, int rank, size_t i)
{
    unsigned state = c->seed + (unsigned)rank * 7919u + (unsigned)i * 104729u;
    crew_random(&state);
    return crew_random(&state) % 4;
}

/* The factor of a premultiplied sum; 1 of others. */
static double factor(const struct call *c, int rank)
{
    return c->op == (ncclRedOp_t)PREMULTIPLIED ? (rank + c->shift) % 4 : 1;
}

static double reduced(const struct call *c, int size, size_t i)
{
    double result = factor(c, 0) * value(c, 0, i);
    for (int r = 1; r < size; r++) {
        double v = factor(c, r) * value(c, r, i);
        if (c->op == ncclSum || c->op == ncclAvg || c->op == (ncclRedOp_t)PREMULTIPLIED)
            result += v;
        if (c->op == ncclProd)
            result *= v;
        if (c->op == ncclMax)
            result = fmax(result, v);
        if (c->op == ncclMin)
            result = fmin(result, v);
    }
    if (c->op == ncclAvg)
        result /= size;
    return is_integer(c->type) ? floor(result) : result;
}

/* ---- A call ---- */

/* Averages of floats are exact for 1, 2 and 4 ranks; of 8 bits only the largest and least number always. */
static struct call draw(unsigned *state, int size)
{
    struct call c = {.kind = (enum kind)(crew_random(state) % KINDS)};
    c.type = types[crew_random(state) % (sizeof types / sizeof *types)].type;
    c.op = (ncclRedOp_t)(crew_random(state) % (PREMULTIPLIED + 1));
    c.root = (int)(crew_random(state) % (unsigned)size);
    c.shift = (int)(crew_random(state) % (unsigned)size);
    c.stream = (int)(crew_random(state) % 2);
    c.count = crew_random(state) % MOST >> crew_random(state) % 8;
    c.in_place = crew_random(state) % 3 == 0 && c.kind != ALL_TO_ALL && c.kind != MESSAGES;
    c.in_place = c.in_place || c.kind == BCAST;
    c.seed = crew_random(state);
    if (c.op == ncclAvg && size == 3 && !is_integer(c.type))
        c.op = ncclSum;
    if (is_byte_float(c.type) && size > 2)
        c.op = c.op % 2 ? ncclMax : ncclMin;
    else if (is_byte_float(c.type) && c.op != ncclMax)
        c.op = ncclSum;
    return c;
}

/* Blocks in what a rank sends and receives. */
static size_t send_blocks(const struct call *c, int size)
{
    bool all = c->kind == REDUCE_SCATTER || c->kind == ALL_TO_ALL || c->kind == SCATTER;
    return all ? (size_t)size : 1;
}

static size_t recv_blocks(const struct call *c, int size)
{
    bool all = c->kind == ALL_GATHER || c->kind == ALL_TO_ALL || c->kind == GATHER;
    return all ? (size_t)size : 1;
}

static void fill(const struct call *c, int rank, int size, struct buffers *b)
{
    memset(b, POISON, sizeof *b);
    for (size_t i = 0; i < send_blocks(c, size) * c->count; i++)
        put(c->type, b->send, i, value(c, rank, i));
}

/* Where a rank's data are: in place they lie in the one buffer, or that lies in them. */
static void place(const struct call *c, int rank, int size, struct buffers *b, char **send,
                  char **recv)
{
    size_t block = c->count * bytes_of(c->type);
    *send = b->send;
    *recv = b->recv;
    if (!c->in_place || ((c->kind == GATHER || c->kind == SCATTER) && rank != c->root))
        return;
    if (recv_blocks(c, size) > 1) {
        *send = b->recv + (size_t)rank * block;
        memcpy(*send, b->send, block);
    } else {
        *recv = b->send + (send_blocks(c, size) > 1 ? (size_t)rank * block : 0);
    }
}

static ncclResult_t start(const struct call *c, ncclRedOp_t op, int rank, int size,
                          struct buffers *b, ncclComm_t comm, cudaStream_t stream)
{
    char *send, *recv;
    int to = (rank + c->shift) % size, from = (rank - c->shift + size) % size;
    place(c, rank, size, b, &send, &recv);
    switch (c->kind) {
    case ALL_REDUCE:
        return ncclAllReduce(send, recv, c->count, c->type, op, comm, stream);
    case REDUCE:
        return ncclReduce(send, rank == c->root ? recv : NULL, c->count, c->type, op, c->root, comm,
                          stream);
    case BCAST:
        return ncclBcast(send, c->count, c->type, c->root, comm, stream);
    case BROADCAST:
        return ncclBroadcast(send, recv, c->count, c->type, c->root, comm, stream);
    case REDUCE_SCATTER:
        return ncclReduceScatter(send, recv, c->count, c->type, op, comm, stream);
    case ALL_GATHER:
        return ncclAllGather(send, recv, c->count, c->type, comm, stream);
    case ALL_TO_ALL:
        return ncclAlltoAll(send, recv, c->count, c->type, comm, stream);
    case GATHER:
        return ncclGather(send, recv, c->count, c->type, c->root, comm, stream);
    case SCATTER:
        return ncclScatter(send, recv, c->count, c->type, c->root, comm, stream);
    default:
        CHECK(ncclGroupStart());
        CHECK(ncclSend(send, c->count, c->type, to, comm, stream));
        CHECK(ncclRecv(recv, c->count, c->type, from, comm, stream));
        return ncclGroupEnd();
    }
}

/* A reduction with a factor is of this call only. */
static void start_one(const struct call *c, struct crew *crew, int i, struct buffers *b)
{
    int rank = crew->first + i;
    bool created = c->op == (ncclRedOp_t)PREMULTIPLIED;
    ncclRedOp_t op = c->op;
    char scalar[8];
    put(c->type, scalar, 0, factor(c, rank));
    if (created)
        CHECK(ncclRedOpCreatePreMulSum(&op, scalar, c->type, ncclScalarHostImmediate,
                                       crew->comms[i]));
    CHECK(start(c, op, rank, crew->size, b, crew->comms[i], crew->streams[i][c->stream]));
    if (created)
        CHECK(ncclRedOpDestroy(op, crew->comms[i]));
}

/* Element i of what the rank must have received. */
static double expected(const struct call *c, int rank, int size, size_t i)
{
    size_t own = (size_t)rank * c->count;
    switch (c->kind) {
    case ALL_REDUCE:
    case REDUCE:
        return reduced(c, size, i);
    case BCAST:
    case BROADCAST:
        return value(c, c->root, i);
    case REDUCE_SCATTER:
        return reduced(c, size, own + i);
    case ALL_GATHER:
    case GATHER:
        return value(c, (int)(i / c->count), i % c->count);
    case ALL_TO_ALL:
        return value(c, (int)(i / c->count), own + i % c->count);
    case SCATTER:
        return value(c, c->root, own + i);
    default:
        return value(c, (rank - c->shift + size) % size, i);
    }
}

static void check(const struct call *c, int rank, int size, struct buffers *b)
{
    char *send, *recv;
    size_t count = recv_blocks(c, size) * c->count, bytes = bytes_of(c->type);
    if ((c->kind == REDUCE || c->kind == GATHER) && rank != c->root)
        return;
    struct buffers *copy = malloc(sizeof *copy);
    memcpy(copy, b, sizeof *b);
    place(c, rank, size, copy, &send, &recv);
    recv = recv - (char *)copy + (char *)b;
    free(copy);
    for (size_t i = 0; i < count; i++) {
        double found = get(c->type, recv, i), wanted = expected(c, rank, size, i);
        if (found == wanted)
            continue;
        fprintf(stderr,
                "kind %d type %d op %d count %zu root %d in place %d, rank %d of %d: element "
                "%zu is %g, expected %g\n",
                (int)c->kind, (int)c->type, (int)c->op, c->count, c->root, c->in_place, rank, size,
                i, found, wanted);
        REQUIRE(!"right");
    }
    if (recv == b->recv)
        for (size_t i = count * bytes; i < sizeof b->recv; i++)
            REQUIRE(b->recv[i] == POISON);
}

/* ---- Many of them ---- */

static int groups_wanted;
static long calls_made; /* groups of the same seed have the same calls on all ranks */

static void step(struct crew *crew, struct buffers *all, unsigned *state)
{
    struct call calls[FUSED];
    int fused = 1 + (int)(crew_random(state) % FUSED);
    bool grouped = fused > 1 || crew->count > 1;
    for (int k = 0; k < fused; k++) {
        calls[k] = draw(state, crew->size);
        for (int i = 0; i < crew->count; i++)
            fill(&calls[k], crew->first + i, crew->size, &all[i * FUSED + k]);
    }
    if (grouped)
        CHECK(ncclGroupStart());
    for (int i = 0; i < crew->count; i++)
        for (int k = 0; k < fused; k++)
            start_one(&calls[k], crew, i, &all[i * FUSED + k]);
    if (grouped)
        CHECK(ncclGroupEnd());
    crew_synchronize(crew);
    for (int i = 0; i < crew->count; i++)
        for (int k = 0; k < fused; k++)
            check(&calls[k], crew->first + i, crew->size, &all[i * FUSED + k]);
}

static void many(struct crew *crew)
{
    unsigned state = crew->seed;
    struct buffers *all = malloc((size_t)crew->count * FUSED * sizeof *all);
    for (int i = 0; i < groups_wanted; i++)
        step(crew, all, &state);
    free(all);
}

/* As step draws them; its ranks may be other processes. */
static void count_calls(unsigned state)
{
    for (int i = 0; i < groups_wanted; i++) {
        int fused = 1 + (int)(crew_random(&state) % FUSED);
        for (int k = 0; k < fused; k++)
            draw(&state, 1);
        calls_made += fused;
    }
}

int main(int count, char **arguments)
{
    static const char *const ways[] = {"processes", "one thread", "threads"};
    unsigned seed = count > 2 ? (unsigned)atol(arguments[2]) : (unsigned)time(NULL);
    groups_wanted = count > 1 ? atoi(arguments[1]) : 600;
    printf("seed %u\n", seed);
    for (enum crew_way way = 0; way < CREW_WAYS; way++)
        for (int size = 1; size <= RANKS; size++) {
            struct timespec begin, end;
            clock_gettime(CLOCK_MONOTONIC, &begin);
            crew_run(way, size, seed + (unsigned)size, many);
            clock_gettime(CLOCK_MONOTONIC, &end);
            printf("%s, %d ranks: right (%.1f s)\n", ways[way], size,
                   (double)(end.tv_sec - begin.tv_sec) +
                       1e-9 * (double)(end.tv_nsec - begin.tv_nsec));
            fflush(stdout);
            count_calls(seed + (unsigned)size);
        }
    printf("%ld calls of each rank\n", calls_made);
    return 0;
}
