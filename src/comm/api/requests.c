/* The request calls: each ends the user's hold on a nonblocking operation, in its own way of
 * waiting. */
#include "comm/communicator/comm.h"
#include "comm/operations/stream_operation.h"

#include "base/status.h"

static alnico_status_t check_request(alnico_request_t *request, const char *who)
{
    if (!request)
        return error_set(ALNICO_ERROR_ARGUMENT, "%s: request is NULL", who);
    if (!*request)
        return error_set(ALNICO_ERROR_ARGUMENT,
                         "%s: *request is NULL: it was waited for already, or never started", who);
    return comm_check((*request)->comm, who);
}

static void drop(alnico_request_t *request)
{
    (*request)->ops->release(*request);
    *request = NULL;
}

/* Calls a slot of the request, on its communicator's device. */
static alnico_status_t call_slot(alnico_request_t request,
                                 alnico_status_t (*slot)(alnico_request_t request))
{
    alnico_comm_t comm = request->comm;
    int before = comm_enter(comm);
    alnico_status_t status = slot(request);
    comm_leave(comm, before);
    return status;
}

static alnico_status_t join(alnico_request_t request)
{
    TRY(request->ops->join(request));
    return stream_operation_mark(request->comm);
}

alnico_status_t alnico_wait(alnico_request_t *request)
{
    TRY(check_request(request, "alnico_wait"));
    alnico_status_t status = call_slot(*request, join);
    drop(request);
    return status;
}

alnico_status_t alnico_request_synchronize(alnico_request_t *request)
{
    TRY(check_request(request, "alnico_request_synchronize"));
    alnico_status_t status = call_slot(*request, (*request)->ops->synchronize);
    if (status !=
        ALNICO_ERROR_UNSUPPORTED) /* otherwise it can only be waited for, and still has to be */
        drop(request);
    return status;
}

alnico_status_t alnico_test(alnico_request_t *request, bool *done)
{
    if (!done)
        return error_set(ALNICO_ERROR_ARGUMENT, "alnico_test: done is NULL");
    *done = false;
    TRY(check_request(request, "alnico_test"));
    alnico_status_t status = call_slot(*request, (*request)->ops->test);
    if (status == ALNICO_PENDING)
        return ALNICO_SUCCESS;
    if (status == ALNICO_ERROR_UNSUPPORTED)
        return status;
    *done = true;
    drop(request);
    return status;
}
