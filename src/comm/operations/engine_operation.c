/*
 * Operations that the engine carries out for a backend. Two gates tie one to the stream: the stream
 * opens `ready`, the operation opens `done`. With nothing in flight a blocking call on the inline
 * stream polls the operation itself.
 *
 * The calling thread makes and recycles operations; in between one belongs to whoever polls it.
 */
#include "comm/operations/engine_operation.h"

#include "base/status.h"
#include "device/backoff.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Idle polls between looks at the clock: few, as behind each there may be a sleep of 1 ms. */
enum { POLLS_PER_LOOK = 8 };

/* The call by which ranks that share a failure detector know the operation. */
static const struct call *named_call(const struct engine_operation *o)
{
    return o->comm->owner ? &o->served : o->call;
}

static const char *operation_name(const struct engine_operation *o, char *text, size_t bytes)
{
    snprintf(text, bytes, "alnico_%s, %s %llu of communicator %d",
             collectives[named_call(o)->collective].name,
             o->work->awaits ? "after operation" : "operation", (unsigned long long)o->sequence,
             comm_told(o->comm)->id);
    return text;
}

/* Aborts the operation: reports to the other ranks, and stops touching the buffers. */
static void leave(struct engine_operation *o, alnico_status_t why, double waited)
{
    alnico_comm_t told = comm_told(o->comm);
    const struct call *call = named_call(o);
    o->awaited = o->work->awaits ? o->work->awaits(o) : -1;
    struct report report = {.rank = told->rank,
                            .status = why,
                            .sequence = o->sequence,
                            .count = call->count,
                            .type = call->type,
                            .op = call->op,
                            .collective = call->collective,
                            .root = call->root,
                            .waited = waited,
                            .late = o->awaited < 0 ? 0 : 1 + comm_name(o->comm, o->awaited)};
    o->work->cancel(o);
    detector_report_failure(&told->detector, told->transport, &report);
}

/* An error of this rank's own, whose detail is the thread's. */
static alnico_status_t fail(struct engine_operation *o, alnico_status_t status)
{
    char name[96], detail[512];
    snprintf(detail, sizeof detail, "%s", alnico_error_detail());
    error_set(status, "%s: %s", operation_name(o, name, sizeof name), detail);
    comm_latch(o->comm, status, alnico_error_detail());
    leave(o, status, 0);
    return comm_latched(o->comm);
}

/* Whether the deadline has passed, at two looks: a rank that was held up itself, for however long,
 * polls in between, and finds what came meanwhile. */
static bool is_over(struct engine_operation *o, double waited, double timeout)
{
    bool before = o->overdue;
    o->overdue = waited >= timeout;
    return before && o->overdue;
}

/* Nothing advanced in this poll. Looks at the clock now and then: a stalled operation first listens
 * for reports of other ranks, and aborts at the deadline. */
static alnico_status_t look_at_clock(struct engine_operation *o)
{
    if (++o->idle_polls % POLLS_PER_LOOK && !o->overdue)
        return ALNICO_PENDING;
    if (o->work->is_queued && o->work->is_queued(o)) {
        o->stalled_at = 0;
        return ALNICO_PENDING;
    }
    alnico_comm_t told = comm_told(o->comm);
    struct transport *transport = told->transport;
    double now = transport_now(transport), timeout = o->comm->family->settings.timeout;
    if (o->stalled_at == 0) {
        o->stalled_at = now;
        o->overdue = false;
    }
    double waited = now - o->stalled_at;
    if (waited < detector_patience(timeout))
        return ALNICO_PENDING;
    if (!is_over(o, waited, timeout) && !detector_finds_failure(&told->detector, transport))
        return ALNICO_PENDING;
    leave(o, ALNICO_ERROR_TIMEOUT, waited);
    o->phase = OPERATION_LEAVING;
    return ALNICO_PENDING;
}

/* Another operation, or an abort, has latched an error. */
static alnico_status_t poll_broken(struct engine_operation *o)
{
    alnico_status_t status = comm_latched(o->comm);
    if (o->phase != OPERATION_LEAVING)
        leave(o, status, 0);
    return status;
}

static alnico_status_t poll_leaving(struct engine_operation *o)
{
    char name[96];
    alnico_comm_t told = comm_told(o->comm);
    int awaited = o->awaited < 0 ? -1 : comm_name(o->comm, o->awaited);
    alnico_status_t status =
        detector_decide(&told->detector, told->transport, told->family->settings.timeout,
                        operation_name(o, name, sizeof name), awaited);
    if (status == ALNICO_PENDING)
        return ALNICO_PENDING;
    comm_latch(o->comm, status, alnico_error_detail());
    return comm_latched(o->comm);
}

/* An error of the owner ends what it owns. One that a kernel found before this operation's turn came
 * is found here: the kernel's result is none, and must not be sent on. */
static void look_at_owner(struct engine_operation *o)
{
    alnico_comm_t owner = o->comm->owner;
    bool begins = o->phase == OPERATION_WAITING && gate_is_open(&o->ready);
    alnico_status_t status = begins ? comm_health(owner) : comm_latched(owner);
    if (status != ALNICO_SUCCESS)
        comm_latch(o->comm, status, alnico_error_detail());
}

static alnico_status_t engine_operation_poll(struct op *op, bool *moved)
{
    struct engine_operation *o = (struct engine_operation *)op;
    bool advanced = false;
    if (o->comm->owner)
        look_at_owner(o);
    if (atomic_load_explicit(&o->comm->latch.status, memory_order_relaxed) != ALNICO_SUCCESS)
        return poll_broken(o);
    if (o->phase == OPERATION_LEAVING)
        return poll_leaving(o);
    if (o->phase == OPERATION_WAITING &&
        (!gate_is_open(&o->ready) || (o->work->may_run && !o->work->may_run(o))))
        return ALNICO_PENDING;
    o->phase = OPERATION_RUNNING;
    alnico_status_t status = o->work->poll(o, &advanced);
    if (status != ALNICO_PENDING && status != ALNICO_SUCCESS)
        return fail(o, status);
    if (advanced) {
        *moved = true;
        o->idle_polls = 0;
        o->stalled_at = 0;
        return status;
    }
    return status == ALNICO_PENDING ? look_at_clock(o) : status;
}

/* The last touch is the communicator's count: afterwards it may be destroyed. */
static void engine_operation_retire(struct op *op, alnico_status_t status)
{
    struct engine_operation *o = (struct engine_operation *)op;
    alnico_comm_t comm = o->comm;
    o->ended = status;
    gate_open(&o->done);
    atomic_store_explicit(&o->retired, true, memory_order_release);
    atomic_fetch_sub_explicit(&comm->in_flight, 1, memory_order_release);
}

static bool is_retired(const struct engine_operation *o)
{
    return atomic_load_explicit(&o->retired, memory_order_acquire);
}

static void op_free(struct engine_operation *o)
{
    if (o->work->finish)
        o->work->finish(o);
    gate_finish(&o->ready);
    gate_finish(&o->done);
    free(o->lists);
    free(o);
}

static struct engine_operation *op_create(alnico_comm_t comm, const struct work_ops *work)
{
    size_t bytes = (work->bytes + 63) / 64 * 64;
    struct engine_operation *o = aligned_alloc(64, bytes);
    if (!o)
        return NULL;
    memset(o, 0, bytes);
    o->comm = comm;
    o->op.lane = work->awaits ? &comm->messages_lane : &comm->lane;
    o->op.poll = engine_operation_poll;
    o->op.retire = engine_operation_retire;
    o->request.comm = comm;
    o->work = work;
    if (gate_init(&o->ready, comm->device) == ALNICO_SUCCESS &&
        gate_init(&o->done, comm->device) == ALNICO_SUCCESS)
        return o;
    op_free(o);
    return NULL;
}

static void append_issued(alnico_comm_t comm, struct engine_operation *o)
{
    o->next = NULL;
    if (comm->issued)
        comm->issued_last->next = o;
    else
        comm->issued = o;
    comm->issued_last = o;
}

/* Moves operations that nobody uses any more from the issued queue to the spare list: looks at a few,
 * so that a call takes no longer where thousands are in flight, and at others the next time. A stream
 * may still be about to pass the gates of a retired one: `done` was opened at least to its epoch,
 * which never goes back. */
static void reap(alnico_comm_t comm)
{
    enum { LOOKS = 8 };
    const struct engine_operation *kept = NULL;
    for (int i = 0; i < LOOKS && comm->issued && comm->issued != kept; i++) {
        struct engine_operation *o = comm->issued;
        comm->issued = o->next;
        if (!o->claimed && is_retired(o) && (!o->work->is_free || o->work->is_free(o))) {
            o->next = comm->spare;
            comm->spare = o;
            continue;
        }
        append_issued(comm, o);
        if (!kept)
            kept = o;
    }
}

/* The call for as long as the operation runs. The user's lists are his again when a call returns. */
static alnico_status_t keep_call(struct engine_operation *o, const struct call *call)
{
    int size = o->comm->size;
    o->call = call;
    if (o->direct && !call_is_vector(call))
        return ALNICO_SUCCESS;
    o->kept = *call;
    o->call = &o->kept;
    if (!call_is_vector(call))
        return ALNICO_SUCCESS;
    if (!o->lists)
        o->lists = malloc((CALL_LISTS + BACKEND_LISTS) * (size_t)size * sizeof *o->lists);
    if (!o->lists)
        return error_set(ALNICO_ERROR_MEMORY, "no memory for the counts of %d ranks", size);
    call_keep_lists(&o->kept, o->lists, size);
    return ALNICO_SUCCESS;
}

struct engine_operation *engine_operation_take(alnico_comm_t comm, const struct work_ops *work,
                                               const struct call *call, alnico_request_t *request)
{
    if (comm->issued)
        reap(comm);
    struct engine_operation **link = &comm->spare;
    while (*link && (*link)->work != work)
        link = &(*link)->next;
    struct engine_operation *o = *link;
    if (o)
        *link = o->next;
    else
        o = op_create(comm, work);
    if (!o) {
        error_set(ALNICO_ERROR_MEMORY, "no memory for an operation");
        return NULL;
    }
    o->direct = !request && comm->inline_stream &&
                atomic_load_explicit(&comm->in_flight, memory_order_acquire) == 0;
    if (keep_call(o, call) == ALNICO_SUCCESS)
        return o;
    engine_operation_put_back(o);
    return NULL;
}

void engine_operation_put_back(struct engine_operation *o)
{
    o->next = o->comm->spare;
    o->comm->spare = o;
}

static void op_prepare(struct engine_operation *o)
{
    o->phase = OPERATION_RUNNING;
    o->claimed = false;
    atomic_store_explicit(&o->retired, false, memory_order_relaxed);
    o->idle_polls = 0;
    o->stalled_at = 0;
    if (o->comm->owner)
        o->served = *o->comm->served;
    else if (!o->work->awaits)
        o->comm->sequence++;
    o->sequence = comm_told(o->comm)->sequence;
}

/* One step of an operation that its caller runs. Other communicators' operations of an engine
 * without a thread go on meanwhile: another rank may have to finish them before it comes here. */
static enum wait look_for_end(void *context)
{
    struct engine_operation *o = context;
    struct engine *engine = o->comm->family->engine;
    bool moved = false;
    o->ended = engine_operation_poll(&o->op, &moved);
    if (o->ended != ALNICO_PENDING)
        return WAIT_DONE;
    if (!moved && !engine_is_threaded(engine))
        moved = engine_pump(engine);
    return moved ? WAIT_MOVED : WAIT_IDLE;
}

/* Gives the operation to the engine, between its gates. On failure it is spare again. */
static alnico_status_t submit(struct engine_operation *o)
{
    alnico_comm_t comm = o->comm;
    gate_close(&o->done);
    alnico_status_t status = ALNICO_SUCCESS;
    if (!comm->inline_stream) {
        o->phase = OPERATION_WAITING;
        gate_close(&o->ready);
        status = o->work->open ? o->work->open(o) : gate_open_on(&o->ready, comm->stream);
    }
    atomic_fetch_add_explicit(&comm->in_flight, 1, memory_order_relaxed);
    if (status == ALNICO_SUCCESS)
        status = engine_submit(comm->family->engine, &o->op);
    if (status == ALNICO_SUCCESS) {
        append_issued(comm, o);
        return status;
    }
    atomic_fetch_sub_explicit(&comm->in_flight, 1, memory_order_relaxed);
    engine_operation_put_back(o);
    comm_latch(comm, status,
               alnico_error_detail()); /* the others count this operation, and wait for it */
    return status;
}

/* The caller has nothing else to do until the operation has retired or stalls. Where the engine's
 * thread rests, it polls itself; a thread that is at it has the vectors in its core's cache, and
 * goes on. */
static void attend(struct engine_operation *o)
{
    struct engine *engine = o->comm->family->engine;
    struct backoff backoff = {.crowded = o->comm->crowded};
    bool polls = engine_is_resting(engine);
    backoff_reset(&backoff);
    if (polls)
        engine_begin_polling(engine);
    while (!is_retired(o)) {
        if (polls && engine_pump(engine))
            backoff_reset(&backoff);
        else if (backoff_wants_sleep(&backoff))
            break;
    }
    if (polls)
        engine_end_polling(engine);
}

static enum wait look_for_retired(void *context)
{
    const struct engine_operation *o = context;
    struct engine *engine = o->comm->family->engine;
    if (is_retired(o))
        return WAIT_DONE;
    return !engine_is_threaded(engine) && engine_pump(engine) ? WAIT_MOVED : WAIT_IDLE;
}

/* Blocks until the operation has retired. */
static alnico_status_t await(struct engine_operation *o)
{
    if (engine_is_threaded(o->comm->family->engine)) {
        attend(o);
        if (!is_retired(o))
            gate_wait(&o->done);
    }
    wait_until(look_for_retired, o, WAIT_FOREVER, o->comm->crowded);
    return o->ended;
}

/* How an operation ended that failed on another thread: its detail becomes the caller's. */
static alnico_status_t result_of(struct engine_operation *o)
{
    alnico_status_t ended = o->ended;
    return ended == ALNICO_SUCCESS ? ended : comm_latched(o->comm);
}

static struct engine_operation *op_of(alnico_request_t request)
{
    return (struct engine_operation *)((char *)request -
                                       offsetof(struct engine_operation, request));
}

/* Holds the stream until the operation has ended and its results are there. */
static alnico_status_t hold(struct engine_operation *o)
{
    return o->work->hold ? o->work->hold(o) : gate_hold(&o->done, o->comm->stream);
}

/* Results of an operation that has retired: PENDING until they are there. */
static alnico_status_t landed(struct engine_operation *o)
{
    if (!o->work->land || o->ended != ALNICO_SUCCESS)
        return result_of(o);
    const alnico_status_t status = o->work->land(o);
    if (status != ALNICO_SUCCESS && status != ALNICO_PENDING)
        comm_latch(o->comm, status, alnico_error_detail());
    return status;
}

struct result {
    struct engine_operation *operation;
    alnico_status_t status;
};

static enum wait look_for_landed(void *context)
{
    struct result *result = context;
    result->status = landed(result->operation);
    return result->status == ALNICO_PENDING ? WAIT_IDLE : WAIT_DONE;
}

/* Blocks until the results are there of one that has retired. */
static alnico_status_t await_landed(struct engine_operation *o)
{
    struct result result = {.operation = o};
    wait_until(look_for_landed, &result, WAIT_FOREVER, o->comm->crowded);
    return result.status;
}

void engine_operation_land(alnico_comm_t comm)
{
    for (struct engine_operation *o = comm->issued; o; o = o->next)
        if (o->claimed && is_retired(o))
            await_landed(o);
}

static alnico_status_t op_synchronize(alnico_request_t request)
{
    await(op_of(request));
    return await_landed(op_of(request));
}

static alnico_status_t op_join(alnico_request_t request)
{
    struct engine_operation *o = op_of(request);
    return o->comm->inline_stream ? op_synchronize(request) : hold(o);
}

static alnico_status_t op_test(alnico_request_t request)
{
    struct engine_operation *o = op_of(request);
    struct engine *engine = o->comm->family->engine;
    if (!is_retired(o) && !engine_is_threaded(engine))
        engine_pump(engine);
    return is_retired(o) ? landed(o) : ALNICO_PENDING;
}

static void op_release(alnico_request_t request)
{
    op_of(request)->claimed = false;
}

static const struct request_ops requests = {op_join, op_test, op_synchronize, op_release};

alnico_status_t engine_operation_start(struct engine_operation *o, alnico_request_t *request)
{
    struct engine *engine = o->comm->family->engine;
    op_prepare(o);
    if (o->direct) {
        wait_until(look_for_end, o, WAIT_FOREVER, o->comm->crowded);
        engine_operation_put_back(o);
        return o->ended;
    }
    TRY(submit(o));
    if (!request && o->comm->inline_stream) {
        await(o);
        return result_of(o);
    }
    if (!request)
        return hold(o);
    o->claimed = true;
    o->request.ops = &requests;
    *request = &o->request;
    if (!engine_is_threaded(engine))
        engine_pump(engine);
    return ALNICO_SUCCESS;
}

int engine_operation_name_failed(alnico_comm_t comm, char *text, size_t bytes)
{
    enum { NAMED = 3 };
    char name[128];
    size_t length = 0;
    int failed = 0;
    for (const struct engine_operation *o = comm->issued; o; o = o->next)
        if (o->claimed && o->ended != ALNICO_SUCCESS && ++failed <= NAMED)
            length +=
                (size_t)snprintf(text + length, bytes - length, "%salnico_i%s", length ? "; " : "",
                                 call_describe(o->call, name, sizeof name));
    if (failed > NAMED)
        snprintf(text + length, bytes - length, "; and %d more", failed - NAMED);
    return failed;
}

static void free_list(struct engine_operation *o)
{
    while (o) {
        struct engine_operation *next = o->next;
        op_free(o);
        o = next;
    }
}

void engine_operation_finish(alnico_comm_t comm)
{
    free_list(comm->issued);
    free_list(comm->spare);
    comm->issued = comm->spare = NULL;
}
