/* The public entry points of a communicator, each in one shape: check, choose, start. */
#include "comm/backend.h"
#include "comm/streamed.h"

#include "datatype.h"
#include "device/device.h"
#include "status.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

/* ---- Checks ---- */

/* A communicator that may be used: live, and without a latched error. */
static alnico_status_t check_usable(alnico_comm_t comm, const char *who)
{
    TRY(comm_check(comm, who));
    return comm_health(comm);
}

static alnico_status_t check_kind(const struct call *call, const char *who)
{
    if (!datatype_valid(call->type))
        return error_set(ALNICO_ERROR_ARGUMENT, "%s: unknown type %d", who, (int)call->type);
    if (!op_valid(call->op))
        return error_set(ALNICO_ERROR_ARGUMENT, "%s: unknown operation %d", who, (int)call->op);
    if (!op_supports(call->op, call->type))
        return error_set(ALNICO_ERROR_ARGUMENT, "%s: type %s does not have the operation %s", who,
                         datatype_name(call->type), op_name(call->op));
    if (call->count > (size_t)PTRDIFF_MAX / datatype_bytes(call->type))
        return error_set(ALNICO_ERROR_ARGUMENT, "%s: count %zu of %s overflows the address space",
                         who, call->count, datatype_name(call->type));
    return ALNICO_SUCCESS;
}

static alnico_status_t check_buffer(alnico_comm_t comm, const void *buffer, const char *name,
                                    const struct call *call, const char *who)
{
    if (!buffer)
        return error_set(ALNICO_ERROR_ARGUMENT, "%s: %s is NULL with count %zu", who, name,
                         call->count);
    size_t bytes = datatype_bytes(call->type);
    if ((uintptr_t)buffer % bytes)
        return error_set(ALNICO_ERROR_ARGUMENT, "%s: %s %p is not aligned to the %zu bytes of %s",
                         who, name, buffer, bytes, datatype_name(call->type));
    return known_check(&comm->known, comm->device, buffer, name, who);
}

static alnico_status_t check_buffers(alnico_comm_t comm, const struct call *call, const char *who)
{
    if (call->count == 0)
        return ALNICO_SUCCESS;
    TRY(check_buffer(comm, call->send, "send", call, who));
    TRY(check_buffer(comm, call->recv, "recv", call, who));
    uintptr_t send = (uintptr_t)call->send, recv = (uintptr_t)call->recv;
    uintptr_t distance = send > recv ? send - recv : recv - send;
    if (distance && distance < call->count * datatype_bytes(call->type))
        return error_set(ALNICO_ERROR_ARGUMENT,
                         "%s: send %p and recv %p overlap; they must be equal or apart", who,
                         call->send, call->recv);
    return ALNICO_SUCCESS;
}

/* ---- Choice ---- */

static size_t bytes_of(const struct call *call)
{
    return call->count * datatype_bytes(call->type);
}

static bool is_registered(const struct alnico_comm *comm, const struct call *call)
{
    return comm->registrations && registration_find(comm, call->send, bytes_of(call)) &&
           registration_find(comm, call->recv, bytes_of(call));
}

static bool can_do(alnico_comm_t comm, const struct call *call, unsigned modes,
                   const struct backend_ops *backend, const struct algorithm *algorithm)
{
    return backend && (backend->capturable || !(modes & MODE_CAPTURED)) &&
           (!backend->supports || backend->supports(comm, call, algorithm));
}

static bool is_prepared(alnico_comm_t comm, const struct backend_ops *backend,
                        const struct algorithm *algorithm)
{
    return !backend || !backend->prepared || backend->prepared(comm, algorithm);
}

/* Only a forced algorithm can be one that does not fit the communicator or the call. */
static alnico_status_t check_fits(alnico_comm_t comm, const struct call *call, unsigned modes,
                                  const struct algorithm *algorithm,
                                  const struct tuning_backend *named, const char *who)
{
    const struct backend_ops *backend = backend_find(named->name, comm->device);
    if (can_do(comm, call, modes, backend, algorithm))
        return ALNICO_SUCCESS;
    if (!backend)
        return error_set(ALNICO_ERROR_UNSUPPORTED, "%s: %s: this build has no backend %s", who,
                         algorithm->name, named->name);
    if (modes & MODE_CAPTURED && !backend->capturable)
        return error_set(ALNICO_ERROR_UNSUPPORTED,
                         "%s: %s is not capturable, and a graph is being captured on the stream",
                         who, algorithm->name);
    return error_set(ALNICO_ERROR_UNSUPPORTED,
                     "%s: %s needs %s; communicator %d has %d ranks on %d host%s", who,
                     algorithm->name, backend->needs, comm->id, comm->size, comm->hosts,
                     comm->hosts == 1 ? "" : "s");
}

/* From `step` on, the first that can do it: a function of what is equal on all ranks only. */
static const struct tuning_step *next_able(alnico_comm_t comm, const struct call *call,
                                           unsigned modes, const struct tuning_step *step,
                                           const struct backend_ops **backend)
{
    for (; step; step = tuning_next(step, bytes_of(call))) {
        *backend = backend_find(step->backend, comm->device);
        if (can_do(comm, call, modes, *backend, step->algorithm))
            break;
    }
    return step;
}

static const struct tuning_step *first_able(alnico_comm_t comm, const struct call *call,
                                            unsigned modes, const struct backend_ops **backend)
{
    return next_able(comm, call, modes,
                     tuning_choose(&comm->tuning, call->collective, modes, bytes_of(call)),
                     backend);
}

/* Makes what the step's backend has not made yet, which may show that it is not able, or goes on to one that needs
 * nothing. */
static alnico_status_t make_ready(alnico_comm_t comm, const struct call *call, unsigned modes,
                                  bool may_wait, const char *who, const struct tuning_step **step,
                                  const struct backend_ops **backend)
{
    while (*step && !is_prepared(comm, *backend, (*step)->algorithm)) {
        if (may_wait)
            TRY((*backend)->prepare(comm, (*step)->algorithm, who));
        else
            *step = tuning_next(*step, bytes_of(call));
        *step = next_able(comm, call, modes, *step, backend);
    }
    return ALNICO_SUCCESS;
}

static bool is_capturing(const struct alnico_comm *comm)
{
    return comm->device->capturing && comm->device->capturing(comm->stream);
}

/* Whether `step` of an eager call is also what comes first while a graph is captured. For most calls it is, and nobody
 * needs to ask the device. */
static bool is_for_both(const struct alnico_comm *comm, const struct call *call, unsigned modes,
                        const struct tuning_step *step, const struct backend_ops *backend)
{
    if (!comm->device->capturing)
        return true;
    const struct tuning_step *captured =
        tuning_choose(&comm->tuning, call->collective, modes | MODE_CAPTURED, bytes_of(call));
    return step && captured && backend->capturable && step->backend == captured->backend &&
           step->algorithm == captured->algorithm && step->blocks == captured->blocks &&
           step->chunk_bytes == captured->chunk_bytes;
}

static alnico_status_t choose_from_table(alnico_comm_t comm, const struct call *call,
                                         unsigned modes, bool may_wait, const char *who,
                                         struct choice *out)
{
    out->backend = NULL;
    const struct tuning_step *step = first_able(comm, call, modes, &out->backend);
    bool ready = !step || is_prepared(comm, out->backend, step->algorithm);
    if ((!ready || !is_for_both(comm, call, modes, step, out->backend)) && is_capturing(comm)) {
        modes |= MODE_CAPTURED;
        may_wait = false;
        step = first_able(comm, call, modes, &out->backend);
    }
    TRY(make_ready(comm, call, modes, may_wait, who, &step, &out->backend));
    if (!step)
        return error_set(ALNICO_ERROR_UNSUPPORTED,
                         "%s: no backend of communicator %d on %s can do %s of %s%s", who, comm->id,
                         comm->device->name, op_name(call->op), datatype_name(call->type),
                         modes & MODE_CAPTURED ? " while a graph is captured" : "");
    out->algorithm = step->algorithm;
    out->blocks = step->blocks;
    out->chunk_bytes = step->chunk_bytes;
    return ALNICO_SUCCESS;
}

/* It is prepared since it is forced. */
static alnico_status_t choose_forced(alnico_comm_t comm, const struct call *call, unsigned modes,
                                     const char *who, struct choice *out)
{
    out->backend = backend_find(comm->forced_backend->name, comm->device);
    out->algorithm = comm->forced;
    out->blocks = 0;
    if (out->backend && !out->backend->capturable && is_capturing(comm))
        modes |= MODE_CAPTURED;
    const struct tuning_step *step =
        tuning_choose(&comm->tuning, call->collective, modes, bytes_of(call));
    out->chunk_bytes = step ? step->chunk_bytes : CHUNK_BYTES_LEAST;
    return check_fits(comm, call, modes, comm->forced, comm->forced_backend, who);
}

static alnico_status_t choose(alnico_comm_t comm, const struct call *call, bool may_wait,
                              const char *who, struct choice *out)
{
    unsigned modes = is_registered(comm, call) ? MODE_REGISTERED : 0;
    TRY(comm->forced ? choose_forced(comm, call, modes, who, out)
                     : choose_from_table(comm, call, modes, may_wait, who, out));
    if (comm->family->settings.chunk_bytes)
        out->chunk_bytes = comm->family->settings.chunk_bytes;
    return ALNICO_SUCCESS;
}

/* ---- Allreduce ---- */

static alnico_status_t allreduce(const void *send, void *recv, size_t count, alnico_datatype_t type,
                                 alnico_op_t op, alnico_comm_t comm, alnico_request_t *request,
                                 const char *who)
{
    struct call call = {.collective = ALNICO_ALLREDUCE,
                        .send = send == ALNICO_IN_PLACE ? recv : send,
                        .recv = recv,
                        .count = count,
                        .type = type,
                        .op = op};
    TRY(check_usable(comm, who));
    struct choice choice;
    int before = comm_enter(comm);
    alnico_status_t status = check_kind(&call, who);
    if (status == ALNICO_SUCCESS)
        status = check_buffers(comm, &call, who);
    if (comm->family->settings.check)
        status = call_compare(comm, &call, request != NULL, status, who);
    if (status == ALNICO_SUCCESS)
        status = choose(comm, &call, !request, who, &choice);
    if (status == ALNICO_SUCCESS)
        status = choice.backend->start(comm, &call, &choice, request);
    comm_leave(comm, before);
    return status;
}

alnico_status_t alnico_allreduce(const void *send, void *recv, size_t count, alnico_datatype_t type,
                                 alnico_op_t op, alnico_comm_t comm)
{
    return allreduce(send, recv, count, type, op, comm, NULL, "alnico_allreduce");
}

alnico_status_t alnico_iallreduce(const void *send, void *recv, size_t count,
                                  alnico_datatype_t type, alnico_op_t op, alnico_comm_t comm,
                                  alnico_request_t *request)
{
    if (!request)
        return error_set(ALNICO_ERROR_ARGUMENT, "alnico_iallreduce: request is NULL");
    *request = NULL;
    return allreduce(send, recv, count, type, op, comm, request, "alnico_iallreduce");
}

/* ---- The communicator ---- */

alnico_status_t alnico_comm_status(alnico_comm_t comm)
{
    return check_usable(comm, "alnico_comm_status");
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
    alnico_status_t status = streamed_drain(comm);
    comm_drain(comm);
    comm_leave(comm, before);
    return status == ALNICO_SUCCESS ? comm_health(comm) : status;
}

/* What a rank passes to set_algorithm, and what all make of rank 0's. */
struct wish {
    bool named, known;
    char name[ALGORITHM_NAME_BYTES];
};

static alnico_status_t agree(const struct wish *wishes, int size, const char *who)
{
    for (int i = 1; i < size; i++)
        if (wishes[i].named != wishes[0].named)
            return error_set(ALNICO_ERROR_MISMATCH, "%s: rank 0 passes %s, and rank %d %s", who,
                             wishes[0].named ? wishes[0].name : "NULL", i,
                             wishes[i].named ? wishes[i].name : "NULL");
    if (wishes[0].named && !wishes[0].known)
        return error_set(ALNICO_ERROR_ARGUMENT,
                         "%s: '%s' is not an allreduce algorithm; alnico-info lists them", who,
                         wishes[0].name);
    return ALNICO_SUCCESS;
}

static alnico_status_t prepare_forced(alnico_comm_t comm, const struct algorithm *algorithm,
                                      const struct tuning_backend *named, const char *who)
{
    const struct backend_ops *backend = backend_find(named->name, comm->device);
    if (is_prepared(comm, backend, algorithm))
        return ALNICO_SUCCESS;
    int before = comm_enter(comm);
    alnico_status_t status = backend->prepare(comm, algorithm, who);
    comm_leave(comm, before);
    return status;
}

alnico_status_t alnico_comm_set_algorithm(alnico_comm_t comm, alnico_collective_t collective,
                                          const char *name)
{
    const char *who = "alnico_comm_set_algorithm";
    TRY(check_usable(comm, who));
    if (collective != ALNICO_ALLREDUCE)
        return error_set(ALNICO_ERROR_ARGUMENT, "%s: unknown collective %d", who, (int)collective);
    int device = (int)comm->device->kind;
    struct wish mine = {.named = name != NULL,
                        .known =
                            name && tuning_algorithm_named(device, ALNICO_ALLREDUCE, name, NULL)};
    strncpy(mine.name, name ? name : "", sizeof mine.name - 1);
    struct wish *wishes = calloc((size_t)comm->size, sizeof *wishes);
    if (!wishes)
        return error_set(ALNICO_ERROR_MEMORY, "%s: no memory for %d ranks", who, comm->size);
    alnico_status_t status =
        comm_exchange(comm->transport, comm->family->engine, comm->family->settings.timeout, who,
                      &mine, wishes, sizeof mine);
    if (status == ALNICO_SUCCESS)
        status = agree(wishes, comm->size, who);
    const struct tuning_backend *backend = NULL;
    const struct algorithm *forced = NULL;
    if (status == ALNICO_SUCCESS && wishes[0].named)
        forced = tuning_algorithm_named(device, ALNICO_ALLREDUCE, wishes[0].name, &backend);
    if (forced)
        status = prepare_forced(comm, forced, backend, who);
    if (forced && status == ALNICO_SUCCESS)
        status = check_fits(comm, NULL, 0, forced, backend, who);
    if (status == ALNICO_SUCCESS) {
        comm->forced = forced;
        comm->forced_backend = backend;
    }
    free(wishes);
    return status;
}

/* ---- Parts ---- */

struct seat {
    int color, key, rank;
};

static int compare_seats(const void *left, const void *right)
{
    const struct seat *a = left, *b = right;
    if (a->key != b->key)
        return a->key < b->key ? -1 : 1;
    return a->rank - b->rank;
}

/* The ranks of `mine`'s color, ordered by key and then by rank; *place is mine among them. */
static int choose_members(struct seat *seats, int size, const struct seat *mine, int *members,
                          int *place)
{
    int count = 0;
    for (int i = 0; i < size; i++)
        if (seats[i].color == mine->color)
            seats[count++] = seats[i];
    qsort(seats, (size_t)count, sizeof *seats, compare_seats);
    for (int i = 0; i < count; i++) {
        members[i] = seats[i].rank;
        if (members[i] == mine->rank)
            *place = i;
    }
    return count;
}

static alnico_status_t split(alnico_comm_t comm, struct seat mine, void *stream, const char *who,
                             alnico_comm_t *out)
{
    size_t size = (size_t)comm->size;
    struct seat *seats = calloc(size, sizeof *seats);
    int *members = calloc(size, sizeof *members);
    alnico_status_t status = ALNICO_ERROR_MEMORY;
    if (!seats || !members) {
        error_set(status, "%s: no memory for %d ranks", who, comm->size);
        goto free_seats;
    }
    status = comm_exchange(comm->transport, comm->family->engine, comm->family->settings.timeout,
                           who, &mine, seats, sizeof mine);
    if (status != ALNICO_SUCCESS || mine.color < 0)
        goto free_seats;
    int place = 0, count = choose_members(seats, comm->size, &mine, members, &place);
    struct transport *part;
    status = comm->transport->ops->subset(comm->transport, members, count, place, &part);
    if (status == ALNICO_SUCCESS)
        status = comm_build(part, comm->family, comm->device, stream, who, out);
free_seats:
    free(seats);
    free(members);
    return status;
}

static alnico_status_t check_split(alnico_comm_t comm, void *stream, alnico_comm_t *out,
                                   const char *who)
{
    if (!out)
        return error_set(ALNICO_ERROR_ARGUMENT, "%s: out is NULL", who);
    *out = NULL;
    TRY(check_usable(comm, who));
    if (comm->device->check_stream)
        TRY(comm->device->check_stream(stream, who));
    if (stream && comm->device->host_accessible && !comm->transport->concurrent)
        return error_set(ALNICO_ERROR_UNSUPPORTED,
                         "%s: a stream needs MPI_THREAD_MULTIPLE; only the inline one works", who);
    return ALNICO_SUCCESS;
}

alnico_status_t alnico_comm_split(alnico_comm_t comm, int color, int key, void *stream,
                                  alnico_comm_t *out)
{
    TRY(check_split(comm, stream, out, "alnico_comm_split"));
    return split(comm, (struct seat){color, key, comm->rank}, stream, "alnico_comm_split", out);
}

alnico_status_t alnico_comm_duplicate(alnico_comm_t comm, void *stream, alnico_comm_t *out)
{
    TRY(check_split(comm, stream, out, "alnico_comm_duplicate"));
    return split(comm, (struct seat){0, 0, comm->rank}, stream, "alnico_comm_duplicate", out);
}
