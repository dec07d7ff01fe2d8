/* One status for all ranks: after a step that may fail on some of them, all go on, or all give it
 * up. Used where communicators, segments and mappings are made; on the caller's thread. */
#ifndef ALNICO_COMM_AGREE_H
#define ALNICO_COMM_AGREE_H

#include <alnico/alnico.h>

#include <stdint.h>

/* An allgather of a few hundred bytes between ranks that may share nothing else yet: `bytes` from
 * `mine` of every rank into `all`, in rank order. */
typedef alnico_status_t out_of_band_allgather(void *context, const void *mine, void *all,
                                              size_t bytes);

/* How a step went on one rank, and an address that the other ranks of its process can use. */
struct step_result {
    void *address;
    int32_t status;
    char detail[244];
};

/* Gathers the ranks' results of a step in all[size]. *status is this rank's own, with the thread's
 * detail, and becomes that of the lowest rank that failed, with "rank N: " before its detail.
 * Errors: the allgather's, which other ranks need not have; *status is then as it was. */
alnico_status_t agree_on_status(out_of_band_allgather *allgather, void *context,
                                struct step_result *all, int size, void *address,
                                alnico_status_t *status);

#endif
