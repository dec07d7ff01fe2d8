/* A listening port and the handshakes that are under way there. */
#include "comm/net/listener.h"

#include "base/log.h"
#include "base/status.h"
#include "device/backoff.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

alnico_status_t net_listener_open(struct net_listener *l, const struct net_address *at,
                                  const struct net_key *key, const struct net_identity *identity)
{
    *l = (struct net_listener){.fd = -1, .key = *key, .identity = *identity};
    l->pending = calloc(NET_PENDING, sizeof *l->pending);
    if (!l->pending)
        return error_set(ALNICO_ERROR_MEMORY, "no memory for a listening port");
    alnico_status_t status = net_listen(at, &l->address, &l->fd);
    if (status != ALNICO_SUCCESS)
        net_listener_close(l);
    return status;
}

/* Takes a handshake out of the list. */
static void forget(struct net_listener *l, int index)
{
    l->count--;
    memmove(&l->pending[index], &l->pending[index + 1],
            (size_t)(l->count - index) * sizeof *l->pending);
}

static void refuse(struct net_listener *l, int index, const char *why)
{
    char from[NET_ADDRESS_TEXT], at[NET_ADDRESS_TEXT];
    struct net_handshake *h = &l->pending[index].handshake;
    log_write(l->refused < NET_WARNINGS ? LOG_WARNING : LOG_DEBUG,
              "rank %d refused a connection from %s to %s: %s", (int)l->identity.rank,
              net_address_print(&h->address, from), net_address_print(&l->address, at), why);
    l->refused++;
    close(h->fd);
    forget(l, index);
}

/* Ranks that come all at once wait at the port, those before them are quick. */
static bool has_room(const struct net_listener *l)
{
    const int64_t young = l->pending[0].end_ns - backoff_now_ns();
    return l->count < NET_PENDING ||
           young < 1000000000LL * NET_PATIENCE_S - 1000000LL * NET_YOUNG_MS;
}

static void take_new(struct net_listener *l)
{
    struct net_address from;
    for (int fd; has_room(l) && (fd = net_accept(l->fd, &from)) >= 0;) {
        if (l->count == NET_PENDING)
            refuse(l, 0, "too many others came before it said who it is");
        struct net_pending *p = &l->pending[l->count];
        p->end_ns = deadline_ns(NET_PATIENCE_S);
        if (net_handshake_begin(&p->handshake, fd, false, &l->key, &l->identity, &from) ==
            ALNICO_SUCCESS)
            l->count++;
        else
            close(fd);
    }
}

int net_listener_next(struct net_listener *l, struct net_identity *theirs,
                      struct net_address *address)
{
    if (l->fd < 0)
        return -1;
    take_new(l);
    for (int i = 0; i < l->count;) {
        struct net_handshake *h = &l->pending[i].handshake;
        alnico_status_t status = net_handshake_step(h, l->admit, l->context);
        if (status == ALNICO_SUCCESS) {
            int fd = h->fd;
            *theirs = h->theirs;
            *address = h->address;
            forget(l, i);
            return fd;
        }
        if (status != ALNICO_PENDING)
            refuse(l, i, alnico_error_detail());
        else if (backoff_now_ns() > l->pending[i].end_ns)
            refuse(l, i, "it did not say in time who it is");
        else
            i++;
    }
    return -1;
}

int net_listener_poll(const struct net_listener *l, struct pollfd *out)
{
    if (l->fd < 0)
        return 0;
    out[0] = (struct pollfd){.fd = l->fd, .events = has_room(l) ? POLLIN : 0};
    for (int i = 0; i < l->count; i++) {
        const struct net_handshake *h = &l->pending[i].handshake;
        out[i + 1] = (struct pollfd){.fd = h->fd, .events = net_handshake_events(h)};
    }
    return l->count + 1;
}

void net_listener_close(struct net_listener *l)
{
    for (int i = 0; i < l->count; i++)
        close(l->pending[i].handshake.fd);
    if (l->fd >= 0)
        close(l->fd);
    free(l->pending);
    l->pending = NULL;
    l->count = 0;
    l->fd = -1;
}
