/* The peers that alnico-perf can measure against. */
#ifndef ALNICO_TOOLS_PERF_PEERS_H
#define ALNICO_TOOLS_PERF_PEERS_H

#include <alnico/alnico.h>

#include <stdbool.h>
#include <stddef.h>

enum { PEER_MPI, PEER_STAGED, PEER_NCCL, PEER_NCCL_SYMMETRIC, PEERS };

struct peer_info {
    const char *name, *key; /* of --versus, and in JSON */
    alnico_device_t device; /* where its buffers are */
    bool built;             /* this build has it */
    bool capturable;        /* its calls may be put into a CUDA graph */
};

extern const struct peer_info peer_table[PEERS];

/* The peers of a device that this build has, as a mask of 1u << PEER_. */
unsigned peer_all(alnico_device_t device);

/* The peer of a device that is named by `length` characters; -1 if there is none. */
int peer_find(const char *name, size_t length, alnico_device_t device);

#endif
