/* The table of peers, and how --versus names them. Main thread. */
#include "tools/perf/peers.h"

#include <stdio.h>
#include <string.h>

#ifdef ALNICO_HAVE_CUDA
enum { HAVE_CUDA = true };
#else
enum { HAVE_CUDA = false };
#endif
#ifdef ALNICO_HAVE_NCCL
#include "tools/perf/gpu/nccl.h"
enum { HAVE_NCCL = true, HAVE_WINDOWS = NCCL_HAS_WINDOWS };
#else
enum { HAVE_NCCL = false, HAVE_WINDOWS = false };
#endif

const struct peer_info peer_table[PEERS] = {
    [PEER_MPI] = {"mpi", "mpi", ALNICO_DEVICE_CPU, true, false},
    [PEER_STAGED] = {"staged", "staged", ALNICO_DEVICE_CUDA, HAVE_CUDA, false},
    [PEER_NCCL] = {"nccl", "nccl", ALNICO_DEVICE_CUDA, HAVE_NCCL, true},
    [PEER_NCCL_SYMMETRIC] = {"nccl-symmetric", "nccl_symmetric", ALNICO_DEVICE_CUDA, HAVE_WINDOWS,
                             true},
};

unsigned peer_all(alnico_device_t device)
{
    unsigned mask = 0;
    for (int i = 0; i < PEERS; i++)
        if (peer_table[i].built && peer_table[i].device == device)
            mask |= 1u << i;
    return mask;
}

/* The names that a device has, built or not. */
static const char *list_names(alnico_device_t device)
{
    return device == ALNICO_DEVICE_CPU ? "mpi, all or none"
                                       : "staged, nccl, nccl-symmetric, all or none";
}

/* The peer of the first `length` characters, or -1. */
static int find(const char *name, size_t length, alnico_device_t device)
{
    for (int i = 0; i < PEERS; i++)
        if (peer_table[i].device == device && strlen(peer_table[i].name) == length &&
            strncmp(peer_table[i].name, name, length) == 0)
            return i;
    return -1;
}

bool peer_read(const char *text, alnico_device_t device, unsigned *out, char *error, size_t room)
{
    *out = strcmp(text, "all") == 0 ? peer_all(device) : 0;
    if (*out || strcmp(text, "none") == 0)
        return true;
    for (const char *name = text;; name++) {
        size_t length = strcspn(name, ",");
        int peer = find(name, length, device);
        if (peer < 0)
            snprintf(error, room, "--versus %s: expected %s", text, list_names(device));
        else if (!peer_table[peer].built)
            snprintf(error, room, "--versus %s: this build has no %s", text, peer_table[peer].name);
        if (peer < 0 || !peer_table[peer].built)
            return false;
        *out |= 1u << peer;
        name += length;
        if (!*name)
            return true;
    }
}
