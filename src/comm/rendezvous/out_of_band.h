/* Exchanges over a transport before, and beside, its collectives: an allgather and a broadcast, each
 * with a deadline that names who did not come, sooner where a process has ended. On the caller's
 * thread. */
#ifndef ALNICO_COMM_RENDEZVOUS_OUT_OF_BAND_H
#define ALNICO_COMM_RENDEZVOUS_OUT_OF_BAND_H

#include "comm/transports/transport.h"

#include <stdatomic.h>

struct engine;

/* A wait of a rank for others: on which transport, and for how long. */
struct out_of_band {
    struct transport *transport;
    struct engine *engine;    /* NULL; or pumped meanwhile, if it has no thread */
    const atomic_int *broken; /* NULL; or not 0 ends the wait */
    uint32_t tag;             /* of its messages; 0: TAG_OUT_OF_BAND, which it is */
    double timeout, spent;    /* seconds, and how many of them have passed before */
    const char *who;
    const int
        *called; /* the ranks in the communicator that was called, for errors; NULL: the same */
    /* The ranks of the transport that take part, how many, and this rank among them; NULL: all. */
    const int *members;
    int count, place;
    /* Where ranks have another way to tell each other that one waits in vain: whether one has said so,
     * asked while this rank stalls, and where the rank goes that a TIMEOUT names. The exchange then
     * ends at once on this rank, and the owner tells the others. NULL: there is none. */
    bool (*told)(void *context);
    void *context;
    int *awaited;
};

/* `bytes` from `mine` of every rank into `all`, in log2(ranks) messages one after the other. TIMEOUT,
 * which names a rank, also if `broken`; MEMORY. A rank without memory for `all` passes NULL, and
 * learns nothing. */
alnico_status_t out_of_band_gather(const struct out_of_band *wait, const void *mine, void *all,
                                   size_t bytes);

/* Rank 0's `bytes` bytes of `data` become every rank's; at most INT_MAX bytes. */
alnico_status_t out_of_band_broadcast(const struct out_of_band *wait, void *data, size_t bytes);

/* Seconds of stalling after which a rank asks whether others are gone: short against the deadline. */
double out_of_band_patience(double timeout);

/* Whether all who take part live: TIMEOUT, naming one whose process has ended. Never blocks. */
alnico_status_t out_of_band_look(const struct out_of_band *wait);

/* Another rank whose process has ended, or -1. */
int out_of_band_find_lost(struct transport *t);

#endif
