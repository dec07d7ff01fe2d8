/*
 * A transport of two: `near` for the ranks of this host, `far` for the others. A receive from anybody is
 * posted on both, each with a buffer of its own; what the one that was not first gets is the next such
 * receive's. A transfer's first words are that of the transport which carries it, and the last one says
 * which that is. Any thread.
 */
#include "comm/rendezvous/hosts.h"

#include "base/log.h"
#include "base/status.h"
#include "comm/hostmem/segment.h"
#include "comm/net/handshake.h"
#include "comm/rendezvous/parts.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

enum side { NEAR, FAR, SIDES, ANY = SIDES };
enum { CARRIER = 3 /* the word that says it */ };

/* A receive from anybody. */
struct any {
    struct any *next;
    uint32_t tag;
    size_t bytes;
    char *buffer; /* the user's; NULL: none waits */
    struct {
        struct transfer transfer;
        char *buffer;
        bool posted;
    } side[SIDES];
};

struct transport_hosts {
    struct transport base;
    struct transport *side[SIDES]; /* NEAR may be NULL */
    struct tcp_options options;
    struct net_key key;   /* the job's, if the options have one */
    pthread_mutex_t lock; /* of receives from anybody */
    struct any *spare;    /* those that nobody waits for */
    uint64_t *host;       /* by rank */
    int *place;           /* by rank: its rank in `near`; -1: it is far */
    bool *is_near;
};

static struct transport_hosts *hosts_of(struct transport *t)
{
    return (struct transport_hosts *)t;
}

/* Which transport carries a rank's messages, and the rank's number there. */
static enum side carrier_of(const struct transport_hosts *t, int rank, int *number)
{
    bool near = t->place[rank] >= 0;
    *number = near ? t->place[rank] : rank;
    return near ? NEAR : FAR;
}

static alnico_status_t hosts_isend(struct transport *transport, int to, uint32_t tag,
                                   const void *buffer, size_t bytes, struct transfer *out)
{
    struct transport_hosts *t = hosts_of(transport);
    int number;
    enum side side = carrier_of(t, to, &number);
    out->word[CARRIER] = side;
    return t->side[side]->ops->isend(t->side[side], number, tag, buffer, bytes, out);
}

/* ---- Receives from anybody, under the lock ---- */

static void any_free(struct any *a)
{
    if (a)
        free(a->side[NEAR].buffer);
    free(a);
}

static struct any *any_create(uint32_t tag, size_t bytes)
{
    struct any *a = calloc(1, sizeof *a);
    char *memory = malloc(SIDES * (bytes + 1));
    if (!a || !memory) {
        free(a);
        free(memory);
        return NULL;
    }
    a->tag = tag;
    a->bytes = bytes;
    a->side[NEAR].buffer = memory;
    a->side[FAR].buffer = memory + bytes;
    return a;
}

/* One with what came for an earlier receive, if there is one. */
static struct any *any_take(struct transport_hosts *t, uint32_t tag, size_t bytes)
{
    for (struct any **link = &t->spare; *link; link = &(*link)->next) {
        struct any *a = *link;
        if (a->tag != tag || a->bytes != bytes)
            continue;
        *link = a->next;
        return a;
    }
    return any_create(tag, bytes);
}

static alnico_status_t any_post(struct transport_hosts *t, struct any *a)
{
    for (int i = 0; i < SIDES; i++) {
        struct transport *side = t->side[i];
        if (!side || a->side[i].posted)
            continue;
        TRY(side->ops->irecv(side, TRANSPORT_ANY, a->tag, a->side[i].buffer, a->bytes,
                             &a->side[i].transfer));
        a->side[i].posted = true;
    }
    return ALNICO_SUCCESS;
}

static void any_give(struct transport_hosts *t, struct any *a)
{
    a->buffer = NULL;
    a->next = t->spare;
    t->spare = a;
}

static alnico_status_t any_begin(struct transport_hosts *t, uint32_t tag, void *buffer,
                                 size_t bytes, struct transfer *out)
{
    struct any *a = any_take(t, tag, bytes);
    if (!a)
        return error_set(ALNICO_ERROR_MEMORY, "cannot allocate a message");
    alnico_status_t status = any_post(t, a);
    if (status != ALNICO_SUCCESS) {
        any_give(t, a);
        return status;
    }
    a->buffer = buffer;
    out->word[0] = (uintptr_t)a;
    out->word[CARRIER] = ANY;
    return ALNICO_SUCCESS;
}

static alnico_status_t any_test(struct transport_hosts *t, struct transfer *transfer)
{
    struct any *a = (struct any *)transfer->word[0];
    for (int i = 0; i < SIDES; i++) {
        struct transport *side = t->side[i];
        if (!a->side[i].posted)
            continue;
        alnico_status_t status = side->ops->test(side, &a->side[i].transfer);
        if (status == ALNICO_PENDING)
            continue;
        a->side[i].posted = false;
        if (status == ALNICO_SUCCESS && a->bytes)
            memcpy(a->buffer, a->side[i].buffer, a->bytes);
        any_give(t, a);
        return status;
    }
    return ALNICO_PENDING;
}

static void any_cancel(struct transport_hosts *t, struct any *a)
{
    for (int i = 0; i < SIDES; i++)
        if (a->side[i].posted)
            t->side[i]->ops->cancel(t->side[i], &a->side[i].transfer);
    any_free(a);
}

/* ---- The seam ---- */

static alnico_status_t hosts_irecv(struct transport *transport, int from, uint32_t tag,
                                   void *buffer, size_t bytes, struct transfer *out)
{
    struct transport_hosts *t = hosts_of(transport);
    if (from == TRANSPORT_ANY) {
        pthread_mutex_lock(&t->lock);
        alnico_status_t status = any_begin(t, tag, buffer, bytes, out);
        pthread_mutex_unlock(&t->lock);
        return status;
    }
    int number;
    enum side side = carrier_of(t, from, &number);
    out->word[CARRIER] = side;
    return t->side[side]->ops->irecv(t->side[side], number, tag, buffer, bytes, out);
}

static alnico_status_t hosts_test(struct transport *transport, struct transfer *transfer)
{
    struct transport_hosts *t = hosts_of(transport);
    struct transport *side =
        transfer->word[CARRIER] < SIDES ? t->side[transfer->word[CARRIER]] : NULL;
    if (side)
        return side->ops->test(side, transfer);
    pthread_mutex_lock(&t->lock);
    alnico_status_t status = any_test(t, transfer);
    pthread_mutex_unlock(&t->lock);
    return status;
}

static bool hosts_cancel(struct transport *transport, struct transfer *transfer)
{
    struct transport_hosts *t = hosts_of(transport);
    struct transport *side =
        transfer->word[CARRIER] < SIDES ? t->side[transfer->word[CARRIER]] : NULL;
    if (side)
        return side->ops->cancel(side, transfer);
    pthread_mutex_lock(&t->lock);
    any_cancel(t, (struct any *)transfer->word[0]);
    pthread_mutex_unlock(&t->lock);
    return true;
}

static bool hosts_gone(struct transport *transport, int rank)
{
    struct transport_hosts *t = hosts_of(transport);
    int number;
    struct transport *side = t->side[carrier_of(t, rank, &number)];
    return side->ops->gone(side, number);
}

static bool hosts_left(struct transport *transport, int rank)
{
    struct transport_hosts *t = hosts_of(transport);
    int number;
    struct transport *side = t->side[carrier_of(t, rank, &number)];
    return side->ops->left(side, number);
}

static void hosts_memory(struct transport *transport, alnico_comm_memory_t *sum)
{
    struct transport_hosts *t = hosts_of(transport);
    for (int side = 0; side < SIDES; side++)
        if (t->side[side] && t->side[side]->ops->memory)
            t->side[side]->ops->memory(t->side[side], sum);
}

static alnico_status_t hosts_subset(struct transport *transport, struct rendezvous *r,
                                    struct transport **out)
{
    struct transport_hosts *t = hosts_of(transport);
    uint64_t *host = calloc((size_t)r->size, sizeof *host);
    for (int i = 0; host && i < r->size; i++)
        host[i] = t->host[r->called[i]];
    alnico_status_t status = transport_hosts_create(r, host, &t->options, out);
    free(host);
    return status;
}

static void hosts_free(struct transport_hosts *t)
{
    if (!t)
        return;
    for (int i = 0; i < SIDES; i++)
        if (t->side[i])
            t->side[i]->ops->destroy(t->side[i]);
    pthread_mutex_destroy(&t->lock);
    free(t->host);
    free(t->place);
    free(t->is_near);
    free((char *)t->options.interface);
    free(t);
}

static void hosts_destroy(struct transport *transport)
{
    struct transport_hosts *t = hosts_of(transport);
    while (t->spare) {
        struct any *a = t->spare;
        t->spare = a->next;
        any_cancel(t, a);
    }
    for (int i = 0; i < SIDES; i++)
        if (t->side[i])
            t->side[i]->broken = transport->broken;
    hosts_free(t);
}

static const struct transport_ops transport_hosts = {
    .name = "hosts",
    .isend = hosts_isend,
    .irecv = hosts_irecv,
    .test = hosts_test,
    .cancel = hosts_cancel,
    .gone = hosts_gone,
    .left = hosts_left,
    .memory = hosts_memory,
    .subset = hosts_subset,
    .destroy = hosts_destroy,
};

/* ---- Creation ---- */

static struct transport_hosts *prepare(const struct rendezvous *r, const uint64_t *host,
                                       const struct tcp_options *options)
{
    size_t size = (size_t)r->size;
    struct transport_hosts *t = calloc(1, sizeof *t);
    if (!t)
        return NULL;
    pthread_mutex_init(&t->lock, NULL);
    t->options = *options;
    const struct net_key *key = options->key ? options->key : r->key;
    t->key = key ? *key : t->key;
    t->options.key = key ? &t->key : NULL;
    t->options.near = NULL;
    t->options.interface = strdup(options->interface ? options->interface : "");
    t->host = calloc(size, sizeof *t->host);
    t->place = calloc(size, sizeof *t->place);
    t->is_near = calloc(size, sizeof *t->is_near);
    if (!host || !t->options.interface || !t->host || !t->place || !t->is_near) {
        hosts_free(t);
        return NULL;
    }
    memcpy(t->host, host, size * sizeof *host);
    return t;
}

static alnico_status_t agree(struct rendezvous *r, alnico_status_t status)
{
    struct step_result *results = calloc((size_t)r->size, sizeof *results);
    status = agree_on_status(r, results, NULL, status);
    free(results);
    return status;
}

/* The ranks of this host and this one's number among them. `members` has room for all. */
static int find_members(const struct transport_hosts *t, const struct rendezvous *r, int *members,
                        int *number)
{
    int count = 0;
    for (int i = 0; i < r->size; i++) {
        t->place[i] = -1;
        if (t->host[i] != t->host[r->rank])
            continue;
        if (i == r->rank)
            *number = count;
        members[count++] = i;
    }
    return count;
}

/* The host's own transport. Where its ranks cannot share memory they are far from each other. */
static alnico_status_t create_near(struct transport_hosts *t, struct rendezvous *r,
                                   const int *members, int count, int number)
{
    const struct shm_options options = {.read_from = SHM_READ_FROM, .learns = true};
    struct rendezvous_part part;
    alnico_status_t status = ALNICO_SUCCESS;
    TRY(rendezvous_part_begin(&part, r, members, count, number));
    if (count > 1)
        status = transport_shm_create(&part.base, &options, &t->side[NEAR]);
    if (segment_is_refused(status) && !r->failed) {
        log_write(
            number == 0 ? LOG_WARNING : LOG_DEBUG,
            "%s: no shared memory between the ranks of a host, so TCP carries their messages: "
            "%s",
            r->who, error_text(r->who));
        status = ALNICO_SUCCESS;
    }
    for (int i = 0; t->side[NEAR] && i < count; i++) {
        t->place[members[i]] = i;
        t->is_near[members[i]] = true;
    }
    if (!r->failed)
        TRY(rendezvous_part_end(&part));
    return status;
}

static void wrap(struct transport_hosts *t, const struct rendezvous *r)
{
    t->base = (struct transport){.ops = &transport_hosts,
                                 .rank = r->rank,
                                 .size = r->size,
                                 .tags = t->side[FAR]->tags,
                                 .concurrent = true,
                                 .sends_first = true};
}

static alnico_status_t create(struct transport_hosts *t, struct rendezvous *r,
                              const struct tcp_options *options)
{
    int number = 0, *members = calloc((size_t)r->size, sizeof *members);
    struct tcp_options far = *options;
    alnico_status_t status =
        members && t ? ALNICO_SUCCESS
                     : error_set(ALNICO_ERROR_MEMORY, "no memory for %d ranks", r->size);
    status = agree(r, status);
    if (status == ALNICO_SUCCESS) {
        int count = find_members(t, r, members, &number);
        status = create_near(t, r, members, count, number);
        if (!r->failed)
            status = agree(r, status);
    }
    free(members);
    TRY(status);
    far.near = t->is_near;
    TRY(transport_tcp_create(r, &far, &t->side[FAR]));
    wrap(t, r);
    return ALNICO_SUCCESS;
}

alnico_status_t transport_hosts_create(struct rendezvous *r, const uint64_t *host,
                                       const struct tcp_options *options, struct transport **out)
{
    struct transport_hosts *t = prepare(r, host, options);
    alnico_status_t status = create(t, r, options);
    if (status == ALNICO_SUCCESS)
        *out = &t->base;
    else
        hosts_free(t);
    return status;
}
