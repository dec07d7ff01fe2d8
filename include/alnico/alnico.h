/*
 * Alnico: asynchronous collectives for training deep networks.
 *
 * This header is the communication interface and its manual. It includes no MPI, CUDA or NCCL
 * header; <alnico/mpi.h> adds communicators made from an MPI_Comm.
 *
 *     alnico_comm_create(&bootstrap, ALNICO_DEVICE_CPU, NULL, &comm);
 *     alnico_allreduce(ALNICO_IN_PLACE, gradient, count, ALNICO_FLOAT32, ALNICO_AVERAGE, comm);
 *     alnico_comm_destroy(comm);
 *
 * Rules for every function
 * - Stream. A communicator belongs to one stream at a time. Its collectives are ordered with all
 *   other work of that stream.
 * - Status. A function returns ALNICO_SUCCESS (0) or a negative status. alnico_error_detail() then
 *   gives, to the calling thread, the argument, its value and what was expected. A refused call
 *   changes nothing.
 * - Units. Counts are elements, not bytes. They are size_t: counts above 2^31 work.
 * - Order. The operations of a communicator start in call order, and every rank calls the same
 *   collectives in the same order. "Collective" marks a function that every rank must call.
 * - Threads. One thread at a time calls on a communicator; communicators are independent. "Any
 *   thread" marks the functions that may run beside such a call.
 * - Errors. An error found while an operation runs, or while a call waits for other ranks, is
 *   latched in the communicator: every later call on it returns that status, except
 *   alnico_comm_abort, alnico_comm_shrink and alnico_comm_destroy. Streams that waited for its operations continue.
 *   Results that had not arrived are undefined, and the library no longer writes them. Two
 *   exceptions: a GPU's stream that holds messages copies them when it comes to them; and a process
 *   stopped by SIGSTOP at the moment it starts to copy a part of a long message into another
 *   process's buffer makes this copy when it is continued.
 * - Deadline. Every wait ends after 600 seconds, or ALNICO_TIMEOUT seconds: at most a tenth of that
 *   and 0.1 s later, or on GPUs half as long again. A rank that has not come by then causes
 *   ALNICO_ERROR_TIMEOUT on the others; the detail names the rank and the operation. A rank
 *   of the host whose process ends before it has destroyed the communicator causes it within a
 *   second, on GPUs without any call of the others; where MPI carries the messages mpirun ends all
 *   ranks. A bootstrap's callback has no deadline but its own (alnico_bootstrap_t).
 * - Checks. With ALNICO_CHECK=1 in rank 0's environment all ranks wait for each other and compare
 *   each collective before it begins. If the calls differ, every rank returns ALNICO_ERROR_MISMATCH
 *   and the detail says what differs. If one rank refuses its own arguments, every rank returns
 *   that status, and the detail names the rank and the reason. In both cases nothing was done.
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

/* A constant short text for a status, "unknown status" for any other number. Never NULL. Any
 * thread. */
ALNICO_API const char *alnico_status_string(alnico_status_t status);

/* The detail of the calling thread's last failed call: argument, value and expectation; "" if no
 * call failed. Never NULL. Valid until this thread's next failing call. Any thread. */
ALNICO_API const char *alnico_error_detail(void);

/* The version of the loaded library, "major.minor.patch". Never NULL. Any thread. */
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
    ALNICO_FLOAT64,
    ALNICO_FLOAT8_E4M3, /* of the Open Compute Project, to 448: no infinity, one NaN for each sign */
    ALNICO_FLOAT8_E5M2  /* of the Open Compute Project: the upper half of a binary16 */
} alnico_datatype_t;

/* Reductions. The first five work on every type, the logical and bitwise ones on integers only.
 *
 * Integers are exact and wrap on overflow. Floats of 16 and 8 bits are computed in float32 and rounded
 * (to nearest, ties to even) to their type after each step, or less often; 8-bit ones saturate then, as
 * CUDA's conversions do: what is beyond the greatest finite number, infinity too, becomes that. AVERAGE of floats scales each contribution by
 * 1/size first; AVERAGE of integers sums, wrapping, and then divides, truncating towards zero.
 * MINIMUM and MAXIMUM of floats are NaN if any contribution is NaN. The logical operations take
 * nonzero as true and give 0 or 1. On one rank every operation copies its input. */
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

/* The operations that algorithms are chosen for. SENDRECV is every message between two ranks: send,
 * recv, sendrecv and groups. */
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

/* Marks an operation in place: passed instead of one buffer, it says that the data are in the other
 * buffer already, or stay there. Each call says which argument it replaces. Passing the address
 * that it stands for means the same.
 *
 *     alnico_allreduce(ALNICO_IN_PLACE, x, n, type, op, comm);       input and result in x
 *     alnico_allgather(ALNICO_IN_PLACE, all, n, type, comm);         own block at all + rank * n
 *     alnico_scatter(blocks, ALNICO_IN_PLACE, n, type, root, comm);  at the root: own block stays
 */
#define ALNICO_IN_PLACE ((void *)-1)

/* ---- Streams ---- */

typedef enum alnico_device { ALNICO_DEVICE_CPU, ALNICO_DEVICE_CUDA } alnico_device_t;

/* A CPU stream: a first-in first-out queue of functions with one worker thread. Where a CPU
 * communicator takes a stream, NULL is the inline stream: it has no queue and no thread, and the
 * calling thread itself waits for everything that a stream would wait for. A CUDA communicator
 * takes a cudaStream_t instead.
 *
 *     alnico_stream_enqueue(stream, compute, &layer);                  fills gradient
 *     alnico_allreduce(ALNICO_IN_PLACE, gradient, n, type, op, comm);  returns at once, runs next
 *     alnico_stream_enqueue(stream, update, &layer);                   reads the result */
typedef struct alnico_stream *alnico_stream_t;

/* Creates a stream and its worker thread. The caller owns *out and destroys it. Errors: MEMORY,
 * SYSTEM (no thread). */
ALNICO_API alnico_status_t alnico_stream_create(alnico_stream_t *out);

/* Appends function(argument) to the stream. The worker runs it after everything enqueued before.
 * Returns at once; on the inline stream (NULL) after the function. The function must not call on
 * communicators of this stream. Any thread. */
ALNICO_API alnico_status_t alnico_stream_enqueue(alnico_stream_t stream, void (*function)(void *),
                                                 void *argument);

/* Blocks the caller until everything enqueued so far has run. */
ALNICO_API alnico_status_t alnico_stream_synchronize(alnico_stream_t stream);

/* Runs what is still queued, stops the worker and frees the stream. The communicators of the stream
 * must have been destroyed before. NULL does nothing. */
ALNICO_API void alnico_stream_destroy(alnico_stream_t stream);

/* ---- Communicators ---- */

typedef struct alnico_comm *alnico_comm_t;

/* The bootstrap of ranks that meet without MPI. `allgather` is collective over `size` ranks: it
 * copies `bytes` bytes at `mine` of every rank into `all`, in rank order (size * bytes in total),
 * and returns 0, or nonzero on failure. alnico_comm_create calls it several times, on the caller's
 * thread; nothing else does.
 *
 * The library cannot interrupt the callback, so it must have a deadline of its own: when ranks do
 * not come, it returns nonzero, and alnico_comm_create returns ALNICO_ERROR_SYSTEM. A rank whose
 * callback failed calls it no more, so that it must fail on the other ranks too, soon after. */
typedef struct alnico_bootstrap {
    int rank, size;
    int (*allgather)(void *context, const void *mine, void *all, size_t bytes);
    void *context;
} alnico_bootstrap_t;

/* Creates a communicator of the ranks of `bootstrap`. Collective.
 *
 * device: where the buffers of its collectives are. stream: what orders its collectives; it must
 * outlive the communicator. On the CPU an alnico_stream_t, or NULL for the inline stream; with CUDA
 * a cudaStream_t of the calling thread's GPU. *out: owned by the caller, NULL on error.
 *
 * Ranks may be threads of a process, processes of a host or of several hosts, in any mix. None needs
 * MPI: between hosts TCP carries the messages.
 *
 * Deadline: what the library waits for by itself ends after ALNICO_TIMEOUT seconds; calls of the
 * callback end when it returns. alnico_comm_create_mpi, alnico_comm_duplicate and alnico_comm_split
 * have the deadline in every wait, but one: MPI alone makes the group of ranks where it carries the
 * messages of a bootstrap's ranks, or of a split's that are not all ranks. It waits for ranks that
 * have just called without a deadline.
 *
 * Errors: ARGUMENT; UNSUPPORTED (this build lacks the device, the ranks have no way to each other,
 * or a stream other than the inline one was given with MPI below MPI_THREAD_MULTIPLE); MEMORY;
 * SYSTEM; TIMEOUT; MPI. */
ALNICO_API alnico_status_t alnico_comm_create(const alnico_bootstrap_t *bootstrap,
                                              alnico_device_t device, void *stream,
                                              alnico_comm_t *out);

/* Meeting point of ranks that share nothing yet but these 128 bytes: an address of this host, and a
 * secret of the job. Any way may carry them to the others (a file, a pipe, a broadcast of another library);
 * whoever reads them can join. They hold zeros too: they are no text. */
typedef struct alnico_id {
    char bytes[128];
} alnico_id_t;

/* Makes an id. One process of the job calls it, be it a rank or not, and goes on running until the
 * communicator is made: a thread of the library listens here until all ranks have come, or until
 * ALNICO_TIMEOUT seconds have passed since the first came (since this call, if none comes). An id is
 * for one communicator.
 *
 * The address is that of the interface ALNICO_INTERFACE, by default the one that the host's routes
 * lead through. Connections that do not know the id's secret are refused, with a line in the log.
 * Any thread. Errors: ARGUMENT (no such interface, NULL); MEMORY; SYSTEM. */
ALNICO_API alnico_status_t alnico_id_create(alnico_id_t *out);

/* Creates a communicator of `size` ranks that have the same id. Collective. Everything not said here
 * is as for alnico_comm_create. Ranks may be threads, too; their calls must be able to run at the
 * same time.
 *
 *     if (rank == 0)
 *         alnico_id_create(&id);
 *     send_to_all(&id, sizeof id);                 as the program likes
 *     alnico_comm_create_id(&id, rank, size, ALNICO_DEVICE_CPU, NULL, &comm);
 *
 * Deadline: every wait of it; the detail names the ranks that did not come.
 *
 * Errors: as alnico_comm_create; ARGUMENT also for bytes that are no id, for a rank that has come
 * already, and for a size that is not the others'; MISMATCH for an id of another job at the same
 * address; SYSTEM (nobody listens there: the id was used before, or its maker has ended). */
ALNICO_API alnico_status_t alnico_comm_create_id(const alnico_id_t *id, int rank, int size,
                                                 alnico_device_t device, void *stream,
                                                 alnico_comm_t *out);

/* Creates a communicator of all processes that a launcher started together, without MPI. Collective
 * over them. Everything not said here is as for alnico_comm_create_id. The first of these counts that
 * the environment has:
 *
 * 1. ALNICO_RANK, ALNICO_SIZE and ALNICO_ADDRESS (HOST:PORT or [IPV6]:PORT, where rank 0 listens);
 * 2. torchrun: RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT. That port is the agent's and stays so:
 *    rank 0 takes one of the eight behind it;
 * 3. PMIx (mpirun of Open MPI, srun --mpi=pmix), if libpmix.so.2 can be loaded. The process is its
 *    client until it exits;
 * 4. PMI-1 (mpiexec of MPICH);
 * 5. Slurm: srun without any of these, and srun --mpi=pmi2;
 * 6. Open MPI on one host without libpmix;
 * 7. none: the communicator has this process only.
 *
 *     ALNICO_RANK=0 ALNICO_SIZE=2 ALNICO_ADDRESS=node1:4000 ./program &       on node1
 *     ALNICO_RANK=1 ALNICO_SIZE=2 ALNICO_ADDRESS=node1:4000 ./program         on node2
 *
 * Secret: with 1, 2, 5 and 6 ranks prove that they have the same ALNICO_SECRET, or what the file
 * ALNICO_SECRET_FILE holds. Without it whoever reaches rank 0's port before a rank does can take its
 * place. With 3 and 4 the launcher carries a secret.
 *
 * It may be called again, for another communicator of the same processes. MPI may be initialised
 * before or after; it is not used.
 *
 * Errors: as alnico_comm_create_id; ARGUMENT also for a variable that is missing or wrong, with its
 * name. */
ALNICO_API alnico_status_t alnico_comm_create_env(alnico_device_t device, void *stream,
                                                  alnico_comm_t *out);

/* Creates a communicator of the same ranks on another stream of the same device. Collective. The
 * new communicator is independent of `comm`, which may be destroyed first. */
ALNICO_API alnico_status_t alnico_comm_duplicate(alnico_comm_t comm, void *stream,
                                                 alnico_comm_t *out);

/* Gives the communicator another stream of its device, for later calls. Local: other ranks need not
 * do the same. Its operations keep their order: the new stream waits until the one before has come to
 * the end of the newest call on it, or here if it has had none. The host waits only if that is a CPU
 * stream and the new one the inline stream.
 *
 *     alnico_comm_set_stream(comm, cupy_stream);       costs little, and nothing if it has it already
 *     alnico_allreduce(ALNICO_IN_PLACE, x, n, type, op, comm);
 *
 * stream: as for alnico_comm_create; it may be destroyed as soon as the calls on it are made, if the
 * communicator gets another one before its next call or its end. Legal while graphs are captured:
 * what two streams of one capture get keeps its order. Between a graph and other calls there is no
 * order but that of the streams they run on. A stream that the communicator got while it was
 * captured is to be set again before its first calls that are not.
 *
 * Errors: ARGUMENT (a stream of another GPU, an open group); UNSUPPORTED (as alnico_comm_create); the
 * latched error. */
ALNICO_API alnico_status_t alnico_comm_set_stream(alnico_comm_t comm, void *stream);

/* Splits the ranks by color. Collective. Ranks with the same color >= 0 get a communicator of their
 * own, ordered by key and then by rank in `comm`. A rank with a negative color takes part and gets
 * NULL. */
ALNICO_API alnico_status_t alnico_comm_split(alnico_comm_t comm, int color, int key, void *stream,
                                             alnico_comm_t *out);

/* Makes a communicator of the ranks that live, after an error of `comm`: they keep their order.
 * Collective over them. `comm` keeps its error, and can only be shrunk again or destroyed.
 *
 *     status = alnico_allreduce(ALNICO_IN_PLACE, x, n, ALNICO_FLOAT32, ALNICO_SUM, comm);
 *     if (status != ALNICO_SUCCESS && alnico_comm_shrink(comm, stream, &smaller) == ALNICO_SUCCESS) {
 *         alnico_comm_destroy(comm);
 *         comm = smaller;                    go on from what all survivors have alike
 *     }
 *
 * First it ends what is in flight here, as alnico_comm_abort does, and waits for `stream`'s and the
 * communicator's own work. Ranks that have not got the error yet get it where they next wait. Then
 * all ranks that have called agree who they are; it waits for the others until they call, their
 * processes end, they destroy `comm`, or the deadline is over. Ranks may die at any time meanwhile: the
 * survivors then agree on fewer. All of them get the same status and the same communicator, which has
 * the settings of `comm` and none of its registrations and forced algorithms. One that died in the
 * last moment may still be in it: its operations then fail, and it can be shrunk in turn.
 *
 * A rank that comes after the others' deadline gets ABORTED or TIMEOUT. Ranks that cannot reach each
 * other for that long may end up in communicators of their own.
 *
 * Errors: ARGUMENT; UNSUPPORTED (MPI carries the messages); ABORTED; MEMORY; those of
 * alnico_comm_split, on all survivors. */
ALNICO_API alnico_status_t alnico_comm_shrink(alnico_comm_t comm, void *stream, alnico_comm_t *out);

/* Waits for everything started on the communicator and frees it. Collective, but after an error or
 * abort it waits for no other rank. Requests that were not waited for become invalid; a warning in
 * the log names those that failed. CUDA graphs that contain its calls must be destroyed before: NCCL
 * waits until they are. NULL does nothing. */
ALNICO_API void alnico_comm_destroy(alnico_comm_t comm);

/* Aborts the communicator: everything in flight ends with ALNICO_ERROR_ABORTED, soon, and without
 * waiting for other ranks. They learn of it when they next wait for this rank. Only
 * alnico_comm_shrink and alnico_comm_destroy may follow. Any thread, any number of times.
 *
 *     this rank:    alnico_comm_abort(comm);
 *     other ranks:  alnico_synchronize(comm);      ALNICO_ERROR_ABORTED; the detail names this rank
 *     all ranks:    alnico_comm_destroy(comm);     waits for nobody
 *
 * NCCL: if one rank ends its NCCL kernels, by an abort or at the deadline, NCCL kernels of other
 * ranks may end without their data. The library therefore reports the abort to the other ranks
 * first and aborts NCCL 50 ms later. alnico_synchronize, alnico_test, alnico_request_synchronize
 * and alnico_comm_status look for such reports before they return SUCCESS. A program that waits for
 * the stream in another way must call one of them before it uses a result.
 *
 * Two gaps remain. A report may take longer to arrive. And below MPI_THREAD_MULTIPLE only the
 * thread that calls on the communicator may send: if another thread aborts, the report leaves only
 * if that thread is in a waiting call within a quarter of a second, and alnico_comm_status does not
 * look for reports. */
ALNICO_API alnico_status_t alnico_comm_abort(alnico_comm_t comm);

/* The latched error, with its detail, or ALNICO_SUCCESS. Any thread. */
ALNICO_API alnico_status_t alnico_comm_status(alnico_comm_t comm);

/* This rank, and the number of ranks; -1 for an invalid communicator. Any thread. */
ALNICO_API int alnico_comm_rank(alnico_comm_t comm);
ALNICO_API int alnico_comm_size(alnico_comm_t comm);

/* Forces an algorithm for the later calls of one collective. Collective.
 *
 * name: as `alnico-info` lists them; NULL returns to the tuning table's choice. Rank 0's name
 * counts. Errors, on every rank and without any change: an unknown name, a name on one rank and
 * NULL on another, different collectives. */
ALNICO_API alnico_status_t alnico_comm_set_algorithm(alnico_comm_t comm,
                                                     alnico_collective_t collective,
                                                     const char *name);

/* Limits of a communicator on each rank; 0 is no limit.
 *
 * blocks: most thread blocks of a GPU kernel of its collectives and messages: the fewer, the more of
 * a GPU is left to other kernels, and the slower large messages are. NCCL is told, too.
 * scratch: most bytes that its collectives work in, made with the communicator: those that
 * alnico_comm_memory counts as `scratch`. GPUs that reach each other's memory take less of it where
 * it is short; any other way that has no room is left out, and calls take the next one of the
 * table. */
typedef struct alnico_limits {
    int blocks;
    size_t scratch;
} alnico_limits_t;

/* Limits a communicator before its first operation and registration. Collective. Its duplicates and
 * splits, and what alnico_comm_shrink makes of it, have the same limits.
 *
 *     const alnico_limits_t limits = {.blocks = 16, .scratch = 16 << 20};
 *     alnico_comm_set_limits(comm, &limits);
 *
 * limits: the same on every rank. Memory is made anew, so that no other thread may call on the
 * communicator meanwhile, alnico_comm_status and alnico_comm_abort included.
 *
 * Errors, on every rank, and the limits stay as they were: ARGUMENT (NULL, negative blocks, an
 * operation was called or memory registered before, or so little scratch that nothing works between
 * these ranks: the detail says how much would do); MISMATCH (limits differ); those of creating a
 * communicator, which are latched. */
ALNICO_API alnico_status_t alnico_comm_set_limits(alnico_comm_t comm,
                                                  const alnico_limits_t *limits);

/* The memory that a communicator has on this rank now, in bytes, by where it is and by what it is
 * for: host + device + shared == scratch + messages. Records of operations, messages that came before
 * their receives, code and what NCCL and MPI have by themselves do not count, nor does registered
 * memory. */
typedef struct alnico_comm_memory {
    size_t host;    /* of this process: pinned for the GPU's copies, and buffers of messages */
    size_t device;  /* of the GPU */
    size_t shared;  /* of what the ranks of a host map together, this rank's part */
    size_t scratch; /* what collectives work in, made with the communicator */
    /* What messages lie in on their way. Buffers that are kept for later calls belong to a
     * communicator, its duplicates and its splits, and count for each. */
    size_t messages;
} alnico_comm_memory_t;

/* Queries a communicator's memory. Local. Errors: ARGUMENT. */
ALNICO_API alnico_status_t alnico_comm_memory(alnico_comm_t comm, alnico_comm_memory_t *out);

/* Registers memory with a communicator, so that other ranks can reach it directly. Collective. On
 * GPUs of one host it makes large allreduces, allgathers, alltoalls and reduce-scatters faster; on
 * the CPU it is valid and changes nothing.
 *
 *     alnico_comm_register(comm, memory, bytes, &registration);              once, on every rank
 *     alnico_allreduce(ALNICO_IN_PLACE, memory + first, n, type, op, comm);  same `first` on all
 *     alnico_comm_deregister(comm, registration);                            before memory is freed
 *
 * memory: `bytes` bytes of this rank on the communicator's device. It must stay allocated until
 * alnico_comm_deregister, or the end of the communicator. bytes: the same on every rank. *out: NULL
 * on error, on every rank.
 *
 * A call uses registrations if both `send` and `recv` lie in registered memory. Each of the two
 * must then have the same offset in the same registration on every rank; only a buffer that holds
 * nothing but the rank's own block (`send` of an allgather, `recv` of a reduce-scatter) may have
 * any offset. ALNICO_CHECK=1 compares this.
 *
 * Errors: ARGUMENT (NULL, no bytes, memory of the host or of another device), UNSUPPORTED (memory
 * that cannot be shared; the detail says why), MISMATCH (bytes differ), MEMORY, SYSTEM, TIMEOUT. */
typedef struct alnico_registration *alnico_registration_t;
ALNICO_API alnico_status_t alnico_comm_register(alnico_comm_t comm, void *memory, size_t bytes,
                                                alnico_registration_t *out);

/* Registers memory on this rank alone. Local: other ranks need not do the same, and a call works whatever
 * they pass.
 *
 * A blocking or captured call in which all ranks pass memory so registered, or of
 * alnico_memory_allocate, uses it as though it were registered by all, if it gains by that: on GPUs of
 * one host, allreduces, allgathers and alltoalls of more than about a megabyte. Its buffers must have equal
 * offsets in their memory on all ranks, as with alnico_comm_register. The first such call waits for
 * the other ranks and makes the memory reachable, at its capture if it is captured. In each such call a
 * rank that passes such memory waits for the others to come to it, 0.1 ms at most and a second while it is
 * captured: if one does not, or passes other memory, the call goes as if nothing were registered. Results have
 * the same bits either way. Calls that gain nothing, nonblocking ones and those of a forced algorithm take
 * no part.
 *
 * memory: `bytes` bytes on the communicator's device, which may be at other addresses and of other length on
 * each rank. Only that of cuMemCreate with a file descriptor is shared so, as alnico_memory_allocate
 * makes it; other memory is valid and changes nothing, and so is any on the CPU. Graphs that contain calls
 * on it must not run any more when it is removed. Any thread.
 *
 * Errors: ARGUMENT (as for alnico_comm_register); MEMORY. */
ALNICO_API alnico_status_t alnico_comm_register_local(alnico_comm_t comm, void *memory,
                                                      size_t bytes, alnico_registration_t *out);

/* Waits for everything started on the communicator and removes the registration. Collective; but local and
 * without a wait, by any thread, for one of alnico_comm_register_local, whose memory nothing uses any more. */
ALNICO_API alnico_status_t alnico_comm_deregister(alnico_comm_t comm,
                                                  alnico_registration_t registration);

/* Memory that can be registered wherever the machine lets ranks share any: on GPUs memory of the
 * driver's cuMemCreate with a file descriptor, which NCCL's windows need, too, or of cudaMalloc where
 * the GPU has none; on the CPU any. Local.
 *
 *     alnico_memory_allocate(ALNICO_DEVICE_CUDA, bytes, &memory);       on every rank
 *     alnico_allreduce(ALNICO_IN_PLACE, memory, n, type, op, comm);     shares it, if all pass such
 *
 * It needs no registration: every communicator of the device takes it as alnico_comm_register_local says.
 * alnico_comm_register lets nonblocking calls and all sizes use it, too.
 *
 * device: CUDA is the calling thread's GPU. *out: `bytes` bytes, aligned to 64 at least, of the caller;
 * NULL on error. It may block. Any thread. Errors: ARGUMENT; MEMORY; UNSUPPORTED (this build or machine
 * lacks the device); SYSTEM. */
ALNICO_API alnico_status_t alnico_memory_allocate(alnico_device_t device, size_t bytes, void **out);

/* Frees memory of alnico_memory_allocate, which nothing uses any more: it is deregistered, and what
 * streams were given on it is done. NULL does nothing. Any thread. The GPU has it back when the other ranks
 * have let go of what they share of it, in their next call on the communicator, alnico_synchronize
 * included. Errors: ARGUMENT (an unknown device, or on a GPU not the address that was given out); SYSTEM. */
ALNICO_API alnico_status_t alnico_memory_free(alnico_device_t device, void *memory);

/* ---- Collectives ---- */

/* A nonblocking operation in flight. The library owns it; the call that sets it to NULL frees it.
 */
typedef struct alnico_request *alnico_request_t;

/*
 * Rules of every operation below
 *
 * Blocking: alnico_X is ordered on the communicator's stream. It begins after the stream's earlier
 * work, and the stream's later work sees the result. On a stream the call returns at once; on the
 * inline stream it returns when this rank's part is done. One exception on GPUs: the first blocking or
 * captured collective of a communicator that NCCL carries out may wait for the other ranks
 * (docs/tuning.md).
 *
 * Graphs: GPUs of one host that NVLink joins can capture every operation, of every type and
 * reduction, into a CUDA graph, and the first call too; so can a rank alone in a build with NCCL.
 * Other GPUs can capture what NCCL has (docs/tuning.md); the rest is UNSUPPORTED. All ranks capture a
 * call, or none does.
 *
 * Nonblocking: alnico_iX begins in the same order, but the stream goes on. Its later work may run
 * beside the operation, until alnico_wait. The call never waits for other ranks. *request is NULL
 * on error.
 *
 *     alnico_iallreduce(ALNICO_IN_PLACE, gradient, n, type, op, comm, &request);
 *     alnico_stream_enqueue(stream, compute, &other);    runs beside it; must not touch gradient
 *     alnico_wait(&request);                             later work of the stream sees the result
 *
 * Buffers are on the communicator's device and aligned to the type. The library uses them until the
 * stream has passed the operation, or until the request is complete: meanwhile the program must not
 * write `send` and must not touch `recv`. A buffer of no elements may be NULL. The library writes
 * only what a call says it writes, and no gap between blocks. `send` and `recv` must not overlap,
 * except in place as each call defines it.
 *
 * Blocks: where a buffer has one part for each rank, block b belongs to rank b. Equal blocks have
 * `count` elements each and are contiguous. In vector forms (names that end with v) block b has
 * counts[b] elements and begins at element at[b]. `at` may be in any order and leave gaps; NULL
 * means contiguous. Blocks that are written must not overlap. Both arrays have one entry for each
 * rank and may be reused on return. Any count may be 0.
 *
 * Matching: all ranks pass the same `count`, type, op and root, and counts that fit each other. A
 * mismatch is found at the deadline at the latest; until then results are undefined. A rank that
 * refuses its own arguments returns at once, and the other ranks wait for it until the deadline.
 * With ALNICO_CHECK=1 every rank gets ALNICO_ERROR_MISMATCH instead, or ALNICO_ERROR_ARGUMENT where
 * a rank refuses its own arguments or its receive blocks overlap; the detail names the ranks and
 * what they passed. The call then waits for the other ranks.
 *
 * Results: a reduction gives the same bits again with the same settings. All other operations copy
 * bits, of any type.
 *
 * Errors of all: ARGUMENT (a NULL buffer or array, misalignment, overlap, an unknown type, an
 * operation that the type does not have, a root or rank out of range, more bytes than the address
 * space has, memory of another device, an open group); UNSUPPORTED (the forced algorithm cannot do
 * it, or nothing can on this device); MEMORY; the latched error. With GPUs the owner of an
 * allocation is looked up at its first use and then at about every 64th: a buffer that was freed
 * meanwhile, and its address reused, may go unnoticed.
 */

/* Allreduce: every rank gets the elementwise reduction, recv[i] = op over all ranks of send[i]. The
 * bits are the same on every rank.
 *
 * send, recv: `count` elements each. In place: ALNICO_IN_PLACE as `send`, or send == recv; the
 * input is in recv. */
ALNICO_API alnico_status_t alnico_allreduce(const void *send, void *recv, size_t count,
                                            alnico_datatype_t type, alnico_op_t op,
                                            alnico_comm_t comm);
ALNICO_API alnico_status_t alnico_iallreduce(const void *send, void *recv, size_t count,
                                             alnico_datatype_t type, alnico_op_t op,
                                             alnico_comm_t comm, alnico_request_t *request);

/* Reduce: the same result, at rank `root` only.
 *
 * send: `count` elements. recv: `count` elements at the root; ignored elsewhere, may be NULL. In
 * place, at the root only: ALNICO_IN_PLACE as `send`, or send == recv; the root's input is in recv.
 */
ALNICO_API alnico_status_t alnico_reduce(const void *send, void *recv, size_t count,
                                         alnico_datatype_t type, alnico_op_t op, int root,
                                         alnico_comm_t comm);
ALNICO_API alnico_status_t alnico_ireduce(const void *send, void *recv, size_t count,
                                          alnico_datatype_t type, alnico_op_t op, int root,
                                          alnico_comm_t comm, alnico_request_t *request);

/* Broadcast: copies `buffer` of the root to `buffer` of every other rank.
 *
 * buffer: `count` elements; read at the root, written elsewhere. */
ALNICO_API alnico_status_t alnico_broadcast(void *buffer, size_t count, alnico_datatype_t type,
                                            int root, alnico_comm_t comm);
ALNICO_API alnico_status_t alnico_ibroadcast(void *buffer, size_t count, alnico_datatype_t type,
                                             int root, alnico_comm_t comm,
                                             alnico_request_t *request);

/* Broadcast to another buffer: copies `send` of the root to `recv` of every rank, its own included, by a
 * copy there before the broadcast.
 *
 * send: `count` elements at the root; ignored elsewhere, may be NULL. recv: `count` elements. In
 * place, at the root only: ALNICO_IN_PLACE as `send`, or send == recv. Ranks may mix it with
 * alnico_broadcast. */
ALNICO_API alnico_status_t alnico_broadcast_to(const void *send, void *recv, size_t count,
                                               alnico_datatype_t type, int root,
                                               alnico_comm_t comm);
ALNICO_API alnico_status_t alnico_ibroadcast_to(const void *send, void *recv, size_t count,
                                                alnico_datatype_t type, int root,
                                                alnico_comm_t comm, alnico_request_t *request);

/* Allgather: every rank gets the blocks of all ranks, recv[b * count + i] = send[i] of rank b.
 *
 * send: `count` elements, this rank's block. recv: size * count elements. In place: ALNICO_IN_PLACE
 * as `send`, or send == recv + rank * count; the own block is in recv. */
ALNICO_API alnico_status_t alnico_allgather(const void *send, void *recv, size_t count,
                                            alnico_datatype_t type, alnico_comm_t comm);
ALNICO_API alnico_status_t alnico_iallgather(const void *send, void *recv, size_t count,
                                             alnico_datatype_t type, alnico_comm_t comm,
                                             alnico_request_t *request);

/* Allgather of blocks of different length: recv[at[b] + i] = send[i] of rank b, i < counts[b].
 *
 * send_count: equal to counts[rank], in place too. counts, at: of recv. All ranks pass the same
 * counts; `at` may differ. In place as alnico_allgather, with the own block at recv + at[rank]. */
ALNICO_API alnico_status_t alnico_allgatherv(const void *send, size_t send_count, void *recv,
                                             const size_t *counts, const size_t *at,
                                             alnico_datatype_t type, alnico_comm_t comm);
ALNICO_API alnico_status_t alnico_iallgatherv(const void *send, size_t send_count, void *recv,
                                              const size_t *counts, const size_t *at,
                                              alnico_datatype_t type, alnico_comm_t comm,
                                              alnico_request_t *request);

/* Reduce-scatter: reduces vectors of size * count elements, and each rank gets its own block of the
 * result: recv[i] = op over all ranks of send[rank * count + i].
 *
 * send: size * count elements. recv: `count` elements. In place, in one of two ways: recv == send +
 * rank * count, as in NCCL; or ALNICO_IN_PLACE as `send`, and recv is the whole vector of size *
 * count elements. The result replaces the own block, and the other blocks keep their values. */
ALNICO_API alnico_status_t alnico_reduce_scatter(const void *send, void *recv, size_t count,
                                                 alnico_datatype_t type, alnico_op_t op,
                                                 alnico_comm_t comm);
ALNICO_API alnico_status_t alnico_ireduce_scatter(const void *send, void *recv, size_t count,
                                                  alnico_datatype_t type, alnico_op_t op,
                                                  alnico_comm_t comm, alnico_request_t *request);

/* Reduce-scatter of blocks of different length, contiguous in send; recv gets counts[rank]
 * elements.
 *
 * counts: the same on all ranks. In place: as above, with the own block at its place in send. */
ALNICO_API alnico_status_t alnico_reduce_scatterv(const void *send, void *recv,
                                                  const size_t *counts, alnico_datatype_t type,
                                                  alnico_op_t op, alnico_comm_t comm);
ALNICO_API alnico_status_t alnico_ireduce_scatterv(const void *send, void *recv,
                                                   const size_t *counts, alnico_datatype_t type,
                                                   alnico_op_t op, alnico_comm_t comm,
                                                   alnico_request_t *request);

/* Gather: the root gets the blocks of all ranks, recv[b * count + i] = send[i] of rank b.
 *
 * send: `count` elements. recv: size * count elements at the root; ignored elsewhere, may be NULL.
 * In place, at the root only: ALNICO_IN_PLACE as `send`, or send == recv + rank * count. */
ALNICO_API alnico_status_t alnico_gather(const void *send, void *recv, size_t count,
                                         alnico_datatype_t type, int root, alnico_comm_t comm);
ALNICO_API alnico_status_t alnico_igather(const void *send, void *recv, size_t count,
                                          alnico_datatype_t type, int root, alnico_comm_t comm,
                                          alnico_request_t *request);

/* Gather of blocks of different length: rank b sends send_count elements, equal to counts[b] at the
 * root. recv, counts, at: used at the root; ignored elsewhere, may be NULL. In place as
 * alnico_gather, with the own block at recv + at[root]. */
ALNICO_API alnico_status_t alnico_gatherv(const void *send, size_t send_count, void *recv,
                                          const size_t *counts, const size_t *at,
                                          alnico_datatype_t type, int root, alnico_comm_t comm);
ALNICO_API alnico_status_t alnico_igatherv(const void *send, size_t send_count, void *recv,
                                           const size_t *counts, const size_t *at,
                                           alnico_datatype_t type, int root, alnico_comm_t comm,
                                           alnico_request_t *request);

/* Scatter: each rank gets its block of the root's buffer, recv[i] = send[rank * count + i] of the
 * root.
 *
 * send: size * count elements at the root; ignored elsewhere, may be NULL. recv: `count` elements.
 * In place, at the root only: ALNICO_IN_PLACE as `recv`, or recv == send + rank * count; the root's
 * block stays where it is. */
ALNICO_API alnico_status_t alnico_scatter(const void *send, void *recv, size_t count,
                                          alnico_datatype_t type, int root, alnico_comm_t comm);
ALNICO_API alnico_status_t alnico_iscatter(const void *send, void *recv, size_t count,
                                           alnico_datatype_t type, int root, alnico_comm_t comm,
                                           alnico_request_t *request);

/* Scatter of blocks of different length: rank b gets recv_count elements, equal to counts[b] at the
 * root. send, counts, at: used at the root; ignored elsewhere, may be NULL. In place as
 * alnico_scatter, with the own block at send + at[root]. */
ALNICO_API alnico_status_t alnico_scatterv(const void *send, const size_t *counts, const size_t *at,
                                           void *recv, size_t recv_count, alnico_datatype_t type,
                                           int root, alnico_comm_t comm);
ALNICO_API alnico_status_t alnico_iscatterv(const void *send, const size_t *counts,
                                            const size_t *at, void *recv, size_t recv_count,
                                            alnico_datatype_t type, int root, alnico_comm_t comm,
                                            alnico_request_t *request);

/* Alltoall: every rank sends one block to each rank, recv[b * count + i] = send[rank * count + i]
 * of rank b.
 *
 * send, recv: size * count elements each. In place, on all ranks or on none: ALNICO_IN_PLACE as
 * `send`, or send == recv; the blocks to send are in recv. */
ALNICO_API alnico_status_t alnico_alltoall(const void *send, void *recv, size_t count,
                                           alnico_datatype_t type, alnico_comm_t comm);
ALNICO_API alnico_status_t alnico_ialltoall(const void *send, void *recv, size_t count,
                                            alnico_datatype_t type, alnico_comm_t comm,
                                            alnico_request_t *request);

/* Alltoall of blocks of different length: send_counts[b] elements at send_at[b] go to rank b, whose
 * recv_counts for this rank must be equal. send_counts[rank] must equal recv_counts[rank].
 *
 * In place, on all ranks or on none: the blocks to send are in recv. send_counts and send_at are
 * ignored, and each pair of ranks swaps blocks of equal length. */
ALNICO_API alnico_status_t alnico_alltoallv(const void *send, const size_t *send_counts,
                                            const size_t *send_at, void *recv,
                                            const size_t *recv_counts, const size_t *recv_at,
                                            alnico_datatype_t type, alnico_comm_t comm);
ALNICO_API alnico_status_t alnico_ialltoallv(const void *send, const size_t *send_counts,
                                             const size_t *send_at, void *recv,
                                             const size_t *recv_counts, const size_t *recv_at,
                                             alnico_datatype_t type, alnico_comm_t comm,
                                             alnico_request_t *request);

/* Barrier: ends on no rank before every rank has begun it. */
ALNICO_API alnico_status_t alnico_barrier(alnico_comm_t comm);
ALNICO_API alnico_status_t alnico_ibarrier(alnico_comm_t comm, alnico_request_t *request);

/* ---- Messages between two ranks ---- */

/*
 * Rules of messages
 *
 * Order: messages from one rank to another arrive in the order in which they were sent, whichever
 * of the calls below sends or receives them. There are no tags. Messages are independent of
 * collectives, and only the two ranks call.
 *
 * Length: a message and its receive have the same number of bytes. If not, the communicators of
 * both fail with ALNICO_ERROR_MISMATCH. A short message may have left before that is known; its
 * sender then gets the error from a later operation that waits, or from alnico_synchronize.
 *
 * Deadlock: a send may or may not return before its receive has begun. Two ranks that both send and
 * then receive, blocking, may therefore wait for each other until the deadline. Use
 * alnico_sendrecv, a group, or nonblocking calls; any number of them may be in flight.
 *
 *     alnico_group_begin(comm);
 *     for (int r = 0; r < size; r++) {
 *         alnico_send(out[r], n, type, r, comm);
 *         alnico_recv(in[r], n, type, r, comm);
 *     }
 *     alnico_group_end(comm, NULL);
 *
 * GPUs: messages captured into a CUDA graph match only captured messages. They run one after the
 * other in call order, nonblocking ones too; so do all messages while an algorithm that runs on the
 * GPU (`exchange`, `nccl_messages`; docs/tuning.md) is forced. What two ranks send to each other at
 * the same time must then be in one sendrecv or group, and a message to the rank itself in the same
 * one as its receive.
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

/* Sends `send_count` elements to rank `to` and receives `recv_count` elements from rank `from`, at
 * the same time. The two buffers must not overlap. */
ALNICO_API alnico_status_t alnico_sendrecv(const void *send, size_t send_count, int to, void *recv,
                                           size_t recv_count, int from, alnico_datatype_t type,
                                           alnico_comm_t comm);
ALNICO_API alnico_status_t alnico_isendrecv(const void *send, size_t send_count, int to, void *recv,
                                            size_t recv_count, int from, alnico_datatype_t type,
                                            alnico_comm_t comm, alnico_request_t *request);

/* Begins a group: all alnico_send, alnico_recv and alnico_sendrecv up to alnico_group_end become
 * one operation. It cannot deadlock, whatever the order of its messages here and on other ranks.
 *
 * Inside a group these calls only check their arguments and are recorded; a refused one is left
 * out, and the group goes on. Every other operation on the communicator is an error until the end,
 * nonblocking messages and a second group included. Messages may differ in type and go to any
 * ranks, this one included. Their buffers must not overlap, but one buffer may be sent to several
 * ranks. A group that is open when the communicator is destroyed is logged as an error and dropped.
 * Errors: ARGUMENT (a group is open). */
ALNICO_API alnico_status_t alnico_group_begin(alnico_comm_t comm);

/* Ends the group and starts it: blocking if `request` is NULL, else nonblocking. A group without
 * messages completes at once. After any error the group is gone. Errors: ARGUMENT (no group is
 * open); UNSUPPORTED (more than 1024 messages in a group that GPU kernels carry out, as while a
 * graph is captured; only this rank gets it, its partners run into their deadline). */
ALNICO_API alnico_status_t alnico_group_end(alnico_comm_t comm, alnico_request_t *request);

/* ---- Operations of a program ---- */

/* Creates an operation that sums what each rank multiplies by its own factor first: the result is the
 * sum over all ranks of factor * send[i], each product rounded to the type. Local; the operation belongs
 * to this communicator.
 *
 *     float factor = 0.125f;
 *     alnico_op_create_premultiplied_sum(comm, &factor, ALNICO_FLOAT32, ALNICO_DEVICE_CPU, &scaled);
 *     alnico_reduce_scatter(gradient, shard, n, ALNICO_FLOAT32, scaled, comm);
 *     alnico_op_destroy(comm, scaled);
 *
 * factor: one element of `type`. device: where it is. ALNICO_DEVICE_CPU: read now. ALNICO_DEVICE_CUDA, for
 * a communicator of GPUs: in memory that its GPU reads, at each call, in the order of the stream; it
 * must stay there until then, in a graph until its last replay.
 *
 * The operation is for calls with this type, of allreduce, reduce and the reduce-scatters, in place or
 * not, blocking or not, captured too. All ranks of such a call pass one that they have created. One rank
 * alone multiplies, too. Where `recv` cannot hold the products (a reduce at other ranks than the root, a
 * reduce-scatter) the call takes memory for them, in the order of the stream.
 *
 * Errors: ARGUMENT (NULL, an unknown type or device, a factor on a GPU for the CPU, memory that the
 * communicator's GPU does not read); MEMORY. */
ALNICO_API alnico_status_t alnico_op_create_premultiplied_sum(alnico_comm_t comm,
                                                              const void *factor,
                                                              alnico_datatype_t type,
                                                              alnico_device_t device,
                                                              alnico_op_t *out);

/* Destroys an operation of this communicator, which no later call uses; those that have begun keep it.
 * The end of the communicator destroys all. Errors: ARGUMENT (none that it has). */
ALNICO_API alnico_status_t alnico_op_destroy(alnico_comm_t comm, alnico_op_t op);

/* ---- Requests ---- */

/* Makes the communicator's stream wait for the request; the host does not wait, except on the
 * inline stream, where the caller is the stream. Requests may be waited for in any order. Sets
 * *request to NULL. Errors: ARGUMENT (NULL, or nothing to wait for); on the inline stream the
 * operation's own status. */
ALNICO_API alnico_status_t alnico_wait(alnico_request_t *request);

/* Tests without waiting whether the operation is complete, and makes progress where the library has
 * no thread for it. When complete, sets *done and *request to NULL, and returns the operation's
 * status. Errors: UNSUPPORTED (the operation was captured into a graph: only alnico_wait joins it).
 */
ALNICO_API alnico_status_t alnico_test(alnico_request_t *request, bool *done);

/* Blocks the host until the request is complete. Sets *request to NULL and returns the operation's
 * status. Errors: UNSUPPORTED, as for alnico_test. */
ALNICO_API alnico_status_t alnico_request_synchronize(alnico_request_t *request);

/* Blocks the host until everything started on the communicator is complete. Returns the latched
 * error, if any. */
ALNICO_API alnico_status_t alnico_synchronize(alnico_comm_t comm);

#ifdef __cplusplus
}
#endif

#endif
