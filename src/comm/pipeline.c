/* Chunks from the cut to the finished result. Where an average is asked for, floats are scaled as they are copied
 * in and integers are divided as they are finished, while the chunk is in the cache. */
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
        return p->device->divide(recv, send, c->count, call->type, p->transport->size, NULL);
    if (send == recv)
        return ALNICO_SUCCESS;
    return p->device->copy(recv, send, c->count * datatype_bytes(call->type), NULL);
}

static alnico_status_t finish_output(struct pipeline *p, const struct chunk *c)
{
    const struct call *call = &p->call;
    if (call->op != ALNICO_AVERAGE || !datatype_is_integer(call->type))
        return ALNICO_SUCCESS;
    char *recv = c->rounds.buffer[BUFFER_RECV];
    return p->device->divide(recv, recv, c->count, call->type, p->transport->size, NULL);
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
    c->busy = false;
    if (c->scratch != p->small)
        pool_give(p->pool, c->scratch, c->scratch_bytes);
    c->scratch = NULL;
}

static alnico_status_t begin_chunk(struct pipeline *p, struct chunk *c)
{
    const struct call *call = &p->call;
    size_t at = p->begun * p->chunk_count, bytes = datatype_bytes(call->type);
    struct rounds *r = &c->rounds;
    c->count = call->count - at < p->chunk_count ? call->count - at : p->chunk_count;
    r->algorithm = p->algorithm;
    r->shape =
        (struct shape){.rank = p->transport->rank, .size = p->transport->size, .count = c->count};
    r->transport = p->transport;
    r->device = p->device;
    r->tag = chunk_tag(p, p->begun);
    r->type = call->type;
    r->op = call->op;
    r->buffer[BUFFER_SEND] = (char *)call->send + at * bytes;
    r->buffer[BUFFER_RECV] = (char *)call->recv + at * bytes;
    TRY(take_scratch(p, c));
    c->busy = true;
    p->begun++;
    rounds_begin(r);
    return copy_input(p, c);
}

static alnico_status_t poll_chunk(struct pipeline *p, struct chunk *c, bool *moved)
{
    if (!c->busy && p->begun == p->chunks)
        return ALNICO_SUCCESS;
    if (!c->busy)
        TRY(begin_chunk(p, c));
    alnico_status_t status = rounds_poll(&c->rounds, moved);
    if (status == ALNICO_PENDING)
        return ALNICO_SUCCESS;
    TRY(status);
    TRY(finish_output(p, c));
    give_scratch(p, c);
    p->finished++;
    *moved = true;
    return ALNICO_SUCCESS;
}

/* ---- All of them ---- */

void pipeline_begin(struct pipeline *p)
{
    p->chunk_count = p->chunk_bytes / datatype_bytes(p->call.type);
    p->chunks = p->call.count / p->chunk_count + (p->call.count % p->chunk_count != 0);
    p->begun = p->finished = 0;
    p->signature = signature_of(p);
}

alnico_status_t pipeline_poll(struct pipeline *p, bool *moved)
{
    for (int i = 0; i < CHUNKS_IN_FLIGHT && p->finished < p->chunks; i++)
        TRY(poll_chunk(p, &p->chunk[i], moved));
    return p->finished == p->chunks ? ALNICO_SUCCESS : ALNICO_PENDING;
}

void pipeline_cancel(struct pipeline *p)
{
    for (int i = 0; i < CHUNKS_IN_FLIGHT; i++)
        if (p->chunk[i].busy) {
            rounds_cancel(&p->chunk[i].rounds);
            give_scratch(p, &p->chunk[i]);
        }
}
