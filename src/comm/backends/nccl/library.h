/*
 * NCCL's functions, found when they are first wanted: nothing is linked with NCCL, so that programs
 * start on a machine without. They are those that begin with p where NCCL has them: a library that
 * stands before NCCL, as a profiler does, does not get the backend's own calls. Any thread.
 */
#ifndef ALNICO_COMM_BACKENDS_NCCL_LIBRARY_H
#define ALNICO_COMM_BACKENDS_NCCL_LIBRARY_H

#include <alnico/alnico.h>

#include <nccl.h>

#define NCCL_FUNCTIONS(F)                                                                          \
    F(ncclGetVersion)                                                                              \
    F(ncclGetErrorString)                                                                          \
    F(ncclGetLastError)                                                                            \
    F(ncclGetUniqueId)                                                                             \
    F(ncclCommInitRankConfig)                                                                      \
    F(ncclCommGetAsyncError)                                                                       \
    F(ncclCommAbort)                                                                               \
    F(ncclCommDestroy)                                                                             \
    F(ncclAllReduce)                                                                               \
    F(ncclReduce)                                                                                  \
    F(ncclBroadcast)                                                                               \
    F(ncclAllGather)                                                                               \
    F(ncclReduceScatter)                                                                           \
    F(ncclSend)                                                                                    \
    F(ncclRecv)                                                                                    \
    F(ncclGroupStart)                                                                              \
    F(ncclGroupEnd)

/* NULL in an NCCL that is older than these. */
#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 27, 3)
#define NCCL_NEWER_FUNCTIONS(F)                                                                    \
    F(ncclCommWindowRegister)                                                                      \
    F(ncclCommWindowDeregister)
#else
#define NCCL_NEWER_FUNCTIONS(F)
#endif

#define NCCL_LIBRARY_MEMBER(name) __typeof__(name) *name;
struct nccl_library {
    NCCL_FUNCTIONS(NCCL_LIBRARY_MEMBER)
    NCCL_NEWER_FUNCTIONS(NCCL_LIBRARY_MEMBER)
};
#undef NCCL_LIBRARY_MEMBER

/* The file ALNICO_NCCL_LIBRARY; without it, libnccl.so.2 where the loader finds it, the toolkit puts
 * it or the build has seen it. NULL, with the reason as the thread's detail, if there is none. */
const struct nccl_library *nccl_library(void);

/* The version of that library, as NCCL_VERSION_CODE; 0 if there is none. */
static inline int nccl_version(void)
{
    const struct nccl_library *library = nccl_library();
    int version = 0;
    return library && library->ncclGetVersion(&version) == ncclSuccess ? version : 0;
}

#endif
