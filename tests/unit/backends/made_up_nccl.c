/* A library that has NCCL's functions and does nothing, for test_nccl_library.c: whole; OLDER, without windows; BROKEN, without
 * a function that is needed. Its version is 2.99.1, and 1.0.0 for whoever does not ask by the name with a p. */
#include <nccl.h>

#define MADE_UP __attribute__((visibility("default")))

enum { NAMED_WITH_P = 29901, NAMED_WITHOUT = 10000 };

MADE_UP ncclResult_t pncclGetVersion(int *version)
{
    *version = NAMED_WITH_P;
    return ncclSuccess;
}

MADE_UP ncclResult_t ncclGetVersion(int *version)
{
    *version = NAMED_WITHOUT;
    return ncclSuccess;
}

/* Found, and never called. */
#define FUNCTION(name)                                                                             \
    MADE_UP void made_up_##name(void) __asm__(#name);                                              \
    void made_up_##name(void)                                                                      \
    {                                                                                              \
    }

FUNCTION(ncclGetErrorString)
FUNCTION(ncclGetLastError)
FUNCTION(ncclGetUniqueId)
FUNCTION(ncclCommInitRankConfig)
FUNCTION(ncclCommGetAsyncError)
FUNCTION(ncclCommAbort)
FUNCTION(ncclCommDestroy)
FUNCTION(ncclAllReduce)
FUNCTION(ncclReduce)
FUNCTION(ncclBroadcast)
FUNCTION(ncclAllGather)
FUNCTION(ncclReduceScatter)
FUNCTION(ncclSend)
FUNCTION(ncclRecv)
FUNCTION(ncclGroupStart)
#ifndef BROKEN
FUNCTION(ncclGroupEnd)
#endif
#ifndef OLDER
FUNCTION(ncclCommWindowRegister)
FUNCTION(ncclCommWindowDeregister)
#endif
