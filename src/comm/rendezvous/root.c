/* The root's thread. Ranks that have come wait on their connections; whatever ends one of them before
 * all have come ends the rendezvous, and all are told. */
#include "comm/rendezvous/root.h"

#include "base/log.h"
#include "base/status.h"
#include "base/thread.h"
#include "comm/net/listener.h"
#include "device/backoff.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { REPLY_S = 5, NAMED = 8 };

struct guest {
    int fd; /* -1: has not come */
    struct net_address listens;
};

struct root {
    struct net_listener listener;
    double timeout;
    int64_t end_ns;
    int size, came; /* size 0: no rank has come */
    struct guest *guests;
    struct pollfd *polls;
    char refused[160]; /* of the last rank that was refused; "": none */
};

int tree_parent(int rank)
{
    return rank & (rank - 1);
}

int tree_span(int rank, int size)
{
    int span = rank ? rank & -rank : size;
    return rank + span > size ? size - rank : span;
}

static alnico_status_t check_guest(const struct root *r, const struct net_identity *theirs)
{
    if (theirs->number != CONNECTION_TO_ROOT)
        return error_set(ALNICO_ERROR_MISMATCH, "it looks for a rank, and this is the root");
    if (theirs->size < 1 || theirs->size > RENDEZVOUS_RANKS || theirs->rank < 0 ||
        theirs->rank >= theirs->size)
        return error_set(ALNICO_ERROR_ARGUMENT, "rank %d of %d is none", (int)theirs->rank,
                         (int)theirs->size);
    if (r->size && theirs->size != r->size)
        return error_set(ALNICO_ERROR_ARGUMENT,
                         "rank %d says that there are %d ranks, others say %d", (int)theirs->rank,
                         (int)theirs->size, r->size);
    if (r->size && r->guests[theirs->rank].fd >= 0)
        return error_set(ALNICO_ERROR_ARGUMENT, "rank %d has come already; is it there twice?",
                         (int)theirs->rank);
    return ALNICO_SUCCESS;
}

static alnico_status_t admit(void *context, const struct net_identity *theirs)
{
    struct root *r = context;
    alnico_status_t status = check_guest(r, theirs);
    if (status != ALNICO_SUCCESS)
        snprintf(r->refused, sizeof r->refused, "%s", alnico_error_detail());
    return status;
}

/* The first rank says how many there are. */
static bool make_room(struct root *r, int size)
{
    if (net_allow_files((size_t)size) != ALNICO_SUCCESS)
        log_write(LOG_WARNING, "the root of the rendezvous: %s", alnico_error_detail());
    r->guests = malloc((size_t)size * sizeof *r->guests);
    r->polls = calloc((size_t)size + NET_PENDING + 1, sizeof *r->polls);
    if (!r->guests || !r->polls)
        return false;
    for (int i = 0; i < size; i++)
        r->guests[i].fd = -1;
    r->size = size;
    r->end_ns = deadline_ns(r->timeout);
    return true;
}

static alnico_status_t welcome(struct root *r, int fd, const struct net_identity *theirs)
{
    if (!r->size && !make_room(r, theirs->size)) {
        close(fd);
        return error_set(ALNICO_ERROR_MEMORY, "the root has no memory for %d ranks", theirs->size);
    }
    if (check_guest(r, theirs) != ALNICO_SUCCESS) { /* two of them shook hands at once */
        close(fd);
        return ALNICO_SUCCESS;
    }
    r->guests[theirs->rank] = (struct guest){fd, theirs->listens};
    r->came++;
    return ALNICO_SUCCESS;
}

/* "rank 3", or "ranks 1, 4 to 7 and others". */
static void name_missing(const struct root *r, char *out, size_t bytes)
{
    size_t used = (size_t)snprintf(out, bytes, r->size - r->came == 1 ? "rank" : "ranks");
    int named = 0;
    for (int i = 0; i < r->size && used < bytes; i++) {
        int first = i;
        while (i < r->size && r->guests[i].fd < 0)
            i++;
        if (i == first)
            continue;
        const char *comma = named ? "," : "";
        if (named++ == NAMED)
            used += (size_t)snprintf(out + used, bytes - used, " and others");
        else if (named <= NAMED && i - first > 1)
            used += (size_t)snprintf(out + used, bytes - used, "%s %d to %d", comma, first, i - 1);
        else if (named <= NAMED)
            used += (size_t)snprintf(out + used, bytes - used, "%s %d", comma, first);
    }
}

static alnico_status_t name_late(const struct root *r)
{
    char missing[128];
    name_missing(r, missing, sizeof missing);
    return error_set(ALNICO_ERROR_TIMEOUT, "%s did not come within %g s%s%s", missing, r->timeout,
                     *r->refused ? "; refused: " : "", r->refused);
}

/* A rank that waits sends nothing: what comes is its end. */
static alnico_status_t look_after(const struct root *r, const struct pollfd *polls, int count)
{
    for (int i = 0; i < count; i++)
        for (int rank = 0; polls[i].revents && rank < r->size; rank++)
            if (r->guests[rank].fd == polls[i].fd)
                return error_set(ALNICO_ERROR_TIMEOUT,
                                 "rank %d did not come: it left before all ranks were there", rank);
    return ALNICO_SUCCESS;
}

static int list_guests(const struct root *r, struct pollfd *out)
{
    int count = 0;
    for (int i = 0; i < r->size; i++)
        if (r->guests[i].fd >= 0)
            out[count++] = (struct pollfd){.fd = r->guests[i].fd, .events = POLLIN};
    return count;
}

/* PENDING until all ranks have come; what else ends the wait. */
static alnico_status_t gather_once(struct root *r)
{
    struct pollfd few[NET_PENDING + 1], *polls = r->polls ? r->polls : few;
    int guests = list_guests(r, polls),
        count = guests + net_listener_poll(&r->listener, polls + guests);
    poll(polls, (nfds_t)count, net_milliseconds(r->end_ns, NET_YOUNG_MS));
    TRY(look_after(r, polls, guests));
    struct net_identity theirs;
    struct net_address from;
    for (int fd; (fd = net_listener_next(&r->listener, &theirs, &from)) >= 0;)
        TRY(welcome(r, fd, &theirs));
    if (r->size && r->came == r->size)
        return ALNICO_SUCCESS;
    return backoff_now_ns() < r->end_ns ? ALNICO_PENDING : name_late(r);
}

/* To rank 0 last: the root mostly is a thread of its process, which may end once it knows. */
static void reply(const struct root *r, alnico_status_t status)
{
    const int64_t end_ns = deadline_ns(REPLY_S);
    for (int i = r->size - 1; i >= 0; i--) {
        struct root_reply to = {.status = status, .parent = r->guests[tree_parent(i)].listens};
        if (status != ALNICO_SUCCESS)
            snprintf(to.detail, sizeof to.detail, "%s", alnico_error_detail());
        if (r->guests[i].fd >= 0)
            net_send(r->guests[i].fd, &to, sizeof to, end_ns);
    }
}

static void finish(struct root *r)
{
    net_listener_close(&r->listener);
    for (int i = 0; i < r->size; i++)
        if (r->guests[i].fd >= 0)
            close(r->guests[i].fd);
    free(r->guests);
    free(r->polls);
    free(r);
}

/* The port is closed before the replies: the next rendezvous may be at the same address. */
static void *run(void *argument)
{
    struct root *r = argument;
    alnico_status_t status;
    do
        status = gather_once(r);
    while (status == ALNICO_PENDING);
    net_listener_close(&r->listener);
    if (!r->size)
        log_write(LOG_INFO, "no rank came to the rendezvous within %g s", r->timeout);
    reply(r, status);
    finish(r);
    return NULL;
}

static alnico_status_t listen_at(struct root *r, struct place *place)
{
    const struct net_identity mine = {.purpose = NET_RENDEZVOUS};
    struct net_address at = place->address;
    alnico_status_t status;
    do
        status = net_listener_open(&r->listener, &at, &place->key, &mine);
    while (status == ALNICO_ERROR_SYSTEM && ++at.port < place->address.port + place->ports);
    place->address.port = r->listener.address.port;
    return status;
}

alnico_status_t root_start(struct place *place, double timeout)
{
    struct root *r = calloc(1, sizeof *r);
    pthread_t thread;
    if (!r)
        return error_set(ALNICO_ERROR_MEMORY, "no memory for a rendezvous");
    alnico_status_t status = listen_at(r, place);
    if (status != ALNICO_SUCCESS) {
        free(r);
        return status;
    }
    r->listener.admit = admit;
    r->listener.context = r;
    r->timeout = timeout;
    r->end_ns = deadline_ns(timeout);
    int error = thread_create(&thread, run, r);
    if (error) {
        finish(r);
        return error_set(ALNICO_ERROR_SYSTEM, "no thread for a rendezvous: %s", strerror(error));
    }
    pthread_detach(thread);
    return ALNICO_SUCCESS;
}
