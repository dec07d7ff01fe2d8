/*
 * [SEAM backend] A way to carry out a whole collective: "host" by an operation of the progress
 * engine, others by the device itself. The public calls check and choose, then call start. Slots are mandatory unless they
 * say otherwise, and called on the thread that calls on the communicator.
 */
#ifndef ALNICO_COMM_BACKENDS_BACKEND_H
#define ALNICO_COMM_BACKENDS_BACKEND_H

#include "comm/algorithms/algorithm.h"
#include "comm/call.h"

struct backend;

/* The backend that carries out a call, and how: by a row of the tuning table, or a forced name. */
struct choice {
    const struct backend *backend;
    const struct algorithm *algorithm;
    size_t chunk_bytes;
    int blocks; /* of a kernel's grid; 0: the backend's own default */
};

struct backend_ops {
    const char *about; /* one line */
    const char *needs; /* what a call must be like, for who forces one that is not */
    bool capturable;   /* start may be called while a graph is captured */

    /* When a communicator is made (collective): prepares what the backend keeps for it, where it
     * can work there at all, and takes scratch by comm_take_scratch. Optional. Errors name `who`; all ranks get
     * the same status. */
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

    /* Adds the memory that it has for the communicator on this rank: where it is, and what of it is scratch.
     * Optional: none. */
    void (*memory)(alnico_comm_t comm, alnico_comm_memory_t *sum);

    /* An error that it found by itself since, with its detail recorded; it is then latched. Called
     * first in every public call. Optional. */
    alnico_status_t (*health)(alnico_comm_t comm);

    /* Looks, with nothing in flight, whether another rank aborted in a way that this one's
     * operations need not have noticed; health then knows. Optional. */
    void (*listen)(alnico_comm_t comm);

    /* Ends what is in flight without waiting for other ranks. Any thread, any number of times.
     * Optional. */
    void (*abort)(alnico_comm_t comm);

    /* Whether operations of other ranks may end as though they had gone well when this rank aborts
     * the same: then it reports its failure to them first, and success is believed only after
     * listening (communicator/abort.c). Any thread. Optional: never. */
    bool (*misleads)(alnico_comm_t comm);

    /* Makes registered memory known to the ranks (collective; all get the same status), and
     * forgets it, with nothing in flight. Memory that it cannot use it leaves alone; an error is
     * for memory that no call could use. Optional. */
    alnico_status_t (*enroll)(alnico_comm_t comm, struct alnico_registration *registration,
                              const char *who);
    void (*withdraw)(alnico_comm_t comm, struct alnico_registration *registration);

    /* An algorithm that supports refuses for this call: whether both buffers registered would make it
     * able; and with `call` NULL, whether it has any such algorithm here. Memory that ranks allocate or
     * register by themselves is then enrolled in a call, which may be captured
     * (communicator/sharing.h). A function of what is equal on all ranks. Optional: never. */
    bool (*direct)(alnico_comm_t comm, const struct call *call, const struct algorithm *algorithm);

    /* Begins it, ordered after what the communicator's stream was given before. With `request` NULL
     * the stream's later work comes after it (on the inline stream: it has ended on return).
     * Otherwise the stream goes on, and *request is set. */
    alnico_status_t (*start)(alnico_comm_t comm, const struct call *call,
                             const struct choice *choice, alnico_request_t *request);

    /* Enqueues it on a stream: for stream_operation_start, which is then `start`. Otherwise NULL. */
    alnico_status_t (*launch)(alnico_comm_t comm, const struct call *call,
                              const struct choice *choice, void *stream);
};

/* A row of the registry. It is there in every build, so that all read the same tuning files. Where
 * a backend does not work in rounds, its algorithms have a name and an `about` only. */
struct backend {
    const char *name;            /* "host"; one may be there twice, for different devices */
    unsigned devices;            /* 1u << device of each that it serves */
    int ranks_least, ranks_most; /* of a communicator; its tuning rows count there only */
    int hosts_most;
    const struct algorithm *const *algorithms[COLLECTIVES]; /* each list ends with NULL */
    const struct backend_ops *ops;                          /* NULL: this build lacks it */
};

/* Every backend, in the order in which they attach. To add one, add its line, and to its folder a
 * struct backend, backend_NAME. */
#define BACKENDS_EACH(ROW)                                                                         \
    ROW(HOST, host)                                                                                \
    ROW(AWARE, aware)                                                                              \
    ROW(PEER, peer)                                                                                \
    ROW(PEER_CUDA, peer_cuda)                                                                      \
    ROW(SHARED, shared)                                                                            \
    ROW(NCCL, nccl)                                                                                \
    ROW(COMPOSED, composed)                                                                        \
    ROW(HIERARCHICAL, hierarchical)

/* BACKEND_HOST, ...: where a backend keeps its state in a communicator or registration. */
#define BACKEND_INDEX(INDEX, NAME) BACKEND_##INDEX,
enum backend_index { BACKENDS_EACH(BACKEND_INDEX) BACKENDS };
#define BACKEND_EXTERN(INDEX, NAME) extern const struct backend backend_##NAME;
BACKENDS_EACH(BACKEND_EXTERN)

extern const struct backend *const backends[BACKENDS];

/* That of the name for the device, or NULL. */
const struct backend *backend_find(const char *name, int device);

/* Its algorithm of that name, or NULL. */
const struct algorithm *backend_algorithm(const struct backend *backend, int collective,
                                          const char *name);

/* The i-th algorithm that a device has for a collective, over all its backends in their order; NULL
 * after the last. *backend (may be NULL) is whose. */
const struct algorithm *backend_algorithm_at(int device, int collective, int i,
                                             const struct backend **backend);

/* The first of that name, or NULL. */
const struct algorithm *backend_algorithm_named(int device, int collective, const char *name,
                                                const struct backend **backend);

#endif
