/* Ranks that meet, and one status for all of them: after a step that may fail on some, all go on, or
 * all give it up. Used where communicators, segments and mappings are made; on the caller's thread. */
#ifndef ALNICO_COMM_AGREE_H
#define ALNICO_COMM_AGREE_H

#include <alnico/alnico.h>

#include <stdint.h>

/* An allgather of at most RENDEZVOUS_BYTES a rank: `bytes` from `mine` of every rank into `all`, in
 * rank order. A rank without memory passes NULL: it takes part, and learns nothing. */
enum { RENDEZVOUS_BYTES = 512 };
typedef alnico_status_t rendezvous_allgather(void *context, const void *mine, void *all,
                                             size_t bytes);

/* The ranks of a public call that may share nothing yet but an allgather. */
struct net_key;
struct rendezvous {
    rendezvous_allgather *allgather;
    void *context;
    int rank, size;
    const int *called;         /* their ranks in the communicator that was called; NULL: the same */
    const char *who;           /* the public call */
    const struct net_key *key; /* what only the job's processes know; NULL: nothing */
    double timeout;            /* of one step, seconds */
    double spent;              /* how many of them passed before the next allgather */
    /* Optional, between two allgathers: whether another rank has failed meanwhile, and telling the
     * others that this one has. After either no allgather works any more, and all that are told get
     * the same error. Never block. */
    alnico_status_t (*look)(void *context);
    alnico_status_t (*fail)(void *context, alnico_status_t status);
    bool failed; /* the allgather itself: then ranks may differ in what they know */
};

/* The allgather, which sets `failed`. */
alnico_status_t rendezvous_gather(struct rendezvous *r, const void *mine, void *all, size_t bytes);

/* For a rank that waits for others otherwise than by the allgather; they set `failed`. The second one
 * takes the thread's detail and returns the status. */
alnico_status_t rendezvous_look(struct rendezvous *r);
alnico_status_t rendezvous_fail(struct rendezvous *r, alnico_status_t status);

/* The number that messages give to a rank. */
static inline int rendezvous_name(const struct rendezvous *r, int rank)
{
    return r->called ? r->called[rank] : rank;
}

/* The thread's detail for other ranks: without `who`, and with "rank N: ", unless it begins with a
 * rank already, as that of an earlier step that failed on all. */
void agree_detail(const char *who, int name, char *out, size_t bytes);

/* How a step went on one rank, and an address that the other ranks of its process can use. */
struct step_result {
    void *address;
    int32_t status;
    char detail[244];
};

/* Gathers the ranks' results of a step in all[size]. `status` is this rank's own, with the thread's
 * detail. Returns that of the lowest rank that failed, whose detail says "rank N: "; or the
 * allgather's error, which other ranks need not have. A rank whose `all` is NULL has failed. */
alnico_status_t agree_on_status(struct rendezvous *r, struct step_result *all, void *address,
                                alnico_status_t status);

#endif
