/*
 * The executor. A round is posted whole, an exchange's receive before its send unless the transport
 * wants it otherwise; it ends when all its transfers have, and what arrived for a reduction has
 * been combined. The exchange's send must end before its reduction, which may overwrite what is
 * being sent. Called wherever an operation is polled.
 *
 * On a device's stream elements are combined behind the call: the next round is posted once the
 * stream has opened a gate behind them, since it sends what they wrote and receives where they
 * read.
 */
#include "comm/operations/rounds.h"

#include "base/datatype.h"
#include "base/status.h"

#include <assert.h>

void rounds_begin(struct rounds *r)
{
    r->element = datatype_bytes(r->type);
    r->round = 0;
    r->rounds = r->algorithm->rounds(&r->shape);
    r->open = 0;
    r->enqueued = false;
    r->pending = r->many ? r->many : r->few;
}

static char *span_start(const struct rounds *r, const struct span *span)
{
    return r->buffer[span->in] + span->at * r->element;
}

/* Lower rank first, so that ranks which compute the same sum get the same bits. */
static alnico_status_t combine(struct rounds *r, const struct exchange *x, const char *arrival)
{
    char *mine = span_start(r, &x->recv);
    bool lower = x->from < r->shape.rank;
    r->enqueued = true;
    return r->device->reduce(mine, lower ? arrival : mine, lower ? mine : arrival, x->recv.len,
                             r->type, r->op, r->stream);
}

static alnico_status_t do_local(struct rounds *r, const struct exchange *x)
{
    if (x->recv.len == 0)
        return ALNICO_SUCCESS;
    const char *source = span_start(r, &x->send);
    if (x->reduce)
        return combine(r, x, source);
    char *target = span_start(r, &x->recv);
    if (source == target)
        return ALNICO_SUCCESS;
    r->enqueued = true;
    return r->device->copy(target, source, x->recv.len * r->element, r->stream);
}

/* Posts one direction of an exchange. */
static alnico_status_t post(struct rounds *r, struct pending *p, bool sends)
{
    const struct exchange *x = &p->exchange;
    const struct span *span = sends ? &x->send : &x->recv;
    struct transport *t = r->transport;
    int other = sends ? x->to : x->from;
    size_t bytes = span->len * r->element;
    if (other < 0 || (bytes == 0 && !r->empty))
        return ALNICO_SUCCESS;
    char *memory = x->reduce && !sends ? p->arrival : span_start(r, span);
    TRY(sends ? t->ops->isend(t, other, r->tag, memory, bytes, &p->send)
              : t->ops->irecv(t, other, r->tag, memory, bytes, &p->recv));
    *(sends ? &p->sending : &p->receiving) = true;
    return ALNICO_SUCCESS;
}

static alnico_status_t post_round(struct rounds *r)
{
    char *arrival = r->arrivals;
    bool sends_first = r->transport->sends_first;
    struct exchange x;
    for (int k = 0; r->algorithm->round(&r->shape, r->round, k, &x); k++) {
        assert(k < EXCHANGES || r->many);
        if (x.to == r->shape.rank && x.from == r->shape.rank) {
            TRY(do_local(r, &x));
            continue;
        }
        struct pending *p = &r->pending[r->open++];
        p->exchange = x;
        p->arrival = arrival;
        p->sending = p->receiving = false;
        TRY(post(r, p, sends_first));
        TRY(post(r, p, !sends_first));
        if (x.reduce && x.from >= 0)
            arrival += x.recv.len * r->element;
        assert((size_t)(arrival - r->arrivals) <=
               r->element *
                   (r->algorithm->arrivals ? r->algorithm->arrivals(&r->shape) : r->shape.count));
    }
    return ALNICO_SUCCESS;
}

/* Tests one direction; clears *active when it has ended. */
static alnico_status_t advance(struct rounds *r, struct transfer *transfer, bool *active,
                               bool *moved)
{
    if (!*active)
        return ALNICO_SUCCESS;
    alnico_status_t status = r->transport->ops->test(r->transport, transfer);
    if (status == ALNICO_PENDING)
        return ALNICO_SUCCESS;
    *active = false;
    *moved = true;
    return status;
}

static alnico_status_t poll_exchange(struct rounds *r, struct pending *p, bool *moved)
{
    if (!p->sending && !p->receiving)
        return ALNICO_SUCCESS;
    TRY(advance(r, &p->recv, &p->receiving, moved));
    TRY(advance(r, &p->send, &p->sending, moved));
    if (p->sending || p->receiving)
        return ALNICO_PENDING;
    const struct exchange *x = &p->exchange;
    return x->reduce && x->from >= 0 ? combine(r, x, p->arrival) : ALNICO_SUCCESS;
}

static alnico_status_t poll_round(struct rounds *r, bool *moved)
{
    bool pending = false;
    for (int k = 0; k < r->open; k++) {
        alnico_status_t status = poll_exchange(r, &r->pending[k], moved);
        if (status == ALNICO_PENDING)
            pending = true;
        else if (status != ALNICO_SUCCESS) {
            r->failed = k;
            return status;
        }
    }
    return pending ? ALNICO_PENDING : ALNICO_SUCCESS;
}

/* Has the stream open the gate behind what was enqueued. */
static alnico_status_t mark(struct rounds *r)
{
    if (!r->enqueued)
        return ALNICO_SUCCESS;
    r->enqueued = false;
    gate_close(r->ended);
    return gate_open_on(r->ended, r->stream);
}

static alnico_status_t poll_enqueued(struct rounds *r)
{
    if (!r->ended)
        return ALNICO_SUCCESS;
    TRY(mark(r));
    return gate_is_open(r->ended) ? ALNICO_SUCCESS : ALNICO_PENDING;
}

alnico_status_t rounds_poll(struct rounds *r, bool *moved)
{
    while (r->round < r->rounds) {
        if (r->open == 0) {
            TRY(poll_enqueued(r));
            TRY(post_round(r));
        }
        TRY(poll_round(r, moved));
        r->open = 0;
        r->round++;
    }
    return poll_enqueued(r);
}

void rounds_cancel(struct rounds *r)
{
    for (int k = 0; k < r->open; k++) {
        struct pending *p = &r->pending[k];
        if (p->receiving)
            r->transport->ops->cancel(r->transport, &p->recv);
        if (p->sending)
            r->transport->ops->cancel(r->transport, &p->send);
        p->receiving = p->sending = false;
    }
    r->open = 0;
    if (r->ended && mark(r) == ALNICO_SUCCESS)
        gate_settle(r->ended);
}

int rounds_waits_for(const struct rounds *r)
{
    for (int k = 0; k < r->open; k++) {
        if (r->pending[k].receiving)
            return r->pending[k].exchange.from;
        if (r->pending[k].sending)
            return r->pending[k].exchange.to;
    }
    return -1;
}
