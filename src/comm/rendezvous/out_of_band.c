/* An allgather around a ring and a broadcast down a binomial tree, over any transport. */
#include "comm/rendezvous/out_of_band.h"

#include "base/status.h"
#include "device/backoff.h"
#include "progress/progress.h"

#include <assert.h>
#include <string.h>

double out_of_band_patience(double timeout)
{
    return timeout < 2 ? timeout / 8 : 0.25;
}

/* A message under way. */
struct message {
    bool sends, posted;
    int place; /* of the other rank */
    void *data;
    struct transfer transfer;
    alnico_status_t status;
};

/* A receive and a send of equal bytes, at the same time, or one message. */
struct waiting {
    const struct out_of_band *wait;
    struct message *messages;
    int count;
    size_t bytes;
    double end, look; /* the deadline, and when to ask again who is gone */
    int lost;         /* the place of a rank whose process has ended, or -1 */
    bool last;        /* this look is the last one */
};

static int count_of(const struct out_of_band *wait)
{
    return wait->members ? wait->count : wait->transport->size;
}

static int place_of(const struct out_of_band *wait)
{
    return wait->members ? wait->place : wait->transport->rank;
}

static int rank_at(const struct out_of_band *wait, int place)
{
    return wait->members ? wait->members[place] : place;
}

/* The place of a rank whose process has ended, or -1. */
static int find_lost(const struct out_of_band *wait)
{
    struct transport *t = wait->transport;
    for (int i = 0; t->ops->gone && i < count_of(wait); i++)
        if (i != place_of(wait) && t->ops->gone(t, rank_at(wait, i)))
            return i;
    return -1;
}

int out_of_band_find_lost(struct transport *t)
{
    const struct out_of_band all = {.transport = t};
    return find_lost(&all);
}

/* The number that errors give to the rank at a place. */
static int name_at(const struct out_of_band *wait, int place)
{
    return wait->called ? wait->called[place] : place;
}

static bool is_broken(const struct out_of_band *wait)
{
    return wait->broken && atomic_load(wait->broken) != 0;
}

/* A shortage of memory may pass. */
static alnico_status_t post(const struct waiting *w, struct message *m)
{
    struct transport *t = w->wait->transport;
    int rank = rank_at(w->wait, m->place);
    alnico_status_t status =
        m->sends ? t->ops->isend(t, rank, w->wait->tag, m->data, w->bytes, &m->transfer)
                 : t->ops->irecv(t, rank, w->wait->tag, m->data, w->bytes, &m->transfer);
    m->posted = status == ALNICO_SUCCESS;
    return m->posted || status == ALNICO_ERROR_MEMORY ? ALNICO_PENDING : status;
}

static bool have_ended(struct waiting *w)
{
    struct transport *t = w->wait->transport;
    bool ended = true;
    for (int i = 0; i < w->count; i++) {
        struct message *m = &w->messages[i];
        if (m->status == ALNICO_PENDING && !m->posted)
            m->status = post(w, m);
        if (m->status == ALNICO_PENDING && m->posted)
            m->status = t->ops->test(t, &m->transfer);
        ended &= m->status != ALNICO_PENDING;
    }
    return ended;
}

/* One look. A message that was sent before the deadline, or before a process ended, may have come
 * while this rank itself was held up: it looks once more. */
static enum wait look_for_end(void *context)
{
    struct waiting *w = context;
    struct engine *engine = w->wait->engine;
    if (have_ended(w) || w->last)
        return WAIT_DONE;
    if (engine && !engine_is_threaded(engine))
        engine_pump(engine);
    double now = transport_now(w->wait->transport);
    if (now > w->look) {
        w->lost = find_lost(w->wait);
        w->look = now + out_of_band_patience(w->wait->timeout);
    }
    w->last = w->lost >= 0 || now > w->end || is_broken(w->wait);
    return w->last ? WAIT_MOVED : WAIT_IDLE;
}

static alnico_status_t name_absent(const struct waiting *w, int awaited)
{
    const struct out_of_band *wait = w->wait;
    int name = name_at(wait, w->lost >= 0 ? w->lost : awaited);
    if (w->lost >= 0)
        return error_set(ALNICO_ERROR_TIMEOUT, "%s: rank %d did not come: its process has ended",
                         wait->who, name);
    return error_set(ALNICO_ERROR_TIMEOUT, "%s: rank %d did not come within %g s", wait->who, name,
                     wait->timeout);
}

/* Ends what is under way. The first message that did not end well tells why. */
static alnico_status_t conclude(struct waiting *w, int awaited)
{
    struct transport *t = w->wait->transport;
    const struct message *failed = NULL;
    for (int i = 0; i < w->count; i++) {
        struct message *m = &w->messages[i];
        if (m->status == ALNICO_PENDING && m->posted)
            t->ops->cancel(t, &m->transfer);
        if (m->status != ALNICO_SUCCESS && !failed)
            failed = m;
    }
    if (!failed)
        return ALNICO_SUCCESS;
    if (failed->status != ALNICO_PENDING && failed->status != ALNICO_ERROR_TIMEOUT)
        return error_set(failed->status, "%s: %s", w->wait->who, alnico_error_detail());
    if (!failed->posted)
        return error_set(ALNICO_ERROR_MEMORY, "%s: no memory for a message to or from rank %d",
                         w->wait->who, name_at(w->wait, failed->place));
    if (w->lost < 0) /* whoever was held up past the deadline has not looked */
        w->lost = find_lost(w->wait);
    return name_absent(w, failed->sends ? failed->place : awaited);
}

/* Carries the messages out. TIMEOUT at the deadline, soon after the process of any rank has ended, or
 * when an error is latched. What is received comes from the place `awaited`, maybe through others. */
static alnico_status_t carry_out(const struct out_of_band *wait, struct message *messages,
                                 int count, size_t bytes, int awaited)
{
    double now = transport_now(wait->transport);
    struct waiting w = {.wait = wait,
                        .messages = messages,
                        .count = count,
                        .bytes = bytes,
                        .end = now + wait->timeout - wait->spent,
                        .look = now + out_of_band_patience(wait->timeout),
                        .lost = -1,
                        .last = is_broken(wait)};
    for (int i = 0; i < count; i++)
        messages[i].status = ALNICO_PENDING;
    wait_until(look_for_end, &w, WAIT_FOREVER, false);
    return conclude(&w, awaited);
}

/* A rank that keeps nothing has room for the block that it got and the one that it gets. */
static char *block_of(char *all, char *spare, int step, int block, size_t bytes)
{
    return all ? all + (size_t)block * bytes : spare + (step % 2 ? OUT_OF_BAND_BYTES : 0);
}

alnico_status_t out_of_band_gather(const struct out_of_band *wait, const void *mine, void *all,
                                   size_t bytes)
{
    char spare[2 * OUT_OF_BAND_BYTES];
    int p = count_of(wait), place = place_of(wait);
    assert(all || bytes <= OUT_OF_BAND_BYTES);
    memcpy(block_of(all, spare, 0, place, bytes), mine, bytes);
    for (int i = 0; i < p - 1; i++) {
        int sent = (place - i + p) % p, received = (place - i - 1 + p) % p;
        struct message messages[] = {
            {.place = (place - 1 + p) % p, .data = block_of(all, spare, i + 1, received, bytes)},
            {.sends = true,
             .place = (place + 1) % p,
             .data = block_of(all, spare, i, sent, bytes)}};
        TRY(carry_out(wait, messages, 2, bytes, received));
    }
    return ALNICO_SUCCESS;
}

static alnico_status_t pass_on(const struct out_of_band *wait, int peer, bool sends, void *data,
                               size_t bytes)
{
    struct message message = {.sends = sends, .place = peer, .data = data};
    return carry_out(wait, &message, 1, bytes, peer);
}

alnico_status_t out_of_band_broadcast(const struct out_of_band *wait, void *data, size_t bytes)
{
    const struct transport *t = wait->transport;
    int bit = 1;
    while (bit < t->size && t->rank % (2 * bit) == 0)
        bit *= 2;
    if (t->rank > 0)
        TRY(pass_on(wait, t->rank - bit, false, data, bytes));
    for (bit /= 2; bit > 0; bit /= 2)
        if (t->rank + bit < t->size)
            TRY(pass_on(wait, t->rank + bit, true, data, bytes));
    return ALNICO_SUCCESS;
}
