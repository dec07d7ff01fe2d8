/*
 * Messages over MPI, on a communicator of our own. transfer.word[0] holds the MPI_Request, word[1]
 * the bytes that a receive expects plus one (0 for a send), word[2] the other rank. Below
 * MPI_THREAD_MULTIPLE one thread calls.
 *
 * MPI cannot take back a send: a late rank may still receive what its sender gave up, from a buffer
 * that is the user's again. So the sender sends a note after it, and a receiver of a message that may
 * have waited looks for one.
 *
 * A CUDA-aware MPI takes the memory of GPUs, and says so by a call that is no part of the standard and
 * that some MPIs do not have.
 *
 * `gone` and `left` are left out: MPI's standard has no call that tells of a process, and launchers end
 * the job with the first one that dies.
 */
#include "comm/transports/transport.h"

#include "base/status.h"

#include <limits.h>
#include <mpi.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

enum {
    STAYS_FROM = 4097, /* bytes from which MPIs leave a message with its sender until it is taken */
    LOOKS = 2          /* they may need several to find what lies there */
};

struct transport_mpi {
    struct transport base;
    MPI_Comm comm;
};

/* In place of the bytes of a receive. */
static const uintptr_t VOID = UINTPTR_MAX;

_Static_assert(sizeof(MPI_Request) <= sizeof(uintptr_t), "an MPI_Request fits into a word");

static alnico_status_t mpi_status(int code, const char *call)
{
    if (code == MPI_SUCCESS)
        return ALNICO_SUCCESS;
    int class = 0, length = 0;
    char text[MPI_MAX_ERROR_STRING] = "";
    MPI_Error_class(code, &class);
    MPI_Error_string(code, text, &length);
    if (class == MPI_ERR_TRUNCATE)
        return error_set(ALNICO_ERROR_MISMATCH,
                         "a message is larger than what its receiver expects");
    return error_set(ALNICO_ERROR_MPI, "%s: %s", call, text);
}

/* MPICH and its descendants raise an error at completion on MPI_COMM_WORLD, whatever communicator it
 * belongs to, and the default handler there ends the process, as for a message longer than its
 * receive. So while there are transports MPI_COMM_WORLD has a handler of ours, which lets our calls
 * return their code and forwards all other errors. */
#ifdef MPICH_NAME
enum { RAISES_ON_WORLD = true };
#else
enum { RAISES_ON_WORLD = false };
#endif

static _Thread_local bool returning; /* this thread is in a call of ours */

static struct {
    pthread_mutex_t lock;
    int users;
    bool made;
    MPI_Errhandler ours, theirs; /* kept for good: communicators may have inherited ours */
} handlers = {.lock = PTHREAD_MUTEX_INITIALIZER};

static void hand_on(MPI_Comm *comm, int *code, ...)
{
    MPI_Errhandler here;
    if (returning)
        return;
    MPI_Comm_get_errhandler(*comm, &here);
    MPI_Comm_set_errhandler(*comm, handlers.theirs);
    MPI_Comm_call_errhandler(*comm, *code);
    MPI_Comm_set_errhandler(*comm, here);
    MPI_Errhandler_free(&here);
}

/* Whether ours is on MPI_COMM_WORLD; if not, *other is what is. */
static bool is_ours(MPI_Errhandler *other)
{
    MPI_Comm_get_errhandler(MPI_COMM_WORLD, other);
    if (!handlers.made || *other != handlers.ours)
        return false;
    MPI_Errhandler_free(other);
    return true;
}

static void handler_put(void)
{
    MPI_Errhandler other;
    if (!RAISES_ON_WORLD)
        return;
    pthread_mutex_lock(&handlers.lock);
    if (!handlers.made)
        MPI_Comm_create_errhandler(hand_on, &handlers.ours);
    if (handlers.users++ == 0 && !is_ours(&other)) {
        handlers.theirs = other;
        MPI_Comm_set_errhandler(MPI_COMM_WORLD, handlers.ours);
    }
    handlers.made = true;
    pthread_mutex_unlock(&handlers.lock);
}

/* Unless the user has set another one since. */
static void handler_take_back(void)
{
    MPI_Errhandler other;
    if (!RAISES_ON_WORLD)
        return;
    pthread_mutex_lock(&handlers.lock);
    if (--handlers.users == 0) {
        if (is_ours(&other))
            MPI_Comm_set_errhandler(MPI_COMM_WORLD, handlers.theirs);
        else
            MPI_Errhandler_free(&other);
    }
    pthread_mutex_unlock(&handlers.lock);
}

static int test_request(MPI_Request *request, int *done, MPI_Status *status)
{
    returning = true;
    int code = MPI_Test(request, done, status);
    returning = false;
    return code;
}

static void cancel_request(MPI_Request *request)
{
    returning = true;
    MPI_Cancel(request);
    MPI_Wait(request, MPI_STATUS_IGNORE);
    returning = false;
}

static void request_store(struct transfer *transfer, MPI_Request request)
{
    memcpy(&transfer->word[0], &request, sizeof request);
}

static MPI_Request request_load(const struct transfer *transfer)
{
    MPI_Request request;
    memcpy(&request, &transfer->word[0], sizeof request);
    return request;
}

static alnico_status_t mpi_isend(struct transport *transport, int to, uint32_t tag,
                                 const void *buffer, size_t bytes, struct transfer *out)
{
    struct transport_mpi *t = (struct transport_mpi *)transport;
    MPI_Request request;
    TRY(mpi_status(MPI_Isend(buffer, (int)bytes, MPI_BYTE, to, (int)tag, t->comm, &request),
                   "MPI_Isend"));
    request_store(out, request);
    out->word[1] = 0;
    out->word[2] = (uintptr_t)to;
    return ALNICO_SUCCESS;
}

static alnico_status_t mpi_irecv(struct transport *transport, int from, uint32_t tag, void *buffer,
                                 size_t bytes, struct transfer *out)
{
    struct transport_mpi *t = (struct transport_mpi *)transport;
    int source = from == TRANSPORT_ANY ? MPI_ANY_SOURCE : from;
    MPI_Request request;
    TRY(mpi_status(MPI_Irecv(buffer, (int)bytes, MPI_BYTE, source, (int)tag, t->comm, &request),
                   "MPI_Irecv"));
    request_store(out, request);
    out->word[1] = bytes + 1;
    out->word[2] = (uintptr_t)from;
    return ALNICO_SUCCESS;
}

static alnico_status_t check_bytes(const MPI_Status *status, size_t expected)
{
    int got = 0;
    MPI_Get_count(status, MPI_BYTE, &got);
    if ((size_t)got == expected)
        return ALNICO_SUCCESS;
    return error_set(ALNICO_ERROR_MISMATCH, "a message has %d bytes where its receiver expects %zu",
                     got, expected);
}

/* Behind all other tags. */
static int note_tag(const struct transport_mpi *t)
{
    return (int)t->base.tags;
}

static void leave_note(const struct transport_mpi *t, int to)
{
    MPI_Request request;
    if (MPI_Isend(NULL, 0, MPI_BYTE, to, note_tag(t), t->comm, &request) == MPI_SUCCESS)
        MPI_Request_free(&request);
}

/* Whether the sender of a message that has come gave up before, this message or another one. */
static bool is_void(const struct transport_mpi *t, const struct transfer *transfer)
{
    int from = (int)transfer->word[2], found = 0;
    if (transfer->word[1] <= STAYS_FROM || from == TRANSPORT_ANY)
        return false;
    for (int i = 0; i < LOOKS && !found; i++)
        MPI_Iprobe(from, note_tag(t), t->comm, &found, MPI_STATUS_IGNORE);
    return found;
}

/* A void receive never ends, as if nothing had come. */
static alnico_status_t end_receive(const struct transport_mpi *t, const MPI_Status *status,
                                   struct transfer *transfer)
{
    TRY(check_bytes(status, transfer->word[1] - 1));
    if (!is_void(t, transfer))
        return ALNICO_SUCCESS;
    transfer->word[1] = VOID;
    return ALNICO_PENDING;
}

static alnico_status_t mpi_test(struct transport *transport, struct transfer *transfer)
{
    if (transfer->word[1] == VOID)
        return ALNICO_PENDING;
    MPI_Request request = request_load(transfer);
    MPI_Status status;
    int done = 0;
    int code = test_request(&request, &done, &status);
    request_store(transfer, request);
    if (code != MPI_SUCCESS)
        return mpi_status(code, "MPI_Test");
    if (!done)
        return ALNICO_PENDING;
    return transfer->word[1] ? end_receive((struct transport_mpi *)transport, &status, transfer)
                             : ALNICO_SUCCESS;
}

/* A receive is cancelled and waited for, so that its buffer is free. A send that the other side has
 * not taken cannot be waited for: its request is freed. */
static bool mpi_cancel(struct transport *transport, struct transfer *transfer)
{
    MPI_Request request = request_load(transfer);
    int done = 1;
    if (request != MPI_REQUEST_NULL && transfer->word[1]) {
        cancel_request(&request);
    } else if (request != MPI_REQUEST_NULL) {
        test_request(&request, &done, MPI_STATUS_IGNORE);
        if (!done) {
            MPI_Request_free(&request);
            leave_note((struct transport_mpi *)transport, (int)transfer->word[2]);
        }
    }
    request_store(transfer, MPI_REQUEST_NULL);
    return done;
}

/* MPI gives the context of a freed communicator to a later one, which would match what was sent on
 * this one and never received. So a broken one is not freed. */
static void mpi_destroy(struct transport *transport)
{
    struct transport_mpi *t = (struct transport_mpi *)transport;
    int finalized = 0;
    MPI_Finalized(&finalized);
    if (!finalized && !transport->broken)
        MPI_Comm_free(&t->comm);
    if (!finalized)
        handler_take_back();
    free(t);
}

int MPIX_Query_cuda_support(void) __attribute__((weak));

static bool mpi_aware(struct transport *transport)
{
    (void)transport;
    return MPIX_Query_cuda_support && MPIX_Query_cuda_support();
}

static alnico_status_t mpi_subset(struct transport *transport, struct rendezvous *r,
                                  struct transport **out);

static const struct transport_ops transport_mpi = {
    .name = "mpi",
    .isend = mpi_isend,
    .irecv = mpi_irecv,
    .test = mpi_test,
    .cancel = mpi_cancel,
    .aware = mpi_aware,
    .subset = mpi_subset,
    .destroy = mpi_destroy,
};

static struct transport *wrap(MPI_Comm comm, struct transport_mpi *t)
{
    int level = MPI_THREAD_SINGLE, found = 0, *bound = NULL;
    MPI_Query_thread(&level);
    MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN);
    MPI_Comm_get_attr(comm, MPI_TAG_UB, &bound, &found);
    MPI_Comm_rank(comm, &t->base.rank);
    MPI_Comm_size(comm, &t->base.size);
    t->base.ops = &transport_mpi;
    t->base.tags = found ? (uint32_t)*bound : 32767; /* the last one is the notes' */
    t->base.concurrent = level == MPI_THREAD_MULTIPLE;
    t->comm = comm;
    handler_put();
    return &t->base;
}

struct operation {
    MPI_Request request;
    alnico_status_t status;
};

static enum wait look_for_end(void *context)
{
    struct operation *o = context;
    int done = 0;
    o->status = mpi_status(MPI_Test(&o->request, &done, MPI_STATUS_IGNORE), "MPI_Test");
    return done || o->status != ALNICO_SUCCESS ? WAIT_DONE : WAIT_IDLE;
}

/* Waits for a collective call of MPI, with a deadline. */
static alnico_status_t finish(int code, const char *call, struct operation *o, double timeout)
{
    TRY(mpi_status(code, call));
    if (!wait_until(look_for_end, o, deadline_ns(timeout), false))
        return error_set(ALNICO_ERROR_TIMEOUT, "not every rank called it within %g s", timeout);
    return o->status;
}

static alnico_status_t duplicate(MPI_Comm comm, double timeout, MPI_Comm *out)
{
    struct operation o;
    int code = MPI_Comm_idup(comm, out, &o.request);
    return finish(code, "MPI_Comm_idup", &o, timeout);
}

/* All ranks have memory, or all fail. */
static alnico_status_t agree_on_memory(MPI_Comm comm, const void *memory, double timeout)
{
    static const int everybody = INT_MAX;
    int mine, lowest;
    MPI_Comm_rank(comm, &mine);
    mine = memory ? everybody : mine;
    struct operation o;
    int code = MPI_Iallreduce(&mine, &lowest, 1, MPI_INT, MPI_MIN, comm, &o.request);
    TRY(finish(code, "MPI_Iallreduce", &o, timeout));
    if (lowest == everybody)
        return ALNICO_SUCCESS;
    return error_set(ALNICO_ERROR_MEMORY, "rank %d: cannot allocate a transport", lowest);
}

/* After a deadline ranks may still use what they share, so nothing is freed. */
alnico_status_t transport_mpi_create(const void *mpi_comm, double timeout, struct transport **out)
{
    MPI_Comm comm;
    struct transport_mpi *t = calloc(1, sizeof *t);
    alnico_status_t status = duplicate(*(const MPI_Comm *)mpi_comm, timeout, &comm);
    if (status == ALNICO_SUCCESS) {
        status = agree_on_memory(comm, t, timeout);
        if (status == ALNICO_ERROR_MEMORY)
            MPI_Comm_free(&comm);
    }
    if (status == ALNICO_SUCCESS)
        *out = wrap(comm, t);
    else
        free(t);
    return status;
}

static alnico_status_t create_group(MPI_Comm parent, const int *ranks, int size, MPI_Comm *out)
{
    MPI_Group all, part;
    TRY(mpi_status(MPI_Comm_group(parent, &all), "MPI_Comm_group"));
    int code = MPI_Group_incl(all, size, ranks, &part);
    MPI_Group_free(&all);
    TRY(mpi_status(code, "MPI_Group_incl"));
    code = MPI_Comm_create_group(parent, part, TAG_OUT_OF_BAND, out);
    MPI_Group_free(&part);
    return mpi_status(code, "MPI_Comm_create_group");
}

static bool is_whole(const struct transport *transport, const int *ranks, int size)
{
    for (int i = 0; i < size; i++)
        if (ranks[i] != i)
            return false;
    return size == transport->size;
}

/* For a part of the ranks MPI has blocking calls only, so the ranks agree before. */
static alnico_status_t meet(struct rendezvous *r, MPI_Comm parent, const int *ranks, bool whole,
                            struct transport **out)
{
    MPI_Comm comm = MPI_COMM_NULL;
    struct step_result *results = calloc((size_t)r->size, sizeof *results);
    struct transport_mpi *t = calloc(1, sizeof *t);
    alnico_status_t status =
        t && ranks ? ALNICO_SUCCESS : error_set(ALNICO_ERROR_MEMORY, "cannot allocate a transport");
    status = agree_on_status(r, results, NULL, status);
    if (status == ALNICO_SUCCESS)
        status = whole ? duplicate(parent, r->timeout, &comm)
                       : create_group(parent, ranks, r->size, &comm);
    if (status == ALNICO_SUCCESS)
        *out = wrap(comm, t);
    else
        free(t);
    free(results);
    return status;
}

static alnico_status_t meet_world(struct rendezvous *r, const int *world, struct transport **out)
{
    return meet(r, MPI_COMM_WORLD, world, false, out);
}

static alnico_status_t mpi_subset(struct transport *transport, struct rendezvous *r,
                                  struct transport **out)
{
    MPI_Comm whole = ((struct transport_mpi *)transport)->comm;
    return meet(r, whole, r->called, is_whole(transport, r->called, r->size), out);
}

static int world_rank(void)
{
    int initialized = 0, finalized = 0, rank = -1;
    MPI_Initialized(&initialized);
    MPI_Finalized(&finalized);
    if (initialized && !finalized)
        MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    return rank;
}

const struct mpi_part transport_mpi_part = {.meet = meet_world, .world_rank = world_rank};
