/* The public calls that ask a communicator, set it and divide it. */
#include "comm/api/api.h"
#include "comm/api/create.h"
#include "comm/communicator/out_of_band.h"
#include "comm/communicator/sharing.h"
#include "comm/operations/engine_operation.h"
#include "comm/operations/stream_operation.h"

#include "base/status.h"

#include <stdlib.h>
#include <string.h>

alnico_status_t alnico_comm_status(alnico_comm_t comm)
{
    TRY(comm_usable(comm, "alnico_comm_status"));
    return comm->transport->concurrent ? comm_confirm(comm) : ALNICO_SUCCESS;
}

int alnico_comm_rank(alnico_comm_t comm)
{
    return comm_check(comm, "alnico_comm_rank") == ALNICO_SUCCESS ? comm->rank : -1;
}

int alnico_comm_size(alnico_comm_t comm)
{
    return comm_check(comm, "alnico_comm_size") == ALNICO_SUCCESS ? comm->size : -1;
}

alnico_status_t alnico_synchronize(alnico_comm_t comm)
{
    TRY(comm_check(comm, "alnico_synchronize"));
    int before = comm_enter(comm);
    alnico_status_t status = stream_operation_drain(comm);
    comm_drain(comm);
    engine_operation_land(comm);
    comm_listen(comm);
    sharing_sweep(comm);
    comm_leave(comm, before);
    return status == ALNICO_SUCCESS ? comm_health(comm) : status;
}

/* A rank's arguments of set_algorithm. */
struct proposal {
    int collective;
    bool named, known;
    char name[ALGORITHM_NAME_BYTES];
};

static alnico_status_t agree(const struct proposal *proposals, int size, const char *who)
{
    int collective = proposals[0].collective;
    for (int i = 1; i < size; i++)
        if (proposals[i].collective != collective)
            return error_set(ALNICO_ERROR_MISMATCH, "%s: rank 0 sets %s, and rank %d %s", who,
                             collectives[collective].name, i,
                             collectives[proposals[i].collective].name);
        else if (proposals[i].named != proposals[0].named)
            return error_set(ALNICO_ERROR_MISMATCH, "%s: rank 0 passes %s, and rank %d %s", who,
                             proposals[0].named ? proposals[0].name : "NULL", i,
                             proposals[i].named ? proposals[i].name : "NULL");
    if (proposals[0].named && !proposals[0].known)
        return error_set(ALNICO_ERROR_ARGUMENT,
                         "%s: '%s' is not an algorithm of %s; alnico-info lists them", who,
                         proposals[0].name, collectives[collective].name);
    return ALNICO_SUCCESS;
}

/* Without memory for `proposals` this rank fails, and so do all. */
static alnico_status_t agree_on(alnico_comm_t comm, int collective, const char *name,
                                struct proposal *proposals, const char *who)
{
    int device = (int)comm->device->kind;
    struct proposal mine = {.collective = collective,
                            .named = name != NULL,
                            .known =
                                name && backend_algorithm_named(device, collective, name, NULL)};
    strncpy(mine.name, name ? name : "", sizeof mine.name - 1);
    const struct comm_opening opening = {
        .what = who, .who = who, .mine = &mine, .bytes = sizeof mine};
    TRY(comm_agree_first(comm, &opening, proposals));
    TRY(agree(proposals, comm->size, who));
    struct choice forced = {0};
    if (proposals[0].named) {
        forced.algorithm =
            backend_algorithm_named(device, collective, proposals[0].name, &forced.backend);
        TRY(api_prepare(comm, &forced, who));
        TRY(api_fits(comm, NULL, 0, &forced, who));
    }
    comm->forced[collective] = forced;
    return ALNICO_SUCCESS;
}

alnico_status_t alnico_comm_set_algorithm(alnico_comm_t comm, alnico_collective_t collective,
                                          const char *name)
{
    const char *who = "alnico_comm_set_algorithm";
    TRY(comm_ready(comm, who));
    if ((int)collective < 0 || (int)collective >= COLLECTIVES)
        return error_set(ALNICO_ERROR_ARGUMENT, "%s: unknown collective %d", who, (int)collective);
    struct proposal *proposals = calloc((size_t)comm->size, sizeof *proposals);
    alnico_status_t status = agree_on(comm, (int)collective, name, proposals, who);
    free(proposals);
    return status;
}

struct entry {
    int color, key, rank;
};

static int compare_entries(const void *left, const void *right)
{
    const struct entry *a = left, *b = right;
    if (a->key != b->key)
        return a->key < b->key ? -1 : 1;
    return a->rank - b->rank;
}

/* Messages of ranks that have aborted since let a late rank through once, and not a second time: the
 * next step may wait for all. Without memory for `entries` this rank fails, and so do all. */
static alnico_status_t gather_entries(alnico_comm_t comm, const char *who, const struct entry *mine,
                                      struct entry *entries)
{
    const struct comm_opening opening = {
        .what = who, .who = who, .mine = mine, .bytes = sizeof *mine};
    TRY(comm_agree_first(comm, &opening, entries));
    return comm_allgather(comm, who, mine, entries, sizeof *mine);
}

/* The ranks of `mine`'s color, ordered by key and then by rank; *place is mine among them. */
static int choose_members(struct entry *entries, int size, const struct entry *mine, int *members,
                          int *place)
{
    int count = 0;
    for (int i = 0; i < size; i++)
        if (entries[i].color == mine->color)
            entries[count++] = entries[i];
    qsort(entries, (size_t)count, sizeof *entries, compare_entries);
    for (int i = 0; i < count; i++) {
        members[i] = entries[i].rank;
        if (members[i] == mine->rank)
            *place = i;
    }
    return count;
}

static alnico_status_t make_transport(alnico_comm_t comm, const struct comm_part *part,
                                      struct creation *made)
{
    struct comm_rendezvous r;
    comm_rendezvous_part(&r, comm, made->who, part->members, part->count, part->place);
    r.wait.called = r.base.called = made->called;
    alnico_status_t status =
        comm->transport->ops->subset(comm->transport, &r.base, &made->transport);
    status = error_of(made->who, status);
    if (status == ALNICO_ERROR_TIMEOUT)
        comm_latch(comm, status, alnico_error_detail()); /* as comm_allgather */
    return status;
}

alnico_status_t comm_build_part(alnico_comm_t comm, const struct comm_part *part,
                                struct creation *made, alnico_comm_t *out)
{
    TRY(make_transport(comm, part, made));
    comm_settle(comm);
    return comm_build(made, out);
}

static alnico_status_t split(alnico_comm_t comm, struct entry mine, void *stream, const char *who,
                             alnico_comm_t *out)
{
    size_t size = (size_t)comm->size;
    int *members = calloc(size, sizeof *members);
    struct entry *entries = members ? calloc(size, sizeof *entries) : NULL;
    struct creation made = {.family = comm->family,
                            .device = comm->device,
                            .stream = stream,
                            .limits = comm->limits,
                            .who = who,
                            .called = members,
                            .parent = comm};
    alnico_status_t status = gather_entries(comm, who, &mine, entries);
    if (status == ALNICO_SUCCESS && mine.color >= 0) {
        struct comm_part part = {.members = members};
        part.count = choose_members(entries, comm->size, &mine, members, &part.place);
        status = comm_build_part(comm, &part, &made, out);
    }
    free(entries);
    free(members);
    return status;
}

static alnico_status_t check_stream(alnico_comm_t comm, void *stream, const char *who)
{
    if (comm->device->check_stream)
        TRY(comm->device->check_stream(stream, who));
    if (stream && comm->device->host_accessible && !comm->transport->concurrent)
        return error_set(ALNICO_ERROR_UNSUPPORTED,
                         "%s: a stream needs MPI_THREAD_MULTIPLE; only the inline one works", who);
    return ALNICO_SUCCESS;
}

alnico_status_t alnico_comm_set_stream(alnico_comm_t comm, void *stream)
{
    const char *who = "alnico_comm_set_stream";
    TRY(comm_ready(comm, who));
    int before = comm_enter(comm);
    alnico_status_t status = ALNICO_SUCCESS;
    if (stream != comm->stream)
        status = check_stream(comm, stream, who);
    if (status == ALNICO_SUCCESS)
        status = stream_operation_move(comm, stream);
    comm_leave(comm, before);
    return status;
}

static alnico_status_t check_split(alnico_comm_t comm, void *stream, alnico_comm_t *out,
                                   const char *who)
{
    if (!out)
        return error_set(ALNICO_ERROR_ARGUMENT, "%s: out is NULL", who);
    *out = NULL;
    TRY(comm_ready(comm, who));
    return check_stream(comm, stream, who);
}

alnico_status_t alnico_comm_split(alnico_comm_t comm, int color, int key, void *stream,
                                  alnico_comm_t *out)
{
    TRY(check_split(comm, stream, out, "alnico_comm_split"));
    return split(comm, (struct entry){color, key, comm->rank}, stream, "alnico_comm_split", out);
}

alnico_status_t alnico_comm_duplicate(alnico_comm_t comm, void *stream, alnico_comm_t *out)
{
    TRY(check_split(comm, stream, out, "alnico_comm_duplicate"));
    return split(comm, (struct entry){0, 0, comm->rank}, stream, "alnico_comm_duplicate", out);
}
