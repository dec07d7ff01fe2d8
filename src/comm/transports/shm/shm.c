/*
 * Messages between ranks of one host over shared memory: a channel for every ordered pair of ranks.
 * Small messages travel in the channel. A large one is offered with its address; the receiver
 * copies it from there, by memcpy within a process and by process_vm_readv between two, where a
 * sender that waits helps it; otherwise, or where that is forbidden, it asks for it in fragments
 * through the channel. What arrives before its receive is kept.
 *
 * All of a rank's state is under its own lock, if it is concurrent: no process waits for a lock of
 * another. transfer.word[0] holds the struct message, or 0 when it has ended well. Any thread.
 */
#include "comm/transports/transport.h"

#include "base/status.h"
#include "comm/transports/shm/shm.h"

#include <stdlib.h>
#include <string.h>

enum { RANKS_LIMIT = 128, EAGER_LIMIT = 8 << 10, FRAGMENT_LIMIT = 16 << 10 };

static struct transport_shm *shm_of(struct transport *t)
{
    return (struct transport_shm *)t;
}

static enum wait try_lock(void *locked)
{
    return atomic_exchange_explicit((atomic_bool *)locked, true, memory_order_acquire) ? WAIT_IDLE
                                                                                       : WAIT_DONE;
}

/* The atomic exchange waits until earlier stores have reached the other rank's core. So there is none
 * where only one thread calls. */
static void lock(struct transport_shm *t)
{
    if (t->base.concurrent)
        wait_until(try_lock, &t->locked, WAIT_FOREVER, false);
}

static void unlock(struct transport_shm *t)
{
    if (t->base.concurrent)
        atomic_store_explicit(&t->locked, false, memory_order_release);
}

/* A copy of a message that does not end at once, for its transfer. */
static alnico_status_t message_keep(struct transport_shm *t, const struct message *m,
                                    struct transfer *out)
{
    struct message *kept = t->spare;
    if (kept)
        t->spare = kept->next;
    else
        kept = malloc(sizeof *kept);
    if (!kept)
        return error_set(ALNICO_ERROR_MEMORY, "cannot allocate a message");
    *kept = *m;
    out->word[0] = (uintptr_t)kept;
    return ALNICO_SUCCESS;
}

static void message_give(struct transport_shm *t, struct message *m)
{
    m->next = t->spare;
    t->spare = m;
}

static void advance_peer(struct transport_shm *t, int peer)
{
    send_advance_all(t, &t->peer[peer]);
    receive_all(t, peer, NULL);
}

static void advance_receive(struct transport_shm *t, struct message *m)
{
    if (m->peer != TRANSPORT_ANY)
        receive_all(t, m->peer, m);
    for (int i = 0; m->peer == TRANSPORT_ANY && i < t->base.size; i++)
        advance_peer(t, i);
    receive_check(t, m);
}

static void advance(struct transport_shm *t, struct message *m)
{
    if (m->state == RECEIVE_POSTED || m->state == RECEIVE_ARRIVES || m->state == RECEIVE_SHARED)
        advance_receive(t, m);
    else if (m->state != ENDED)
        send_advance(t, m);
    if (m->state == ENDED)
        return;
    advance_peer(t, t->look); /* nothing has come: one more rank, so that no channel stays full */
    t->look = t->look + 1 < t->base.size ? t->look + 1 : 0;
}

static alnico_status_t shm_isend(struct transport *transport, int to, uint32_t tag,
                                 const void *buffer, size_t bytes, struct transfer *out)
{
    struct transport_shm *t = shm_of(transport);
    struct message whole = {
        .buffer = (char *)buffer, .bytes = bytes, .peer = to, .tag = tag, .state = SEND_QUEUED};
    struct shm_peer *p = &t->peer[to];
    alnico_status_t status = ALNICO_SUCCESS;
    lock(t);
    out->word[0] = 0;
    send_queued(t, p);
    if (p->queues[queue_of(&whole)].first || bytes > send_eager(t, &whole) ||
        !send_whole(p, &whole)) {
        status = message_keep(t, &whole, out);
        if (status == ALNICO_SUCCESS)
            send_message(t, (struct message *)out->word[0]);
    }
    unlock(t);
    return status;
}

static alnico_status_t shm_irecv(struct transport *transport, int from, uint32_t tag, void *buffer,
                                 size_t bytes, struct transfer *out)
{
    struct transport_shm *t = shm_of(transport);
    struct message posted = {
        .buffer = buffer, .bytes = bytes, .peer = from, .tag = tag, .state = RECEIVE_POSTED};
    alnico_status_t status = ALNICO_SUCCESS;
    lock(t);
    out->word[0] = 0;
    if (!receive_now(t, &posted)) {
        status = message_keep(t, &posted, out);
        if (status == ALNICO_SUCCESS)
            receive_post(t, (struct message *)out->word[0]);
    }
    unlock(t);
    return status;
}

static alnico_status_t shm_test(struct transport *transport, struct transfer *transfer)
{
    struct transport_shm *t = shm_of(transport);
    struct message *m = (struct message *)transfer->word[0];
    if (!m)
        return ALNICO_SUCCESS;
    alnico_status_t status = ALNICO_PENDING;
    lock(t);
    advance(t, m);
    if (m->state == ENDED) {
        status = m->status;
        transfer->word[0] = 0;
        message_give(t, m);
    }
    unlock(t);
    if (status == ALNICO_ERROR_MISMATCH)
        error_set(status, "a message and its receiver differ in size");
    return status;
}

static bool shm_cancel(struct transport *transport, struct transfer *transfer)
{
    struct transport_shm *t = shm_of(transport);
    struct message *m = (struct message *)transfer->word[0];
    if (!m)
        return true;
    lock(t);
    send_cancel(t, m);
    receive_cancel(t, m);
    transfer->word[0] = 0;
    message_give(t, m);
    unlock(t);
    return true;
}

static bool shm_gone(struct transport *transport, int rank)
{
    return segment_gone(&shm_of(transport)->segment, rank);
}

static bool shm_left(struct transport *transport, int rank)
{
    return segment_left(&shm_of(transport)->segment, rank);
}

static void shm_memory(struct transport *transport, alnico_comm_memory_t *sum)
{
    const struct segment *s = &shm_of(transport)->segment;
    sum->shared += segment_part(s->bytes, s->size, s->rank);
}

static alnico_status_t shm_subset(struct transport *transport, struct rendezvous *r,
                                  struct transport **out)
{
    TRY(transport_shm_create(r, &shm_of(transport)->options, out));
    (*out)->concurrent = transport->concurrent;
    return ALNICO_SUCCESS;
}

static void shm_destroy(struct transport *transport)
{
    struct transport_shm *t = shm_of(transport);
    for (int i = 0; i < t->base.size; i++)
        receive_forget(&t->peer[i]);
    while (t->spare) {
        struct message *m = t->spare;
        t->spare = m->next;
        free(m);
    }
    segment_destroy(&t->segment);
    free(t);
}

static const struct transport_ops transport_shm = {
    .name = "shm",
    .isend = shm_isend,
    .irecv = shm_irecv,
    .test = shm_test,
    .cancel = shm_cancel,
    .gone = shm_gone,
    .left = shm_left,
    .memory = shm_memory,
    .subset = shm_subset,
    .destroy = shm_destroy,
};

/* Rings shrink with the number of pairs: at most about 300 MB of addresses, of which only used pages
 * become memory. In a larger ring a line that is written again was read longer ago, and is cheaper
 * to get. */
static struct channel_shape choose_shape(int size)
{
    uint32_t kilobytes = size <= 8 ? 128 : size <= 16 ? 64 : size <= 64 ? 16 : 8;
    return (struct channel_shape){.cells = size <= 4    ? 256
                                           : size <= 16 ? 64
                                                        : 32,
                                  .bytes = kilobytes * 1024};
}

/* A rank's incoming channels lie side by side. */
static void *channel_place(const struct segment *s, const struct channel_shape *shape, int to,
                           int from)
{
    return (char *)s->base + ((size_t)to * (size_t)s->size + (size_t)from) * channel_bytes(shape);
}

static void open_peer(struct transport_shm *t, const struct channel_shape *shape, int i)
{
    struct shm_peer *p = &t->peer[i];
    const struct segment *s = &t->segment;
    channel_open(&p->out, channel_place(s, shape, i, s->rank), shape);
    channel_open(&p->in, channel_place(s, shape, s->rank, i), shape);
    for (int k = 0; k < QUEUES; k++)
        list_clear(&p->queues[k]);
    p->arrivals_end = &p->arrivals;
    p->same_process = segment_same_process(s, i);
    p->pid = segment_pid(s, i);
    p->writes = true;
    p->direct_from = p->same_process ? 0 : p->pid ? t->options.read_from : SIZE_MAX;
    if (t->options.through_rings)
        p->direct_from = SIZE_MAX;
}

alnico_status_t transport_shm_create(struct rendezvous *r, const struct shm_options *options,
                                     struct transport **out)
{
    int size = r->size;
    if (size > RANKS_LIMIT)
        return error_set(ALNICO_ERROR_UNSUPPORTED, "shared memory carries at most %d ranks, not %d",
                         RANKS_LIMIT, size);
    struct channel_shape shape = choose_shape(size);
    struct segment segment;
    struct transport_shm *t = calloc(1, sizeof *t + (size_t)size * sizeof(struct shm_peer));
    alnico_status_t status =
        t ? ALNICO_SUCCESS : error_set(ALNICO_ERROR_MEMORY, "cannot allocate a transport");
    status =
        segment_create(r, status, (size_t)size * (size_t)size * channel_bytes(&shape), &segment);
    if (status != ALNICO_SUCCESS) {
        free(t);
        return status;
    }
    t->segment = segment;
    /* Sends first: a receive polls lines that the other rank is just writing, and slows it down. */
    t->base = (struct transport){.ops = &transport_shm,
                                 .rank = r->rank,
                                 .size = size,
                                 .tags = 1u << 30,
                                 .concurrent = true,
                                 .sends_first = true};
    t->options = *options;
    t->fragment = shape.bytes / 4 < FRAGMENT_LIMIT ? shape.bytes / 4 : FRAGMENT_LIMIT;
    t->eager = t->fragment < EAGER_LIMIT ? t->fragment : EAGER_LIMIT;
    list_clear(&t->posted);
    for (int i = 0; i < size; i++)
        open_peer(t, &shape, i);
    *out = &t->base;
    return ALNICO_SUCCESS;
}
