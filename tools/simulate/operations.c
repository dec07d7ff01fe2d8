/* The table of operations, and their inputs and results. Inputs are whole numbers whose sums
 * float32 holds exactly. */
#include "tools/simulate/operations.h"

#include "base/status.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum { VALUES = 128 /* of an input: 0 to 127 */ };

static const struct simulate_operation operations[] = {
    {"allreduce", algorithms_allreduce, SIDE_NONE, SIDE_INPUT, REDUCES},
    {"reduce", algorithms_reduce, SIDE_BLOCK, SIDE_BLOCK, REDUCES | ROOTED | RECV_AT_ROOT},
    {"broadcast", algorithms_broadcast, SIDE_NONE, SIDE_INPUT, ROOTED},
    {"allgather", algorithms_allgather, SIDE_BLOCK, SIDE_BLOCKS, 0},
    {"allgatherv", algorithms_allgatherv, SIDE_BLOCK, SIDE_BLOCKS, LENGTHS},
    {"reduce_scatter", algorithms_reduce_scatter, SIDE_BLOCKS, SIDE_BLOCK, REDUCES},
    {"reduce_scatterv", algorithms_reduce_scatterv, SIDE_BLOCKS, SIDE_BLOCK, REDUCES | LENGTHS},
    {"gather", algorithms_gather, SIDE_BLOCK, SIDE_BLOCKS, ROOTED | RECV_AT_ROOT},
    {"gatherv", algorithms_gatherv, SIDE_BLOCK, SIDE_BLOCKS, ROOTED | RECV_AT_ROOT | LENGTHS},
    {"scatter", algorithms_scatter, SIDE_BLOCKS, SIDE_BLOCK, ROOTED | SEND_AT_ROOT},
    {"scatterv", algorithms_scatterv, SIDE_BLOCKS, SIDE_BLOCK, ROOTED | SEND_AT_ROOT | LENGTHS},
    {"alltoall", algorithms_alltoall, SIDE_BLOCKS, SIDE_BLOCKS, 0},
    {"alltoallv", algorithms_alltoallv, SIDE_BLOCKS, SIDE_BLOCKS, LENGTHS},
    {"barrier", algorithms_barrier, SIDE_NONE, SIDE_NONE, 0},
    {"sendrecv", algorithms_sendrecv, SIDE_BLOCK, SIDE_BLOCK, RING},
    {0}};

const struct simulate_operation *operation_at(int i)
{
    return operations[i].name ? &operations[i] : NULL;
}

const struct simulate_operation *operation_find(const char *name)
{
    const struct simulate_operation *operation;
    for (int i = 0; (operation = operation_at(i)); i++)
        if (strcmp(operation->name, name) == 0)
            break;
    return operation;
}

const struct simulate_operation *operation_of(const struct simulate_case *what)
{
    return what->operation ? what->operation : &operations[0];
}

void *memory_take(size_t bytes, bool data)
{
    if (data)
        return calloc(bytes + 1, 1);
    void *memory =
        mmap(NULL, bytes + 1, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    return memory == MAP_FAILED ? NULL : memory;
}

void memory_give(void *memory, size_t bytes, bool data)
{
    if (data)
        free(memory);
    else if (memory)
        munmap(memory, bytes + 1);
}

static int blocks_of(const struct simulate_case *what, bool sends)
{
    const struct simulate_operation *o = operation_of(what);
    enum simulate_side side = sends ? o->send : o->recv;
    return side == SIDE_NONE ? 0 : side == SIDE_BLOCKS ? what->ranks : 1;
}

static bool at_root(const struct simulate_case *what, bool sends)
{
    return operation_of(what)->flags & (sends ? SEND_AT_ROOT : RECV_AT_ROOT);
}

/* Elements of one rank. */
static size_t elements(const struct simulate_case *what, bool sends)
{
    return (size_t)blocks_of(what, sends) * what->count;
}

static int holders(const struct simulate_case *what, bool sends)
{
    return at_root(what, sends) ? 1 : what->ranks;
}

/* Elements that are allocated: those of one rank without data. */
static size_t allocated(const struct simulate_case *what, bool sends)
{
    return (what->data ? (size_t)holders(what, sends) : 1) * elements(what, sends);
}

float *buffers_side(const struct simulate_buffers *b, int rank, bool sends)
{
    float *memory = sends ? b->send : b->recv;
    bool alone = !b->what->data || at_root(b->what, sends);
    return memory + (alone ? 0 : (size_t)rank * elements(b->what, sends));
}

double buffers_bytes(const struct simulate_case *what)
{
    double bytes = 0;
    for (int sends = 0; sends < 2; sends++)
        bytes += (double)holders(what, sends) * (double)elements(what, sends) * sizeof(float);
    return bytes;
}

static unsigned scramble(uint64_t x)
{
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
    x = (x ^ x >> 27) * 0x94d049bb133111ebu;
    return (unsigned)(x >> 57); /* below VALUES */
}

static unsigned of_rank(int rank)
{
    return scramble((uint64_t)rank + 1);
}

static unsigned of_element(size_t i)
{
    return scramble(~(uint64_t)i);
}

static void fill(const struct simulate_buffers *b)
{
    const struct simulate_operation *o = operation_of(b->what);
    bool sends = o->recv != SIDE_INPUT;
    bool root_only = at_root(b->what, sends) || (!sends && o->flags & ROOTED);
    for (int r = 0; r < (root_only ? 1 : b->what->ranks); r++) {
        float *input = buffers_side(b, r, sends);
        for (size_t i = 0; i < elements(b->what, sends); i++)
            input[i] = (float)(of_rank(r) ^ of_element(i));
    }
}

/* sums[v] is the sum over ranks of of_rank(rank) ^ v. */
static void add_up(int ranks, float *sums)
{
    for (unsigned v = 0; v < VALUES; v++) {
        uint64_t sum = 0;
        for (int r = 0; r < ranks; r++)
            sum += of_rank(r) ^ v;
        sums[v] = (float)sum;
    }
}

/* The sender of block b to a rank. */
static int sender_of(const struct simulate_case *what, int rank, int b)
{
    const struct simulate_operation *o = operation_of(what);
    if (o->flags & RING)
        return (rank + what->ranks - 1) % what->ranks;
    return o->recv == SIDE_BLOCKS ? b : 0;
}

static size_t block_wrong(const struct simulate_buffers *b, int rank, int block, const float *sums)
{
    const struct simulate_case *what = b->what;
    const float *got = buffers_side(b, rank, false) + (size_t)block * what->count;
    size_t first = operation_of(what)->send == SIDE_BLOCKS ? (size_t)rank * what->count : 0;
    unsigned sender = of_rank(sender_of(what, rank, block));
    bool reduces = operation_of(what)->flags & REDUCES;
    size_t wrong = 0;
    for (size_t i = 0; i < what->count; i++) {
        unsigned value = of_element(first + i);
        wrong += got[i] != (reduces ? sums[value] : (float)(sender ^ value));
    }
    return wrong;
}

size_t buffers_wrong(const struct simulate_buffers *buffers)
{
    const struct simulate_case *what = buffers->what;
    float sums[VALUES];
    size_t wrong = 0;
    add_up(what->ranks, sums);
    for (int r = 0; r < holders(what, false); r++)
        for (int block = 0; block < blocks_of(what, false); block++)
            wrong += block_wrong(buffers, r, block, sums);
    return wrong;
}

alnico_status_t buffers_create(const struct simulate_case *what, struct simulate_buffers *out)
{
    *out = (struct simulate_buffers){.what = what};
    out->send_bytes = allocated(what, true) * sizeof(float);
    out->recv_bytes = allocated(what, false) * sizeof(float);
    out->send = memory_take(out->send_bytes, what->data);
    out->recv = memory_take(out->recv_bytes, what->data);
    if (!out->send || !out->recv)
        return error_set(ALNICO_ERROR_MEMORY, "no memory for %d ranks of %zu elements%s",
                         what->ranks, what->count, what->data ? " with data" : "");
    if (what->data)
        fill(out);
    return ALNICO_SUCCESS;
}

void buffers_destroy(struct simulate_buffers *buffers)
{
    if (!buffers->what)
        return;
    memory_give(buffers->send, buffers->send_bytes, buffers->what->data);
    memory_give(buffers->recv, buffers->recv_bytes, buffers->what->data);
}
