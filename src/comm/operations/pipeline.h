/* The pipeline: a call cut into independent chunks, each with an executor of its own, a few in
 * flight, so that one is reduced while others are on their way. A chunk has a part of every block.
 * If the host does not reach the buffers, streams of the library's copy a chunk to pinned memory
 * first and back in the end; or, where the transport is aware of the device, the messages are of
 * the buffers themselves, and the device combines them. Backends poll it as part of an operation.
 */
#ifndef ALNICO_COMM_OPERATIONS_PIPELINE_H
#define ALNICO_COMM_OPERATIONS_PIPELINE_H

#include "comm/call.h"
#include "comm/operations/rounds.h"
#include "progress/arithmetic.h"
#include "progress/pool.h"
#include "progress/staging.h"

enum {
    CHUNKS_IN_FLIGHT = 3,
    PIPELINE_SMALL_BYTES = 1024 /* scratch that the pipeline carries itself */
};

/* COPYING_OUT and COPYING_IN: only with staging. ENDING: what the device still computes. */
enum chunk_phase { CHUNK_FREE, CHUNK_COPYING_OUT, CHUNK_RUNNING, CHUNK_COPYING_IN, CHUNK_ENDING };

struct chunk {
    struct rounds rounds;
    size_t at, count;          /* elements of each block */
    struct side reads, writes; /* the chunk's blocks on this rank */
    enum chunk_phase phase;
    void *scratch; /* from the pool, or the pipeline's small one */
    size_t scratch_bytes;
    size_t *lists; /* of a vector form's blocks; NULL: none */
};

/* The owner fills the first part, then calls pipeline_begin. */
struct pipeline {
    const struct call *call;
    struct call own; /* where the call is not as the user gave it */
    const struct algorithm *algorithm;
    size_t chunk_bytes;
    struct transport *transport;
    /* Both NULL: the host reaches the buffers; otherwise the pipeline owns its chunks. */
    struct staging *staging;
    struct arithmetic *arithmetic; /* the device's, and the messages are of its memory */
    struct pool *pool;             /* of the host's memory */
    const struct host_map *map;    /* of the transport's ranks */
    uint32_t number;               /* of the first chunk among all chunks of the communicator */

    size_t chunk_count; /* elements of a whole chunk */
    size_t chunks, begun, finished;
    size_t numbers;    /* that the call takes, on all ranks */
    size_t part_count; /* elements of a part, where chunks are reduced in parts; 0: they are not */
    struct pipeline *parts; /* one for each chunk in flight; NULL while there is none */
    int window;             /* chunks in flight */
    uint32_t signature;
    struct side reads, writes; /* the call's, on this rank */
    bool shadows;              /* the rounds read a copy of what is sent */
    struct chunk chunk[STAGING_CHUNKS];
    _Alignas(64) char small[PIPELINE_SMALL_BYTES];
};

_Static_assert((int)CHUNKS_IN_FLIGHT <= (int)STAGING_CHUNKS, "chunks without staging fit as well");
_Static_assert((int)CHUNKS_IN_FLIGHT <= (int)ARITHMETIC_CHUNKS, "each has scratch of the device");

/* The most elements of each block that a chunk with staging may have; 0: not even one has room. */
size_t pipeline_staged_count(const struct call *call, int size);

/* The same with device arithmetic, by the algorithm, which needs no more of WORK than two of the
 * call's longer side have; SIZE_MAX: any. */
size_t pipeline_arithmetic_count(const struct call *call, const struct algorithm *algorithm,
                                 int size);

/* Cuts the call; sends nothing yet. */
void pipeline_begin(struct pipeline *p);

/* One step: ALNICO_PENDING, SUCCESS when every chunk is done, or an error, after which call
 * pipeline_cancel. */
alnico_status_t pipeline_poll(struct pipeline *p, bool *moved);

/* Ends all transfers and copies and gives back scratch; afterwards the buffers are not touched. */
void pipeline_cancel(struct pipeline *p);

#endif
