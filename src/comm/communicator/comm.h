/* What a communicator is made of, for the rooms of the comm floor. */
#ifndef ALNICO_COMM_COMMUNICATOR_COMM_H
#define ALNICO_COMM_COMMUNICATOR_COMM_H

#include "comm/communicator/failure_detector.h"
#include "comm/communicator/pointer_cache.h"
#include "comm/transports/transport.h"
#include "comm/tuning/tuning.h"
#include "device/device.h"
#include "device/topology.h"
#include "progress/pool.h"
#include "progress/progress.h"
#include "progress/tickets.h"

#include <pthread.h>
#include <stdatomic.h>

/* What a created communicator shares with its duplicates and splits. */
struct family {
    atomic_int members;
    struct engine *engine;
    struct pool pool;
    struct topology topology;
    struct settings settings; /* rank 0's */
    struct tuning tuning;     /* from rank 0's file; it may have no rows */
};

/* The first error of a communicator, kept for all later calls. Any thread. */
struct latch {
    pthread_mutex_t lock;
    atomic_int status;
    char detail[512];
};

struct engine_operation;
struct staging;
struct peer_state;
struct peer_cuda_state;
struct shared_state;
struct nccl_state;
struct stream_operation;
struct alnico_registration;

/* Of what the device carries out for a communicator: streamed.h. */
struct stream_operations {
    void *stream; /* where nonblocking operations run; NULL before the first */
    struct stream_operation *all;
    /* The newest eager and the newest captured one, unless the communicator's stream waits for
     * it. */
    struct stream_operation *last[2];
    struct device_event *front; /* where the communicator's stream was when the newest began */
    struct device_event *fence; /* where a stream was when the host began to wait for it */
};

/* By set_algorithm, or a variable like ALNICO_ALLREDUCE; NULL: by the table. */
struct forced {
    const struct algorithm *algorithm;
    const struct tuning_backend *backend;
};

/* What was recorded since group_begin: `at` of a span is an address. */
struct group {
    bool open;
    struct exchange *messages;
    int count, room;
};

struct alnico_comm {
    _Atomic uint32_t magic;
    int id; /* equal on all its ranks, for messages */
    int rank, size;
    int hosts;                  /* machines that its ranks are spread over */
    int local_rank, local_size; /* among the ranks of this machine */
    bool crowded;               /* more of them than units: a waiting rank must not spin */
    const struct device_ops *device;
    int device_index; /* which of the devices of its kind */
    void *stream;
    bool inline_stream; /* the stream is the caller */
    struct family *family;
    struct transport *transport;

    struct tuning_steps tuning; /* what the table says for these ranks */
    struct forced forced[COLLECTIVES];
    uint64_t sequence;   /* operations called so far */
    uint64_t next_chunk; /* number of their chunks: what the host backend's tags are made of */

    /* Of the backends that these are called after; NULL: cannot work here. */
    struct peer_state *peer;
    struct peer_cuda_state *peer_cuda;
    struct shared_state *shared;
    struct nccl_state *nccl;
    struct stream_operations stream_operations;
    struct alnico_registration *registrations;
    struct pointer_cache pointer_cache; /* about the memory of calls */

    struct group group;

    struct lane lane, messages_lane;
    struct tickets messages; /* of operations of messages, which post in the order of the calls */
    atomic_int in_flight;    /* submitted to the engine and not retired */
    /* The host backend's operations: a queue of those not yet free again, and those free. */
    struct engine_operation *issued, *issued_last, *spare;
    struct staging *staging; /* the host backend's; NULL where the host reaches the buffers */

    atomic_bool aborted;
    struct latch latch;
    struct failure_detector detector;
};

/* Whether the handle is a live communicator; otherwise an error that names `who`. */
alnico_status_t comm_check(alnico_comm_t comm, const char *who);

/* Keeps the first error of the communicator; `detail` as printf gives it. Any thread. */
void comm_latch(alnico_comm_t comm, alnico_status_t status, const char *detail);

/* The latched error, recorded as the thread's detail; SUCCESS if there is none. */
alnico_status_t comm_latched(alnico_comm_t comm);

/* Makes the communicator's device the calling thread's; returns which was, for comm_leave. */
int comm_enter(alnico_comm_t comm);
void comm_leave(alnico_comm_t comm, int before);

/* Before a call for which CUDA may wait for streams: what the engine has in flight comes to its end
 * first, since CUDA holds a lock then that the engine's copies need, which those streams may wait
 * for. For a second at most, and a quarter of the deadline, which others wait for this rank with: an
 * operation may wait for a rank that waits here. Memory of the host needs none of this. */
void comm_settle(alnico_comm_t comm);

/* What its backends found by themselves becomes its latched error; then as comm_latched. */
alnico_status_t comm_health(alnico_comm_t comm);

/* With nothing in flight: whether another rank has given up, which becomes the latched error. A
 * message may have been sent before its receiver found that it expects another. */
void comm_listen(alnico_comm_t comm);

/* How something that has ended went: comm_health, and where a backend misleads, whether another
 * rank had given up, which becomes the latched error; that takes a moment in which reports come. */
alnico_status_t comm_confirm(alnico_comm_t comm);

/* Whether a backend misleads and another rank has given up: so must this one. */
bool comm_warned(alnico_comm_t comm);

/* Latches TIMEOUT unless there is an error, and aborts what the backends have in flight; where one
 * misleads, the other ranks are told first. `waited`: for how many seconds, so far. */
void comm_give_up(alnico_comm_t comm, double waited);

/* Blocks until nothing of the communicator is in flight, pumping its engine if that has no
 * thread. */
void comm_drain(alnico_comm_t comm);

/* An allgather over the transport, on the caller's thread: `bytes` from `mine` of every rank into
 * `all`. Used where a communicator is made or set, never in a collective. TIMEOUT names a rank that
 * did not come. `engine` may be NULL; one without a thread is pumped meanwhile. */
alnico_status_t comm_exchange(struct transport *transport, struct engine *engine, double timeout,
                              const char *who, const void *mine, void *all, size_t bytes);

/* The same between a communicator's ranks, until its deadline, or until an error is latched, which
 * it returns. */
alnico_status_t comm_allgather(alnico_comm_t comm, const char *who, const void *mine, void *all,
                               size_t bytes);

/* The same in a public call. What fails is latched: some ranks may have got what others did not,
 * and a rank that comes later would find, and leave, messages of a call that was given up. */
alnico_status_t comm_agree(alnico_comm_t comm, const char *who, const void *mine, void *all,
                           size_t bytes);

/* All ranks learn how a step went for all of them: *status, this rank's own, becomes that of the
 * lowest rank that failed, with "rank N: " before its detail. Errors: comm_allgather's, MEMORY. */
alnico_status_t comm_agree_status(alnico_comm_t comm, const char *who, alnico_status_t *status);

/* An allgather of the communicator's ranks as a callback; `context` is a struct comm_caller. */
struct comm_caller {
    alnico_comm_t comm;
    const char *who;
    bool failed; /* the allgather itself, the last time */
};
alnico_status_t comm_allgather_called(void *context, const void *mine, void *all, size_t bytes);

/* The same as the first that a public call exchanges, at most AGREE_BYTES. MISMATCH on every rank,
 * which changes nothing, if they do not say the same `what`; the detail has the `who` of two. */
enum { AGREE_BYTES = 320 };
alnico_status_t comm_agree_first(alnico_comm_t comm, const char *what, const char *who,
                                 const void *mine, void *all, size_t bytes);

/* Rank 0's `bytes` bytes of `data` become every rank's; otherwise as comm_exchange. At most INT_MAX
 * bytes. */
alnico_status_t comm_broadcast(struct transport *transport, struct engine *engine, double timeout,
                               const char *who, void *data, size_t bytes);

/* Ranks of one host that MPI carries messages for leave it for shared memory, where they can
 * (collective): MPI asks the processor more for each message, and the rest is the same. */
alnico_status_t comm_leave_mpi(alnico_comm_t comm, const char *who);

/* How the ranks of a new communicator meet (collective): they learn each other's places and rank
 * 0's settings and table, and its family gets an engine. Errors: the exchange's, ARGUMENT (rank 0's
 * settings; two ranks on one GPU), MEMORY, SYSTEM. */
alnico_status_t comm_setup(alnico_comm_t comm, const char *who);

/* Makes a communicator over a transport, which it takes over even on failure (collective). `family`
 * is NULL for a new one. */
alnico_status_t comm_build(struct transport *transport, struct family *family,
                           const struct device_ops *device, void *stream, const char *who,
                           alnico_comm_t *out);

/* Blocking and nonblocking requests. */
struct alnico_request {
    alnico_comm_t comm;
    const struct backend_ops *backend;
};

#endif
