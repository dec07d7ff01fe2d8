/* The table of peers. Main thread. */
#include "tools/perf/operations.h"

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

int peer_find(const char *name, size_t length, alnico_device_t device)
{
    for (int i = 0; i < PEERS; i++)
        if (peer_table[i].device == device && strlen(peer_table[i].name) == length &&
            strncmp(peer_table[i].name, name, length) == 0)
            return i;
    return -1;
}
