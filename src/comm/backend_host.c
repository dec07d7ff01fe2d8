/*
 * The host backend: a collective is an operation of the progress engine, which runs an algorithm over the
 * transport, chunk by chunk. The operation's order, deadline and requests are hosted.c's.
 */
#include "comm/hosted.h"
#include "comm/pipeline.h"

struct host_op {
    struct hosted hosted;
    struct pipeline pipeline;
};

static alnico_status_t host_poll(struct hosted *h, bool *moved)
{
    return pipeline_poll(&((struct host_op *)h)->pipeline, moved);
}

static void host_cancel(struct hosted *h)
{
    pipeline_cancel(&((struct host_op *)h)->pipeline);
}

static const struct work_ops host_work = {
    .backend = &backend_host,
    .bytes = sizeof(struct host_op),
    .poll = host_poll,
    .cancel = host_cancel,
};

static alnico_status_t host_start(alnico_comm_t comm, const struct call *call,
                                  const struct choice *choice, alnico_request_t *request)
{
    struct host_op *op = (struct host_op *)hosted_take(comm, &host_work);
    if (!op)
        return ALNICO_ERROR_MEMORY;
    struct pipeline *p = &op->pipeline;
    p->call = *call;
    p->algorithm = choice->algorithm;
    p->chunk_bytes = choice->chunk_bytes;
    p->transport = comm->transport;
    p->device = comm->device;
    p->pool = &comm->family->pool;
    p->turn = comm->next_turn;
    pipeline_begin(p);
    comm->next_turn += p->chunks;
    return hosted_start(&op->hosted, call, request);
}

/* Messages that a stream waits for need somebody else to carry them. */
static bool host_supports(alnico_comm_t comm, const struct call *call,
                          const struct algorithm *algorithm)
{
    (void)call;
    (void)algorithm;
    return comm->device->host_accessible &&
           (comm->inline_stream || comm->transport->concurrent);
}

const struct backend_ops backend_host = {
    .name = "host",
    .about = "the progress engine runs an algorithm's rounds over a transport",
    .needs = "MPI_THREAD_MULTIPLE or the inline stream",
    .devices = 1u << ALNICO_DEVICE_CPU | 1u << ALNICO_DEVICE_CUDA,
    .supports = host_supports,
    .start = host_start,
    .join = hosted_join,
    .test = hosted_test,
    .synchronize = hosted_synchronize,
    .release = hosted_release,
};
