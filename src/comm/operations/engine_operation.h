/* Operations that the progress engine carries out for a backend: order with the stream, deadline,
 * errors, requests and recycling. A backend embeds struct engine_operation, fills one struct work_ops, and
 * adds what is its own. */
#ifndef ALNICO_COMM_OPERATIONS_ENGINE_OPERATION_H
#define ALNICO_COMM_OPERATIONS_ENGINE_OPERATION_H

#include "comm/communicator/comm.h"
#include "progress/gate.h"

/* Waiting: for the stream to open `ready`. Leaving: it aborts, and learns from other ranks why. */
enum engine_operation_phase { OPERATION_WAITING, OPERATION_RUNNING, OPERATION_LEAVING };

enum { BACKEND_LISTS = 2 };

struct engine_operation {
    struct op op;                  /* first: the engine's view */
    struct alnico_request request; /* the user's view */
    struct engine_operation *next; /* in the communicator's lists */
    alnico_comm_t comm;
    const struct work_ops *work;
    bool direct;             /* the caller runs it to its end, and the call outlives it */
    const struct call *call; /* the caller's where it is direct, otherwise `kept` */
    struct call kept;
    size_t *lists; /* of a vector form; see call_keep_lists; then BACKEND_LISTS more, of `size` */
    struct gate ready, done;
    enum engine_operation_phase phase;
    bool claimed;          /* the user holds the request */
    atomic_bool retired;   /* nobody polls it any more */
    alnico_status_t ended; /* how; valid once retired */
    struct call
        served; /* where the communicator has an owner: its call, which is what errors name */
    /* Among the communicator's operations, from 1; of messages, the last before them. Where it has an
     * owner: among the owner's. */
    uint64_t sequence;
    int awaited; /* which rank, when it aborted; -1: all */
    unsigned idle_polls;
    /* When it last advanced, or its turn came; 0 before the first look at the clock. */
    double stalled_at;
    bool overdue; /* at the last look */
};

/* The steps of a backend's operations, called by whoever polls. */
struct work_ops {
    /* The size of the struct that begins with struct engine_operation; zeroed when allocated. */
    size_t bytes;

    /* One step without blocking: ALNICO_PENDING, SUCCESS, or an error. Sets *moved if anything
     * advanced. */
    alnico_status_t (*poll)(struct engine_operation *, bool *moved);

    /* After an error or in an abort: from now on the user's buffers are not touched. */
    void (*cancel)(struct engine_operation *);

    /* Whether it may run: asked before the first poll, while earlier operations of the communicator
     * may be under way. Optional: always. */
    bool (*may_run)(struct engine_operation *);

    /* Whether it cannot advance before an earlier operation has ended, which then has the deadline:
     * asked while it stalls. Optional: never. */
    bool (*is_queued)(struct engine_operation *);

    /* On a real stream, by the caller: opens `ready`, and holds the stream at `done`. Optional: the
     * gates do. */
    alnico_status_t (*open)(struct engine_operation *);
    alnico_status_t (*hold)(struct engine_operation *);

    /* The copies that `hold` has the stream make of what arrived, where the host waits instead: of a
     * retired operation, by the caller on a stream of the library's. The caller may block in the
     * driver, the engine's thread may not. PENDING: they are under way. Optional: there are none. */
    alnico_status_t (*land)(struct engine_operation *);

    /* A retired operation is used again once no stream copies from its memory: whether that is so. Asked
     * by the caller. Optional: always. */
    bool (*is_free)(struct engine_operation *);

    /* The rank that is awaited, for messages, which only two ranks know of. They have a lane of
     * their own, without a window. Optional: an operation of all ranks. */
    int (*awaits)(const struct engine_operation *);

    /* Frees what it has beside its bytes, which nobody uses any more. Optional. */
    void (*finish)(struct engine_operation *);
};

/* An operation for the call, to fill and start; NULL, with the detail, if there is no memory. The
 * call and its lists are copied where it may outlive them. */
struct engine_operation *engine_operation_take(alnico_comm_t comm, const struct work_ops *work,
                                               const struct call *call, alnico_request_t *request);

/* Takes back an operation that is not started. */
void engine_operation_put_back(struct engine_operation *o);

/* Starts it, as backend_ops->start says. */
alnico_status_t engine_operation_start(struct engine_operation *o, alnico_request_t *request);

/* Blocks until the results are there of all operations that have retired and whose requests the user
 * holds. */
void engine_operation_land(alnico_comm_t comm);

/* With nothing in flight: how many requests failed that the user still holds, and in `text`, of 512
 * bytes or more, the calls of some. */
int engine_operation_name_failed(alnico_comm_t comm, char *text, size_t bytes);

/* Frees all operations of a communicator; nothing is in flight. */
void engine_operation_finish(alnico_comm_t comm);

#endif
