/* Memory that users register with a communicator, so that backends may reach it on other ranks
 * directly. On the caller's thread. */
#ifndef ALNICO_COMM_COMMUNICATOR_REGISTRATION_H
#define ALNICO_COMM_COMMUNICATOR_REGISTRATION_H

#include "comm/backends/backend.h"

struct alnico_registration {
    alnico_comm_t comm;
    struct alnico_registration *next;
    char *base;
    size_t bytes;
    bool late;             /* made in a call, by the ranks' agreement: sharing.h */
    void *state[BACKENDS]; /* what each backend keeps for it */
};

/* The newest registration that holds all of the bytes, or NULL: of those that all ranks have made, or in a call
 * that the ranks agreed on, of what they share. */
struct alnico_registration *registration_find(const struct alnico_comm *comm, const void *memory,
                                              size_t bytes);

/* Withdraws what is left, where a communicator ends. */
void registration_finish(alnico_comm_t comm);

#endif
