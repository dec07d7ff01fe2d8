/*
 * Device memory of every rank of a host, mapped by all of them: the peer backend's scratch, and
 * what users register. Ranks may be processes or threads of one, each with a GPU of its own. Memory
 * made by the driver's virtual memory functions goes as a handle, between processes as a descriptor
 * over a socket; memory of cudaMalloc by CUDA's interprocess handles, or as the pointer itself
 * within a process. On the caller's thread, collective; all ranks get the same outcome.
 */
#ifndef ALNICO_COMM_GPUMEM_MAP_H
#define ALNICO_COMM_GPUMEM_MAP_H

#include "comm/communicator/comm.h"
#include "comm/gpumem/kernel.h"
#include "comm/gpumem/memory.h"
#include "comm/hostmem/process.h"

/* The process and GPU of a rank. */
struct peer_place {
    struct process_id process;
    uint64_t host_id;
    int32_t device;  /* its number in its own process */
    char gpu[20];    /* its PCI bus identifier */
    int32_t handles; /* the device makes memory that can be given away as descriptors */
    int32_t ok;
};

struct peer_map {
    alnico_comm_t comm;
    struct peer_keeper *keeper; /* of this rank's scratch; NULL: it needs none */
    /* NVLink is known to join all pairs: 128 bytes that a warp stores arrive in order. */
    bool ordered;
    struct peer_place places[PEER_GPUS];
};

struct peer_share {
    struct peer_memory memory[PEER_GPUS];
};

/* Learns where the ranks are. *works: there are 2 to PEER_GPUS of them on one host, on GPUs
 * of their own that reach each other; otherwise a line of the log says why not. Errors: the
 * out-of-band allgather's. */
alnico_status_t peer_map_init(struct peer_map *out, alnico_comm_t comm, const char *who,
                              bool *works);

/* Every rank's `bytes` bytes at `memory` (of its own GPU) become reachable for all. Errors, with
 * the lowest rank that has one and its reason: UNSUPPORTED (memory that cannot be shared), MEMORY,
 * SYSTEM, TIMEOUT; the allgather's. */
alnico_status_t peer_map_share(const struct peer_map *map, const char *who, void *memory,
                               size_t bytes, struct peer_share *out);

/* Unmaps what others own; waits for nobody. A zeroed share is fine. */
void peer_map_unshare(const struct peer_map *map, struct peer_share *share);

/* Device memory that can be shared, on the current device: by virtual memory functions if all
 * ranks' devices can, so that it lives as long as anyone maps it. Errors: MEMORY, SYSTEM. */
alnico_status_t peer_map_alloc(struct peer_map *map, size_t bytes, struct peer_memory *out);
void peer_map_free(struct peer_memory *memory);

/* Whether a rank is of this process. */
bool peer_map_is_near(const struct peer_map *map, int rank);

#endif
