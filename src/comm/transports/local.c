/*
 * Messages between ranks that are threads of one process. Each rank has a mailbox under a lock, with
 * posted receives and unmatched sends. The second of the two sides takes the first out of the mailbox
 * and copies from the sender's buffer to the receiver's, outside the lock. A small send without a
 * receive is eager: it takes its bytes along. transfer.word[0] holds the struct message, or 0 when it
 * has ended well. Any thread.
 */
#include "comm/transports/transport.h"

#include "base/status.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

enum { EAGER_BYTES = 128 };

/* Either side of a message. Its owner frees it after `state` has left PENDING; an eager one belongs
 * to the mailbox. */
struct message {
    struct message *next;
    int from; /* for a receive the awaited sender, or TRANSPORT_ANY */
    int to;
    uint32_t tag;
    void *buffer;
    size_t bytes;
    bool receives, eager;
    atomic_int state; /* an alnico_status_t; released after the copy */
    char payload[EAGER_BYTES];
};

struct mailbox {
    pthread_mutex_t lock;
    struct message *sends, *receives; /* in the order of their coming */
    atomic_bool left;                 /* its rank has */
};

struct local_hub {
    atomic_int members; /* ranks that have not left */
    int size;
    struct mailbox mailbox[];
};

struct transport_local {
    struct transport base;
    struct local_hub *hub;
};

struct local_hub *local_hub_create(int size)
{
    struct local_hub *hub = calloc(1, sizeof *hub + (size_t)size * sizeof(struct mailbox));
    if (!hub)
        return NULL;
    hub->size = size;
    atomic_init(&hub->members, size);
    for (int i = 0; i < size; i++)
        pthread_mutex_init(&hub->mailbox[i].lock, NULL);
    return hub;
}

static void hub_destroy(struct local_hub *hub)
{
    for (int i = 0; i < hub->size; i++) {
        while (hub->mailbox[i].sends) { /* eager ones that nobody wanted */
            struct message *message = hub->mailbox[i].sends;
            hub->mailbox[i].sends = message->next;
            free(message);
        }
        pthread_mutex_destroy(&hub->mailbox[i].lock);
    }
    free(hub);
}

void local_hub_leave(struct local_hub *hub, int members)
{
    if (hub && atomic_fetch_sub(&hub->members, members) == members)
        hub_destroy(hub);
}

static void append(struct message **list, struct message *message)
{
    while (*list)
        list = &(*list)->next;
    message->next = NULL;
    *list = message;
}

/* Takes the oldest message out of the list that fits the sender and the tag. */
static struct message *take(struct message **list, int from, uint32_t tag)
{
    for (; *list; list = &(*list)->next) {
        struct message *m = *list;
        bool fits = from == TRANSPORT_ANY || m->from == TRANSPORT_ANY || m->from == from;
        if (!fits || m->tag != tag)
            continue;
        *list = m->next;
        return m;
    }
    return NULL;
}

static void deliver(struct message *send, struct message *receive)
{
    bool equal = send->bytes == receive->bytes;
    if (equal && send->bytes)
        memcpy(receive->buffer, send->buffer, send->bytes);
    int state = equal ? ALNICO_SUCCESS : ALNICO_ERROR_MISMATCH;
    if (send->eager)
        free(send);
    else
        atomic_store_explicit(&send->state, state, memory_order_release);
    atomic_store_explicit(&receive->state, state, memory_order_release);
}

/* The caller holds the mailbox's lock and has found no receive for it. */
static void make_eager(struct message *message)
{
    if (message->bytes)
        memcpy(message->payload, message->buffer, message->bytes);
    message->buffer = message->payload;
    message->eager = true;
}

/* Posts one side at the receiver's mailbox; delivers if the other side is there already. */
static alnico_status_t post(struct transport *transport, const struct message *side,
                            struct transfer *out)
{
    struct message *message = malloc(sizeof *message);
    if (!message)
        return error_set(ALNICO_ERROR_MEMORY, "cannot allocate a message");
    memcpy(message, side, offsetof(struct message, payload));
    atomic_init(&message->state, ALNICO_PENDING);
    bool eager = false;
    struct mailbox *box = &((struct transport_local *)transport)->hub->mailbox[side->to];
    pthread_mutex_lock(&box->lock);
    struct message *other =
        take(side->receives ? &box->sends : &box->receives, side->from, side->tag);
    if (!other) {
        eager = !side->receives && side->bytes <= EAGER_BYTES;
        if (eager)
            make_eager(message);
        append(side->receives ? &box->receives : &box->sends, message);
    }
    pthread_mutex_unlock(&box->lock);
    out->word[0] = eager ? 0 : (uintptr_t)message;
    if (other && side->receives)
        deliver(other, message);
    else if (other)
        deliver(message, other);
    return ALNICO_SUCCESS;
}

static alnico_status_t local_isend(struct transport *t, int to, uint32_t tag, const void *buffer,
                                   size_t bytes, struct transfer *out)
{
    struct message side = {
        .from = t->rank, .to = to, .tag = tag, .buffer = (void *)buffer, .bytes = bytes};
    return post(t, &side, out);
}

static alnico_status_t local_irecv(struct transport *t, int from, uint32_t tag, void *buffer,
                                   size_t bytes, struct transfer *out)
{
    struct message side = {.from = from,
                           .to = t->rank,
                           .tag = tag,
                           .buffer = buffer,
                           .bytes = bytes,
                           .receives = true};
    return post(t, &side, out);
}

static alnico_status_t local_test(struct transport *t, struct transfer *transfer)
{
    (void)t;
    struct message *message = (struct message *)transfer->word[0];
    if (!message)
        return ALNICO_SUCCESS;
    int state = atomic_load_explicit(&message->state, memory_order_acquire);
    if (state == ALNICO_PENDING)
        return ALNICO_PENDING;
    free(message);
    transfer->word[0] = 0;
    if (state == ALNICO_ERROR_MISMATCH)
        return error_set(ALNICO_ERROR_MISMATCH, "a message and its receiver differ in size");
    return (alnico_status_t)state;
}

static bool withdraw(struct message **list, struct message *message)
{
    for (; *list; list = &(*list)->next)
        if (*list == message) {
            *list = message->next;
            return true;
        }
    return false;
}

static enum wait look_for_end(void *context)
{
    const struct message *message = context;
    return atomic_load_explicit(&message->state, memory_order_acquire) == ALNICO_PENDING
               ? WAIT_IDLE
               : WAIT_DONE;
}

/* A message that is not in its list any more is being copied by the other side, which ends soon. */
static bool local_cancel(struct transport *t, struct transfer *transfer)
{
    struct message *message = (struct message *)transfer->word[0];
    if (!message)
        return true;
    struct mailbox *box = &((struct transport_local *)t)->hub->mailbox[message->to];
    pthread_mutex_lock(&box->lock);
    bool withdrawn = withdraw(message->receives ? &box->receives : &box->sends, message);
    pthread_mutex_unlock(&box->lock);
    if (!withdrawn)
        wait_until(look_for_end, message, WAIT_FOREVER, false);
    free(message);
    transfer->word[0] = 0;
    return true;
}

/* The first of the ranks creates the hub, whose address the others learn. All of them join it, or
 * none does. */
alnico_status_t transport_local_meet(struct rendezvous *r, struct transport **out)
{
    struct step_result *results = calloc((size_t)r->size, sizeof *results);
    struct local_hub *hub = r->rank == 0 ? local_hub_create(r->size) : NULL;
    struct transport *transport = NULL;
    alnico_status_t status = r->rank == 0 && !hub
                                 ? error_set(ALNICO_ERROR_MEMORY, "cannot allocate a hub")
                                 : ALNICO_SUCCESS;
    status = agree_on_status(r, results, hub, status);
    if (status != ALNICO_SUCCESS) {
        local_hub_leave(hub, r->failed ? 1 : r->size); /* some may have joined it */
        goto free_results;
    }
    status = transport_local_create(results[0].address, r->rank, &transport);
    status = agree_on_status(r, results, NULL, status);
    if (status == ALNICO_SUCCESS)
        *out = transport;
    else if (transport)
        transport->ops->destroy(transport);
free_results:
    free(results);
    return status;
}

static alnico_status_t local_subset(struct transport *t, struct rendezvous *r,
                                    struct transport **out)
{
    (void)t;
    return transport_local_meet(r, out);
}

static bool local_left(struct transport *t, int rank)
{
    return atomic_load(&((struct transport_local *)t)->hub->mailbox[rank].left);
}

static void local_destroy(struct transport *t)
{
    atomic_store(&((struct transport_local *)t)->hub->mailbox[t->rank].left, true);
    local_hub_leave(((struct transport_local *)t)->hub, 1);
    free(t);
}

static const struct transport_ops transport_local = {
    .name = "local",
    .isend = local_isend,
    .irecv = local_irecv,
    .test = local_test,
    .cancel = local_cancel,
    .left = local_left,
    .subset = local_subset,
    .destroy = local_destroy,
};

alnico_status_t transport_local_create(struct local_hub *hub, int rank, struct transport **out)
{
    struct transport_local *t = calloc(1, sizeof *t);
    if (!t) {
        local_hub_leave(hub, 1);
        return error_set(ALNICO_ERROR_MEMORY, "cannot allocate a transport");
    }
    t->base = (struct transport){.ops = &transport_local,
                                 .rank = rank,
                                 .size = hub->size,
                                 .tags = 1u << 30,
                                 .concurrent = true};
    t->hub = hub;
    *out = &t->base;
    return ALNICO_SUCCESS;
}
