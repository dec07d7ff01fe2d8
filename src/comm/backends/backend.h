/*
 * [SEAM backend] A way to carry out a whole collective: "host" by an operation of the progress
 * engine, others by the device itself. The public calls check and choose, then call start; the
 * request functions lead back to the backend that made the request. Slots are mandatory unless they
 * say otherwise, and called on the thread that calls on the communicator.
 */
#ifndef ALNICO_COMM_BACKENDS_BACKEND_H
#define ALNICO_COMM_BACKENDS_BACKEND_H

#include "comm/call.h"
#include "comm/communicator/comm.h"

/* What the table, or a forced name, says about it. */
struct choice {
    const struct backend_ops *backend;
    const struct algorithm *algorithm;
    size_t chunk_bytes;
    int blocks; /* 0: the backend's own default */
};

/* Memory that a user registered with a communicator. */
struct alnico_registration {
    alnico_comm_t comm;
    struct alnico_registration *next;
    char *base;
    size_t bytes;
    void *peer, *nccl; /* what the backends keep for it */
};

struct backend_ops {
    const char *name, *about; /* "host"; one line */
    const char *needs;        /* what a call must be like, for who forces one that is not */
    unsigned devices;         /* 1u << device of each that it serves */
    bool capturable;          /* start may be called while a graph is captured */

    /* When a communicator is made (collective): prepares what the backend keeps for it, where it
     * can work there at all. Optional. Errors name `who`; all ranks get the same outcome. */
    alnico_status_t (*attach)(alnico_comm_t comm, const char *who);

    /* When it is destroyed, with nothing in flight, or could not be made. Optional. */
    void (*detach)(alnico_comm_t comm);

    /* Whether it can carry out the call by the algorithm, and with `call` NULL, whether it can work
     * for the communicator at all. A function of what is equal on all ranks. Optional: always. */
    bool (*supports)(alnico_comm_t comm, const struct call *call,
                     const struct algorithm *algorithm);

    /* Whether calls by the algorithm find what they need; and makes it (collective; it waits for
     * all ranks), as far as that is possible: supports knows then. Before a blocking call, where a
     * name is forced, and where the backend itself wants it; a call that must not wait goes to the
     * next row instead. Both functions of what is equal on all ranks. Both optional: nothing to
     * make. An error is latched. */
    bool (*prepared)(alnico_comm_t comm, const struct algorithm *algorithm);
    alnico_status_t (*prepare)(alnico_comm_t comm, const struct algorithm *algorithm,
                               const char *who);

    /* An error that it found by itself since, with its detail recorded; it is then latched. Called
     * first in every public call. Optional. */
    alnico_status_t (*health)(alnico_comm_t comm);

    /* Looks, with nothing in flight, whether another rank gave up in a way that this one's
     * operations need not have noticed; health then knows. Optional. */
    void (*listen)(alnico_comm_t comm);

    /* Ends what is in flight without waiting for other ranks. Any thread, any number of times.
     * Optional. */
    void (*abort)(alnico_comm_t comm);

    /* Whether operations of other ranks may end as though they had gone well when this rank aborts
     * the same: then it tells them before, and success is believed only after listening
     * (communicator/abort.c). Any thread. Optional: never. */
    bool (*misleads)(alnico_comm_t comm);

    /* Makes registered memory known to the ranks (collective; all get the same outcome), and
     * forgets it, with nothing in flight. What it cannot use it leaves alone; an error is for
     * memory that no call could use. Optional. */
    alnico_status_t (*enroll)(alnico_comm_t comm, struct alnico_registration *registration,
                              const char *who);
    void (*withdraw)(alnico_comm_t comm, struct alnico_registration *registration);

    /* Begins it, ordered after what the communicator's stream was given before. With `request` NULL
     * the stream's later work comes after it (on the inline stream: it has ended on return).
     * Otherwise the stream goes on, and *request is set. */
    alnico_status_t (*start)(alnico_comm_t comm, const struct call *call,
                             const struct choice *choice, alnico_request_t *request);

    /* The communicator's stream waits for the request; on the inline stream the caller does. */
    alnico_status_t (*join)(alnico_request_t request);

    /* ALNICO_PENDING, or how it ended. May make progress. */
    alnico_status_t (*test)(alnico_request_t request);

    /* Blocks the caller until it has ended; how it did. */
    alnico_status_t (*synchronize)(alnico_request_t request);

    /* The user has no more use for the request. */
    void (*release)(alnico_request_t request);
};

/* The residents, ended by NULL. */
extern const struct backend_ops backend_host, backend_peer, backend_peer_cuda, backend_shared,
    backend_nccl;
extern const struct backend_ops *const backend_all[];

/* The resident of that name for the device, or NULL if this build has none. */
const struct backend_ops *backend_find(const char *name, const struct device_ops *device);

/* Calls a slot of every resident that serves the communicator's device. */
#define BACKEND_EACH(OPS, COMM, SLOT)                                                              \
    for (const struct backend_ops *const *each_ = backend_all, *OPS; (OPS = *each_); each_++)      \
        if (OPS->SLOT && OPS->devices & 1u << (COMM)->device->kind)

/* Under ALNICO_CHECK: the blocks that this rank is to write do not overlap. */
alnico_status_t call_check_blocks(alnico_comm_t comm, const struct call *call, const char *who);

/* Of a vector form that all ranks call: whether their counts fit each other (collective). */
alnico_status_t call_compare_counts(alnico_comm_t comm, const struct call *call, const char *who);

/* Under ALNICO_CHECK: compares a call, and `mine`, how its arguments were found, with those of all
 * ranks (collective; it waits for them). `mine` if that is an error, and `call` may then be NULL;
 * the first error of another rank, with its reason; MISMATCH, with what differs. */
alnico_status_t call_compare(alnico_comm_t comm, const struct call *call, bool nonblocking,
                             alnico_status_t mine, const char *who);

/* ---- Registered memory ---- */

/* What holds all of the bytes, or NULL. */
struct alnico_registration *registration_find(const struct alnico_comm *comm, const void *memory,
                                              size_t bytes);

/* Withdraws what is left, where a communicator ends. */
void registration_finish(alnico_comm_t comm);

#endif
