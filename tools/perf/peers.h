/* Whom alnico-perf can measure ours against: what --versus understands. */
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

/* Reads a comma list of names, "all" or "none" for a device into a mask. On error says why in
 * `error`. */
bool peer_read(const char *text, alnico_device_t device, unsigned *out, char *error, size_t room);

#endif
