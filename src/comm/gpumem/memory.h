/*
 * Device memory of one rank, made and mapped by the driver's virtual memory functions, by CUDA's
 * interprocess handles, or as a pointer of its own process. Any thread whose current device is the
 * rank's; knows no communicator.
 */
#ifndef ALNICO_COMM_GPUMEM_MEMORY_H
#define ALNICO_COMM_GPUMEM_MEMORY_H

#include <alnico/alnico.h>

#include <cuda.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Memory of cudaMalloc, which lives until no rank of its process maps it any more: one may still
 * abort. */
struct peer_keeper {
    atomic_int holders;
    void *memory;
};

/* One rank's memory, as this rank maps it. */
struct peer_memory {
    char *at;
    char *mapping; /* what to unmap; NULL: nothing */
    size_t bytes;
    bool interprocess;          /* opened by cudaIpcOpenMemHandle */
    struct peer_keeper *keeper; /* held; NULL: none */
};

/* Memory of the device that lives as long as anyone maps it, mapped here. Errors: MEMORY,
 * SYSTEM. */
alnico_status_t peer_memory_create(int device, size_t bytes, struct peer_memory *out);

/* Whether the device makes such memory that processes can share. */
bool peer_memory_can_share(int device);

/* The same by its address: where it begins, which no other memory does, and its bytes in `out`. False: it
 * is not such memory. */
bool peer_memory_find(void *memory, struct peer_memory *out);

/* Memory of cudaMalloc, held by a keeper. Errors: MEMORY. */
alnico_status_t peer_memory_keep(size_t bytes, struct peer_memory *out);

/* Another rank's keeper in this process, by its address; NULL for 0. While its owner cannot have
 * let go: it takes part in an exchange that follows. */
struct peer_keeper *peer_memory_hold(uint64_t keeper_address);

/* Maps a handle for the device. The mapping keeps the memory. */
alnico_status_t peer_memory_map(CUmemGenericAllocationHandle handle, size_t bytes, int device,
                                char **out);
alnico_status_t peer_memory_map_descriptor(int descriptor, size_t bytes, int device, char **out);
void peer_memory_release(CUmemGenericAllocationHandle handle);

/* Unmaps, and frees what nobody else holds. A zeroed one is fine. */
void peer_memory_unmap(struct peer_memory *memory);

#endif
