/*
 * A binomial tree of connections. The allgather gathers the blocks of each subtree, which are
 * neighbours, up to rank 0, and sends all of them down: 2 log2(size) messages deep, each with a
 * header that may carry an error instead, so that the rank that sees it first names the culprit to
 * all. A rank waits the longer, the more ranks are below the one that it waits for.
 */
#include "comm/rendezvous/tree.h"

#include "base/status.h"
#include "comm/net/connector.h"
#include "comm/net/listener.h"
#include "comm/rendezvous/root.h"
#include "device/backoff.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { CHILDREN = 21, TRY_S = 2 };

static const double REST_S = 0.1;

/* In front of the blocks of every message. */
struct header {
    int32_t status;
    uint32_t bytes; /* of one rank's block */
    char detail[248];
};

/* A connection of the tree, and what is on its way there. */
struct link {
    int fd, rank, span; /* the rank at the other side, and how many there are from it on below */
    struct header header;
    char *at;
    size_t left;
    bool in_header, ended;
};

struct tree {
    struct rendezvous base;
    struct place place;
    struct net_listener listener;
    struct link parent, children[CHILDREN];
    int child_count;
    alnico_status_t failed; /* the tree is of no use any more */
    char detail[248];
    char *blocks;
};

static struct net_identity identify(const struct tree *t, int number)
{
    return (struct net_identity){.purpose = NET_RENDEZVOUS,
                                 .rank = t->base.rank,
                                 .size = t->base.size,
                                 .number = (uint32_t)number,
                                 .listens = t->listener.address};
}

/* ---- Making the tree ---- */

static int find_child(const struct tree *t, int rank)
{
    for (int i = 0; i < t->child_count; i++)
        if (t->children[i].rank == rank)
            return i;
    return -1;
}

static alnico_status_t admit_child(void *context, const struct net_identity *theirs)
{
    const struct tree *t = context;
    int child = find_child(t, theirs->rank);
    if (theirs->number != CONNECTION_TO_PARENT || theirs->size != t->base.size || child < 0 ||
        t->children[child].fd >= 0)
        return error_set(ALNICO_ERROR_MISMATCH, "rank %d of %d has no place below rank %d of %d",
                         (int)theirs->rank, (int)theirs->size, t->base.rank, t->base.size);
    return ALNICO_SUCCESS;
}

/* Only a rank with children listens. */
static alnico_status_t open_port(struct tree *t, const struct tree_options *o)
{
    struct net_address mine;
    t->listener.fd = -1;
    for (int bit = 1; bit < tree_span(o->rank, o->size); bit *= 2)
        t->children[t->child_count++] = (struct link){
            .fd = -1, .rank = o->rank + bit, .span = tree_span(o->rank + bit, o->size)};
    if (t->child_count == 0)
        return ALNICO_SUCCESS;
    TRY(net_address_own(o->interface, &o->place.address, &mine));
    const struct net_identity identity = identify(t, CONNECTION_TO_PARENT);
    TRY(net_listener_open(&t->listener, &mine, &o->place.key, &identity));
    t->listener.admit = admit_child;
    t->listener.context = t;
    return ALNICO_SUCCESS;
}

/* The port that a try is for; where several come into question another program may have some. */
static struct net_address root_at(const struct tree_options *o, int tried)
{
    struct net_address at = o->place.address;
    at.port = (uint16_t)(at.port + tried % o->place.ports);
    return at;
}

static alnico_status_t call_port(const struct tree *t, const struct net_address *at, bool patient,
                                 int64_t end_ns, int *fd)
{
    const struct net_identity identity = identify(t, CONNECTION_TO_ROOT);
    struct net_connector c;
    net_connector_begin(&c, at, &t->place.key, &identity, patient, end_ns);
    return net_connector_run(&c, fd);
}

static alnico_status_t name_ports(const struct tree_options *o)
{
    char first[NET_ADDRESS_TEXT], why[256];
    snprintf(why, sizeof why, "%s", alnico_error_detail());
    return error_set(ALNICO_ERROR_TIMEOUT,
                     "no rank 0 of this job came to %s or the %d ports behind it within %g s; the "
                     "last try: %s",
                     net_address_print(&o->place.address, first), o->place.ports - 1, o->timeout,
                     why);
}

/* With several ports none says for sure that rank 0 is not coming to the next one. */
static alnico_status_t call_root(const struct tree *t, const struct tree_options *o, int64_t end_ns,
                                 int *fd)
{
    if (o->place.ports == 1)
        return call_port(t, &o->place.address, o->patient, end_ns, fd);
    for (int tried = 0; backoff_now_ns() < end_ns; tried++) {
        const struct net_address at = root_at(o, tried);
        const int64_t try_end_ns = deadline_ns(TRY_S);
        alnico_status_t status =
            call_port(t, &at, false, try_end_ns < end_ns ? try_end_ns : end_ns, fd);
        if (status == ALNICO_SUCCESS || status == ALNICO_ERROR_ARGUMENT)
            return status;
        if (tried % o->place.ports == o->place.ports - 1)
            usleep(tried < 10 * o->place.ports ? 20000 : 500000);
    }
    return name_ports(o);
}

static alnico_status_t ask_root(struct tree *t, const struct tree_options *o, int64_t end_ns,
                                struct net_address *parent)
{
    struct root_reply reply;
    int fd;
    TRY(call_root(t, o, end_ns, &fd));
    alnico_status_t status =
        net_receive(fd, &reply, sizeof reply, end_ns + (int64_t)(1e8 * o->timeout) + 100000000);
    close(fd);
    if (status == ALNICO_ERROR_TIMEOUT)
        return error_set(status, "the root of the rendezvous did not answer within %g s",
                         o->timeout);
    if (status != ALNICO_SUCCESS)
        return error_set(ALNICO_ERROR_TIMEOUT,
                         "the root of the rendezvous left before all ranks had come");
    *parent = reply.parent;
    if (reply.status == ALNICO_SUCCESS)
        return ALNICO_SUCCESS;
    return error_set((alnico_status_t)reply.status, "%.*s", (int)sizeof reply.detail - 1,
                     reply.detail);
}

static alnico_status_t accept_children(struct tree *t, int *missing)
{
    struct net_identity theirs;
    struct net_address from;
    for (int fd; (fd = net_listener_next(&t->listener, &theirs, &from)) >= 0;) {
        int child = find_child(t, theirs.rank);
        if (t->children[child].fd >= 0)
            close(t->children[child].fd); /* the same rank again, which was lost in between */
        t->children[child].fd = fd;
    }
    *missing = -1;
    for (int i = t->child_count - 1; i >= 0; i--)
        if (t->children[i].fd < 0)
            *missing = t->children[i].rank;
    return *missing < 0 ? ALNICO_SUCCESS : ALNICO_PENDING;
}

static void wait_for_neighbours(const struct tree *t, const struct net_connector *c, bool calling)
{
    struct pollfd polls[NET_PENDING + 2] = {{.fd = -1}};
    int ms = calling ? net_connector_poll(c, polls) : NET_YOUNG_MS;
    int count = 1 + net_listener_poll(&t->listener, polls + 1);
    poll(polls, (nfds_t)count, ms < NET_YOUNG_MS ? ms : NET_YOUNG_MS);
}

static alnico_status_t meet_neighbours(struct tree *t, const struct net_address *parent,
                                       int64_t end_ns)
{
    const struct net_identity identity = identify(t, CONNECTION_TO_PARENT);
    alnico_status_t up = t->base.rank ? ALNICO_PENDING : ALNICO_SUCCESS, down = ALNICO_PENDING;
    struct net_connector c;
    int missing = -1;
    net_connector_begin(&c, parent, &t->place.key, &identity, false, end_ns);
    while (up == ALNICO_PENDING || down == ALNICO_PENDING) {
        if (up == ALNICO_PENDING)
            up = net_connector_step(&c, &t->parent.fd);
        if (up != ALNICO_PENDING && up != ALNICO_SUCCESS)
            return error_set(ALNICO_ERROR_TIMEOUT, "rank %d did not come: %s", t->parent.rank,
                             alnico_error_detail());
        down = accept_children(t, &missing);
        if (down == ALNICO_PENDING && backoff_now_ns() > end_ns) {
            net_connector_close(&c);
            return error_set(ALNICO_ERROR_TIMEOUT, "rank %d did not come within %g s", missing,
                             t->base.timeout);
        }
        if (up == ALNICO_PENDING || down == ALNICO_PENDING)
            wait_for_neighbours(t, &c, up == ALNICO_PENDING);
    }
    return ALNICO_SUCCESS;
}

static alnico_status_t grow(struct tree *t, const struct tree_options *o)
{
    const int64_t end_ns = deadline_ns(o->timeout);
    struct net_address parent;
    TRY(open_port(t, o));
    TRY(ask_root(t, o, end_ns, &parent));
    return meet_neighbours(t, &parent, deadline_ns(o->timeout));
}

/* ---- The allgather ---- */

/* Sends an error to all neighbours instead of what they wait for, as far as that goes at once. */
static alnico_status_t spread_failure(struct tree *t, alnico_status_t status)
{
    struct header header = {.status = status};
    snprintf(t->detail, sizeof t->detail, "%s", error_text(t->base.who));
    memcpy(header.detail, t->detail, sizeof header.detail);
    t->failed = status;
    for (int i = -1; i < t->child_count; i++) {
        const struct link *link = i < 0 ? &t->parent : &t->children[i];
        const char *from = (const char *)&header;
        size_t bytes = sizeof header;
        if (link->fd >= 0)
            net_send_some(link->fd, &from, &bytes);
    }
    return error_set(status, "%s: %s", t->base.who, t->detail);
}

static void expect(struct link *link)
{
    link->at = (char *)&link->header;
    link->left = sizeof link->header;
    link->in_header = true;
    link->ended = false;
}

static alnico_status_t check_header(struct link *link, size_t bytes)
{
    if (link->header.status != ALNICO_SUCCESS)
        return error_set((alnico_status_t)link->header.status, "%.*s",
                         (int)sizeof link->header.detail - 1, link->header.detail);
    if (link->header.bytes != bytes)
        return error_set(ALNICO_ERROR_MISMATCH, "rank %d exchanges %u bytes, expected %zu",
                         link->rank, link->header.bytes, bytes);
    return ALNICO_SUCCESS;
}

/* What has come of the other side's `count` blocks, which go to `to`. */
static alnico_status_t receive_some(struct link *link, char *to, size_t bytes, int count)
{
    alnico_status_t status = ALNICO_SUCCESS;
    while (!link->ended &&
           (status = net_receive_some(link->fd, &link->at, &link->left)) == ALNICO_SUCCESS) {
        if (link->in_header)
            TRY(check_header(link, bytes));
        link->ended = !link->in_header;
        if (link->in_header) {
            link->at = to;
            link->left = (size_t)count * bytes;
            link->in_header = false;
        }
    }
    if (status == ALNICO_ERROR_SYSTEM)
        return error_set(ALNICO_ERROR_TIMEOUT, "rank %d did not come: its process has ended",
                         link->rank);
    return status;
}

/* Waits for the children's blocks. What the parent sends meanwhile can only be an error. */
static alnico_status_t receive_children(struct tree *t, size_t bytes, int64_t end_ns)
{
    struct pollfd polls[CHILDREN + 1];
    for (;;) {
        const struct link *missing = NULL;
        int count = 0;
        for (int i = 0; i < t->child_count; i++) {
            struct link *child = &t->children[i];
            alnico_status_t status =
                receive_some(child, t->blocks + (size_t)child->rank * bytes, bytes, child->span);
            if (status != ALNICO_SUCCESS && status != ALNICO_PENDING)
                return status;
            if (status == ALNICO_PENDING) {
                polls[count++] = (struct pollfd){.fd = child->fd, .events = POLLIN};
                missing = child;
            }
        }
        if (!missing)
            return ALNICO_SUCCESS;
        if (t->base.rank) {
            alnico_status_t status = receive_some(&t->parent, t->blocks, bytes, t->base.size);
            if (status != ALNICO_PENDING)
                return status;
            polls[count++] = (struct pollfd){.fd = t->parent.fd, .events = POLLIN};
        }
        if (poll(polls, (nfds_t)count, net_milliseconds(end_ns, 1000)) == 0 &&
            backoff_now_ns() >= end_ns)
            return error_set(ALNICO_ERROR_TIMEOUT, "rank %d did not come within %g s",
                             missing->rank, t->base.timeout);
    }
}

static alnico_status_t receive_parent(struct tree *t, size_t bytes, int64_t end_ns)
{
    alnico_status_t status;
    while ((status = receive_some(&t->parent, t->blocks, bytes, t->base.size)) == ALNICO_PENDING) {
        struct pollfd ready = {.fd = t->parent.fd, .events = POLLIN};
        if (poll(&ready, 1, net_milliseconds(end_ns, 1000)) == 0 && backoff_now_ns() >= end_ns)
            return error_set(ALNICO_ERROR_TIMEOUT, "rank %d did not come within %g s",
                             t->parent.rank, t->base.timeout);
    }
    return status;
}

static alnico_status_t send_blocks(const struct tree *t, const struct link *link, const char *from,
                                   size_t bytes, int count, int64_t end_ns)
{
    const struct header header = {.bytes = (uint32_t)bytes};
    alnico_status_t status = net_send(link->fd, &header, sizeof header, end_ns);
    if (status == ALNICO_SUCCESS)
        status = net_send(link->fd, from, (size_t)count * bytes, end_ns);
    if (status == ALNICO_SUCCESS)
        return status;
    return error_set(ALNICO_ERROR_TIMEOUT,
                     status == ALNICO_ERROR_TIMEOUT ? "rank %d did not come within %g s"
                                                    : "rank %d did not come: its process has ended",
                     link->rank, t->base.timeout);
}

/* The rank's own patience with those below it: up to a tenth and 0.1 s more, at rank 0. */
static int64_t end_of_wait(const struct tree *t)
{
    int above = 0, below = 0;
    for (int span = t->base.size; span > 1; span /= 2)
        above++;
    for (int span = tree_span(t->base.rank, t->base.size); span > 1; span /= 2)
        below++;
    double slack = (0.1 * t->base.timeout + 0.1) * below / (above + 1);
    return deadline_ns(t->base.timeout - t->base.spent + slack);
}

/* With what comes from above: the longer, the more ranks it comes through, which say for whom they
 * have waited themselves. */
static int64_t end_of_last_wait(const struct tree *t)
{
    int levels = 1, depth = 0;
    while (1 << levels < t->base.size)
        levels++;
    for (int rank = t->base.rank; rank; rank = tree_parent(rank))
        depth++;
    double slack = (0.1 * t->base.timeout + 0.1) * (1 + (double)depth / levels);
    return deadline_ns(t->base.timeout - t->base.spent + slack);
}

static alnico_status_t exchange(struct tree *t, const void *mine, size_t bytes)
{
    const int64_t end_ns = end_of_wait(t), last_ns = end_of_last_wait(t);
    for (int i = 0; i < t->child_count; i++)
        expect(&t->children[i]);
    expect(&t->parent);
    memcpy(t->blocks + (size_t)t->base.rank * bytes, mine, bytes);
    TRY(receive_children(t, bytes, end_ns));
    if (t->base.rank) {
        TRY(send_blocks(t, &t->parent, t->blocks + (size_t)t->base.rank * bytes, bytes,
                        tree_span(t->base.rank, t->base.size), end_ns));
        TRY(receive_parent(t, bytes, last_ns));
    }
    for (int i = t->child_count - 1; i >= 0; i--)
        TRY(send_blocks(t, &t->children[i], t->blocks, bytes, t->base.size, last_ns));
    return ALNICO_SUCCESS;
}

static alnico_status_t allgather(void *context, const void *mine, void *all, size_t bytes)
{
    struct tree *t = context;
    if (t->failed)
        return error_set(t->failed, "%s: %s", t->base.who, t->detail);
    alnico_status_t status = exchange(t, mine, bytes);
    if (status != ALNICO_SUCCESS)
        return spread_failure(t, status);
    if (all)
        memcpy(all, t->blocks, (size_t)t->base.size * bytes);
    return ALNICO_SUCCESS;
}

/* What lies there between two exchanges may be a child's next blocks, whose header has no error. */
static alnico_status_t look_at(const struct link *link)
{
    struct header header;
    alnico_status_t status =
        link->fd < 0 ? ALNICO_PENDING : net_peek(link->fd, &header, sizeof header);
    if (status == ALNICO_ERROR_SYSTEM)
        return error_set(ALNICO_ERROR_TIMEOUT, "rank %d did not come: its process has ended",
                         link->rank);
    if (status != ALNICO_SUCCESS || header.status == ALNICO_SUCCESS)
        return ALNICO_SUCCESS;
    return error_set((alnico_status_t)header.status, "%.*s", (int)sizeof header.detail - 1,
                     header.detail);
}

static alnico_status_t look(void *context)
{
    struct tree *t = context;
    alnico_status_t status = look_at(&t->parent);
    for (int i = 0; i < t->child_count && status == ALNICO_SUCCESS; i++)
        status = look_at(&t->children[i]);
    return status == ALNICO_SUCCESS ? status : spread_failure(t, status);
}

static alnico_status_t fail(void *context, alnico_status_t status)
{
    return spread_failure(context, status);
}

/* ---- Its life ---- */

alnico_status_t tree_create(const struct tree_options *o, struct tree **out)
{
    struct tree *t = calloc(1, sizeof *t);
    char *blocks = malloc((size_t)o->size * RENDEZVOUS_BYTES);
    if (!t || !blocks) {
        free(t);
        free(blocks);
        return error_set(ALNICO_ERROR_MEMORY, "no memory for %d ranks", o->size);
    }
    t->base = (struct rendezvous){.allgather = allgather,
                                  .look = look,
                                  .fail = fail,
                                  .context = t,
                                  .rank = o->rank,
                                  .size = o->size,
                                  .who = o->who,
                                  .timeout = o->timeout};
    t->place = o->place;
    t->base.key = &t->place.key;
    t->parent = (struct link){.fd = -1, .rank = tree_parent(o->rank)};
    t->blocks = blocks;
    alnico_status_t status = grow(t, o);
    net_listener_close(&t->listener);
    if (status == ALNICO_SUCCESS) {
        *out = t;
        return status;
    }
    spread_failure(t, status);
    tree_destroy(t);
    return status;
}

struct rendezvous *tree_rendezvous(struct tree *tree)
{
    return &tree->base;
}

/* Where something that was sent here is unread, closing would throw away the error that the other side
 * has not read yet. */
static void read_rest(int fd)
{
    const int64_t end_ns = deadline_ns(REST_S);
    char rest[4096];
    shutdown(fd, SHUT_WR);
    while (net_receive(fd, rest, sizeof rest, end_ns) == ALNICO_SUCCESS)
        ;
}

void tree_destroy(struct tree *t)
{
    if (!t)
        return;
    char detail[sizeof t->detail + 64];
    snprintf(detail, sizeof detail, "%s", alnico_error_detail());
    for (int i = -1; i < t->child_count; i++) {
        struct link *link = i < 0 ? &t->parent : &t->children[i];
        if (link->fd >= 0 && t->failed)
            read_rest(link->fd);
        if (link->fd >= 0)
            close(link->fd);
    }
    if (t->failed)
        error_set(t->failed, "%s", detail);
    free(t->blocks);
    free(t);
}
