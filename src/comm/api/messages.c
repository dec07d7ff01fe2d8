/* Messages between two ranks, and groups of them: the public calls. A message is described by its
 * address until it is started, and then by its distance from the lowest one of its kind. */
#include "comm/api/api.h"

#include "base/datatype.h"
#include "base/status.h"

#include <stdint.h>
#include <stdlib.h>

static alnico_status_t check_peer(alnico_comm_t comm, int peer, const char *name, const char *who)
{
    if (peer >= 0 && peer < comm->size)
        return ALNICO_SUCCESS;
    return error_set(ALNICO_ERROR_ARGUMENT,
                     "%s: %s %d is not one of the ranks 0 to %d of communicator %d", who, name,
                     peer, comm->size - 1, comm->id);
}

static alnico_status_t check_message(alnico_comm_t comm, const void *buffer, const char *name,
                                     size_t count, alnico_datatype_t type, const char *who)
{
    TRY(api_type(count, type, who));
    if (count == 0)
        return ALNICO_SUCCESS;
    int before = comm_enter(comm);
    alnico_status_t status = api_buffer(comm, buffer, name, count, type, who);
    comm_leave(comm, before);
    return status;
}

static struct exchange sending(int to, const void *buffer, size_t count, alnico_datatype_t type)
{
    struct span span = {BUFFER_SEND, (uintptr_t)buffer, count * datatype_bytes(type)};
    return (struct exchange){.to = to, .from = -1, .send = span};
}

static struct exchange receiving(int from, void *buffer, size_t count, alnico_datatype_t type)
{
    struct span span = {BUFFER_RECV, (uintptr_t)buffer, count * datatype_bytes(type)};
    return (struct exchange){.to = -1, .from = from, .recv = span};
}

static struct span *span_of(struct exchange *x)
{
    return x->to >= 0 ? &x->send : &x->recv;
}

/* The lowest address of those that send, or receive; any address if none has elements. */
static uintptr_t lowest(alnico_comm_t comm, struct exchange *messages, int count, bool sends)
{
    uintptr_t low = UINTPTR_MAX;
    for (int i = 0; i < count; i++) {
        const struct span *span = span_of(&messages[i]);
        if ((messages[i].to >= 0) == sends && span->len && span->at < low)
            low = span->at;
    }
    return low < UINTPTR_MAX ? low : (uintptr_t)comm;
}

/* The messages' addresses become distances. */
static alnico_status_t start(alnico_comm_t comm, struct exchange *messages, int count,
                             alnico_request_t *request, const char *who)
{
    uintptr_t send = lowest(comm, messages, count, true),
              recv = lowest(comm, messages, count, false);
    for (int i = 0; i < count; i++) {
        struct span *span = span_of(&messages[i]);
        span->at = span->len ? span->at - (messages[i].to >= 0 ? send : recv) : 0;
    }
    struct call call = {.collective = ALNICO_SENDRECV,
                        .send = (const void *)send,
                        .recv = (void *)recv,
                        .type = ALNICO_UINT8,
                        .messages = messages,
                        .messages_count = count};
    return api_start(comm, &call, request, who);
}

static alnico_status_t record(alnico_comm_t comm, const struct exchange *messages, int count,
                              const char *who)
{
    struct group *group = &comm->group;
    if (group->count + count > group->room) {
        int room = 2 * group->room + 16;
        struct exchange *grown = realloc(group->messages, (size_t)room * sizeof *grown);
        if (!grown)
            return error_set(ALNICO_ERROR_MEMORY, "%s: no memory for a group of %d messages", who,
                             room);
        group->messages = grown;
        group->room = room;
    }
    for (int i = 0; i < count; i++)
        group->messages[group->count++] = messages[i];
    return ALNICO_SUCCESS;
}

static alnico_status_t start_or_record(alnico_comm_t comm, struct exchange *messages, int count,
                                       alnico_request_t *request, const char *who)
{
    return comm->group.open ? record(comm, messages, count, who)
                            : start(comm, messages, count, request, who);
}

/* Nonblocking messages have no place in a group. */
static alnico_status_t enter(alnico_comm_t comm, const alnico_request_t *request, const char *who)
{
    return request ? comm_ready(comm, who) : comm_usable(comm, who);
}

alnico_status_t alnico_group_begin(alnico_comm_t comm)
{
    TRY(comm_ready(comm, "alnico_group_begin"));
    comm->group.open = true;
    comm->group.count = 0;
    return ALNICO_SUCCESS;
}

alnico_status_t alnico_group_end(alnico_comm_t comm, alnico_request_t *request)
{
    const char *who = "alnico_group_end";
    if (request)
        *request = NULL;
    TRY(comm_check(comm, who));
    bool open = comm->group.open;
    comm->group.open = false;
    TRY(comm_health(comm));
    if (!open)
        return error_set(ALNICO_ERROR_ARGUMENT, "%s: no group is open on communicator %d", who,
                         comm->id);
    return start(comm, comm->group.messages, comm->group.count, request, who);
}

static alnico_status_t send(const void *buffer, size_t count, alnico_datatype_t type, int to,
                            alnico_comm_t comm, alnico_request_t *request, const char *who)
{
    TRY(enter(comm, request, who));
    TRY(check_peer(comm, to, "to", who));
    TRY(check_message(comm, buffer, "buffer", count, type, who));
    struct exchange message = sending(to, buffer, count, type);
    return start_or_record(comm, &message, 1, request, who);
}

alnico_status_t alnico_send(const void *buffer, size_t count, alnico_datatype_t type, int to,
                            alnico_comm_t comm)
{
    return send(buffer, count, type, to, comm, NULL, "alnico_send");
}

alnico_status_t alnico_isend(const void *buffer, size_t count, alnico_datatype_t type, int to,
                             alnico_comm_t comm, alnico_request_t *request)
{
    TRY(api_request(request, "alnico_isend"));
    return send(buffer, count, type, to, comm, request, "alnico_isend");
}

static alnico_status_t receive(void *buffer, size_t count, alnico_datatype_t type, int from,
                               alnico_comm_t comm, alnico_request_t *request, const char *who)
{
    TRY(enter(comm, request, who));
    TRY(check_peer(comm, from, "from", who));
    TRY(check_message(comm, buffer, "buffer", count, type, who));
    struct exchange message = receiving(from, buffer, count, type);
    return start_or_record(comm, &message, 1, request, who);
}

alnico_status_t alnico_recv(void *buffer, size_t count, alnico_datatype_t type, int from,
                            alnico_comm_t comm)
{
    return receive(buffer, count, type, from, comm, NULL, "alnico_recv");
}

alnico_status_t alnico_irecv(void *buffer, size_t count, alnico_datatype_t type, int from,
                             alnico_comm_t comm, alnico_request_t *request)
{
    TRY(api_request(request, "alnico_irecv"));
    return receive(buffer, count, type, from, comm, request, "alnico_irecv");
}

static alnico_status_t check_apart(const struct exchange *sent, const struct exchange *received,
                                   const char *who)
{
    size_t a = sent->send.at, b = received->recv.at;
    if (sent->send.len == 0 || received->recv.len == 0 ||
        (a < b ? b - a >= sent->send.len : a - b >= received->recv.len))
        return ALNICO_SUCCESS;
    return error_set(ALNICO_ERROR_ARGUMENT, "%s: send %p and recv %p overlap; they must be apart",
                     who, (void *)a, (void *)b);
}

static alnico_status_t sendrecv(const void *send, size_t send_count, int to, void *recv,
                                size_t recv_count, int from, alnico_datatype_t type,
                                alnico_comm_t comm, alnico_request_t *request, const char *who)
{
    TRY(enter(comm, request, who));
    TRY(check_peer(comm, to, "to", who));
    TRY(check_peer(comm, from, "from", who));
    TRY(check_message(comm, send, "send", send_count, type, who));
    TRY(check_message(comm, recv, "recv", recv_count, type, who));
    struct exchange messages[] = {receiving(from, recv, recv_count, type),
                                  sending(to, send, send_count, type)};
    TRY(check_apart(&messages[1], &messages[0], who));
    return start_or_record(comm, messages, 2, request, who);
}

alnico_status_t alnico_sendrecv(const void *send, size_t send_count, int to, void *recv,
                                size_t recv_count, int from, alnico_datatype_t type,
                                alnico_comm_t comm)
{
    return sendrecv(send, send_count, to, recv, recv_count, from, type, comm, NULL,
                    "alnico_sendrecv");
}

alnico_status_t alnico_isendrecv(const void *send, size_t send_count, int to, void *recv,
                                 size_t recv_count, int from, alnico_datatype_t type,
                                 alnico_comm_t comm, alnico_request_t *request)
{
    TRY(api_request(request, "alnico_isendrecv"));
    return sendrecv(send, send_count, to, recv, recv_count, from, type, comm, request,
                    "alnico_isendrecv");
}
