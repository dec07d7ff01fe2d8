/* Which launcher started this process, by its environment: rank, size, and how the ranks meet. On the
 * caller's thread. */
#ifndef ALNICO_COMM_RENDEZVOUS_LAUNCH_H
#define ALNICO_COMM_RENDEZVOUS_LAUNCH_H

#include "comm/rendezvous/id.h"

struct launcher;

struct launch {
    const struct launcher *by; /* NULL: none, this process is alone */
    int rank, size;
    struct net_address address; /* where rank 0 listens, of launchers that say it */
    int ports;
    char job[192]; /* what tells this job from others; not secret */
};

/*
 * One row a launcher, in the order in which they are looked for. Either the environment says where
 * rank 0 listens, or the launcher passes on a text.
 */
struct launcher {
    const char *name;

    /* Whether it started this process; then *out is filled in. A status for an environment that is
     * incomplete or wrong. */
    alnico_status_t (*find)(struct launch *out, bool *found);

    /* Optional: rank 0's text (it is "" before the call on others) becomes all ranks'. `key` names
     * it, differently in each call. Errors: SYSTEM, TIMEOUT. */
    alnico_status_t (*broadcast)(const struct launch *, const char *key, char *text, size_t bytes,
                                 int64_t end_ns);
};

extern const struct launcher launcher_pmi, launcher_pmix;

/* The launcher of this process. Errors: ARGUMENT, naming the variable. */
alnico_status_t launch_find(struct launch *out);

/* Where the ranks meet; rank 0 then listens there (collective, of at least two ranks). Errors: as
 * root_start and launcher's broadcast; ARGUMENT (ALNICO_SECRET_FILE). */
alnico_status_t launch_meet(const struct launch *launch, double timeout, struct place *out);

/* A whole number of the environment. Errors: ARGUMENT, naming the variable, unless it is from `least`
 * to `most`. */
alnico_status_t launch_number(const char *name, uint64_t least, uint64_t most, int *out);

#endif
