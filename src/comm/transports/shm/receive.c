/* The receiver's side of messages over shared memory: matches arrivals with posted receives, keeps
 * unexpected ones, and copies offers from the sender's memory. Under the rank's lock. */
#include "comm/transports/shm/shm.h"

#include <stdlib.h>
#include <string.h>

static void receive_whole(struct message *m, const char *data, size_t bytes)
{
    bool equal = m->bytes == bytes;
    if (equal && bytes)
        memcpy(m->buffer, data, bytes);
    message_end(m, equal ? ALNICO_SUCCESS : ALNICO_ERROR_MISMATCH);
}

/* Copies the bytes of the message at that address that have not moved yet. */
static bool copy_offered(const struct shm_peer *p, const struct message *m, uint64_t address)
{
    char *to = m->buffer + m->moved;
    size_t bytes = m->bytes - m->moved;
    if (!p->same_process)
        return read_process(p->pid, to, address + m->moved, bytes);
    memcpy(to, (const char *)(uintptr_t)address + m->moved, bytes);
    return true;
}

static void ask_for_fragments(struct shm_peer *p, struct message *m, const struct cell *cell)
{
    m->state = RECEIVE_ARRIVES;
    m->offer = cell->offer;
    m->word = cell->body.offer.word;
    m->address = cell->body.offer.address;
    p->arrives[cell->offer] = m;
}

/* A receive that is in no list meets an offer. False if the sender has withdrawn it. */
static bool receive_offer(struct transport_shm *t, struct shm_peer *p, struct message *m,
                          const struct cell *cell)
{
    struct channel *channel = p->in.channel;
    uint32_t offer = cell->offer, word = cell->body.offer.word;
    m->moved = 0;
    if (m->bytes != cell->bytes) {
        if (!offer_move(channel, offer, word, OFFER_OPEN, OFFER_MISMATCH))
            return false;
        message_end(m, ALNICO_ERROR_MISMATCH);
        return true;
    }
    bool direct = m->bytes >= p->direct_from;
    if (direct && !p->same_process)
        direct = calibrate_begin(t, m) == COPY_DIRECTLY;
    if (direct && offer < CHANNEL_SHARES && share_suits(t, p, m))
        return share_begin(t, p, m, cell);
    if (direct) {
        if (!offer_move(channel, offer, word, OFFER_OPEN, OFFER_CLAIMED))
            return false;
        if (copy_offered(p, m, cell->body.offer.address)) {
            if (!offer_move(channel, offer, word, OFFER_CLAIMED, OFFER_DONE))
                return false;
            p->shares = !p->same_process;
            calibrate_end(t, p, m, COPY_DIRECTLY);
            message_end(m, ALNICO_SUCCESS);
            return true;
        }
        p->direct_from = SIZE_MAX; /* it is forbidden */
        if (!offer_move(channel, offer, word, OFFER_CLAIMED, OFFER_CLEAR))
            return false;
    } else if (!offer_move(channel, offer, word, OFFER_OPEN, OFFER_CLEAR)) {
        return false;
    }
    ask_for_fragments(p, m, cell);
    return true;
}

/* Its place may be the next message's by now. */
static void arrives_no_more(struct shm_peer *p, const struct message *m)
{
    if (p->arrives[m->offer] == m)
        p->arrives[m->offer] = NULL;
}

static void receive_fragment(struct transport_shm *t, struct shm_peer *p, const struct cell *cell)
{
    struct message *m = p->arrives[cell->offer];
    if (!m || m->word != cell->body.data.word)
        return; /* of a receive that was cancelled */
    memcpy(m->buffer + m->moved, channel_data(&p->in, cell), cell->bytes);
    m->moved += cell->bytes;
    if (m->moved < m->bytes)
        return;
    p->arrives[m->offer] = NULL;
    offer_move(p->in.channel, m->offer, m->word, OFFER_CLEAR, OFFER_DONE);
    calibrate_end(t, p, m, COPY_IN_FRAGMENTS);
    message_end(m, ALNICO_SUCCESS);
}

/* The place of the oldest posted receive that fits, or of none, at the end. */
static struct message **find_posted(struct transport_shm *t, int from, uint32_t tag)
{
    struct message **link = &t->posted.first;
    for (; *link; link = &(*link)->next)
        if ((*link)->tag == tag && ((*link)->peer == from || (*link)->peer == TRANSPORT_ANY))
            break;
    return link;
}

/* Keeps an unexpected message. Of operations that end on no rank before all have begun them there is
 * at most a window full; of broadcasts, reductions to one rank and messages, whatever a sender is
 * ahead. */
static bool keep(struct shm_peer *p, const struct cell *cell)
{
    size_t bytes = cell->kind == CELL_WHOLE ? cell->bytes : 0;
    struct arrival *a = malloc(sizeof *a + bytes);
    if (!a)
        return false;
    a->next = NULL;
    a->cell.kind = cell->kind;
    a->cell.offer = cell->offer;
    a->cell.tag = cell->tag;
    a->cell.bytes = cell->bytes;
    if (cell->kind == CELL_OFFER)
        a->cell.body.offer = cell->body.offer;
    else if (bytes)
        memcpy(a->data, channel_data(&p->in, cell), bytes);
    *p->arrivals_end = a;
    p->arrivals_end = &a->next;
    return true;
}

/* Gives a message to a receive that is in no list. False if it was withdrawn meanwhile. */
static bool deliver(struct transport_shm *t, struct shm_peer *p, struct message *m,
                    const struct cell *cell, const char *data)
{
    if (cell->kind == CELL_OFFER)
        return receive_offer(t, p, m, cell);
    receive_whole(m, data, cell->bytes);
    return true;
}

/* The next cell's message finds its receive or is kept. False: no memory to keep it, so it
 * stays. */
static bool take_message(struct transport_shm *t, int from, const struct cell *cell)
{
    struct shm_peer *p = &t->peer[from];
    struct message **link = find_posted(t, from, cell->tag);
    if (!*link)
        return keep(p, cell);
    struct message *m = *link;
    if (!deliver(t, p, m, cell, channel_data(&p->in, cell)))
        return true; /* and the receive stays where it is */
    list_unlink(&t->posted, link);
    m->peer = from;
    return true;
}

bool receive_now(struct transport_shm *t, const struct message *m)
{
    if (m->peer == TRANSPORT_ANY)
        return false;
    struct shm_peer *p = &t->peer[m->peer];
    const struct cell *cell = p->arrivals ? NULL : channel_peek(&p->in);
    if (!cell || cell->kind != CELL_WHOLE || cell->tag != m->tag || cell->bytes != m->bytes ||
        *find_posted(t, m->peer, m->tag))
        return false;
    if (m->bytes)
        memcpy(m->buffer, channel_data(&p->in, cell), m->bytes);
    channel_pop(&p->in, cell);
    return true;
}

void receive_all(struct transport_shm *t, int from, const struct message *until)
{
    struct shm_peer *p = &t->peer[from];
    const struct cell *cell;
    for (uint32_t i = 0; i < p->in.shape.cells && (cell = channel_peek(&p->in)); i++) {
        if (until && until->state == ENDED)
            return;
        if (cell->kind == CELL_FRAGMENT)
            receive_fragment(t, p, cell);
        else if (!take_message(t, from, cell))
            return;
        channel_pop(&p->in, cell);
    }
}

/* Looks for a message that came before this receive. */
static bool take_arrival(struct transport_shm *t, int from, struct message *m)
{
    struct shm_peer *p = &t->peer[from];
    for (struct arrival **link = &p->arrivals; *link;) {
        struct arrival *a = *link;
        if (a->cell.tag != m->tag) {
            link = &a->next;
            continue;
        }
        bool taken = deliver(t, p, m, &a->cell, a->data);
        *link = a->next;
        if (p->arrivals_end == &a->next)
            p->arrivals_end = link;
        free(a);
        if (taken) {
            m->peer = from;
            return true;
        }
    }
    return false;
}

void receive_post(struct transport_shm *t, struct message *m)
{
    bool any = m->peer == TRANSPORT_ANY, taken = false;
    int first = any ? 0 : m->peer, last = any ? t->base.size - 1 : m->peer;
    for (int i = first; i <= last && !taken; i++)
        taken = t->peer[i].arrivals && take_arrival(t, i, m);
    if (!taken)
        list_append(&t->posted, m);
}

/* Whether the offer of a message that arrives is still that, and not withdrawn. */
static bool is_offered(const struct shm_peer *p, const struct message *m)
{
    enum offer_state state = m->state == RECEIVE_SHARED ? OFFER_SHARED : OFFER_CLEAR;
    uint32_t word = atomic_load_explicit(&p->in.channel->offers[m->offer], memory_order_acquire);
    return word == m->word - m->word % OFFER_NUMBER + state;
}

/* The sender is too busy to send fragments: copies the rest from its memory after all. Fragments that
 * it still sends are dropped, as after a cancelled receive. */
static void copy_instead(struct transport_shm *t, struct shm_peer *p, struct message *m)
{
    struct channel *channel = p->in.channel;
    if (!offer_move(channel, m->offer, m->word, OFFER_CLEAR, OFFER_CLAIMED))
        return;
    if (!copy_offered(p, m, m->address)) {
        p->direct_from = SIZE_MAX; /* it is forbidden */
        offer_move(channel, m->offer, m->word, OFFER_CLAIMED, OFFER_CLEAR);
        return;
    }
    arrives_no_more(p, m);
    if (!offer_move(channel, m->offer, m->word, OFFER_CLAIMED, OFFER_DONE))
        return; /* withdrawn meanwhile, as the next look finds */
    calibrate_end(t, p, m, COPY_IN_FRAGMENTS);
    message_end(m, ALNICO_SUCCESS);
}

/* The sender of a message that arrives may have withdrawn it: the receive waits for another one. */
void receive_check(struct transport_shm *t, struct message *m)
{
    if (m->state != RECEIVE_ARRIVES && m->state != RECEIVE_SHARED)
        return;
    struct shm_peer *p = &t->peer[m->peer];
    if (is_offered(p, m)) {
        if (m->state == RECEIVE_SHARED)
            share_advance(t, p, m);
        else if (m->bytes >= p->direct_from && calibrate_is_over(t, m))
            copy_instead(t, p, m);
        return;
    }
    if (m->state == RECEIVE_ARRIVES)
        arrives_no_more(p, m);
    m->state = RECEIVE_POSTED;
    if (take_arrival(t, m->peer, m))
        return;
    m->next = t->posted.first; /* it is the oldest for its sender and tag */
    t->posted.first = m;
    if (!m->next)
        t->posted.end = &m->next;
}

void receive_cancel(struct transport_shm *t, struct message *m)
{
    if (m->state == RECEIVE_POSTED) {
        list_remove(&t->posted, m);
        return;
    }
    if (m->state != RECEIVE_ARRIVES && m->state != RECEIVE_SHARED)
        return;
    struct shm_peer *p = &t->peer[m->peer];
    if (m->state == RECEIVE_SHARED) {
        if (is_offered(p, m))
            share_cancel(t, m);
        return;
    }
    offer_move(p->in.channel, m->offer, m->word, OFFER_CLEAR, OFFER_REFUSED);
    arrives_no_more(p, m);
}

void receive_forget(struct shm_peer *p)
{
    while (p->arrivals) {
        struct arrival *a = p->arrivals;
        p->arrivals = a->next;
        free(a);
    }
}
