/* Exchanges between the ranks of a communicator that are no collectives: where it is made, set or
 * checked. Each rank waits until the communicator's deadline, or until an error is latched, which is
 * then the result. A rank that has failed takes part, so that nobody waits for it. On the caller's
 * thread. */
#ifndef ALNICO_COMM_COMMUNICATOR_OUT_OF_BAND_H
#define ALNICO_COMM_COMMUNICATOR_OUT_OF_BAND_H

#include "comm/agree.h"
#include "comm/rendezvous/out_of_band.h"

/* `bytes` from `mine` of every rank into `all`. TIMEOUT names a rank that did not come. What fails is
 * latched: some ranks may have got what others did not, a rank that comes later would find, and
 * leave, messages of a call that has ended, and the next exchange would wait once more. */
alnico_status_t comm_allgather(alnico_comm_t comm, const char *who, const void *mine, void *all,
                               size_t bytes);

/* The ranks of a communicator, or `count` of them, of which this one is members[place]. */
struct comm_rendezvous {
    struct rendezvous base;
    struct out_of_band wait;
    alnico_comm_t comm;
    /* Whose failure detector the ranks use: its, or while it is made its parent's; NULL: none's. */
    alnico_comm_t told;
};
void comm_rendezvous_init(struct comm_rendezvous *out, alnico_comm_t comm, const char *who);
void comm_rendezvous_part(struct comm_rendezvous *out, alnico_comm_t comm, const char *who,
                          const int *members, int count, int place);

/* After a step that may have failed on some ranks, `mine` of this one: the error of the lowest rank
 * that failed, whose detail begins with `who` and names it. Errors also: the allgather's, with
 * `failed` set. */
alnico_status_t comm_rendezvous_agree(struct comm_rendezvous *r, alnico_status_t mine);
alnico_status_t comm_agree_status(alnico_comm_t comm, const char *who, alnico_status_t mine);

/* A rank's public call, for its first exchange. */
struct comm_opening {
    const char *what;       /* what all ranks must call */
    const char *who;        /* what this one calls */
    alnico_status_t status; /* how this rank has fared, with the thread's detail */
    const void *mine;       /* at most AGREE_BYTES, for the others */
    size_t bytes;
};

/* comm_allgather as the first exchange of a public call: every rank's `mine` into `all`, which may be NULL
 * on a rank that has failed. MISMATCH on every rank, which changes nothing, if they do not all call
 * `what`; the detail has the `who` of two. A rank that has failed gets its own error, the others
 * that of the lowest one. */
enum { AGREE_BYTES = 320 };
alnico_status_t comm_agree_first(alnico_comm_t comm, const struct comm_opening *opening, void *all);

#endif
