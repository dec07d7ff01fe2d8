/*
 * Alnico: asynchronous collectives for training deep networks.
 *
 * This header is the whole communication interface and needs no MPI, CUDA or NCCL header.
 * A communicator belongs to a stream: its collectives are ordered on that stream with everything
 * else that the stream runs. Communicators made from an MPI_Comm are in <alnico/mpi.h>.
 *
 * Rules that hold for every function
 * - Returns ALNICO_SUCCESS (0) or a negative status; alnico_error_detail() then says, for the
 *   calling thread, which argument was wrong, its value and what was expected. A refused call
 *   changes nothing.
 * - Counts are elements, not bytes, and are size_t: more than 2^31 elements work.
 * - Operations of one communicator start in call order, and every rank calls the same collectives
 *   in the same order. One thread at a time calls on one communicator; communicators are
 *   independent.
 * - An error found while an operation runs, or while a call waits for the other ranks, is latched in
 *   its communicator: every later call on it returns that status, except alnico_comm_abort and
 *   alnico_comm_destroy. Streams that waited for its operations go on; a result that had not come is
 *   then undefined, and the library leaves it alone. One exception: a process that is stopped
 *   (SIGSTOP) in the instant in which it begins to copy a piece of a long message into another
 *   process's buffer does so when it is continued.
 * - With ALNICO_CHECK=1 in rank 0's environment ranks compare what they call before it begins,
 *   waiting for each other; where they differ, all return ALNICO_ERROR_MISMATCH, with what differs,
 *   and where one refuses its own arguments, all return its status, with its number and reason.
 *   Nothing was done then.
 * - Every wait has a deadline: 600 seconds, or ALNICO_TIMEOUT. A rank that does not come by then
 *   becomes ALNICO_ERROR_TIMEOUT on the others, and the detail names it and the operation.
 */
#ifndef ALNICO_ALNICO_H
#define ALNICO_ALNICO_H

#include <stdbool.h>
#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

#define ALNICO_VERSION_MAJOR 0
#define ALNICO_VERSION_MINOR 1
#define ALNICO_VERSION_PATCH 0

#if defined(__GNUC__)
#define ALNICO_API __attribute__((visibility("default")))
#else
#define ALNICO_API
#endif

/* ---- Statuses ---- */

typedef enum alnico_status {
    ALNICO_SUCCESS = 0,
    ALNICO_PENDING = 1,            /* internal: not finished yet; no public call returns it */
    ALNICO_ERROR_ARGUMENT = -1,    /* an argument is invalid; nothing was done */
    ALNICO_ERROR_MEMORY = -2,      /* memory could not be allocated */
    ALNICO_ERROR_UNSUPPORTED = -3, /* valid, but this build or machine cannot do it */
    ALNICO_ERROR_TIMEOUT = -4,     /* a rank did not come before the deadline */
    ALNICO_ERROR_ABORTED = -5,     /* the communicator was aborted, here or by another rank */
    ALNICO_ERROR_MISMATCH = -6,    /* ranks called different operations or sizes */
    ALNICO_ERROR_MPI = -7,         /* MPI reported an error */
    ALNICO_ERROR_SYSTEM = -8       /* the operating system refused something */
} alnico_status_t;

/* A short constant text for a status; "unknown status" for anything else. Never NULL. Any
 * thread. */
ALNICO_API const char *alnico_status_string(alnico_status_t status);

/* What the calling thread's last failed call had to say: argument, value, expectation; "" if none
 * failed. Valid until the thread's next failing call. Never NULL. */
ALNICO_API const char *alnico_error_detail(void);

/* "major.minor.patch" of the library in use. */
ALNICO_API const char *alnico_version(void);

/* ---- Types and operations ---- */

typedef enum alnico_datatype {
    ALNICO_INT8,
    ALNICO_UINT8,
    ALNICO_INT32,
    ALNICO_UINT32,
    ALNICO_INT64,
    ALNICO_UINT64,
    ALNICO_FLOAT16,  /* IEEE 754 binary16 */
    ALNICO_BFLOAT16, /* the upper half of a binary32 */
    ALNICO_FLOAT32,
    ALNICO_FLOAT64
} alnico_datatype_t;

/* Every type has the first five; the logical and bitwise ones are for integers only.
 *
 * Integers wrap on overflow and are exact. 16-bit floats are computed in float32 and rounded to the
 * wire type (nearest, ties to even) after each step. AVERAGE of floats scales each contribution by
 * 1/size first; of integers it sums, wrapping, and then divides truncating towards zero. The
 * logical ones take nonzero as true and give 0 or 1. MINIMUM and MAXIMUM of floats give NaN if any
 * is NaN. On one rank every operation passes the input on as it is. */
typedef enum alnico_op {
    ALNICO_SUM,
    ALNICO_PRODUCT,
    ALNICO_MINIMUM,
    ALNICO_MAXIMUM,
    ALNICO_AVERAGE,
    ALNICO_LOGICAL_AND,
    ALNICO_LOGICAL_OR,
    ALNICO_LOGICAL_XOR,
    ALNICO_BITWISE_AND,
    ALNICO_BITWISE_OR,
    ALNICO_BITWISE_XOR
} alnico_op_t;

/* What algorithms are chosen for. SENDRECV is every message between two ranks: send, recv, sendrecv
 * and groups. */
typedef enum alnico_collective {
    ALNICO_ALLREDUCE,
    ALNICO_REDUCE,
    ALNICO_BROADCAST,
    ALNICO_ALLGATHER,
    ALNICO_ALLGATHERV,
    ALNICO_REDUCE_SCATTER,
    ALNICO_REDUCE_SCATTERV,
    ALNICO_GATHER,
    ALNICO_GATHERV,
    ALNICO_SCATTER,
    ALNICO_SCATTERV,
    ALNICO_ALLTOALL,
    ALNICO_ALLTOALLV,
    ALNICO_BARRIER,
    ALNICO_SENDRECV
} alnico_collective_t;

/* In place of a buffer: what it would hold stands in the other one already, or comes there; each
 * call says where. The address itself means the same. */
#define ALNICO_IN_PLACE ((void *)-1)

/* ---- Streams ---- */

typedef enum alnico_device { ALNICO_DEVICE_CPU, ALNICO_DEVICE_CUDA } alnico_device_t;

/* A CPU stream: a first-in first-out queue of functions with one worker thread of its own. Where a
 * CPU communicator takes a stream, NULL is the inline stream: there is no queue, and whatever a
 * stream would wait for, the calling thread waits for. */
typedef struct alnico_stream *alnico_stream_t;

/* Creates a stream and its worker. The caller destroys it. Errors: MEMORY, SYSTEM (no thread). */
ALNICO_API alnico_status_t alnico_stream_create(alnico_stream_t *out);

/* Appends function(argument) to the stream, which runs it on its worker after everything enqueued
 * before. Returns at once; any thread. The function must not call on the stream's communicators. On
 * the inline stream (NULL) it runs before this returns. */
ALNICO_API alnico_status_t alnico_stream_enqueue(alnico_stream_t stream, void (*function)(void *),
                                                 void *argument);

/* Blocks the caller until everything enqueued so far has run. */
ALNICO_API alnico_status_t alnico_stream_synchronize(alnico_stream_t stream);

/* Runs what is still queued, then stops the worker. Destroy the stream's communicators first. NULL
 * is fine. */
ALNICO_API void alnico_stream_destroy(alnico_stream_t stream);

/* ---- Communicators ---- */

typedef struct alnico_comm *alnico_comm_t;

/* How ranks find each other without MPI. `allgather` is collective over `size` ranks: it copies
 * `bytes` bytes from `mine` of every rank into `all`, in rank order (size * bytes), and returns 0,
 * or nonzero on failure. It is called on the caller's thread, and only inside
 * alnico_comm_create. */
typedef struct alnico_bootstrap {
    int rank, size;
    int (*allgather)(void *context, const void *mine, void *all, size_t bytes);
    void *context;
} alnico_bootstrap_t;

/* Creates a communicator over the ranks of `bootstrap` (collective). They may be threads of one
 * process, processes of one host, or both, and then need no MPI; ranks of several hosts need MPI to
 * be initialised, and messages then go over it. device: where the buffers of its collectives live;
 * stream: what orders them, and must outlive it (an alnico_stream_t for the CPU; NULL is the inline
 * stream). On error *out is NULL. Errors: ARGUMENT; UNSUPPORTED (no such device in this build, no
 * way between these ranks, or a real stream over an MPI below MPI_THREAD_MULTIPLE); MEMORY; SYSTEM;
 * TIMEOUT; MPI. */
ALNICO_API alnico_status_t alnico_comm_create(const alnico_bootstrap_t *bootstrap,
                                              alnico_device_t device, void *stream,
                                              alnico_comm_t *out);

/* A communicator of the same ranks on another stream of the same device (collective). It is
 * independent of `comm`, which may be destroyed first. */
ALNICO_API alnico_status_t alnico_comm_duplicate(alnico_comm_t comm, void *stream,
                                                 alnico_comm_t *out);

/* Divides the ranks (collective): those with equal color >= 0 get a communicator, ordered by key
 * and then by rank in `comm`. A negative color takes part and gets NULL. */
ALNICO_API alnico_status_t alnico_comm_split(alnico_comm_t comm, int color, int key, void *stream,
                                             alnico_comm_t *out);

/* Waits for everything given to the communicator and frees it (collective). Requests that were not
 * waited for become invalid. After an error or abort it waits for nobody. CUDA graphs that hold its
 * calls must be destroyed before, for NCCL waits until they are. NULL is fine. */
ALNICO_API void alnico_comm_destroy(alnico_comm_t comm);

/* Gives up: everything in flight ends with ALNICO_ERROR_ABORTED, soon and without waiting for other
 * ranks, which learn of it when they next wait for this one. Afterwards only destroy. Any thread,
 * any number of times.
 *
 * Where NCCL carried something, one rank's end of it, by this or at a deadline, lets kernels of
 * other ranks end without their data. So the others are told, and only 50 ms later NCCL is aborted:
 * alnico_synchronize, alnico_test, alnico_request_synchronize and alnico_comm_status listen before
 * they say SUCCESS. Who waits for the stream by other means asks one of them before he trusts a
 * result. Beyond that remain reports that take longer to arrive, and below MPI_THREAD_MULTIPLE an
 * abort by another thread than the one that calls on the communicator: that one tells, if it is in
 * a call that waits within a quarter of a second; and there alnico_comm_status does not listen. */
ALNICO_API alnico_status_t alnico_comm_abort(alnico_comm_t comm);

/* The latched error, with its detail, or ALNICO_SUCCESS. Any thread. */
ALNICO_API alnico_status_t alnico_comm_status(alnico_comm_t comm);

/* This rank and the number of ranks; -1 for an invalid communicator. Any thread. */
ALNICO_API int alnico_comm_rank(alnico_comm_t comm);
ALNICO_API int alnico_comm_size(alnico_comm_t comm);

/* Forces one algorithm for a collective (collective; the names are those of `alnico-info`). NULL
 * goes back to the table's choice. Applies to later calls. Rank 0's name counts; an unknown one, a
 * name on one rank and NULL on another, or different collectives are an error on every rank and
 * change nothing. */
ALNICO_API alnico_status_t alnico_comm_set_algorithm(alnico_comm_t comm,
                                                     alnico_collective_t collective,
                                                     const char *name);

/* Makes memory known to all ranks of the communicator (collective), so that they may reach it
 * directly: on GPUs of one host large allreduces, allgathers, alltoalls and reduce-scatters of
 * registered buffers are faster. Every rank passes `bytes` bytes of its own, on the communicator's
 * device; the same number on each. A call whose send and recv lie in registered memory uses that
 * where it helps; then the two must lie at the same offsets of the same registrations on all ranks,
 * what holds a rank's own block only at any, and ALNICO_CHECK=1 compares that. On the CPU it is a
 * valid call that changes nothing. The memory must stay until alnico_comm_deregister, or the
 * communicator's end. On error *out is NULL, on every rank. Errors: ARGUMENT (NULL, no bytes, memory
 * of the host or of another device), UNSUPPORTED (memory that cannot be shared, with the reason),
 * MISMATCH (bytes differ), MEMORY, SYSTEM, TIMEOUT. */
typedef struct alnico_registration *alnico_registration_t;
ALNICO_API alnico_status_t alnico_comm_register(alnico_comm_t comm, void *memory, size_t bytes,
                                                alnico_registration_t *out);

/* Waits for all that was given to the communicator and forgets the registration (collective). */
ALNICO_API alnico_status_t alnico_comm_deregister(alnico_comm_t comm,
                                                  alnico_registration_t registration);

/* ---- Collectives ---- */

/* A nonblocking operation in flight, owned by the library and freed by the call that sets it to
 * NULL. */
typedef struct alnico_request *alnico_request_t;

/*
 * Rules of every operation below
 *
 * Blocking and nonblocking. alnico_X is ordered on the communicator's stream: it begins after what
 * the stream was given before, and the stream's later work sees the result. On a stream it returns
 * at once; on the inline stream it returns when this rank's part is done. On GPUs the first
 * blocking collective of a communicator that goes to NCCL may wait for the other ranks
 * (docs/tuning.md); the nonblocking ones never do. alnico_iX begins in the same order, but the
 * stream goes on: what it is given later may run at the same time, until alnico_wait. It sets
 * *request, to NULL on error.
 *
 * Buffers are on the communicator's device, aligned to the type, and belong to the library until
 * the stream has passed the operation, or until the request is complete: `send` must not be
 * written, `recv` not be touched. Where all their elements are none, they may be NULL. What is not
 * said to be written is left as it is, gaps between blocks too. `send` and `recv` must not overlap
 * but as each call says of ALNICO_IN_PLACE.
 *
 * Blocks. Where a buffer holds a part for or from each rank, block b is rank b's. Equal blocks have
 * `count` elements each and stand one behind the other. In the calls that end with v block b has
 * counts[b] elements and begins at element at[b]; `at` may be in any order and leave gaps, and NULL
 * means one behind the other. Blocks that are written must not overlap. The arrays have as many
 * entries as there are ranks, and are the caller's again on return. Any count may be 0.
 *
 * All ranks call the same operations in the same order with the same `count`, type, op and root,
 * and with counts that fit each other. What does not is found at the deadline at the latest, and is
 * undefined until then. Where one rank refuses its own arguments, it returns at once, and the
 * others wait for it until the deadline. With ALNICO_CHECK=1 all ranks compare before each
 * collective, and every rank gets ALNICO_ERROR_MISMATCH, or ALNICO_ERROR_ARGUMENT where a rank
 * refuses its own arguments or the blocks that it receives overlap, with a detail that names the
 * ranks and what they passed. That makes the caller wait for the others.
 *
 * Results. Reductions give the same bits again with the same settings. All else copies bits, of any
 * type.
 *
 * Errors of all: ARGUMENT (a NULL buffer or array, misalignment, overlap, an unknown type, an
 * operation that the type does not have, a root or rank that is not one, more bytes than there are
 * addresses, memory of another device, an open group), UNSUPPORTED (a forced algorithm that cannot
 * do it, or a device that nothing can do it on), MEMORY, and whatever is latched. Where GPUs are
 * used, whose memory it is holds for the whole allocation and is looked at in its first call and
 * then about every 64th: a buffer that was freed since, and its address reused, may go unnoticed.
 */

/* Combines `count` elements of `type` from every rank element by element and gives every rank the
 * result: recv[i] = op over ranks of send[i]. Every rank gets the same bits.
 *
 * send, recv: `count` elements each. ALNICO_IN_PLACE as `send`, or send == recv: the input stands
 * in recv. */
ALNICO_API alnico_status_t alnico_allreduce(const void *send, void *recv, size_t count,
                                            alnico_datatype_t type, alnico_op_t op,
                                            alnico_comm_t comm);
ALNICO_API alnico_status_t alnico_iallreduce(const void *send, void *recv, size_t count,
                                             alnico_datatype_t type, alnico_op_t op,
                                             alnico_comm_t comm, alnico_request_t *request);

/* The same result, at rank `root` only.
 *
 * send: `count` elements. recv: `count` elements at the root; elsewhere it is not looked at and may
 * be NULL. ALNICO_IN_PLACE as `send`, or send == recv, at the root only: its input stands in
 * recv. */
ALNICO_API alnico_status_t alnico_reduce(const void *send, void *recv, size_t count,
                                         alnico_datatype_t type, alnico_op_t op, int root,
                                         alnico_comm_t comm);
ALNICO_API alnico_status_t alnico_ireduce(const void *send, void *recv, size_t count,
                                          alnico_datatype_t type, alnico_op_t op, int root,
                                          alnico_comm_t comm, alnico_request_t *request);

/* Copies the root's `count` elements of `buffer` to every rank's. Other ranks' buffers are written,
 * the root's is read. */
ALNICO_API alnico_status_t alnico_broadcast(void *buffer, size_t count, alnico_datatype_t type,
                                            int root, alnico_comm_t comm);
ALNICO_API alnico_status_t alnico_ibroadcast(void *buffer, size_t count, alnico_datatype_t type,
                                             int root, alnico_comm_t comm,
                                             alnico_request_t *request);

/* Gives every rank the blocks of all: recv[b * count + i] = send[i] of rank b.
 *
 * send: `count` elements, this rank's block. recv: size * count elements. ALNICO_IN_PLACE as
 * `send`, or send == the rank's own block in recv: it stands there already. */
ALNICO_API alnico_status_t alnico_allgather(const void *send, void *recv, size_t count,
                                            alnico_datatype_t type, alnico_comm_t comm);
ALNICO_API alnico_status_t alnico_iallgather(const void *send, void *recv, size_t count,
                                             alnico_datatype_t type, alnico_comm_t comm,
                                             alnico_request_t *request);

/* The same with blocks of different length: recv[at[b] + i] = send[i] of rank b, i < counts[b].
 *
 * send_count: must be counts[rank], which also holds in place. counts, at: of recv; the counts are
 * the same on all ranks, `at` may differ. */
ALNICO_API alnico_status_t alnico_allgatherv(const void *send, size_t send_count, void *recv,
                                             const size_t *counts, const size_t *at,
                                             alnico_datatype_t type, alnico_comm_t comm);
ALNICO_API alnico_status_t alnico_iallgatherv(const void *send, size_t send_count, void *recv,
                                              const size_t *counts, const size_t *at,
                                              alnico_datatype_t type, alnico_comm_t comm,
                                              alnico_request_t *request);

/* Combines the ranks' vectors of size * count elements and gives each rank its block of the result:
 * recv[i] = op over ranks of send[rank * count + i].
 *
 * send: size * count elements. recv: `count` elements. In place, as in NCCL: recv == send + rank *
 * count, the own block of send, which the result replaces; with ALNICO_IN_PLACE as `send`, `recv`
 * is the whole vector of size * count elements, and the result comes to its own block. The other
 * blocks are left as they are. */
ALNICO_API alnico_status_t alnico_reduce_scatter(const void *send, void *recv, size_t count,
                                                 alnico_datatype_t type, alnico_op_t op,
                                                 alnico_comm_t comm);
ALNICO_API alnico_status_t alnico_ireduce_scatter(const void *send, void *recv, size_t count,
                                                  alnico_datatype_t type, alnico_op_t op,
                                                  alnico_comm_t comm, alnico_request_t *request);

/* The same with blocks of different length, one behind the other in send; recv gets counts[rank]
 * elements. In place likewise, with the own block where it begins in send. counts: the same on all
 * ranks. */
ALNICO_API alnico_status_t alnico_reduce_scatterv(const void *send, void *recv,
                                                  const size_t *counts, alnico_datatype_t type,
                                                  alnico_op_t op, alnico_comm_t comm);
ALNICO_API alnico_status_t alnico_ireduce_scatterv(const void *send, void *recv,
                                                   const size_t *counts, alnico_datatype_t type,
                                                   alnico_op_t op, alnico_comm_t comm,
                                                   alnico_request_t *request);

/* Gives the root the blocks of all: recv[b * count + i] at the root = send[i] of rank b.
 *
 * send: `count` elements. recv: size * count elements at the root; elsewhere it is not looked at
 * and may be NULL. ALNICO_IN_PLACE as `send`, or send == the own block in recv, at the root
 * only. */
ALNICO_API alnico_status_t alnico_gather(const void *send, void *recv, size_t count,
                                         alnico_datatype_t type, int root, alnico_comm_t comm);
ALNICO_API alnico_status_t alnico_igather(const void *send, void *recv, size_t count,
                                          alnico_datatype_t type, int root, alnico_comm_t comm,
                                          alnico_request_t *request);

/* The same with blocks of different length: rank b sends send_count elements, which counts[b] at
 * the root must be too. recv, counts, at: at the root; elsewhere they are not looked at and may be
 * NULL. */
ALNICO_API alnico_status_t alnico_gatherv(const void *send, size_t send_count, void *recv,
                                          const size_t *counts, const size_t *at,
                                          alnico_datatype_t type, int root, alnico_comm_t comm);
ALNICO_API alnico_status_t alnico_igatherv(const void *send, size_t send_count, void *recv,
                                           const size_t *counts, const size_t *at,
                                           alnico_datatype_t type, int root, alnico_comm_t comm,
                                           alnico_request_t *request);

/* Gives each rank its block of the root's: recv[i] = send[rank * count + i] of the root.
 *
 * send: size * count elements at the root; elsewhere it is not looked at and may be NULL. recv:
 * `count` elements. ALNICO_IN_PLACE as `recv`, or recv == the own block in send, at the root only:
 * its block stays where it is. */
ALNICO_API alnico_status_t alnico_scatter(const void *send, void *recv, size_t count,
                                          alnico_datatype_t type, int root, alnico_comm_t comm);
ALNICO_API alnico_status_t alnico_iscatter(const void *send, void *recv, size_t count,
                                           alnico_datatype_t type, int root, alnico_comm_t comm,
                                           alnico_request_t *request);

/* The same with blocks of different length: rank b gets recv_count elements, which counts[b] at the
 * root must be too. send, counts, at: at the root; elsewhere they are not looked at and may be
 * NULL. */
ALNICO_API alnico_status_t alnico_scatterv(const void *send, const size_t *counts, const size_t *at,
                                           void *recv, size_t recv_count, alnico_datatype_t type,
                                           int root, alnico_comm_t comm);
ALNICO_API alnico_status_t alnico_iscatterv(const void *send, const size_t *counts,
                                            const size_t *at, void *recv, size_t recv_count,
                                            alnico_datatype_t type, int root, alnico_comm_t comm,
                                            alnico_request_t *request);

/* Every rank gives each a block: recv[b * count + i] = send[rank * count + i] of rank b.
 *
 * send, recv: size * count elements each. ALNICO_IN_PLACE as `send`, or send == recv: what is sent
 * stands in recv; on all ranks or on none. */
ALNICO_API alnico_status_t alnico_alltoall(const void *send, void *recv, size_t count,
                                           alnico_datatype_t type, alnico_comm_t comm);
ALNICO_API alnico_status_t alnico_ialltoall(const void *send, void *recv, size_t count,
                                            alnico_datatype_t type, alnico_comm_t comm,
                                            alnico_request_t *request);

/* The same with blocks of different length: send_counts[b] elements from send_at[b] go to rank b,
 * whose recv_counts for this rank must be as many; for the rank itself send_counts[rank] is
 * recv_counts[rank]. In place, on all ranks or on none, what is sent stands in recv: send_counts
 * and send_at are not looked at, and rank b sends back as much as it gets from here. */
ALNICO_API alnico_status_t alnico_alltoallv(const void *send, const size_t *send_counts,
                                            const size_t *send_at, void *recv,
                                            const size_t *recv_counts, const size_t *recv_at,
                                            alnico_datatype_t type, alnico_comm_t comm);
ALNICO_API alnico_status_t alnico_ialltoallv(const void *send, const size_t *send_counts,
                                             const size_t *send_at, void *recv,
                                             const size_t *recv_counts, const size_t *recv_at,
                                             alnico_datatype_t type, alnico_comm_t comm,
                                             alnico_request_t *request);

/* Ends on no rank before it has begun on all. */
ALNICO_API alnico_status_t alnico_barrier(alnico_comm_t comm);
ALNICO_API alnico_status_t alnico_ibarrier(alnico_comm_t comm, alnico_request_t *request);

/* ---- Messages between two ranks ---- */

/*
 * Rules of messages
 *
 * Messages from one rank to another are received in the order in which they were sent, whichever of
 * the calls below sent or received them; there are no tags. They match apart from collectives, and
 * only the two ranks call. A message and its receive have the same number of bytes: if they differ,
 * the receiver's communicator fails with ALNICO_ERROR_MISMATCH, and the sender's does too. A short
 * message may have been sent before that is known: the sender then learns it in an operation that
 * waits, or from alnico_synchronize.
 *
 * A send may or may not end before its receive has begun. So two ranks that both send first and
 * then receive, one after the other and blocking, may wait for each other until the deadline: let
 * them use alnico_sendrecv, a group, or nonblocking calls, any number of which may be under way.
 *
 * On GPUs messages whose calls are captured into a graph meet such messages only. They follow each
 * other in the order of their calls, nonblocking ones too, and so do all where an algorithm that
 * the GPUs carry out is forced (`exchange`, `nccl_messages`; docs/tuning.md): what two ranks send
 * to each other at once then belongs into one sendrecv or group, and a message to the rank itself
 * into the same as its receive.
 */

/* Sends `count` elements of `buffer` to rank `to`. A message to this rank itself needs its receive
 * in the same group, in the same sendrecv, or nonblocking. */
ALNICO_API alnico_status_t alnico_send(const void *buffer, size_t count, alnico_datatype_t type,
                                       int to, alnico_comm_t comm);
ALNICO_API alnico_status_t alnico_isend(const void *buffer, size_t count, alnico_datatype_t type,
                                        int to, alnico_comm_t comm, alnico_request_t *request);

/* Receives `count` elements from rank `from` into `buffer`. */
ALNICO_API alnico_status_t alnico_recv(void *buffer, size_t count, alnico_datatype_t type, int from,
                                       alnico_comm_t comm);
ALNICO_API alnico_status_t alnico_irecv(void *buffer, size_t count, alnico_datatype_t type,
                                        int from, alnico_comm_t comm, alnico_request_t *request);

/* Sends `send_count` elements to rank `to` and receives `recv_count` from rank `from`, at the same
 * time. The two buffers do not overlap. */
ALNICO_API alnico_status_t alnico_sendrecv(const void *send, size_t send_count, int to, void *recv,
                                           size_t recv_count, int from, alnico_datatype_t type,
                                           alnico_comm_t comm);
ALNICO_API alnico_status_t alnico_isendrecv(const void *send, size_t send_count, int to, void *recv,
                                            size_t recv_count, int from, alnico_datatype_t type,
                                            alnico_comm_t comm, alnico_request_t *request);

/* Joins all alnico_send, alnico_recv and alnico_sendrecv up to alnico_group_end into one operation,
 * which cannot deadlock, whatever the order of its members and of those on other ranks. In between
 * these calls check their arguments and are recorded; one that is refused is left out, and the
 * group goes on. Every other operation on the communicator, a nonblocking message and another group
 * included, is an error until the end. Messages may be of different types, to and from any ranks,
 * this one included; their buffers do not overlap, but may be sent to several ranks. A group that
 * is open when the communicator is destroyed is logged as an error and forgotten. Errors: ARGUMENT
 * (a group is open). */
ALNICO_API alnico_status_t alnico_group_begin(alnico_comm_t comm);

/* Starts the group: blocking with `request` NULL, otherwise nonblocking. A group without messages
 * ends at once. Errors: ARGUMENT (no group is open), UNSUPPORTED (more than 1024 messages by
 * kernels of GPUs, as while a graph is captured: this rank only, the others of its messages find
 * out at their deadline); after any error the group is gone. */
ALNICO_API alnico_status_t alnico_group_end(alnico_comm_t comm, alnico_request_t *request);

/* ---- Requests ---- */

/* The communicator's stream waits for the request, and the host does not (on the inline stream the
 * caller is the stream). Requests may be waited for in any order. Sets *request to NULL. Errors:
 * ARGUMENT (NULL, or nothing to wait for); on the inline stream also how the operation ended. */
ALNICO_API alnico_status_t alnico_wait(alnico_request_t *request);

/* Says at once whether the operation is complete, and makes progress where no thread of the library
 * does. When done, sets *request to NULL and returns how it ended. */
ALNICO_API alnico_status_t alnico_test(alnico_request_t *request, bool *done);

/* The host waits for the request. Sets *request to NULL and returns how it ended. */
ALNICO_API alnico_status_t alnico_request_synchronize(alnico_request_t *request);

/* The host waits for all that was given to the communicator. Returns the latched error, if any. */
ALNICO_API alnico_status_t alnico_synchronize(alnico_comm_t comm);

#ifdef __cplusplus
}
#endif

#endif
