/* The inputs and results of operations. Inputs are whole numbers whose sums float32 holds
 * exactly. */
#include "tools/simulate/run.h"

#include "base/status.h"
#include "comm/backends/backend.h"

#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>

enum { VALUES = 128 /* of an input: 0 to 127 */ };

const struct algorithm *const *operation_algorithms(const struct collective *operation)
{
    return backend_host.algorithms[operation - collectives];
}

const struct collective *operation_of(const struct simulate_case *what)
{
    return what->operation ? what->operation : &collectives[ALNICO_ALLREDUCE];
}

bool operation_is_ring(const struct collective *operation)
{
    return operation == &collectives[ALNICO_SENDRECV];
}

/* The input stands in RECV, which is also what is sent. */
static bool is_in_recv(const struct collective *operation)
{
    return operation == &collectives[ALNICO_ALLREDUCE] ||
           operation == &collectives[ALNICO_BROADCAST];
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
    const struct collective *o = operation_of(what);
    enum blocks_held held = sends ? o->reads : o->writes;
    if (operation_is_ring(o))
        return 1;
    return held == NO_BLOCK || (sends && is_in_recv(o)) ? 0 : held == ALL_BLOCKS ? what->ranks : 1;
}

static bool at_root(const struct simulate_case *what, bool sends)
{
    return sends ? operation_of(what)->reads_at_root : operation_of(what)->writes_at_root;
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
    const struct collective *o = operation_of(b->what);
    bool sends = !is_in_recv(o);
    bool root_only = at_root(b->what, sends) || (!sends && o->rooted);
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
    const struct collective *o = operation_of(what);
    if (operation_is_ring(o))
        return (rank + what->ranks - 1) % what->ranks;
    return o->writes == ALL_BLOCKS ? b : 0;
}

static size_t block_wrong(const struct simulate_buffers *b, int rank, int block, const float *sums)
{
    const struct simulate_case *what = b->what;
    const float *got = buffers_side(b, rank, false) + (size_t)block * what->count;
    size_t first = operation_of(what)->reads == ALL_BLOCKS ? (size_t)rank * what->count : 0;
    unsigned sender = of_rank(sender_of(what, rank, block));
    bool reduces = operation_of(what)->reduces;
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
