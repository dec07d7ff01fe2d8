/* The fake NCCL's communicators: something to point to. See fake_nccl.c. */
#include <nccl.h>

static char communicators[64];

ncclResult_t fake_nccl_note(const char *name);

__attribute__((visibility("default"))) ncclResult_t
pncclCommInitRankConfig(ncclComm_t *out, int size, ncclUniqueId id, int rank, ncclConfig_t *config)
{
    (void)size, (void)id, (void)config;
    *out = (ncclComm_t)(void *)&communicators[rank];
    return fake_nccl_note("CommInitRankConfig");
}
