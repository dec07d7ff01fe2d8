/* A call cut into independent chunks, an executor each, a few in flight, so that one is reduced
 * while others are on their way. Where there are several blocks, a chunk is a part of each. The
 * host backend polls it. Where the host does not reach the buffers, a chunk is copied to pinned
 * memory first and back in the end, by streams of the library's. */
#ifndef ALNICO_COMM_BACKENDS_HOST_PIPELINE_H
#define ALNICO_COMM_BACKENDS_HOST_PIPELINE_H

#include "comm/backends/host/staging.h"
#include "comm/call.h"
#include "comm/operations/rounds.h"
#include "progress/pool.h"

enum {
    CHUNKS_IN_FLIGHT = 3,
    PIPELINE_SMALL_BYTES = 1024 /* scratch that the pipeline carries itself */
};

/* COPYING_OUT and COPYING_IN: only with staging. */
enum chunk_phase { CHUNK_FREE, CHUNK_COPYING_OUT, CHUNK_RUNNING, CHUNK_COPYING_IN };

struct chunk {
    struct rounds rounds;
    size_t at, count;          /* elements of each block */
    struct side reads, writes; /* what of the chunk's blocks this rank has */
    enum chunk_phase phase;
    void *scratch; /* from the pool, or the pipeline's small one */
    size_t scratch_bytes;
    size_t *lists; /* of a vector form's blocks; NULL: none */
};

/* The owner fills the first part, then calls pipeline_begin. */
struct pipeline {
    struct call call;
    const struct algorithm *algorithm;
    size_t chunk_bytes;
    struct transport *transport;
    /* NULL: the host reaches the buffers; otherwise the pipeline owns its chunks. */
    struct staging *staging;
    struct pool *pool; /* of the host's memory */
    uint32_t turn;     /* of the first chunk among all chunks of the communicator */

    size_t chunk_count; /* elements of a whole chunk */
    size_t chunks, begun, finished;
    size_t turns; /* by which the next call's is later, on all ranks */
    int window;   /* chunks in flight */
    uint32_t signature;
    struct side reads, writes; /* the call's, on this rank */
    bool shadows;              /* the rounds read a copy of what is sent */
    struct chunk chunk[STAGING_CHUNKS];
    _Alignas(64) char small[PIPELINE_SMALL_BYTES];
};

_Static_assert((int)CHUNKS_IN_FLIGHT <= (int)STAGING_CHUNKS, "chunks without staging fit as well");

/* How many elements of each block a chunk with staging may have at most; 0: not even one has
 * room. */
size_t pipeline_stage_count(const struct call *call, int size);

/* Cuts the call; sends nothing yet. */
void pipeline_begin(struct pipeline *p);

/* One step: ALNICO_PENDING, SUCCESS when every chunk is done, or an error, after which call
 * pipeline_cancel. */
alnico_status_t pipeline_poll(struct pipeline *p, bool *moved);

/* Ends every transfer and copy and gives back all scratch; afterwards the buffers are not
 * touched. */
void pipeline_cancel(struct pipeline *p);

#endif
