/* A message cut into independent chunks, an executor each, a few in flight, so that one is reduced while
 * others are on their way. The host backend polls it. */
#ifndef ALNICO_SRC_PIPELINE_H
#define ALNICO_SRC_PIPELINE_H

#include "comm/call.h"
#include "comm/rounds.h"
#include "progress/pool.h"

enum {
    CHUNKS_IN_FLIGHT = 3,
    PIPELINE_SMALL_BYTES = 1024 /* scratch that the pipeline carries itself */
};

struct chunk {
    struct rounds rounds;
    size_t count; /* elements */
    bool busy;
    void *scratch; /* from the pool, or the pipeline's small one */
    size_t scratch_bytes;
};

/* The owner fills the first part, then calls pipeline_begin. */
struct pipeline {
    struct call call;
    const struct algorithm *algorithm;
    size_t chunk_bytes;
    struct transport *transport;
    const struct device_ops *device; /* whose memory the buffers are, reached by the host */
    struct pool *pool;
    uint32_t
        turn; /* of the first chunk among all chunks of the communicator; the next call's is by `chunks` more */

    size_t chunk_count; /* elements of a whole chunk */
    size_t chunks, begun, finished;
    uint32_t signature;
    struct chunk chunk[CHUNKS_IN_FLIGHT];
    _Alignas(64) char small[PIPELINE_SMALL_BYTES];
};

/* Cuts the message; sends nothing yet. */
void pipeline_begin(struct pipeline *p);

/* One step: ALNICO_PENDING, SUCCESS when every chunk is done, or an error, after which call pipeline_cancel. */
alnico_status_t pipeline_poll(struct pipeline *p, bool *moved);

/* Ends every transfer and gives back all scratch; afterwards the buffers are not touched. */
void pipeline_cancel(struct pipeline *p);

#endif
