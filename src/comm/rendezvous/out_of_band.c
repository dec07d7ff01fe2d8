/*
 * Exchanges over any transport. The allgather is Bruck's (J. Bruck, C.-T. Ho, S. Kipnis, E. Upfal, D.
 * Weathersby, 1997): in round k = 0, 1, ... rank i sends all blocks that it has to rank i - 2^k, and gets
 * as many from rank i + 2^k, the last time what is missing. log2(p) alpha + beta (p - 1) bytes. Each message
 * begins with a header that says how its sender has fared: a rank that failed goes on, and all who
 * wait for what it does not have learn why. The broadcast goes down a binomial tree.
 */
#include "comm/rendezvous/out_of_band.h"

#include "base/status.h"
#include "device/backoff.h"
#include "progress/progress.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

double out_of_band_patience(double timeout)
{
    return timeout < 25 ? timeout / 100 : 0.25;
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
    bool told;        /* another rank waits in vain */
    bool last;        /* this look is the last one */
};

static struct waiting begin_wait(const struct out_of_band *wait)
{
    double now = transport_now(wait->transport);
    return (struct waiting){.wait = wait,
                            .end = now + wait->timeout - wait->spent,
                            .look = now + out_of_band_patience(wait->timeout),
                            .lost = -1};
}

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

alnico_status_t out_of_band_look(const struct out_of_band *wait)
{
    int lost = find_lost(wait);
    return lost < 0
               ? ALNICO_SUCCESS
               : error_set(ALNICO_ERROR_TIMEOUT, "%s: rank %d did not come: its process has ended",
                           wait->who, name_at(wait, lost));
}

static bool is_told(const struct out_of_band *wait)
{
    return wait->told && wait->told(wait->context);
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
        w->told = is_told(w->wait);
        w->look = now + out_of_band_patience(w->wait->timeout);
    }
    w->last = w->lost >= 0 || w->told || now > w->end || is_broken(w->wait);
    return w->last ? WAIT_MOVED : WAIT_IDLE;
}

static alnico_status_t name_absent(const struct waiting *w, int awaited)
{
    const struct out_of_band *wait = w->wait;
    int name = name_at(wait, w->lost >= 0 ? w->lost : awaited);
    if (wait->awaited)
        *wait->awaited = name;
    if (w->lost >= 0)
        return error_set(ALNICO_ERROR_TIMEOUT, "%s: rank %d did not come: its process has ended",
                         wait->who, name);
    return error_set(ALNICO_ERROR_TIMEOUT, "%s: rank %d did not come within %g s", wait->who, name,
                     wait->timeout);
}

/* Ends what is under way. The first message that did not end well tells why. */
static alnico_status_t conclude(struct waiting *w)
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
    return name_absent(w, failed->place);
}

/* Carries the messages out. TIMEOUT at the deadline, soon after the process of any rank has ended, or
 * when an error is latched. */
static alnico_status_t carry_out(struct waiting *w, struct message *messages, int count,
                                 size_t bytes)
{
    w->messages = messages;
    w->count = count;
    w->bytes = bytes;
    w->last = is_broken(w->wait);
    for (int i = 0; i < count; i++)
        messages[i].status = ALNICO_PENDING;
    wait_until(look_for_end, w, WAIT_FOREVER, false);
    return conclude(w);
}

/* ---- The allgather ---- */

/* How a rank has fared. */
struct header {
    int32_t status;
    char detail[252];
};

/* The header and then the blocks of this rank and those behind it, around; and of what comes. */
struct gathering {
    struct waiting wait;
    size_t bytes; /* of a block */
    struct header *have, *coming;
};

static char *block_of(struct header *header, int block, size_t bytes)
{
    return (char *)(header + 1) + (size_t)block * bytes;
}

static enum wait look_for_memory(void *context)
{
    struct gathering *g = context;
    size_t blocks = (size_t)count_of(g->wait.wait) * g->bytes;
    g->have = malloc(sizeof *g->have + blocks);
    g->coming = g->have ? malloc(sizeof *g->coming + blocks / 2 + g->bytes) : NULL;
    if (g->coming || transport_now(g->wait.wait->transport) > g->wait.end)
        return WAIT_DONE;
    free(g->have);
    return WAIT_IDLE;
}

/* A failure from now on, which others are told. */
static void note_failure(struct gathering *g, alnico_status_t status)
{
    if (g->have->status != ALNICO_SUCCESS)
        return;
    g->have->status = status;
    snprintf(g->have->detail, sizeof g->have->detail, "%s", error_text(g->wait.wait->who));
}

/* One round: `have` blocks are here, and `count` more come. Others learn otherwise of a process that has
 * ended, of a latched error, and of a rank that waits in vain, where there is a way to tell them: a round
 * that fails for these ends the gathering. */
static bool go_on(struct gathering *g, int have, int count)
{
    const struct out_of_band *wait = g->wait.wait;
    int p = count_of(wait), place = place_of(wait);
    size_t bytes = (size_t)count * g->bytes;
    struct message messages[] = {{.place = (place + have) % p, .data = g->coming},
                                 {.sends = true, .place = (place - have + p) % p, .data = g->have}};
    alnico_status_t status = carry_out(&g->wait, messages, 2, sizeof *g->have + bytes);
    if (status == ALNICO_SUCCESS && g->coming->status != ALNICO_SUCCESS)
        status = error_set((alnico_status_t)g->coming->status, "%.*s",
                           (int)sizeof g->coming->detail - 1, g->coming->detail);
    if (status != ALNICO_SUCCESS)
        note_failure(g, status);
    else
        memcpy(block_of(g->have, have, g->bytes), block_of(g->coming, 0, g->bytes), bytes);
    bool heard =
        g->wait.lost >= 0 || is_broken(wait) || (wait->told && status == ALNICO_ERROR_TIMEOUT);
    return status == ALNICO_SUCCESS || !heard;
}

/* Later rounds wait a little longer, since the others may have waited and know for whom. */
static void exchange(struct gathering *g)
{
    const struct out_of_band *wait = g->wait.wait;
    int p = count_of(wait), rounds = 0;
    while (1 << rounds < p)
        rounds++;
    for (int have = 1; have < p; have *= 2) {
        if (!go_on(g, have, have < p - have ? have : p - have))
            return;
        g->wait.end += (0.1 * wait->timeout + 0.1) / rounds;
    }
}

/* From this rank's first to rank 0's first. */
static void put_in_order(const struct gathering *g, char *all)
{
    int p = count_of(g->wait.wait), place = place_of(g->wait.wait);
    memcpy(all + (size_t)place * g->bytes, block_of(g->have, 0, 0), (size_t)(p - place) * g->bytes);
    memcpy(all, block_of(g->have, p - place, g->bytes), (size_t)place * g->bytes);
}

alnico_status_t out_of_band_gather(const struct out_of_band *wait, const void *mine, void *all,
                                   size_t bytes)
{
    struct gathering g = {.wait = begin_wait(wait), .bytes = bytes};
    wait_until(look_for_memory, &g, WAIT_FOREVER, false);
    if (!g.coming) {
        free(g.have);
        return error_set(ALNICO_ERROR_MEMORY, "%s: no memory for %d ranks", wait->who,
                         count_of(wait));
    }
    memset(g.have, 0, sizeof *g.have);
    memcpy(block_of(g.have, 0, bytes), mine, bytes);
    exchange(&g);
    alnico_status_t status = (alnico_status_t)g.have->status;
    if (status != ALNICO_SUCCESS)
        error_set(status, "%s: %s", wait->who, g.have->detail);
    else if (all)
        put_in_order(&g, all);
    free(g.have);
    free(g.coming);
    return status;
}

/* ---- The broadcast ---- */

static alnico_status_t pass_on(const struct out_of_band *wait, int peer, bool sends, void *data,
                               size_t bytes)
{
    struct waiting w = begin_wait(wait);
    struct message message = {.sends = sends, .place = peer, .data = data};
    return carry_out(&w, &message, 1, bytes);
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
