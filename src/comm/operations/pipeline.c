/* The pipeline: cuts a call, runs each chunk's rounds, scales averages. Floats are divided before they
 * are sent and integers as they are finished, while the chunk is in the cache. Arithmetic is the CPU's, on
 * memory that the host reaches, or the device's on a stream of the library's. Called by whoever polls the
 * operation. */
#include "comm/operations/pipeline.h"

#include "base/datatype.h"
#include "base/status.h"

#include <assert.h>

enum { FEW_SIGNATURES = 31 /* where the transport has few tags */ };

/* A tag carries the chunk's number among the communicator's chunks, and the call's signature: ranks
 * that call different things do not match each other's messages, and find out at the deadline. */
static uint32_t signatures(const struct transport *transport)
{
    return transport->tags > 256 * CALL_SIGNATURES ? CALL_SIGNATURES : FEW_SIGNATURES;
}

static uint32_t signature_of(const struct pipeline *p)
{
    size_t count = call_is_vector(p->call) ? 0 : p->call->count;
    return (uint32_t)(call_signature(p->call, count) % signatures(p->transport));
}

/* The tag of a chunk. A call takes one number if ranks do not know into how many chunks the others
 * cut it; the signature then counts the chunks, of which fewer are in flight than there are
 * signatures. */
static uint32_t chunk_tag(const struct pipeline *p, size_t index)
{
    uint32_t kinds = signatures(p->transport),
             numbers = (p->transport->tags - TAG_OPERATIONS) / kinds, kind = p->signature;
    size_t number = p->number;
    if (call_is_even(p->call))
        number += index;
    else
        kind = (uint32_t)((kind + index) % kinds);
    return TAG_OPERATIONS + (uint32_t)(number % numbers) * kinds + kind;
}

static size_t part_of(const struct chunk *c, size_t count, size_t chunk_count)
{
    size_t left = count > c->at ? count - c->at : 0;
    return left < chunk_count ? left : chunk_count;
}

/* A chunk's part of a side. `packed`: one block behind the other, and not where they are in the
 * user's buffer. With lists every block has its own count. */
static struct side cut_side(const struct pipeline *p, const struct chunk *c,
                            const struct side *side, bool packed, size_t *lists)
{
    struct side part = *side;
    part.count = part_of(c, side->count, p->chunk_count);
    if (packed)
        part.stride = part.count;
    if (!lists || (!side->counts && side->blocks < 2))
        return part;
    size_t *counts = lists, *at = lists + side->blocks, b = 0;
    SIDE_EACH(block, side)
    {
        counts[b] = part_of(c, block.count, p->chunk_count);
        at[b] = !packed ? block.at : b ? at[b - 1] + counts[b - 1] : 0;
        b++;
    }
    part.counts = counts;
    part.at = at;
    return part;
}

/* SEND is not the user's memory. */
static bool packs_reads(const struct pipeline *p)
{
    return p->staging || p->shadows;
}

/* The send side is a packed copy and the receive side the user's blocks: their strides differ. */
static bool mixes(const struct pipeline *p)
{
    return p->shadows && p->writes.blocks > 1;
}

static alnico_status_t cut_sides(struct pipeline *p, struct chunk *c)
{
    /* One chunk that reads and writes the user's blocks where they are: its lists are the call's. */
    if (p->chunks == 1 && !packs_reads(p)) {
        c->lists = NULL;
        c->reads = p->reads;
        c->writes = p->writes;
        return ALNICO_SUCCESS;
    }
    bool vector = call_is_vector(p->call);
    size_t size = (size_t)p->transport->size, bytes = 4 * size * sizeof(size_t);
    void *lists = NULL;
    if (vector || mixes(p))
        TRY(pool_take(p->pool, bytes, &lists));
    c->lists = lists;
    c->reads = cut_side(p, c, &p->reads, packs_reads(p), c->lists);
    c->writes = cut_side(p, c, &p->writes, p->staging != NULL, vector ? c->lists + 2 * size : NULL);
    return ALNICO_SUCCESS;
}

static struct shape shape_of(const struct pipeline *p, const struct chunk *c)
{
    bool packed = packs_reads(p) && !mixes(p);
    return (struct shape){.rank = p->transport->rank,
                          .size = p->transport->size,
                          .root = p->call->root,
                          .map = p->map,
                          .count = c->count,
                          .stride = packed ? c->count : p->call->count,
                          .send_counts = c->reads.counts,
                          .send_at = c->reads.at,
                          .recv_counts = c->writes.counts,
                          .recv_at = c->writes.at};
}

static bool scales(const struct pipeline *p)
{
    const struct call *call = p->call;
    return call_reduces(call) && call->op == ALNICO_AVERAGE && !datatype_is_integer(call->type) &&
           p->transport->size > 1;
}

/* dst = src, divided where the call asks for it. */
static alnico_status_t copy_elements(const struct pipeline *p, struct rounds *r, char *dst,
                                     const char *src, size_t count)
{
    if (dst == src && !scales(p))
        return ALNICO_SUCCESS;
    r->enqueued = true;
    if (scales(p))
        return r->device->divide(dst, src, count, p->call->type, p->transport->size, r->stream);
    return r->device->copy(dst, src, count * datatype_bytes(p->call->type), r->stream);
}

typedef alnico_status_t copy_block(struct pipeline *p, struct rounds *r, char *user, char *packed,
                                   size_t count);

/* Copies each of a chunk's blocks between the user's side, which begins at `user`, and the chunk's. */
static alnico_status_t copy_blocks(struct pipeline *p, struct rounds *r, const struct side *users,
                                   char *user, const struct side *parts, char *packed,
                                   copy_block *copy)
{
    size_t bytes = datatype_bytes(p->call->type);
    struct walk from = {0}, to = {0};
    for (int b = 0; side_block(users, b, &from) && side_block(parts, b, &to); b++)
        if (to.count)
            TRY(copy(p, r, user + from.at * bytes, packed + to.at * bytes, to.count));
    return ALNICO_SUCCESS;
}

static char *user_at(const struct pipeline *p, const void *buffer, const struct chunk *c)
{
    return buffer ? (char *)buffer + c->at * datatype_bytes(p->call->type) : NULL;
}

static alnico_status_t copy_to_shadow(struct pipeline *p, struct rounds *r, char *user,
                                      char *packed, size_t count)
{
    return copy_elements(p, r, packed, user, count);
}

/* Before the first round. A single rank's vector is not divided, which would change the bits of a
 * NaN. */
static alnico_status_t copy_input(struct pipeline *p, struct chunk *c)
{
    struct rounds *r = &c->rounds;
    char *send = r->buffer[BUFFER_SEND];
    if (p->call->collective == ALNICO_ALLREDUCE)
        return copy_elements(p, r, r->buffer[BUFFER_RECV], send, c->count);
    if (p->shadows)
        return copy_blocks(p, r, &p->reads, user_at(p, p->call->send, c), &c->reads, send,
                           copy_to_shadow);
    return p->staging ? copy_elements(p, r, send, send, side_extent(&c->reads)) : ALNICO_SUCCESS;
}

static alnico_status_t finish_output(struct pipeline *p, struct chunk *c)
{
    const struct call *call = p->call;
    struct rounds *r = &c->rounds;
    if (!call_reduces(call) || call->op != ALNICO_AVERAGE || !datatype_is_integer(call->type))
        return ALNICO_SUCCESS;
    size_t count = side_extent(&c->writes);
    if (count == 0)
        return ALNICO_SUCCESS;
    char *recv = r->buffer[BUFFER_RECV];
    r->enqueued = true;
    return r->device->divide(recv, recv, count, call->type, p->transport->size, r->stream);
}

static size_t in_lines(size_t bytes)
{
    return (bytes + 63) / 64 * 64;
}

/* Scratch for arrivals, the algorithm's WORK and the shadow, one behind the other. */
static alnico_status_t take_scratch(struct pipeline *p, struct chunk *c)
{
    struct rounds *r = &c->rounds;
    const struct algorithm *a = r->algorithm;
    size_t bytes = datatype_bytes(p->call->type);
    size_t work = a->work ? a->work(&r->shape) : 0;
    size_t arrivals = !call_reduces(p->call) ? 0 : a->arrivals ? a->arrivals(&r->shape) : c->count;
    size_t before = in_lines((arrivals + work) * bytes);
    c->scratch_bytes = p->shadows ? before + side_extent(&c->reads) * bytes : before;
    void *scratch = p->small;
    assert(!p->arithmetic || c->scratch_bytes <= ARITHMETIC_CHUNK_BYTES);
    if (p->arithmetic)
        scratch = p->arithmetic->scratch[c - p->chunk];
    else if (c->scratch_bytes > PIPELINE_SMALL_BYTES || c != &p->chunk[0])
        TRY(pool_take(p->pool, c->scratch_bytes, &scratch));
    c->scratch = scratch;
    r->arrivals = scratch;
    r->buffer[BUFFER_WORK] = r->arrivals + arrivals * bytes;
    if (p->shadows)
        r->buffer[BUFFER_SEND] = r->arrivals + before;
    return ALNICO_SUCCESS;
}

static void give_lists(struct pipeline *p, struct chunk *c)
{
    pool_give(p->pool, c->lists, 4 * (size_t)p->transport->size * sizeof(size_t));
    c->lists = NULL;
}

static void give_scratch(struct pipeline *p, struct chunk *c)
{
    c->phase = CHUNK_FREE;
    if (c->scratch != p->small && !p->arithmetic)
        pool_give(p->pool, c->scratch, c->scratch_bytes);
    c->scratch = NULL;
    give_lists(p, c);
}

static struct gate *gate_of(struct pipeline *p, const struct chunk *c)
{
    return &p->staging->copied[c - p->chunk];
}

/* SEND and RECV are the same memory. */
static bool is_one_buffer(const struct call *call)
{
    return call->collective == ALNICO_ALLREDUCE || call->collective == ALNICO_BROADCAST;
}

/* The rounds run on the host's memory: the buffers themselves, or the chunk's staging. */
static void place_buffers(struct pipeline *p, struct chunk *c)
{
    const struct call *call = p->call;
    char **buffer = c->rounds.buffer;
    if (!p->staging) {
        buffer[BUFFER_SEND] = user_at(p, call->send, c);
        buffer[BUFFER_RECV] = user_at(p, call->recv, c);
        return;
    }
    buffer[BUFFER_SEND] = buffer[BUFFER_RECV] = p->staging->chunks[c - p->chunk];
    if (!is_one_buffer(call))
        buffer[BUFFER_RECV] += in_lines(side_extent(&c->reads) * datatype_bytes(call->type));
}

/* Pipelines for the parts of as many chunks as are in flight. */
static alnico_status_t take_parts(struct pipeline *p)
{
    void *parts = p->parts;
    if (!parts)
        TRY(pool_take(p->pool, sizeof(struct pipeline[STAGING_CHUNKS]), &parts));
    p->parts = parts;
    return ALNICO_SUCCESS;
}

static void give_parts(struct pipeline *p)
{
    if (p->parts)
        pool_give(p->pool, p->parts, sizeof(struct pipeline[STAGING_CHUNKS]));
    p->parts = NULL;
}

static alnico_status_t begin_chunk(struct pipeline *p, struct chunk *c)
{
    const struct call *call = p->call;
    struct rounds *r = &c->rounds;
    c->at = p->begun * p->chunk_count;
    c->count = part_of(c, call->count, p->chunk_count);
    TRY(cut_sides(p, c));
    r->algorithm = p->algorithm;
    r->shape = shape_of(p, c);
    r->transport = p->transport;
    r->device = p->arithmetic ? p->arithmetic->device : &device_cpu;
    r->stream = p->arithmetic ? p->arithmetic->stream : NULL;
    r->ended = p->arithmetic ? &p->arithmetic->ended[c - p->chunk] : NULL;
    r->tag = chunk_tag(p, p->begun);
    r->type = call->type;
    r->op = call->op;
    place_buffers(p, c);
    alnico_status_t status = p->part_count ? take_parts(p) : take_scratch(p, c);
    if (status != ALNICO_SUCCESS) {
        give_lists(p, c);
        return status;
    }
    p->begun++;
    rounds_begin(r);
    c->phase = CHUNK_RUNNING;
    return p->staging ? ALNICO_SUCCESS : copy_input(p, c);
}

static struct pipeline *parts_of(const struct pipeline *p, const struct chunk *c)
{
    return &p->parts[c - p->chunk];
}

/* Whether all parts of older chunks have begun: so few are in flight and stay in the cache, and ranks
 * agree on what comes first. */
static bool may_run(const struct pipeline *p, const struct chunk *c)
{
    for (int i = 0; p->parts && i < p->window; i++) {
        const struct chunk *older = &p->chunk[i];
        const struct pipeline *parts = &p->parts[i];
        bool has_begun = older->phase == CHUNK_FREE || older->phase == CHUNK_COPYING_IN ||
                         (older->phase == CHUNK_RUNNING && parts->begun == parts->chunks);
        if (older->at < c->at && !has_begun)
            return false;
    }
    return true;
}

/* The messages are those of a call cut into parts only: the same tags. */
static void begin_parts(struct pipeline *p, const struct chunk *c)
{
    struct pipeline *parts = parts_of(p, c);
    *parts = (struct pipeline){.call = &parts->own,
                               .own = *p->call,
                               .algorithm = p->algorithm,
                               .chunk_bytes = p->part_count * datatype_bytes(p->call->type),
                               .transport = p->transport,
                               .pool = p->pool,
                               .map = p->map,
                               .number = p->number + (uint32_t)(c->at / p->part_count)};
    parts->own.send = parts->own.recv = c->rounds.buffer[BUFFER_RECV];
    parts->own.count = c->count;
    pipeline_begin(parts);
    parts->signature = p->signature;
}

static alnico_status_t enqueue_out(struct pipeline *p, struct rounds *r, char *user, char *packed,
                                   size_t count)
{
    (void)r;
    return staging_enqueue(p->staging, packed, user, count * datatype_bytes(p->call->type),
                           p->staging->out);
}

static alnico_status_t enqueue_in(struct pipeline *p, struct rounds *r, char *user, char *packed,
                                  size_t count)
{
    (void)r;
    return staging_enqueue(p->staging, user, packed, count * datatype_bytes(p->call->type),
                           p->staging->in);
}

static alnico_status_t begin_copy_out(struct pipeline *p, struct chunk *c)
{
    c->phase = CHUNK_COPYING_OUT;
    return staging_mark_after(p->staging, gate_of(p, c), p->staging->out,
                              copy_blocks(p, &c->rounds, &p->reads, user_at(p, p->call->send, c),
                                          &c->reads, c->rounds.buffer[BUFFER_SEND], enqueue_out));
}

static alnico_status_t begin_copy_in(struct pipeline *p, struct chunk *c)
{
    c->phase = CHUNK_COPYING_IN;
    return staging_mark_after(p->staging, gate_of(p, c), p->staging->in,
                              copy_blocks(p, &c->rounds, &p->writes, user_at(p, p->call->recv, c),
                                          &c->writes, c->rounds.buffer[BUFFER_RECV], enqueue_in));
}

/* PENDING, or SUCCESS when it has gone to the next phase. */
static alnico_status_t step(struct pipeline *p, struct chunk *c, bool *moved)
{
    switch (c->phase) {
    case CHUNK_FREE:
        if (p->begun == p->chunks)
            return ALNICO_PENDING;
        TRY(begin_chunk(p, c));
        return p->staging ? begin_copy_out(p, c) : ALNICO_SUCCESS;
    case CHUNK_COPYING_OUT:
        if (!gate_is_open(gate_of(p, c)) || !may_run(p, c))
            return ALNICO_PENDING;
        c->phase = CHUNK_RUNNING;
        if (!p->parts)
            return copy_input(p, c);
        begin_parts(p, c);
        return ALNICO_SUCCESS;
    case CHUNK_RUNNING:
        TRY(p->parts ? pipeline_poll(parts_of(p, c), moved) : rounds_poll(&c->rounds, moved));
        TRY(p->parts ? ALNICO_SUCCESS : finish_output(p, c));
        if (p->staging)
            return begin_copy_in(p, c);
        c->phase = CHUNK_ENDING;
        return ALNICO_SUCCESS;
    case CHUNK_COPYING_IN:
        if (!gate_is_open(gate_of(p, c)))
            return ALNICO_PENDING;
        break;
    case CHUNK_ENDING:
        TRY(p->parts ? ALNICO_SUCCESS : rounds_poll(&c->rounds, moved));
        break;
    }
    give_scratch(p, c);
    p->finished++;
    return ALNICO_SUCCESS;
}

static bool is_alltoall(const struct call *call)
{
    return call->collective == ALNICO_ALLTOALL || call->collective == ALNICO_ALLTOALLV;
}

/* In elements of a block: what arrives, WORK and the shadow, which a call may need on some ranks only. */
size_t pipeline_arithmetic_count(const struct call *call, const struct algorithm *algorithm,
                                 int size)
{
    struct side reads = call_reads(call, call->root, size),
                writes = call_writes(call, call->root, size);
    int blocks = reads.blocks > writes.blocks ? reads.blocks : writes.blocks, needed = 0;
    if (call_reduces(call))
        needed += algorithm->arrivals ? blocks : 1;
    if (algorithm->work)
        needed += 2 * blocks;
    if (call->collective != ALNICO_ALLREDUCE && (call_reduces(call) || is_alltoall(call)))
        needed += blocks;
    size_t room = (ARITHMETIC_CHUNK_BYTES - 64) / datatype_bytes(call->type);
    return needed ? room / (size_t)needed : SIZE_MAX;
}

size_t pipeline_staged_count(const struct call *call, int size)
{
    struct side reads = call_reads(call, call->root, size),
                writes = call_writes(call, call->root, size);
    size_t room = STAGING_CHUNK_BYTES / datatype_bytes(call->type);
    if (is_one_buffer(call) || reads.blocks + writes.blocks == 0)
        return room;
    return (room - 64) / (size_t)(reads.blocks + writes.blocks); /* the two begin in lines */
}

/* A copy of the input is needed for an alltoall in place, which cannot send from where it receives, and
 * for averages, which do not scale the user's input. */
static bool needs_shadow(const struct pipeline *p)
{
    const struct call *call = p->call;
    if (p->staging || p->reads.blocks == 0)
        return false;
    if (is_alltoall(call))
        return call->send == call->recv;
    return call->collective != ALNICO_ALLREDUCE && scales(p);
}

/* Elements of each block in one chunk. Algorithms that move several blocks at once are not cut. */
static size_t cut_of(const struct pipeline *p, size_t longest)
{
    size_t element = datatype_bytes(p->call->type), count = p->chunk_bytes / element;
    if (p->algorithm->whole)
        return longest ? longest : 1;
    size_t most = count;
    if (p->staging)
        most = pipeline_staged_count(p->call, p->transport->size);
    if (p->arithmetic)
        most = pipeline_arithmetic_count(p->call, p->algorithm, p->transport->size);
    return count < most ? count : most;
}

/* A copy is worth more bytes than a message has: then chunks are as large as their staging, and each is
 * reduced in parts of the asked size. */
static void divide_chunks(struct pipeline *p)
{
    size_t room = STAGING_CHUNK_BYTES / datatype_bytes(p->call->type);
    p->part_count = 0;
    if (!p->staging || p->call->collective != ALNICO_ALLREDUCE || p->chunks < 2 ||
        p->chunk_count > room / 2)
        return;
    p->part_count = p->chunk_count;
    p->chunk_count = room / p->part_count * p->part_count;
    p->chunks = (p->call->count + p->chunk_count - 1) / p->chunk_count;
}

void pipeline_begin(struct pipeline *p)
{
    const struct transport *t = p->transport;
    size_t longest = call_longest(p->call, t->size);
    p->reads = call_reads(p->call, t->rank, t->size);
    p->writes = call_writes(p->call, t->rank, t->size);
    p->shadows = needs_shadow(p);
    p->chunk_count = cut_of(p, longest);
    p->chunks = longest / p->chunk_count + (longest % p->chunk_count != 0);
    p->numbers = call_is_even(p->call) ? p->chunks : 1;
    divide_chunks(p);
    p->begun = p->finished = 0;
    p->window = p->staging ? STAGING_CHUNKS : CHUNKS_IN_FLIGHT;
    p->signature = signature_of(p);
}

alnico_status_t pipeline_poll(struct pipeline *p, bool *moved)
{
    for (int i = 0; i < p->window && p->finished < p->chunks; i++) {
        struct chunk *c = &p->chunk[i];
        alnico_status_t status;
        do { /* goes as far as it can, but begins no other chunk */
            status = step(p, c, moved);
            if (status == ALNICO_SUCCESS)
                *moved = true;
        } while (status == ALNICO_SUCCESS && c->phase != CHUNK_FREE);
        if (status != ALNICO_SUCCESS && status != ALNICO_PENDING)
            return status;
    }
    if (p->finished < p->chunks)
        return ALNICO_PENDING;
    give_parts(p);
    return ALNICO_SUCCESS;
}

void pipeline_cancel(struct pipeline *p)
{
    for (int i = 0; i < STAGING_CHUNKS; i++) {
        struct chunk *c = &p->chunk[i];
        if (c->phase == CHUNK_FREE)
            continue;
        if (!p->parts)
            rounds_cancel(&c->rounds);
        else if (c->phase == CHUNK_RUNNING)
            pipeline_cancel(parts_of(p, c));
        if (p->staging)
            gate_settle(gate_of(p, c));
        give_scratch(p, c);
    }
    give_parts(p);
}
