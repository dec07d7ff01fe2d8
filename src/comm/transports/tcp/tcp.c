/*
 * Messages between hosts over TCP: every two ranks have a connection, or several. Small messages travel
 * whole, up to a window that the receiver opens again as they are received. Large ones, and small ones
 * beyond the window, are offered; when the receiver asks, their fragments go from the sender's buffer to
 * the receiver's. What arrives before its receive is kept.
 *
 * Nothing runs by itself: whoever tests a transfer moves the bytes, and idle connections cost nothing.
 * All of a rank's state is under its own lock. transfer.word[0] holds the struct message, or 0 when it
 * has ended well. Any thread.
 */
#include "comm/transports/tcp/tcp.h"

#include "base/status.h"

#include <sched.h>
#include <stdlib.h>

enum { LOOKS_PER_ROUND = 8, LEAVE_SECONDS = 1 };

static struct transport_tcp *tcp_of(struct transport *t)
{
    return (struct transport_tcp *)t;
}

/* A copy of a message that does not end at once, for its transfer. */
static struct message *message_keep(struct transport_tcp *t, const struct message *m,
                                    struct transfer *out)
{
    struct message *kept = t->spare;
    if (kept)
        t->spare = kept->next;
    else
        kept = malloc(sizeof *kept);
    if (kept)
        *kept = *m;
    else
        error_set(ALNICO_ERROR_MEMORY, "cannot allocate a message");
    out->word[0] = (uintptr_t)kept;
    return kept;
}

static void message_give(struct transport_tcp *t, struct message *m)
{
    m->next = t->spare;
    t->spare = m;
}

static bool sends(const struct message *m)
{
    return m->state < RECEIVE_POSTED;
}

/* The rank that the message waits for; now and then all, so that nobody waits for this one. */
static void advance(struct transport_tcp *t, struct message *m)
{
    if (sends(m))
        tcp_send_flush(t, &t->peer[m->peer]);
    if (m->state == ENDED)
        return;
    if (m->peer != TRANSPORT_ANY)
        tcp_read_peer(t, m->peer);
    if (m->state == ENDED || (m->peer != TRANSPORT_ANY && ++t->looks < LOOKS_PER_ROUND))
        return;
    t->looks = 0;
    tcp_read_all(t);
}

static alnico_status_t tcp_isend(struct transport *transport, int to, uint32_t tag,
                                 const void *buffer, size_t bytes, struct transfer *out)
{
    struct transport_tcp *t = tcp_of(transport);
    struct message m = {
        .buffer = (char *)buffer, .bytes = bytes, .peer = to, .tag = tag, .state = SEND_QUEUED};
    struct message *kept = NULL;
    struct outgoing rest;
    size_t written;
    out->word[0] = 0;
    pthread_mutex_lock(&t->lock);
    bool sent = tcp_send_now(t, &t->peer[to], &m, &rest, &written);
    if (!sent && (kept = message_keep(t, &m, out)))
        tcp_send_begin(t, kept, &rest, written);
    else if (!sent && written)
        tcp_lose(t, &t->peer[to], "no memory for the rest of a message");
    pthread_mutex_unlock(&t->lock);
    return sent || kept ? ALNICO_SUCCESS : ALNICO_ERROR_MEMORY;
}

static alnico_status_t tcp_irecv(struct transport *transport, int from, uint32_t tag, void *buffer,
                                 size_t bytes, struct transfer *out)
{
    struct transport_tcp *t = tcp_of(transport);
    const struct message m = {
        .buffer = buffer, .bytes = bytes, .peer = from, .tag = tag, .state = RECEIVE_POSTED};
    pthread_mutex_lock(&t->lock);
    struct message *kept = message_keep(t, &m, out);
    if (kept)
        tcp_receive_post(t, kept);
    pthread_mutex_unlock(&t->lock);
    return kept ? ALNICO_SUCCESS : ALNICO_ERROR_MEMORY;
}

/* How it ended; from a rank that lies nothing comes any more. */
static alnico_status_t result_of(const struct transport_tcp *t, const struct message *m)
{
    if (m->state != ENDED && m->peer != TRANSPORT_ANY && t->peer[m->peer].lied)
        return error_set(ALNICO_ERROR_SYSTEM, "rank %d sent what no rank sends", m->peer);
    if (m->state != ENDED)
        return ALNICO_PENDING;
    if (m->status == ALNICO_ERROR_MISMATCH)
        error_set(m->status, "a message and its receiver differ in size");
    return m->status;
}

/* With nothing moved, the sender may want this core. */
static alnico_status_t tcp_test(struct transport *transport, struct transfer *transfer)
{
    struct transport_tcp *t = tcp_of(transport);
    struct message *m = (struct message *)transfer->word[0];
    if (!m)
        return ALNICO_SUCCESS;
    pthread_mutex_lock(&t->lock);
    t->moved = false;
    if (m->state != ENDED)
        advance(t, m);
    alnico_status_t status = result_of(t, m);
    bool idle = status == ALNICO_PENDING && !t->moved;
    if (m->state == ENDED) {
        transfer->word[0] = 0;
        message_give(t, m);
    }
    pthread_mutex_unlock(&t->lock);
    if (idle)
        sched_yield();
    return status;
}

static bool tcp_cancel(struct transport *transport, struct transfer *transfer)
{
    struct transport_tcp *t = tcp_of(transport);
    struct message *m = (struct message *)transfer->word[0];
    if (!m)
        return true;
    pthread_mutex_lock(&t->lock);
    if (sends(m))
        tcp_send_cancel(t, m);
    else
        tcp_receive_cancel(t, m);
    transfer->word[0] = 0;
    message_give(t, m);
    pthread_mutex_unlock(&t->lock);
    return true;
}

/* A connection that ends without its rank's last frame: the process has ended, or nothing reaches its
 * host. */
static bool tcp_gone(struct transport *transport, int rank)
{
    struct transport_tcp *t = tcp_of(transport);
    pthread_mutex_lock(&t->lock);
    tcp_read_peer(t, rank);
    bool gone = t->peer[rank].lost && !t->peer[rank].left;
    pthread_mutex_unlock(&t->lock);
    return gone;
}

static bool tcp_left(struct transport *transport, int rank)
{
    struct transport_tcp *t = tcp_of(transport);
    pthread_mutex_lock(&t->lock);
    tcp_read_peer(t, rank);
    bool left = t->peer[rank].left;
    pthread_mutex_unlock(&t->lock);
    return left;
}

static void tcp_memory(struct transport *transport, alnico_comm_memory_t *sum)
{
    const struct transport_tcp *t = tcp_of(transport);
    for (int i = 0; i < t->base.size; i++)
        sum->host += (size_t)t->peer[i].lanes * STAGED;
}

static alnico_status_t tcp_subset(struct transport *transport, struct rendezvous *r,
                                  struct transport **out)
{
    const struct transport_tcp *t = tcp_of(transport);
    struct tcp_options options = t->options;
    options.key = &t->key;
    options.near = NULL;
    return transport_tcp_create(r, &options, out);
}

static bool is_over(struct transport_tcp *t)
{
    bool over = true;
    for (int i = 0; i < t->base.size; i++)
        over &= i == t->base.rank || tcp_send_is_over(&t->peer[i]);
    return over;
}

static enum wait look_for_end(void *context)
{
    struct transport_tcp *t = context;
    t->moved = false;
    for (int i = 0; i < t->base.size; i++)
        tcp_send_flush(t, &t->peer[i]);
    tcp_read_all(t);
    return is_over(t) ? WAIT_DONE : t->moved ? WAIT_MOVED : WAIT_IDLE;
}

/* What was sent must have reached the others' kernels: a connection that is closed with something
 * unread takes it along. Whoever does not read holds this up for a moment only. */
static void tcp_destroy(struct transport *transport)
{
    struct transport_tcp *t = tcp_of(transport);
    for (int i = 0; i < t->base.size; i++)
        tcp_send_note(&t->peer[i], FRAME_LEAVE, 0, 0);
    wait_until(look_for_end, t, transport->broken ? 0 : deadline_ns(LEAVE_SECONDS), false);
    tcp_free(t);
}

static const struct transport_ops transport_tcp = {
    .name = "tcp",
    .isend = tcp_isend,
    .irecv = tcp_irecv,
    .test = tcp_test,
    .cancel = tcp_cancel,
    .gone = tcp_gone,
    .left = tcp_left,
    .memory = tcp_memory,
    .subset = tcp_subset,
    .destroy = tcp_destroy,
};

alnico_status_t tcp_prepare(int rank, int size, const struct tcp_options *options,
                            struct transport_tcp **out)
{
    struct transport_tcp *t = calloc(1, sizeof *t + (size_t)size * sizeof(struct tcp_peer));
    if (!t)
        return error_set(ALNICO_ERROR_MEMORY, "cannot allocate a transport");
    t->base = (struct transport){.ops = &transport_tcp,
                                 .rank = rank,
                                 .size = size,
                                 .tags = 1u << 30,
                                 .concurrent = true,
                                 .sends_first = false};
    t->options = *options;
    t->epoll = -1;
    pthread_mutex_init(&t->lock, NULL);
    list_clear(&t->posted);
    for (int i = 0; i < size; i++) {
        struct tcp_peer *p = &t->peer[i];
        list_clear(&p->queue);
        list_clear(&p->offered);
        list_clear(&p->cleared);
        list_clear(&p->arrives);
        p->arrivals_end = &p->arrivals;
        p->notes_end = &p->notes;
        p->window = WINDOW_BYTES;
    }
    *out = t;
    return ALNICO_SUCCESS;
}
