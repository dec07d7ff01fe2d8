/*
 * Creation of the TCP transport: ranks tell each other where they listen, and connect, each to those
 * that follow it in a circle up to half of all. Every connection begins with the handshake of comm/net.
 * Then nobody listens any more. On the caller's thread.
 */
#include "comm/transports/tcp/tcp.h"

#include "base/status.h"
#include "comm/net/connector.h"
#include "comm/net/listener.h"

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

enum {
    AT_ONCE = 16, /* connections that a rank makes at the same time */
    TRIES = 30,   /* of one, over about two seconds: who refuses that long has ended */
    LOOK_MS = 100,
    UNSENT_MOST = 128 << 10 /* bytes of a connection */
};

/* What a rank tells the others. */
struct introduction {
    struct net_address address;
    struct net_key salt; /* rank 0's makes the key from the job's, or is it; */
    int32_t connections; /* and its count */
    int32_t unused;
};

struct mesh {
    struct transport_tcp *t;
    struct rendezvous *r;
    struct introduction *all;
    struct net_listener listener;
    struct net_connector *connectors; /* AT_ONCE */
    int peer[AT_ONCE];                /* whom a connector is for; -1: free */
    int step, number;                 /* the next one: how far from this rank, which of several */
    int64_t end_ns;
};

static bool is_near(const struct transport_tcp *t, int rank)
{
    return rank == t->base.rank || (t->options.near && t->options.near[rank]);
}

alnico_status_t tcp_add_lane(struct transport_tcp *t, int rank, uint32_t number, int fd)
{
    struct tcp_peer *p = &t->peer[rank];
    struct lane *lane = &p->lane[p->lanes];
    struct epoll_event event = {.events = EPOLLIN, .data.u32 = (uint32_t)rank};
    if (p->lanes == LANES) {
        close(fd);
        return error_set(ALNICO_ERROR_ARGUMENT, "more than %d connections of two ranks", LANES);
    }
    for (; lane > p->lane && lane[-1].number > number; lane--)
        *lane = lane[-1];
    *lane = (struct lane){.fd = fd, .number = number, .staged = malloc(STAGED)};
    p->lanes++;
    if (!lane->staged)
        return error_set(ALNICO_ERROR_MEMORY, "no memory for a connection");
    if (t->epoll < 0)
        t->epoll = epoll_create1(EPOLL_CLOEXEC);
    if (t->epoll >= 0 && epoll_ctl(t->epoll, EPOLL_CTL_ADD, fd, &event) == 0)
        return ALNICO_SUCCESS;
    return error_set(ALNICO_ERROR_SYSTEM, "epoll: %s", strerror(errno));
}

void tcp_free(struct transport_tcp *t)
{
    for (int i = 0; t && i < t->base.size; i++) {
        struct tcp_peer *p = &t->peer[i];
        tcp_receive_forget(p);
        for (int k = 0; k < p->lanes; k++) {
            for (int o = 0; o < p->lane[k].count; o++)
                free(p->lane[k].outgoing[o].own);
            if (p->lane[k].fd >= 0)
                close(p->lane[k].fd);
            free(p->lane[k].staged);
        }
        while (p->notes) {
            struct note *note = p->notes;
            p->notes = note->next;
            free(note);
        }
    }
    while (t && t->spare) {
        struct message *m = t->spare;
        t->spare = m->next;
        free(m);
    }
    if (t && t->epoll >= 0)
        close(t->epoll);
    if (t)
        pthread_mutex_destroy(&t->lock);
    free(t);
}

/* A host that answers nothing, or takes nothing, is given up after two and a half deadlines, whether
 * something is on its way to it or not: a rank that is late by less than two may still take part in a
 * shrink, and needs all its connections there. Little waits in the kernel to be sent: what has been
 * copied is then still in the cache when it goes. */
static void set_options(int fd, double timeout)
{
    const int on = 1, idle = 10, interval = 5, unsent = UNSENT_MOST;
    const unsigned most = timeout < 1e6 ? (unsigned)(2500 * timeout) + 1 : 0;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    setsockopt(fd, IPPROTO_TCP, TCP_NOTSENT_LOWAT, &unsent, sizeof unsent);
    setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &idle, sizeof idle);
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &interval, sizeof interval);
    setsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &most, sizeof most);
}

/* To itself a rank writes on one end of a pair and reads on the other. */
static alnico_status_t connect_self(struct transport_tcp *t)
{
    int ends[2];
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends) != 0)
        return error_set(ALNICO_ERROR_SYSTEM, "socketpair: %s", strerror(errno));
    alnico_status_t status = tcp_add_lane(t, t->base.rank, 0, ends[0]);
    if (status == ALNICO_SUCCESS)
        return tcp_add_lane(t, t->base.rank, 1, ends[1]);
    close(ends[1]);
    return status;
}

/* Whether a rank connects to the one so many places behind it, instead of the other way round. */
static bool is_mine(const struct transport_tcp *t, int step)
{
    return 2 * step < t->base.size || (2 * step == t->base.size && t->base.rank < step);
}

/* The next rank to connect to, and which of several connections; -1: no more. */
static int next_peer(struct mesh *m, uint32_t *number)
{
    const struct transport_tcp *t = m->t;
    for (; is_mine(t, m->step); m->step++, m->number = 0) {
        int rank = (t->base.rank + m->step) % t->base.size;
        if (is_near(t, rank) || m->number == t->options.connections)
            continue;
        *number = (uint32_t)m->number++;
        return rank;
    }
    return -1;
}

static void start_connectors(struct mesh *m)
{
    struct net_identity mine = {
        .purpose = NET_MESSAGES, .rank = m->t->base.rank, .size = m->t->base.size};
    for (int i = 0; i < AT_ONCE; i++) {
        if (m->peer[i] >= 0)
            continue;
        m->peer[i] = next_peer(m, &mine.number);
        if (m->peer[i] >= 0)
            net_connector_begin(&m->connectors[i], &m->all[m->peer[i]].address, &m->t->key, &mine,
                                true, m->end_ns);
    }
}

/* What proves another secret at a rank's port is another job, which got it from the system after the
 * rank's process ended. */
static alnico_status_t name_peer(const struct mesh *m, int rank, alnico_status_t status)
{
    char why[256];
    strncpy(why, alnico_error_detail(), sizeof why - 1);
    why[sizeof why - 1] = '\0';
    rank = rendezvous_name(m->r, rank);
    if (status == ALNICO_ERROR_MISMATCH)
        return error_set(ALNICO_ERROR_TIMEOUT, "rank %d did not come: at its port: %s", rank, why);
    return error_set(status, "no connection to rank %d: %s", rank, why);
}

static alnico_status_t step_connectors(struct mesh *m)
{
    for (int i = 0; i < AT_ONCE; i++) {
        int fd, rank = m->peer[i];
        if (rank < 0)
            continue;
        alnico_status_t status = net_connector_step(&m->connectors[i], &fd);
        if (status == ALNICO_PENDING && m->connectors[i].tries > TRIES) {
            net_connector_close(&m->connectors[i]);
            status = ALNICO_ERROR_SYSTEM;
        }
        if (status == ALNICO_PENDING)
            continue;
        m->peer[i] = -1;
        if (status != ALNICO_SUCCESS)
            return name_peer(m, rank, status);
        set_options(fd, m->r->timeout);
        TRY(tcp_add_lane(m->t, rank, m->connectors[i].mine.number, fd));
    }
    return ALNICO_SUCCESS;
}

/* A rank of the job that is to connect, and has not connected so often yet. */
static alnico_status_t admit(void *context, const struct net_identity *theirs)
{
    const struct mesh *m = context;
    const struct transport_tcp *t = m->t;
    if (theirs->size != t->base.size || theirs->rank < 0 || theirs->rank >= t->base.size ||
        is_near(t, theirs->rank))
        return error_set(ALNICO_ERROR_MISMATCH, "rank %d of %d is not awaited here, where %d meet",
                         (int)theirs->rank, (int)theirs->size, t->base.size);
    if (t->peer[theirs->rank].lanes == t->options.connections)
        return error_set(ALNICO_ERROR_MISMATCH, "rank %d has connected before", (int)theirs->rank);
    return ALNICO_SUCCESS;
}

static alnico_status_t take_connections(struct mesh *m)
{
    struct net_identity theirs;
    struct net_address address;
    for (int fd; (fd = net_listener_next(&m->listener, &theirs, &address)) >= 0;) {
        set_options(fd, m->r->timeout);
        TRY(tcp_add_lane(m->t, theirs.rank, theirs.number, fd));
    }
    return ALNICO_SUCCESS;
}

/* A rank without all its connections; -1: none. */
static int find_missing(const struct mesh *m)
{
    for (int i = 0; i < m->t->base.size; i++)
        if (!is_near(m->t, i) && m->t->peer[i].lanes < m->t->options.connections)
            return i;
    return -1;
}

static void wait_for_any(struct mesh *m)
{
    struct pollfd wait[AT_ONCE + 1 + NET_PENDING];
    int count = net_listener_poll(&m->listener, wait), ms = LOOK_MS;
    for (int i = 0; i < AT_ONCE; i++) {
        if (m->peer[i] < 0)
            continue;
        int most = net_connector_poll(&m->connectors[i], &wait[count++]);
        ms = most < ms ? most : ms;
    }
    poll(wait, (nfds_t)count, ms);
}

static alnico_status_t connect_all(struct mesh *m)
{
    int missing;
    while ((missing = find_missing(m)) >= 0) {
        start_connectors(m);
        TRY(step_connectors(m));
        TRY(take_connections(m));
        TRY(rendezvous_look(m->r));
        if (backoff_now_ns() > m->end_ns)
            return error_set(ALNICO_ERROR_TIMEOUT, "rank %d did not connect within %g s",
                             rendezvous_name(m->r, missing), m->r->timeout);
        if (find_missing(m) >= 0)
            wait_for_any(m);
    }
    return ALNICO_SUCCESS;
}

static int count_far(const struct transport_tcp *t)
{
    int count = 0;
    for (int i = 0; i < t->base.size; i++)
        count += !is_near(t, i);
    return count;
}

/* Before the ranks know each other. */
static alnico_status_t open_port(struct mesh *m, struct introduction *mine)
{
    struct transport_tcp *t = m->t;
    const struct net_identity identity = {
        .purpose = NET_MESSAGES, .rank = t->base.rank, .size = t->base.size};
    if (!m->all || !m->connectors)
        return error_set(ALNICO_ERROR_MEMORY, "no memory for %d ranks", t->base.size);
    mine->connections = t->options.connections;
    TRY(net_allow_files((size_t)count_far(t) * (size_t)t->options.connections));
    TRY(connect_self(t));
    TRY(net_key_create(&mine->salt));
    TRY(net_address_own(t->options.interface, NULL, &mine->address));
    TRY(net_listener_open(&m->listener, &mine->address, &mine->salt, &identity));
    mine->address = m->listener.address;
    m->listener.admit = admit;
    m->listener.context = m;
    return ALNICO_SUCCESS;
}

/* Connections that come before this rank knows the key wait in the kernel. A rank that fails tells
 * the others, which may wait for it. */
static alnico_status_t introduce(struct mesh *m, const struct introduction *mine)
{
    TRY(rendezvous_gather(m->r, mine, m->all, sizeof *mine));
    m->t->options.connections = m->all[0].connections;
    const struct net_key *key = m->t->options.key ? m->t->options.key : m->r->key;
    m->t->key = m->all[0].salt;
    if (key)
        net_key_derive(key, &m->all[0].salt, &m->t->key);
    m->listener.key = m->t->key;
    m->end_ns = deadline_ns(m->r->timeout);
    const alnico_status_t status = connect_all(m);
    if (status == ALNICO_ERROR_TIMEOUT) /* all have waited, and need not as long again */
        m->r->spent = 0.75 * m->r->timeout;
    return status == ALNICO_SUCCESS ? status : rendezvous_fail(m->r, status);
}

alnico_status_t tcp_connect(struct transport_tcp *t, struct rendezvous *r, alnico_status_t status)
{
    struct mesh m = {.t = t, .r = r, .listener.fd = -1, .step = 1};
    struct introduction mine;
    struct step_result *results = calloc((size_t)r->size, sizeof *results);
    m.all = calloc((size_t)r->size, sizeof *m.all);
    m.connectors = calloc(AT_ONCE, sizeof *m.connectors);
    memset(&mine, 0, sizeof mine);
    for (int i = 0; i < AT_ONCE; i++)
        m.peer[i] = -1;
    if (status == ALNICO_SUCCESS)
        status = open_port(&m, &mine);
    status = agree_on_status(r, results, NULL, status);
    if (status == ALNICO_SUCCESS) {
        status = introduce(&m, &mine);
        if (!r->failed)
            status = agree_on_status(r, results, NULL, status);
        r->spent = 0;
    }
    for (int i = 0; m.connectors && i < AT_ONCE; i++)
        if (m.peer[i] >= 0)
            net_connector_close(&m.connectors[i]);
    net_listener_close(&m.listener);
    free(m.connectors);
    free(m.all);
    free(results);
    return status;
}

alnico_status_t transport_tcp_create(struct rendezvous *r, const struct tcp_options *options,
                                     struct transport **out)
{
    struct transport_tcp *t = NULL;
    struct tcp_options chosen = *options;
    chosen.connections = options->connections ? options->connections : 1;
    chosen.interface = options->interface ? options->interface : "";
    alnico_status_t status = tcp_prepare(r->rank, r->size, &chosen, &t);
    status = tcp_connect(t, r, status);
    if (status == ALNICO_SUCCESS)
        *out = &t->base;
    else
        tcp_free(t);
    return status;
}
