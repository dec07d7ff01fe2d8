/* Chunks from the cut to the finished result. Where an average is asked for, floats are scaled as they are copied
 * in and integers are divided as they are finished, while the chunk is in the cache. All arithmetic is the CPU's, on
 * memory that the host reaches. */
#include "comm/pipeline.h"

#include "datatype.h"
#include "status.h"

enum {
    SIGNATURES = 65521, /* prime: how many kinds of call the tags tell apart, ... */
    FEW_SIGNATURES = 31 /* ... and where the transport has few tags */
};

/* ---- Tags ---- */

/* A chunk's messages carry its turn among the communicator's chunks, and what the call looks like: ranks that
 * call different things do not match each other's messages, and find out at the deadline. */
static uint32_t signatures(const struct transport *transport)
{
    return transport->tags > 256 * SIGNATURES ? SIGNATURES : FEW_SIGNATURES;
}

static uint32_t signature_of(const struct pipeline *p)
{
    const struct call *call = &p->call;
    return (uint32_t)((call->count + 7919 * (size_t)call->type + 104729 * (size_t)call->op) %
                      signatures(p->transport));
}

static uint32_t chunk_tag(const struct pipeline *p, size_t index)
{
    uint32_t kinds = signatures(p->transport),
             turns = (p->transport->tags - TAG_OPERATIONS) / kinds;
    return TAG_OPERATIONS + (uint32_t)((p->turn + index) % turns) * kinds + p->signature;
}

/* ---- One chunk ---- */

/* RECV becomes a copy of the input. One rank's is as it is: dividing would change the bits of a NaN. */
static alnico_status_t copy_input(struct pipeline *p, const struct chunk *c)
{
    const struct call *call = &p->call;
    const struct rounds *r = &c->rounds;
    const char *send = r->buffer[BUFFER_SEND];
    char *recv = r->buffer[BUFFER_RECV];
    if (call->op == ALNICO_AVERAGE && !datatype_is_integer(call->type) && p->transport->size > 1)
        return r->device->divide(recv, send, c->count, call->type, p->transport->size, NULL);
    if (send == recv)
        return ALNICO_SUCCESS;
    return r->device->copy(recv, send, c->count * datatype_bytes(call->type), NULL);
}

static alnico_status_t finish_output(struct pipeline *p, const struct chunk *c)
{
    const struct call *call = &p->call;
    const struct rounds *r = &c->rounds;
    if (call->op != ALNICO_AVERAGE || !datatype_is_integer(call->type))
        return ALNICO_SUCCESS;
    char *recv = r->buffer[BUFFER_RECV];
    return r->device->divide(recv, recv, c->count, call->type, p->transport->size, NULL);
}

/* Scratch for arrivals and the algorithm's WORK, one behind the other. */
static alnico_status_t take_scratch(struct pipeline *p, struct chunk *c)
{
    struct rounds *r = &c->rounds;
    size_t bytes = datatype_bytes(p->call.type);
    size_t work = r->algorithm->work ? r->algorithm->work(&r->shape) : 0;
    c->scratch_bytes = (c->count + work) * bytes;
    c->scratch = p->small;
    if (c->scratch_bytes > PIPELINE_SMALL_BYTES || c != &p->chunk[0])
        TRY(pool_take(p->pool, c->scratch_bytes, &c->scratch));
    r->arrivals = c->scratch;
    r->buffer[BUFFER_WORK] = r->arrivals + c->count * bytes;
    return ALNICO_SUCCESS;
}

static void give_scratch(struct pipeline *p, struct chunk *c)
{
    c->phase = CHUNK_FREE;
    if (c->scratch != p->small)
        pool_give(p->pool, c->scratch, c->scratch_bytes);
    c->scratch = NULL;
}

static struct stage *stage_of(struct pipeline *p, const struct chunk *c)
{
    return &p->staging->stages[c - p->chunk];
}

/* The rounds run on the host's memory: the buffers themselves, or the chunk's stage. */
static void place_buffers(struct pipeline *p, struct chunk *c)
{
    const struct call *call = &p->call;
    size_t at = c->at * datatype_bytes(call->type);
    char **buffer = c->rounds.buffer;
    buffer[BUFFER_SEND] = p->staging ? stage_of(p, c)->memory : (char *)call->send + at;
    buffer[BUFFER_RECV] = p->staging ? stage_of(p, c)->memory : (char *)call->recv + at;
}

static alnico_status_t begin_chunk(struct pipeline *p, struct chunk *c)
{
    const struct call *call = &p->call;
    struct rounds *r = &c->rounds;
    c->at = p->begun * p->chunk_count;
    c->count = call->count - c->at < p->chunk_count ? call->count - c->at : p->chunk_count;
    r->algorithm = p->algorithm;
    r->shape =
        (struct shape){.rank = p->transport->rank, .size = p->transport->size, .count = c->count};
    r->transport = p->transport;
    r->device = &device_cpu;
    r->tag = chunk_tag(p, p->begun);
    r->type = call->type;
    r->op = call->op;
    place_buffers(p, c);
    TRY(take_scratch(p, c));
    p->begun++;
    rounds_begin(r);
    c->phase = CHUNK_RUNNING;
    return p->staging ? ALNICO_SUCCESS : copy_input(p, c);
}

/* ---- The copies of a chunk ---- */

static alnico_status_t begin_copy_out(struct pipeline *p, struct chunk *c)
{
    size_t bytes = datatype_bytes(p->call.type);
    struct stage *stage = stage_of(p, c);
    TRY(stage_copy(p->staging, stage, stage->memory, (const char *)p->call.send + c->at * bytes,
                   c->count * bytes, p->staging->out));
    c->phase = CHUNK_COPYING_OUT;
    return ALNICO_SUCCESS;
}

static alnico_status_t begin_copy_in(struct pipeline *p, struct chunk *c)
{
    size_t bytes = datatype_bytes(p->call.type);
    struct stage *stage = stage_of(p, c);
    TRY(stage_copy(p->staging, stage, (char *)p->call.recv + c->at * bytes, stage->memory,
                   c->count * bytes, p->staging->in));
    c->phase = CHUNK_COPYING_IN;
    return ALNICO_SUCCESS;
}

/* ---- Its steps: each returns PENDING, or SUCCESS when it has gone to the next ---- */

static alnico_status_t step_free(struct pipeline *p, struct chunk *c)
{
    if (p->begun == p->chunks)
        return ALNICO_PENDING;
    TRY(begin_chunk(p, c));
    return p->staging ? begin_copy_out(p, c) : ALNICO_SUCCESS;
}

static alnico_status_t step_copying_out(struct pipeline *p, struct chunk *c)
{
    if (!gate_is_open(&stage_of(p, c)->copied))
        return ALNICO_PENDING;
    c->phase = CHUNK_RUNNING;
    return copy_input(p, c);
}

static void end_chunk(struct pipeline *p, struct chunk *c)
{
    give_scratch(p, c);
    p->finished++;
}

static alnico_status_t step_running(struct pipeline *p, struct chunk *c, bool *moved)
{
    alnico_status_t status = rounds_poll(&c->rounds, moved);
    if (status != ALNICO_SUCCESS)
        return status;
    TRY(finish_output(p, c));
    if (p->staging)
        return begin_copy_in(p, c);
    end_chunk(p, c);
    return ALNICO_SUCCESS;
}

static alnico_status_t step_copying_in(struct pipeline *p, struct chunk *c)
{
    if (!gate_is_open(&stage_of(p, c)->copied))
        return ALNICO_PENDING;
    end_chunk(p, c);
    return ALNICO_SUCCESS;
}

static alnico_status_t step(struct pipeline *p, struct chunk *c, bool *moved)
{
    switch (c->phase) {
    case CHUNK_FREE:
        return step_free(p, c);
    case CHUNK_COPYING_OUT:
        return step_copying_out(p, c);
    case CHUNK_RUNNING:
        return step_running(p, c, moved);
    case CHUNK_COPYING_IN:
        return step_copying_in(p, c);
    }
    return ALNICO_ERROR_SYSTEM;
}

/* Goes as far as it can, but begins nothing new. */
static alnico_status_t poll_chunk(struct pipeline *p, struct chunk *c, bool *moved)
{
    alnico_status_t status;
    do {
        status = step(p, c, moved);
        if (status == ALNICO_SUCCESS)
            *moved = true;
    } while (status == ALNICO_SUCCESS && c->phase != CHUNK_FREE);
    return status == ALNICO_PENDING ? ALNICO_SUCCESS : status;
}

/* ---- All of them ---- */

void pipeline_begin(struct pipeline *p)
{
    size_t bytes = p->chunk_bytes;
    if (p->staging && bytes > STAGING_CHUNK_BYTES)
        bytes = STAGING_CHUNK_BYTES;
    p->chunk_count = bytes / datatype_bytes(p->call.type);
    p->chunks = p->call.count / p->chunk_count + (p->call.count % p->chunk_count != 0);
    p->begun = p->finished = 0;
    p->window = p->staging ? STAGING_CHUNKS : CHUNKS_IN_FLIGHT;
    p->signature = signature_of(p);
}

alnico_status_t pipeline_poll(struct pipeline *p, bool *moved)
{
    for (int i = 0; i < p->window && p->finished < p->chunks; i++)
        TRY(poll_chunk(p, &p->chunk[i], moved));
    return p->finished == p->chunks ? ALNICO_SUCCESS : ALNICO_PENDING;
}

void pipeline_cancel(struct pipeline *p)
{
    for (int i = 0; i < STAGING_CHUNKS; i++) {
        struct chunk *c = &p->chunk[i];
        if (c->phase == CHUNK_FREE)
            continue;
        rounds_cancel(&c->rounds);
        if (p->staging)
            stage_settle(stage_of(p, c));
        give_scratch(p, c);
    }
}
