/* The hierarchical backend, for the registry and its own files: its slots, and what it keeps. */
#ifndef ALNICO_COMM_BACKENDS_HIERARCHICAL_HIERARCHICAL_H
#define ALNICO_COMM_BACKENDS_HIERARCHICAL_HIERARCHICAL_H

#include "comm/communicator/comm.h"

extern const struct backend_ops hierarchical_ops;
extern const struct algorithm algorithm_hierarchical;

/* The communicators that the backend makes for itself: of the ranks of this host, and of the ranks of
 * this seat, one of each host. */
enum level { INSIDE, BETWEEN, LEVELS };

/* For a communicator of several hosts. */
struct hierarchical_state {
    bool tried; /* to make the communicators */
    /* INSIDE: NULL before they are made, or where they could not be; on all ranks, or on none.
     * BETWEEN: NULL also on seats that the smallest host lacks. An abort may read them. */
    _Atomic(alnico_comm_t) comms[LEVELS];
    int *names[LEVELS]; /* the ranks of each, as the owner numbers them */

    /* Each level's own stream; events in the order of the caller's stream, and of each level's. */
    void *streams[LEVELS];
    struct device_event *called, *reached[LEVELS];
};

static inline struct hierarchical_state *hierarchical_state_of(const struct alnico_comm *comm)
{
    return comm->state[BACKEND_HIERARCHICAL];
}

/* Makes the communicators (collective). An error is one that separates this rank from others; where
 * they only cannot be made there are none. */
alnico_status_t hierarchical_make(alnico_comm_t comm, const char *who);

/* Destroys them; nothing is in flight. */
void hierarchical_end(alnico_comm_t comm);

/* True if the levels can carry out the call; equal on all ranks. */
bool hierarchical_can(const struct alnico_comm *comm, const struct call *call);

/* Enqueues the call on the levels' streams, between what `stream` was given before and later. */
alnico_status_t hierarchical_launch(alnico_comm_t comm, const struct call *call,
                                    const struct choice *choice, void *stream);

#endif
