/* Flooding consensus over a transport's messages, which come in the order in which a rank sent them.
 * A receive from every rank is always posted, so that what a rank that went ahead sends finds its
 * place; messages of earlier consensuses are passed over. */
#include "comm/rendezvous/consensus.h"

#include "base/status.h"
#include "progress/progress.h"

#include <stdlib.h>
#include <string.h>

enum {
    UNKNOWN = 1,        /* no status of this rank is known */
    DECIDED = INT32_MAX /* in place of a round */
};

/* What a rank knows; it is also a message. */
struct knowledge {
    uint32_t number; /* of the consensus */
    int32_t round;
    char detail[188];
    int32_t statuses[]; /* by rank, or UNKNOWN */
};

/* Between this rank and another one. */
struct link {
    struct knowledge *sent, *received;
    struct transfer out, in;
    bool sending, posted, full; /* full: `received` has come, and is not used yet */
    bool waits;                 /* it is not given up */
    bool told;                  /* that it is decided */
    int32_t round;              /* the last one heard of; 0: none, -1: takes no part */
};

struct consensus {
    struct transport *transport;
    size_t bytes; /* of a message */
    struct knowledge *mine;
    struct link links[]; /* by rank; this rank's own is not used */
};

/* A wait for the other ranks. */
struct round {
    struct consensus *c;
    const struct consensus_setup *setup;
    double end, look; /* the deadline, and when to ask again who has ended */
};

static const double look_seconds = 0.05, delivery_seconds = 1;

/* One allocation has all messages, this rank's knowledge first. */
alnico_status_t consensus_create(struct transport *t, struct consensus **out)
{
    size_t size = (size_t)t->size;
    size_t bytes = (sizeof(struct knowledge) + size * sizeof(int32_t) + 7) / 8 * 8;
    struct consensus *c = calloc(1, sizeof *c + size * sizeof *c->links);
    char *messages = calloc(2 * size + 1, bytes);
    *out = NULL;
    if (!c || !messages) {
        free(messages);
        free(c);
        return error_set(ALNICO_ERROR_MEMORY, "no memory for %d ranks", t->size);
    }
    *c = (struct consensus){.transport = t, .bytes = bytes, .mine = (void *)messages};
    for (size_t i = 0; i < size; i++) {
        c->links[i].sent = (void *)(messages + (2 * i + 1) * bytes);
        c->links[i].received = (void *)(messages + (2 * i + 2) * bytes);
    }
    *out = c;
    return ALNICO_SUCCESS;
}

/* A message that the transport may still read is not freed. */
void consensus_destroy(struct consensus *c)
{
    bool unread = true;
    for (int i = 0; c && i < c->transport->size; i++) {
        struct link *link = &c->links[i];
        if (link->posted)
            c->transport->ops->cancel(c->transport, &link->in);
        if (link->sending)
            unread &= c->transport->ops->cancel(c->transport, &link->out);
    }
    if (c && unread)
        free(c->mine);
    free(c);
}

static bool has_ended(struct transport *t, int rank)
{
    return (t->ops->gone && t->ops->gone(t, rank)) || (t->ops->left && t->ops->left(t, rank));
}

/* Whether the transport has taken what was sent to the rank. */
static bool is_sent(struct consensus *c, int rank)
{
    struct link *link = &c->links[rank];
    if (link->sending)
        link->sending = c->transport->ops->test(c->transport, &link->out) == ALNICO_PENDING;
    return !link->sending;
}

/* Who is so late that the message before is not taken yet learns no more. */
static void send_to(struct consensus *c, int rank)
{
    struct link *link = &c->links[rank];
    struct transport *t = c->transport;
    if (!is_sent(c, rank))
        return;
    memcpy(link->sent, c->mine, c->bytes);
    link->sending =
        t->ops->isend(t, rank, TAG_CONSENSUS, link->sent, c->bytes, &link->out) == ALNICO_SUCCESS;
}

/* A shortage of memory may pass. */
static void receive_from(struct consensus *c, int rank)
{
    struct link *link = &c->links[rank];
    struct transport *t = c->transport;
    if (link->full)
        return;
    if (!link->posted)
        link->posted = t->ops->irecv(t, rank, TAG_CONSENSUS, link->received, c->bytes, &link->in) ==
                       ALNICO_SUCCESS;
    alnico_status_t status = link->posted ? t->ops->test(t, &link->in) : ALNICO_PENDING;
    link->posted &= status == ALNICO_PENDING;
    link->full = status == ALNICO_SUCCESS;
}

/* The lowest rank that proposed an error, or `size`. */
static int first_error(const struct knowledge *k, int size)
{
    int i = 0;
    while (i < size && k->statuses[i] >= 0)
        i++;
    return i;
}

/* A decision on this consensus, or on another one by which the others go on without this rank. */
static bool decides(const struct consensus *c, const struct knowledge *other)
{
    return other->round == DECIDED &&
           (other->number == c->mine->number || other->statuses[c->transport->rank] == UNKNOWN);
}

static void merge(struct consensus *c, const struct knowledge *other)
{
    struct knowledge *mine = c->mine;
    int size = c->transport->size;
    if (first_error(other, size) < first_error(mine, size))
        memcpy(mine->detail, other->detail, sizeof mine->detail);
    for (int i = 0; i < size; i++)
        if (mine->statuses[i] == UNKNOWN)
            mine->statuses[i] = other->statuses[i];
}

static void use(struct consensus *c, struct link *link)
{
    const struct knowledge *other = link->received;
    const uint32_t number = c->mine->number;
    link->full = false;
    if (other->number == number)
        link->round = other->round;
    if (decides(c, other))
        memcpy(c->mine, other, c->bytes);
    else if (other->number == number)
        merge(c, other);
    c->mine->number = number;
}

/* Takes what has come from a rank until it is heard of in a round. What is of a later consensus is from
 * a rank that went on without this one, or waits for it there. */
static void hear(struct consensus *c, int rank, int32_t round)
{
    struct link *link = &c->links[rank];
    for (receive_from(c, rank); link->full && link->round < round; receive_from(c, rank)) {
        if (link->received->number > c->mine->number && !decides(c, link->received)) {
            link->waits = false;
            break;
        }
        use(c, link);
    }
}

/* What a rank sent before it ended is there when that end is seen. */
static void look_at(struct round *r, int rank, double now)
{
    struct link *link = &r->c->links[rank];
    if (now < r->end && !has_ended(r->c->transport, rank))
        return;
    hear(r->c, rank, r->c->mine->round);
    link->waits &= link->round >= r->c->mine->round;
}

static void pump(const struct consensus_setup *setup)
{
    if (setup->engine && !engine_is_threaded(setup->engine))
        engine_pump(setup->engine);
}

static enum wait look_for_round(void *context)
{
    struct round *r = context;
    struct consensus *c = r->c;
    double now = transport_now(c->transport);
    bool looks = now >= r->look, complete = true;
    pump(r->setup);
    for (int i = 0; i < c->transport->size && c->mine->round != DECIDED; i++) {
        struct link *link = &c->links[i];
        if (link->waits)
            hear(c, i, c->mine->round);
        if (link->waits && link->round < c->mine->round && looks)
            look_at(r, i, now);
        complete &= link->round >= c->mine->round || !link->waits;
    }
    if (looks)
        r->look = now + look_seconds;
    return complete || c->mine->round == DECIDED ? WAIT_DONE : WAIT_IDLE;
}

static bool is_other_member(const struct consensus *c, const struct consensus_setup *setup, int i)
{
    return setup->members[i] && i != c->transport->rank;
}

/* Takes all that has come, of later rounds too: where the others have stopped waiting for this rank,
 * their decision lies behind their first messages. */
static void hear_all(struct consensus *c)
{
    for (int i = 0; i < c->transport->size && c->mine->round != DECIDED; i++)
        if (c->links[i].waits)
            hear(c, i, DECIDED);
}

/* Whether the same ranks were heard as in the round before. */
static bool run_round(struct consensus *c, const struct consensus_setup *setup)
{
    double now = transport_now(c->transport);
    struct round r = {c, setup, now + setup->timeout * c->mine->round, now + look_seconds};
    bool same = true;
    for (int i = 0; i < c->transport->size; i++)
        if (is_other_member(c, setup, i))
            send_to(c, i);
    wait_until(look_for_round, &r, WAIT_FOREVER, true);
    for (int i = 0; i < c->transport->size; i++)
        same &= c->links[i].round != c->mine->round - 1;
    if (same)
        hear_all(c);
    return same;
}

static enum wait look_for_told(void *context)
{
    struct round *r = context;
    struct consensus *c = r->c;
    bool complete = true;
    pump(r->setup);
    for (int i = 0; i < c->transport->size; i++) {
        struct link *link = &c->links[i];
        if (!is_other_member(c, r->setup, i))
            continue;
        if (!link->told && is_sent(c, i)) {
            send_to(c, i);
            link->told = true;
        }
        complete &= (link->told && is_sent(c, i)) || !link->waits || has_ended(c->transport, i);
    }
    return complete ? WAIT_DONE : WAIT_IDLE;
}

/* To all, so that whoever still waits for a rank that decided ends alike. */
static void tell_decision(struct consensus *c, const struct consensus_setup *setup)
{
    struct round r = {.c = c, .setup = setup};
    c->mine->round = DECIDED;
    wait_until(look_for_told, &r, deadline_ns(delivery_seconds), true);
}

static void begin(struct consensus *c, const struct consensus_setup *setup)
{
    struct knowledge *mine = c->mine;
    int rank = c->transport->rank;
    mine->number++;
    mine->round = 1;
    if (setup->status != ALNICO_SUCCESS)
        agree_detail(setup->who, setup->name, mine->detail, sizeof mine->detail);
    for (int i = 0; i < c->transport->size; i++) {
        struct link *link = &c->links[i];
        mine->statuses[i] = i == rank ? (int32_t)setup->status : UNKNOWN;
        link->waits = is_other_member(c, setup, i);
        link->round = link->waits ? 0 : -1;
        link->told = false;
    }
}

static alnico_status_t conclude(const struct consensus *c, const struct consensus_setup *setup)
{
    const struct knowledge *mine = c->mine;
    int size = c->transport->size, failed = first_error(mine, size);
    for (int i = 0; i < size; i++)
        setup->members[i] = mine->statuses[i] != UNKNOWN;
    if (!setup->members[c->transport->rank])
        return error_set(ALNICO_ERROR_ABORTED, "%s: the other ranks went on without this rank %d",
                         setup->who, setup->name);
    return failed == size ? ALNICO_SUCCESS
                          : error_set((alnico_status_t)mine->statuses[failed], "%s: %s", setup->who,
                                      mine->detail);
}

alnico_status_t consensus_reach(struct consensus *c, const struct consensus_setup *setup)
{
    begin(c, setup);
    while (!run_round(c, setup) && c->mine->round != DECIDED)
        c->mine->round++;
    tell_decision(c, setup);
    return conclude(c, setup);
}
