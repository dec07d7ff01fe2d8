/*
 * [SEAM transport] Messages between the ranks of one communicator.
 *
 * A resident embeds struct transport and fills one struct transport_ops. Messages match by (sender,
 * tag), in the order of their sending; the bytes of both sides must be equal. isend, irecv, test,
 * cancel and now never block. They are called by the engine's thread and by a caller who runs an
 * operation himself, at the same time where the resident says `concurrent`. Slots are mandatory
 * unless they say otherwise.
 */
#ifndef ALNICO_COMM_TRANSPORTS_TRANSPORT_H
#define ALNICO_COMM_TRANSPORTS_TRANSPORT_H

#include "comm/agree.h"
#include "device/backoff.h"

#include <alnico/alnico.h>

#include <stdint.h>

/* One message on its way, in the resident's own words. The owner keeps it in place until test says
 * that it ended, or cancel. */
struct transfer {
    uintptr_t word[4];
};

enum { TRANSPORT_ANY = -1 }; /* as `from`: any rank that sends with that tag */

/* Tags below TAG_OPERATIONS are the communicator's own, and that of messages between two ranks;
 * collectives use TAG_OPERATIONS to tags - 1. */
enum {
    TAG_OUT_OF_BAND,
    TAG_REPORT,
    TAG_MESSAGE,
    TAG_CONSENSUS,
    TAG_SHRINK,
    SHRINK_TAGS = 16,
    TAG_OPERATIONS = TAG_SHRINK + SHRINK_TAGS
};

struct transport {
    const struct transport_ops *ops;
    int rank, size;
    uint32_t tags;    /* how many tags there are, from 0; at least 32767 */
    bool concurrent;  /* several threads may call at once */
    bool sends_first; /* an exchange is faster with its sends posted before its receives */
    bool broken;      /* set by the owner before destroy: there may be unreceived messages */
};

struct transport_ops {
    const char *name; /* "mpi", "local", "shm", "tcp" */

    /* The buffer belongs to the transfer until it ends. bytes may be 0, and at most INT_MAX. */
    alnico_status_t (*isend)(struct transport *, int to, uint32_t tag, const void *buffer,
                             size_t bytes, struct transfer *out);
    alnico_status_t (*irecv)(struct transport *, int from, uint32_t tag, void *buffer, size_t bytes,
                             struct transfer *out);

    /* ALNICO_PENDING, or how it ended; MISMATCH if the other side's size differs. */
    alnico_status_t (*test)(struct transport *, struct transfer *);

    /* Ends a transfer without waiting for the other side. Afterwards a receive writes nothing. False
     * for a send whose buffer the other side may still read. */
    bool (*cancel)(struct transport *, struct transfer *);

    /* Optional: seconds on its own clock, which never goes back; see transport_now. */
    double (*now)(struct transport *);

    /* Optional: whether a rank's process has ended although the rank had not left, so that nothing
     * more comes from it. Asked while an operation stalls; never blocks. */
    bool (*gone)(struct transport *, int rank);

    /* Optional: whether it says that it takes buffers in the memory of GPUs; the caller's thread then
     * is on that GPU. Never asked of one without. */
    bool (*aware)(struct transport *);

    /* Optional: whether a rank has destroyed its end. Asked as `gone`. */
    bool (*left)(struct transport *, int rank);

    /* Optional: adds the bytes that it keeps for messages, as `host` and `shared`. */
    void (*memory)(struct transport *, alnico_comm_memory_t *sum);

    /* A transport for the ranks of `r`, a part of this transport's: called[i] of `r` is the rank i in
     * this transport. Collective over them, which have just agreed to call. All ranks get the same
     * status, unless the allgather fails. */
    alnico_status_t (*subset)(struct transport *, struct rendezvous *r, struct transport **out);

    /* Frees this rank's end. Every transfer has ended or was cancelled. */
    void (*destroy)(struct transport *);
};

/* Seconds on the transport's clock. */
static inline double transport_now(struct transport *t)
{
    return t->ops->now ? t->ops->now(t) : 1e-9 * (double)backoff_now_ns();
}

/* Ranks as threads of one process. A hub is what they share: one rank creates it, for all `size`.
 * It is freed by the last transport that leaves it. */
struct local_hub;
struct local_hub *local_hub_create(int size);
/* So many of its ranks, who have no transport, never will; NULL is fine. */
void local_hub_leave(struct local_hub *hub, int members);
/* Errors: MEMORY; the rank has then left. */
alnico_status_t transport_local_create(struct local_hub *hub, int rank, struct transport **out);
/* A hub and its transports for ranks that meet (collective). All ranks get the same status, unless
 * the allgather fails. */
alnico_status_t transport_local_meet(struct rendezvous *r, struct transport **out);

/* Ranks of one host, in any mix of processes and threads, over shared memory (collective). All ranks
 * get the same status, unless the allgather fails. */
enum {
    SHM_READ_FROM = 4097 /* measured: above the eager limit one copy by the kernel, which pins the
                            sender's pages, is mostly faster than two */
};
struct shm_options {
    size_t read_from;   /* bytes from which a message is read out of another process's memory */
    bool learns;        /* measures whether that or the rings are faster (shm/calibrate.c) */
    bool through_rings; /* large messages too: never reads another rank's memory */
};
alnico_status_t transport_shm_create(struct rendezvous *r, const struct shm_options *options,
                                     struct transport **out);

/* Ranks of several hosts, over TCP: a connection between every two (collective). All ranks get the
 * same status, unless the allgather fails. */
struct net_key;
enum { TCP_CONNECTIONS_MOST = 8 };
struct tcp_options {
    const char *interface;     /* this host's, by name or address; "" or NULL: by its routes */
    int connections;           /* of two ranks, which share large messages; rank 0's count */
    const struct net_key *key; /* what only the job's processes know; NULL: the rendezvous', and
                                  else rank 0 makes one, which its allgather tells the others */
    const bool *near;          /* ranks that need no connection, alike on both sides; NULL: none.
                                  Until the transport is made */
};
alnico_status_t transport_tcp_create(struct rendezvous *r, const struct tcp_options *options,
                                     struct transport **out);

/* ---- MPI, in a library part of its own ---- */

/* What the part offers to the library, from when it is loaded on (comm/api/library.h). */
struct mpi_part {
    alnico_status_t (*meet)(struct rendezvous *r, const int *world, struct transport **out);
    int (*world_rank)(void);
};
extern const struct mpi_part transport_mpi_part; /* in the part */
void transport_mpi_attach(const struct mpi_part *part);

/* In the part: over MPI. `mpi_comm` points to an MPI_Comm (this header knows no MPI), which is duplicated; waits
 * for the other ranks for at most `timeout` seconds. */
alnico_status_t transport_mpi_create(const void *mpi_comm, double timeout, struct transport **out);

/* If the part is attached: over MPI for processes that found each other otherwise: world[i] is rank i's in MPI_COMM_WORLD.
 * NULL: this rank has failed, and takes part. All ranks get the same status, unless the allgather
 * fails. */
alnico_status_t transport_mpi_meet(struct rendezvous *r, const int *world, struct transport **out);

/* This process's rank in MPI_COMM_WORLD, or -1 if the part is not attached, or MPI not initialised or
 * already finalised. */
int transport_mpi_world_rank(void);

#endif
