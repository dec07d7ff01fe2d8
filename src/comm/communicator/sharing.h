/*
 * Memory that ranks of a host share without a collective call. A rank's memory of alnico_memory_allocate, or
 * what it has registered by itself, counts as registered in a call in which all ranks vote that both their
 * buffers lie in such memory; the first such call makes it reachable, by the backends' `enroll`. On the
 * thread that calls on the communicator.
 *
 * Each rank keeps the same table of what is shared, which only votes that all came to change. What a rank has
 * removed no vote finds again; the others let go of it in their next calls.
 */
#ifndef ALNICO_COMM_COMMUNICATOR_SHARING_H
#define ALNICO_COMM_COMMUNICATOR_SHARING_H

#include "comm/backends/backend.h"
#include "comm/rendezvous/out_of_band.h"

enum { SHARING_RANKS = 8 };

/* When a communicator's backends are attached, and before they are detached (collective): prepares for it, if a
 * backend may want it and the ranks can share memory of the host. Errors: the exchange's, MEMORY. */
alnico_status_t sharing_attach(alnico_comm_t comm, const char *who);
void sharing_detach(alnico_comm_t comm);

/* Counts a collective; in each that all ranks call, whatever becomes of it. Then whether there may be anything
 * to vote about: if not, no question needs to be asked. */
bool sharing_begin(alnico_comm_t comm);

/* A call's two buffers: `alone` holds this rank's block only, and may be anywhere. */
struct sharing_side {
    const void *memory;
    size_t bytes;
    bool alone;
};

/* After sharing_begin, in a call that would go another way if its buffers were registered, which is equal on all
 * ranks. *agreed: they are, until sharing_end. Waits for other ranks' votes for a moment at most, and for
 * `captured` a second; once all have voted for it, as long as sharing takes. Errors: those that are
 * latched. */
alnico_status_t sharing_agree(alnico_comm_t comm, const struct sharing_side sides[2], bool captured,
                              const char *who, bool *agreed);
void sharing_end(alnico_comm_t comm);

/* The shared memory that holds the bytes, in a call that the ranks agreed on; otherwise NULL. */
struct alnico_registration *sharing_find(const struct alnico_comm *comm, const void *memory,
                                         size_t bytes);

/* Lets go of what other ranks have removed. */
void sharing_sweep(alnico_comm_t comm);

/* Bytes of the host that the ranks map for it, this rank's part. */
size_t sharing_bytes(const struct alnico_comm *comm);

#endif
