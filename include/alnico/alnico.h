/*
 * Alnico: asynchronous collectives for training deep networks.
 *
 * This header is the whole communication interface and needs no MPI, CUDA or NCCL header.
 * A communicator belongs to a stream: its collectives are ordered on that stream with everything
 * else that the stream runs. Communicators made from an MPI_Comm are in <alnico/mpi.h>.
 *
 * Rules that hold for every function
 * - Returns ALNICO_SUCCESS (0) or a negative status; alnico_error_detail() then says, for the calling
 *   thread, which argument was wrong, its value and what was expected. A refused call changes nothing.
 * - Counts are elements, not bytes, and are size_t: more than 2^31 elements work.
 * - Operations of one communicator start in call order, and every rank calls the same ones in the
 *   same order. One thread at a time calls on one communicator; communicators are independent.
 * - An error found while an operation runs is latched in its communicator: every later call on it
 *   returns that status, except alnico_comm_abort and alnico_comm_destroy. Streams that waited for its
 *   operations go on; a result that had not come is then undefined, and the library leaves it alone.
 * - With ALNICO_CHECK=1 in rank 0's environment ranks compare what they call before it begins, waiting for each other;
 *   where they differ, all return ALNICO_ERROR_MISMATCH, with what differs, and nothing was done.
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

/* A short constant text for a status; "unknown status" for anything else. Never NULL. Any thread. */
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
 * 1/size first; of integers it sums, wrapping, and then divides truncating towards zero. The logical
 * ones take nonzero as true and give 0 or 1. MINIMUM and MAXIMUM of floats give NaN if any is NaN. On one
 * rank every operation passes the input on as it is. */
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

typedef enum alnico_collective { ALNICO_ALLREDUCE } alnico_collective_t;

/* As `send`: the input stands in `recv`, and the result replaces it. send == recv means the same. */
#define ALNICO_IN_PLACE ((const void *)-1)

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
 * `bytes` bytes from `mine` of every rank into `all`, in rank order (size * bytes), and returns 0, or
 * nonzero on failure. It is called on the caller's thread, and only inside alnico_comm_create. */
typedef struct alnico_bootstrap {
    int rank, size;
    int (*allgather)(void *context, const void *mine, void *all, size_t bytes);
    void *context;
} alnico_bootstrap_t;

/* Creates a communicator over the ranks of `bootstrap` (collective). They may be threads of one
 * process, processes of one host, or both, and then need no MPI; ranks of several hosts need MPI to be
 * initialised, and messages then go over it.
 * device: where the buffers of its collectives live; stream: what orders them, and must outlive it
 * (an alnico_stream_t for the CPU; NULL is the inline stream). On error *out is NULL.
 * Errors: ARGUMENT; UNSUPPORTED (no such device in this build, no way between these ranks, or a real
 * stream over an MPI below MPI_THREAD_MULTIPLE); MEMORY; SYSTEM; TIMEOUT; MPI. */
ALNICO_API alnico_status_t alnico_comm_create(const alnico_bootstrap_t *bootstrap,
                                              alnico_device_t device, void *stream,
                                              alnico_comm_t *out);

/* A communicator of the same ranks on another stream of the same device (collective). It is
 * independent of `comm`, which may be destroyed first. */
ALNICO_API alnico_status_t alnico_comm_duplicate(alnico_comm_t comm, void *stream,
                                                 alnico_comm_t *out);

/* Divides the ranks (collective): those with equal color >= 0 get a communicator, ordered by key and
 * then by rank in `comm`. A negative color takes part and gets NULL. */
ALNICO_API alnico_status_t alnico_comm_split(alnico_comm_t comm, int color, int key, void *stream,
                                             alnico_comm_t *out);

/* Waits for everything given to the communicator and frees it (collective). Requests that were not
 * waited for become invalid. After an error or abort it waits for nobody. CUDA graphs that hold its calls
 * must be destroyed before, for NCCL waits until they are. NULL is fine. */
ALNICO_API void alnico_comm_destroy(alnico_comm_t comm);

/* Gives up: everything in flight ends with ALNICO_ERROR_ABORTED, soon and without waiting for other
 * ranks, which learn of it when they next wait for this one. Afterwards only destroy. Any thread, any
 * number of times. */
ALNICO_API alnico_status_t alnico_comm_abort(alnico_comm_t comm);

/* The latched error, with its detail, or ALNICO_SUCCESS. Any thread. */
ALNICO_API alnico_status_t alnico_comm_status(alnico_comm_t comm);

/* This rank and the number of ranks; -1 for an invalid communicator. Any thread. */
ALNICO_API int alnico_comm_rank(alnico_comm_t comm);
ALNICO_API int alnico_comm_size(alnico_comm_t comm);

/* Forces one algorithm for a collective (collective; the names are those of `alnico-info`). NULL goes
 * back to the table's choice. Applies to later calls. What rank 0 passes counts; an unknown name, or
 * a name on one rank and NULL on another, is an error on every rank and changes nothing. */
ALNICO_API alnico_status_t alnico_comm_set_algorithm(alnico_comm_t comm,
                                                     alnico_collective_t collective,
                                                     const char *name);

/* Makes memory known to all ranks of the communicator (collective), so that they may reach it directly: on GPUs of one
 * host the large allreduces of registered buffers are faster. Every rank passes `bytes` bytes of its own, on the
 * communicator's device; the same number on each. An allreduce whose send and recv lie in registered memory uses that
 * where it helps; then the two must lie at the same offsets of the same registrations on all ranks, which ALNICO_CHECK=1
 * compares. On the CPU it is a valid call that changes nothing. The memory must stay until alnico_comm_deregister, or the communicator's end.
 * On error *out is NULL, on every rank. Errors: ARGUMENT (NULL, no bytes, memory of the host or of another device),
 * UNSUPPORTED (memory that cannot be shared, with the reason), MISMATCH (bytes differ), MEMORY, SYSTEM, TIMEOUT. */
typedef struct alnico_registration *alnico_registration_t;
ALNICO_API alnico_status_t alnico_comm_register(alnico_comm_t comm, void *memory, size_t bytes,
                                                alnico_registration_t *out);

/* Waits for all that was given to the communicator and forgets the registration (collective). */
ALNICO_API alnico_status_t alnico_comm_deregister(alnico_comm_t comm,
                                                  alnico_registration_t registration);

/* ---- Collectives ---- */

/* A nonblocking operation in flight, owned by the library and freed by the call that sets it to NULL. */
typedef struct alnico_request *alnico_request_t;

/* Combines `count` elements of `type` from every rank element by element and gives every rank the
 * result: recv[i] = op over ranks of send[i].
 *
 * send, recv: `count` elements each on the communicator's device; either the same or not overlapping;
 * aligned to the type. With count 0 both may be NULL. Both belong to the library until the stream has
 * passed the operation.
 * On a stream this returns at once, and the stream's later work sees the result; on the inline
 * stream it returns when the result is there. On GPUs the first call of a communicator that goes to NCCL
 * may wait for the other ranks (docs/tuning.md); alnico_iallreduce never does. Every rank gets the same bits, and the same again with
 * the same settings.
 * Errors: ARGUMENT (null, overlap, misalignment, unknown type, an operation that the type does not
 * have, a count whose bytes overflow, memory of another device), and whatever is latched. Where GPUs are
 * used, whose memory it is holds for the whole allocation and is looked at in its first call and then
 * about every 64th: a buffer that was freed since, and its address reused, may go unnoticed. */
ALNICO_API alnico_status_t alnico_allreduce(const void *send, void *recv, size_t count,
                                            alnico_datatype_t type, alnico_op_t op,
                                            alnico_comm_t comm);

/* The same, but the stream goes on: what it is given later may run at the same time, until
 * alnico_wait. The operation still begins after what the stream was given before. */
ALNICO_API alnico_status_t alnico_iallreduce(const void *send, void *recv, size_t count,
                                             alnico_datatype_t type, alnico_op_t op,
                                             alnico_comm_t comm, alnico_request_t *request);

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
