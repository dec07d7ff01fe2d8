/* A communicator and its life's parts, for the rooms above: operations, backends and the public
 * calls. */
#ifndef ALNICO_COMM_COMMUNICATOR_COMM_H
#define ALNICO_COMM_COMMUNICATOR_COMM_H

#include "comm/backends/backend.h"
#include "comm/communicator/failure_detector.h"
#include "comm/communicator/pointer_cache.h"
#include "comm/communicator/watchdog.h"
#include "comm/transports/transport.h"
#include "comm/tuning/settings.h"
#include "comm/tuning/tuning.h"
#include "device/device.h"
#include "device/topology.h"
#include "progress/pool.h"
#include "progress/progress.h"
#include "progress/tickets.h"

#include <pthread.h>
#include <stdatomic.h>

/* Parts that a created communicator shares with its duplicates and splits. */
struct family {
    atomic_int members;
    struct engine *engine;
    struct pool pool;
    struct topology topology;
    struct settings settings; /* rank 0's */
    struct tuning tuning;     /* from rank 0's file; it may have no rows */
    struct watchdog watchdog;
};

/* The first error of a communicator, kept for all later calls. Any thread. */
struct latch {
    pthread_mutex_t lock;
    atomic_int status;
    char detail[512];
};

struct consensus;
struct sharing;
struct engine_operation;
struct stream_operation;

/* The state of operations/stream_operation.c: operations that the device carries out. */
struct stream_operations {
    void *stream; /* where nonblocking operations run; NULL before the first */
    struct stream_operation *all;
    /* The newest eager and the newest captured one, unless the communicator's stream waits for
     * it. */
    struct stream_operation *last[2];
    struct device_event *front; /* where the communicator's stream was when the newest began */
    struct device_event *fence; /* where a stream was when the host began to wait for it */
    struct device_event *tail; /* where the communicator's stream was after the newest eager call */
    bool moved;                /* the communicator was given another stream after its creation */
    bool marked;               /* `tail` stands for the last eager stream */
    bool captured;             /* the newest call was captured, or its stream was when it came */
    bool in_graph;             /* the communicator got its stream while that was captured */
    void *eager;               /* the last stream before */
};

/* Messages recorded since group_begin: `at` of a span is an address. */
struct group {
    bool open;
    struct exchange *messages;
    int count, room;
};

/* An operation that the program has created: see comm/api/premultiplied.h. */
struct created_op {
    struct created_op *next;
    int number; /* its value, counted from CREATED_OP */
    alnico_datatype_t type;
    struct device_scalar factor;
};

struct alnico_comm {
    _Atomic uint32_t magic;
    int id; /* equal on all its ranks, for messages */
    int rank, size;
    struct host_map *map;       /* which rank is on which machine */
    int hosts;                  /* machines that its ranks are spread over */
    int local_rank, local_size; /* among the ranks of this machine */
    bool crowded;               /* more ranks than units to run on: a waiting rank must not spin */
    const struct device_ops *device;
    int device_index; /* which of the devices of its kind */
    void *stream;
    bool inline_stream;   /* the stream is the caller */
    const int *called;    /* while it is made, and of an owned one: as struct creation says */
    alnico_comm_t parent; /* while it is made, too */
    alnico_comm_t
        owner; /* whose backend calls on it, as struct creation says; NULL: the user does */
    const struct call *served; /* the owner's, while that one's backend calls */
    struct family *family;
    struct transport *transport;

    struct tuning_steps tuning; /* the table's rows for these ranks */
    /* By set_algorithm, or a variable like ALNICO_ALLREDUCE; `algorithm` NULL: by the table. */
    struct choice forced[COLLECTIVES];
    uint64_t sequence;   /* operations called so far */
    uint64_t next_chunk; /* number of their chunks, by which tags of messages differ */

    /* This build's backends for its device, ended by NULL; and the state of each, by its index: NULL
     * where it cannot work. */
    const struct backend_ops *backends[BACKENDS + 1];
    void *state[BACKENDS];
    alnico_limits_t limits;
    size_t scratch_left;  /* of the limit's, while backends attach */
    size_t scratch_least; /* that would have let in one more, which was left out; 0: none was */
    bool called_on;       /* an operation was called, so that the limits stay */
    struct stream_operations stream_operations;
    struct alnico_registration *registrations;
    struct sharing *sharing; /* memory that ranks share by themselves; NULL: they cannot */
    struct pointer_cache pointer_cache; /* about the memory of calls */

    struct created_op *created_ops;
    int last_op;                   /* the number of the last one created */
    struct premultiplied *scratch; /* of nonblocking calls of theirs */

    struct group group;

    struct lane lane, messages_lane;
    struct tickets messages; /* of operations of messages, which post in the order of the calls */
    atomic_int in_flight;    /* submitted to the engine and not retired */
    /* Operations of the engine: a queue of those not yet free again, and those free. */
    struct engine_operation *issued, *issued_last, *spare;

    atomic_bool aborted;
    struct latch latch;
    struct failure_detector detector;
    struct consensus *consensus; /* of alnico_comm_shrink; NULL before the first */
    uint32_t shrinks;            /* communicators that it has tried to make */
    struct watch watch;          /* the watchdog's */
};

/* The calls on a request: of the engine's operations, or of a stream's. All slots are mandatory. */
struct request_ops {
    /* The communicator's stream waits for the request; on the inline stream the caller does. */
    alnico_status_t (*join)(alnico_request_t request);

    /* ALNICO_PENDING, or how it ended. May make progress. */
    alnico_status_t (*test)(alnico_request_t request);

    /* Blocks the caller until it has ended; how it did. */
    alnico_status_t (*synchronize)(alnico_request_t request);

    /* The user has no more use for the request. */
    void (*release)(alnico_request_t request);
};

/* The head of every request. */
struct alnico_request {
    alnico_comm_t comm;
    const struct request_ops *ops;
};

/* Arguments of comm_create. */
struct creation {
    struct transport *transport; /* taken over, even on failure */
    struct family *family;       /* NULL for a new one */
    const struct device_ops *device;
    void *stream;
    alnico_limits_t limits;
    const char *who; /* the public call */
    const int
        *called; /* its ranks in the communicator that was called, for errors; NULL: the same */
    /* The communicator that was called, whose failure detector the ranks use until the new one is made;
     * NULL: there is none, or it has failed. */
    alnico_comm_t parent;
    /* The communicator whose backend has made this one for itself; NULL: the user has made it. Ranks
     * report failures to all ranks of the owner, an error of either is an error of both, and errors
     * name ranks by `called`, which stays. */
    alnico_comm_t owner;
    unsigned without; /* 1u << index of each backend that it shall not have */
};

/* A communicator whose backends are not attached yet. Collective. Errors: the setup's, MEMORY. */
alnico_status_t comm_create(const struct creation *made, alnico_comm_t *out);

/* For a backend that attaches: takes so many bytes of the scratch that the limits leave, or says in the log that
 * they do not leave them. Equal on all ranks if `bytes` is. */
bool comm_take_scratch(alnico_comm_t comm, const char *backend, size_t bytes);

/* From open to close comm_check accepts it. */
void comm_open(alnico_comm_t comm);
void comm_close(alnico_comm_t comm);

/* Frees everything but the handle's memory. Its operations and backends have ended. */
void comm_free(alnico_comm_t comm);

/* How the ranks of a new communicator meet (collective): they learn each other's places and rank
 * 0's settings and table, and its family gets an engine; ranks of one host leave MPI for shared
 * memory, and those of several hosts for TCP where rank 0 asks for it. `comm` is NULL on a rank that
 * has no memory for it, and fails. `mine` is how this rank has fared. Errors, on all ranks if on one: `mine`, the exchange's, ARGUMENT (rank 0's settings; two
 * ranks on one GPU), MEMORY, SYSTEM. */
alnico_status_t comm_setup(alnico_comm_t comm, const struct creation *made, alnico_status_t mine);

/* Blocks until nothing of the communicator is in flight, pumping its engine if that has no
 * thread. */
void comm_drain(alnico_comm_t comm);

/* Whose failure detector the ranks of a communicator use. */
static inline alnico_comm_t comm_told(alnico_comm_t comm)
{
    return comm->owner ? comm->owner : comm;
}

/* The number that errors give to a rank. */
static inline int comm_name(const struct alnico_comm *comm, int rank)
{
    return comm->called ? comm->called[rank] : rank;
}

/* Whether the handle is a live communicator; otherwise an error that names `who`. */
alnico_status_t comm_check(alnico_comm_t comm, const char *who);

/* comm_check, and it has no latched error. */
alnico_status_t comm_usable(alnico_comm_t comm, const char *who);

/* No group is open. */
alnico_status_t comm_group_closed(alnico_comm_t comm, const char *who);

/* All of these. */
alnico_status_t comm_ready(alnico_comm_t comm, const char *who);

/* Makes it the communicator's stream. */
void comm_follow_stream(alnico_comm_t comm, void *stream);

/* Makes the communicator's device the calling thread's; returns which was, for comm_leave. */
int comm_enter(alnico_comm_t comm);
void comm_leave(alnico_comm_t comm, int before);

/* Before a call for which CUDA may wait for streams: waits until the engine is idle, since CUDA
 * holds a lock then that the engine's copies need, which those streams may wait for. For a second at
 * most, and a quarter of the deadline, which others wait for this rank with: an operation may wait
 * for a rank that waits here. Memory of the host needs none of this. */
void comm_settle(alnico_comm_t comm);

/* Keeps the first error of the communicator, and of its owner; `detail` as printf gives it. Any
 * thread. */
void comm_latch(alnico_comm_t comm, alnico_status_t status, const char *detail);

/* The latched error, recorded as the thread's detail; SUCCESS if there is none. */
alnico_status_t comm_latched(alnico_comm_t comm);

/* Latches the errors that its backends found by themselves; then as comm_latched. */
alnico_status_t comm_health(alnico_comm_t comm);

/* A wait for other ranks that is no operation's. */
struct comm_wait {
    const char *who; /* the public call */
    double timeout;
    double waited; /* seconds that it has lasted */
    int awaited;   /* for which rank; -1: for none in particular */
};

/* Gives it up: tells the others so, learns from them who did not come, and latches that. Returns the
 * latched error. */
alnico_status_t comm_give_up(alnico_comm_t comm, const struct comm_wait *wait);

/* With nothing in flight: whether another rank has aborted, which becomes the latched error. A
 * message may have been sent before its receiver found that it expects another. */
void comm_listen(alnico_comm_t comm);

/* How something that has ended went: comm_health, and where a backend misleads, whether another
 * rank had aborted, which becomes the latched error; that takes a moment in which reports come. */
alnico_status_t comm_confirm(alnico_comm_t comm);

/* Whether a backend misleads and another rank has aborted: so must this one. */
bool comm_warned(alnico_comm_t comm);

/* Latches TIMEOUT unless there is an error, and aborts what the backends have in flight; where one
 * misleads, the other ranks get a report first. `waited`: for how many seconds, so far. */
void comm_abort(alnico_comm_t comm, double waited);

/* Ends what is in flight on this rank, and tells the others, whatever the communicator's state: if it
 * had no error, it has ABORTED. */
void comm_revoke(alnico_comm_t comm);

/* The process of that rank has ended, with which operations may be in flight: latches TIMEOUT, reports
 * and aborts. Any thread. */
void comm_lose(alnico_comm_t comm, int rank);

#endif
