/* The sender's side of messages over shared memory: writes small ones into the channel, offers large
 * ones, and queues those that find no room. Under the rank's lock. */
#include "comm/transports/shm/shm.h"

#include "device/backoff.h"

/* A free offer that such a message may have; CHANNEL_OFFERS: none. */
static uint32_t offer_find(const struct shm_peer *p, const struct message *m)
{
    const uint32_t end = queue_of(m) == QUEUE_MESSAGES ? CHANNEL_OFFERS / 2 : CHANNEL_OFFERS;
    uint32_t offer = 0;
    while (offer < end && p->offered[offer])
        offer++;
    return offer < end ? offer : CHANNEL_OFFERS;
}

bool send_whole(struct shm_peer *p, struct message *m)
{
    struct cell cell = {.kind = CELL_WHOLE, .tag = m->tag, .bytes = (uint32_t)m->bytes};
    if (!channel_write(&p->out, &cell, m->buffer))
        return false;
    message_end(m, ALNICO_SUCCESS);
    return true;
}

static bool write_offer(struct shm_peer *p, struct message *m)
{
    uint32_t offer = offer_find(p, m);
    if (offer == CHANNEL_OFFERS)
        return false;
    _Atomic uint32_t *place = &p->out.channel->offers[offer];
    uint32_t old = atomic_load_explicit(place, memory_order_relaxed);
    uint32_t word = old - old % OFFER_NUMBER + OFFER_NUMBER + OFFER_OPEN;
    struct cell cell = {
        .kind = CELL_OFFER, .offer = (uint16_t)offer, .tag = m->tag, .bytes = (uint32_t)m->bytes};
    cell.body.offer.address = (uintptr_t)m->buffer;
    cell.body.offer.word = word;
    atomic_store_explicit(place, word, memory_order_relaxed); /* the cell's stamp releases it */
    if (!channel_write(&p->out, &cell, NULL))
        return false;
    p->offered[offer] = m;
    p->offers++;
    m->offer = offer;
    m->word = word;
    m->state = SEND_OFFERED;
    return true;
}

size_t send_eager(const struct transport_shm *t, const struct message *m)
{
    const struct shm_peer *p = &t->peer[m->peer];
    bool copied_once = p->direct_from <= t->eager / 2 + 1;
    if (m->tag != TAG_MESSAGE || !copied_once)
        return t->eager;
    bool whole = m->bytes > t->eager / 2 &&
                 atomic_load_explicit(&p->out.channel->whole, memory_order_relaxed);
    return whole ? t->eager : t->eager / 2;
}

static bool write_message(struct transport_shm *t, struct message *m)
{
    struct shm_peer *p = &t->peer[m->peer];
    return m->bytes <= send_eager(t, m) ? send_whole(p, m) : write_offer(p, m);
}

void send_message(struct transport_shm *t, struct message *m)
{
    struct message_list *queue = &t->peer[m->peer].queues[queue_of(m)];
    if (queue->first || !write_message(t, m))
        list_append(queue, m);
}

void send_queued(struct transport_shm *t, struct shm_peer *p)
{
    for (int i = 0; i < QUEUES; i++) {
        struct message_list *queue = &p->queues[i];
        while (queue->first) {
            struct message *m = queue->first;
            struct message *next = m->next;
            if (!write_message(t, m))
                break;
            queue->first = next;
            if (!next)
                list_clear(queue);
        }
    }
}

static void push_fragments(struct transport_shm *t, struct shm_peer *p, struct message *m)
{
    while (m->moved < m->bytes) {
        size_t left = m->bytes - m->moved, part = left < t->fragment ? left : t->fragment;
        struct cell cell = {
            .kind = CELL_FRAGMENT, .offer = (uint16_t)m->offer, .bytes = (uint32_t)part};
        cell.body.data.word = m->word;
        if (!channel_write(&p->out, &cell, m->buffer + m->moved))
            return;
        m->moved += part;
    }
}

static void free_offer(struct shm_peer *p, const struct message *m)
{
    p->offered[m->offer] = NULL;
    p->offers--;
}

static void end_offer(struct shm_peer *p, struct message *m, alnico_status_t status)
{
    free_offer(p, m);
    message_end(m, status);
}

static void advance_offer(struct transport_shm *t, struct shm_peer *p, struct message *m)
{
    switch (
        state_of(atomic_load_explicit(&p->out.channel->offers[m->offer], memory_order_acquire))) {
    case OFFER_SHARED:
        share_write(p, m);
        break;
    case OFFER_CLEAR:
        push_fragments(t, p, m);
        break;
    case OFFER_DONE:
        end_offer(p, m, ALNICO_SUCCESS);
        break;
    case OFFER_MISMATCH:
        end_offer(p, m, ALNICO_ERROR_MISMATCH);
        break;
    default: /* refused: nobody will take it, as if its receive had never been posted */
        break;
    }
}

void send_advance_all(struct transport_shm *t, struct shm_peer *p)
{
    send_queued(t, p);
    for (int i = 0, left = p->offers; left; i++)
        if (p->offered[i]) {
            left--;
            advance_offer(t, p, p->offered[i]);
        }
}

void send_advance(struct transport_shm *t, struct message *m)
{
    struct shm_peer *p = &t->peer[m->peer];
    if (m->state == SEND_QUEUED)
        send_queued(t, p);
    if (m->state == SEND_OFFERED)
        advance_offer(t, p, m);
}

struct withdrawal {
    struct shm_peer *p;
    const struct message *m;
};

/* A copy within the process ends by itself, and needs the buffer until then. A receiver in another
 * process may be stopped; it finds out that its copy is worth nothing. */
static enum wait try_withdraw(void *context)
{
    const struct withdrawal *w = context;
    struct channel *channel = w->p->out.channel;
    enum offer_state state =
        state_of(atomic_load_explicit(&channel->offers[w->m->offer], memory_order_acquire));
    bool open = state == OFFER_OPEN || state == OFFER_CLAIMED || state == OFFER_CLEAR ||
                state == OFFER_SHARED;
    if (state == OFFER_CLAIMED && w->p->same_process)
        return WAIT_IDLE;
    return !open || offer_move(channel, w->m->offer, w->m->word, state, OFFER_WITHDRAWN)
               ? WAIT_DONE
               : WAIT_MOVED;
}

static void withdraw_offer(struct shm_peer *p, struct message *m)
{
    wait_until(try_withdraw, &(struct withdrawal){p, m}, WAIT_FOREVER, false);
    free_offer(p, m);
}

void send_cancel(struct transport_shm *t, struct message *m)
{
    struct shm_peer *p = &t->peer[m->peer];
    if (m->state == SEND_QUEUED)
        list_remove(&p->queues[queue_of(m)], m);
    else if (m->state == SEND_OFFERED)
        withdraw_offer(p, m);
}
