/* The communicator itself: its handle, its family, and its latched error. Creation runs on the
 * caller's thread; the latch on any. */
#include "comm/communicator/comm.h"

#include "base/log.h"
#include "base/status.h"
#include "comm/rendezvous/consensus.h"
#include "device/backoff.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAGIC = 0x2171c0de };

/* Memory of destroyed communicators, kept for the next ones and never returned, so that a call on a
 * destroyed one is an error and not a crash. It holds no state. */
static struct {
    pthread_mutex_t lock;
    struct handle {
        struct alnico_comm comm; /* first: a handle points here */
        struct handle *next;
    } * spare;
} handles = {.lock = PTHREAD_MUTEX_INITIALIZER};

static alnico_comm_t handle_take(void)
{
    pthread_mutex_lock(&handles.lock);
    struct handle *handle = handles.spare;
    if (handle)
        handles.spare = handle->next;
    pthread_mutex_unlock(&handles.lock);
    if (!handle)
        return calloc(1, sizeof *handle);
    memset(&handle->comm, 0, sizeof handle->comm);
    return &handle->comm;
}

static void handle_give(alnico_comm_t comm)
{
    struct handle *handle = (struct handle *)comm;
    pthread_mutex_lock(&handles.lock);
    handle->next = handles.spare;
    handles.spare = handle;
    pthread_mutex_unlock(&handles.lock);
}

alnico_status_t comm_check(alnico_comm_t comm, const char *who)
{
    if (!comm)
        return error_set(ALNICO_ERROR_ARGUMENT, "%s: the communicator is NULL", who);
    if (atomic_load_explicit(&comm->magic, memory_order_relaxed) != MAGIC)
        return error_set(ALNICO_ERROR_ARGUMENT, "%s: %p is not a communicator, or was destroyed",
                         who, (void *)comm);
    return ALNICO_SUCCESS;
}

alnico_status_t comm_usable(alnico_comm_t comm, const char *who)
{
    TRY(comm_check(comm, who));
    return comm_health(comm);
}

alnico_status_t comm_group_closed(alnico_comm_t comm, const char *who)
{
    return comm->group.open ? error_set(ALNICO_ERROR_ARGUMENT,
                                        "%s: a group is open on communicator %d; alnico_group_end "
                                        "comes first",
                                        who, comm->id)
                            : ALNICO_SUCCESS;
}

alnico_status_t comm_ready(alnico_comm_t comm, const char *who)
{
    TRY(comm_usable(comm, who));
    return comm_group_closed(comm, who);
}

int comm_enter(alnico_comm_t comm)
{
    int before = comm->device->current ? comm->device->current() : comm->device_index;
    if (before != comm->device_index)
        comm->device->enter(comm->device_index);
    return before;
}

void comm_leave(alnico_comm_t comm, int before)
{
    if (before != comm->device_index)
        comm->device->enter(before);
}

void comm_latch(alnico_comm_t comm, alnico_status_t status, const char *detail)
{
    struct latch *latch = &comm->latch;
    pthread_mutex_lock(&latch->lock);
    if (atomic_load(&latch->status) == ALNICO_SUCCESS) {
        snprintf(latch->detail, sizeof latch->detail, "%s", detail);
        atomic_store(&latch->status, status);
        log_write(LOG_INFO, "communicator %d, rank %d: %s", comm->id, comm->rank, detail);
    }
    pthread_mutex_unlock(&latch->lock);
    if (comm->owner)
        comm_latch(comm->owner, status, detail);
}

alnico_status_t comm_latched(alnico_comm_t comm)
{
    struct latch *latch = &comm->latch;
    int status = atomic_load(&latch->status);
    if (status == ALNICO_SUCCESS)
        return ALNICO_SUCCESS;
    pthread_mutex_lock(&latch->lock);
    error_set((alnico_status_t)status, "%s", latch->detail);
    pthread_mutex_unlock(&latch->lock);
    return (alnico_status_t)status;
}

alnico_status_t comm_health(alnico_comm_t comm)
{
    for (const struct backend_ops *const *b = comm->backends; *b; b++) {
        alnico_status_t status = (*b)->health ? (*b)->health(comm) : ALNICO_SUCCESS;
        if (status != ALNICO_SUCCESS)
            comm_latch(comm, status, alnico_error_detail());
    }
    return comm_latched(comm);
}

static enum wait look_for_idle(void *context)
{
    struct engine *engine = context;
    if (engine_is_idle(engine))
        return WAIT_DONE;
    if (!engine_is_threaded(engine))
        engine_pump(engine);
    return WAIT_IDLE;
}

void comm_settle(alnico_comm_t comm)
{
    double timeout = comm->family->settings.timeout, most = timeout < 4 ? timeout / 4 : 1;
    int64_t end_ns = backoff_now_ns() + (int64_t)(1e9 * most);
    if (!comm->device->host_accessible)
        wait_until(look_for_idle, comm->family->engine, end_ns, comm->crowded);
}

static alnico_status_t family_create(const struct transport *transport, struct family **out)
{
    struct family *family = calloc(1, sizeof *family);
    *out = family;
    if (!family)
        return error_set(ALNICO_ERROR_MEMORY, "cannot allocate a communicator");
    atomic_init(&family->members, 1);
    pool_init(&family->pool, &device_cpu);
    watchdog_init(&family->watchdog);
    alnico_status_t status = topology_read(&family->topology);
    if (transport->rank == 0 && transport_mpi_world_rank() <= 0)
        log_check_environment();
    if (status == ALNICO_SUCCESS && transport->rank == 0) {
        settings_read(&family->settings);
        settings_read_tuning(&family->settings, &family->tuning);
    }
    return status;
}

static void family_leave(struct family *family)
{
    if (!family || atomic_fetch_sub(&family->members, 1) != 1)
        return;
    watchdog_finish(&family->watchdog);
    engine_destroy(family->engine);
    pool_finish(&family->pool);
    tuning_finish(&family->tuning);
    free(family);
}

/* The backends of this build that serve the device, but for those that it is made without. */
static void find_backends(alnico_comm_t comm, unsigned without)
{
    int count = 0;
    for (int b = 0; b < BACKENDS; b++)
        if (backends[b]->ops && backends[b]->devices & 1u << comm->device->kind &&
            !(without & 1u << b))
            comm->backends[count++] = backends[b]->ops;
}

void comm_follow_stream(alnico_comm_t comm, void *stream)
{
    comm->stream = stream;
    comm->inline_stream = !stream && comm->device->kind == ALNICO_DEVICE_CPU;
}

static void init(alnico_comm_t comm, const struct creation *made)
{
    comm->rank = made->transport->rank;
    comm->size = made->transport->size;
    comm->device = made->device;
    comm->device_index = made->device->current ? made->device->current() : 0;
    comm_follow_stream(comm, made->stream);
    comm->limits = made->limits;
    comm->called = made->called;
    comm->parent = made->parent;
    comm->transport = made->transport;
    comm->messages_lane.wide = true;
    find_backends(comm, made->without);
    pthread_mutex_init(&comm->latch.lock, NULL);
    detector_init(&comm->detector);
}

alnico_status_t comm_create(const struct creation *made, alnico_comm_t *out)
{
    struct family *family = made->family;
    alnico_status_t status = ALNICO_SUCCESS;
    if (family)
        atomic_fetch_add(&family->members, 1);
    else
        status = family_create(made->transport, &family);
    alnico_comm_t comm = handle_take();
    if (comm) {
        init(comm, made);
        comm->family = family;
    } else if (status == ALNICO_SUCCESS) {
        status = error_set(ALNICO_ERROR_MEMORY, "cannot allocate a communicator");
    }
    status = comm_setup(comm, made, status);
    if (status == ALNICO_SUCCESS) {
        *out = comm;
    } else if (comm) {
        comm_free(comm);
    } else {
        made->transport->ops->destroy(made->transport);
        family_leave(family);
    }
    return status;
}

bool comm_take_scratch(alnico_comm_t comm, const char *backend, size_t bytes)
{
    if (bytes <= comm->scratch_left) {
        comm->scratch_left -= bytes;
        return true;
    }
    size_t least = comm->limits.scratch - comm->scratch_left + bytes;
    if (comm->scratch_least == 0 || least < comm->scratch_least)
        comm->scratch_least = least;
    log_write(LOG_INFO,
              "communicator %d: backend %s is left out: it needs %zu bytes of scratch, and the "
              "limit of %zu leaves %zu",
              comm->id, backend, bytes, comm->limits.scratch, comm->scratch_left);
    return false;
}

void comm_open(alnico_comm_t comm)
{
    atomic_store(&comm->magic, MAGIC);
}

void comm_close(alnico_comm_t comm)
{
    atomic_store(&comm->magic, 0);
}

static enum wait look_for_drained(void *context)
{
    alnico_comm_t comm = context;
    struct engine *engine = comm->family->engine;
    if (atomic_load_explicit(&comm->in_flight, memory_order_acquire) == 0)
        return WAIT_DONE;
    return !engine_is_threaded(engine) && engine_pump(engine) ? WAIT_MOVED : WAIT_IDLE;
}

void comm_drain(alnico_comm_t comm)
{
    wait_until(look_for_drained, comm, WAIT_FOREVER, comm->crowded);
}

void comm_free(alnico_comm_t comm)
{
    detector_finish(&comm->detector, comm->transport);
    consensus_destroy(comm->consensus);
    comm->transport->ops->destroy(comm->transport);
    tuning_steps_finish(&comm->tuning);
    family_leave(comm->family);
    pthread_mutex_destroy(&comm->latch.lock);
    free(comm->map);
    free(comm->group.messages);
    handle_give(comm);
}
