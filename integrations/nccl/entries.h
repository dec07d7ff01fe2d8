/*
 * The entry points of libnccl.so.2 as one list, and a table of functions made from it. There are two
 * tables: ours, over alnico.h, and the real NCCL's. An exported function calls its member of the one that
 * is in use: the real NCCL's with ALNICO_NCCL=off. Any thread.
 */
#ifndef ALNICO_INTEGRATIONS_NCCL_ENTRIES_H
#define ALNICO_INTEGRATIONS_NCCL_ENTRIES_H

#include <alnico/alnico.h>

#include <nccl.h>

/* E(name without "nccl", parameters, arguments): those that return ncclResult_t. The second part is called on
 * `comm`, which is in use; in the third one that is NULL means nothing to do. */
#define ENTRIES(E) LIBRARY_ENTRIES(E) COMM_ENTRIES(E) COMM_OR_NULL_ENTRIES(E)
#define LIBRARY_ENTRIES(E)                                                                         \
    E(GetVersion, (int *version), (version))                                                       \
    E(GetUniqueId, (ncclUniqueId * id), (id))                                                      \
    E(CommInitRank, (ncclComm_t * out, int size, ncclUniqueId id, int rank),                       \
      (out, size, id, rank))                                                                       \
    E(CommInitRankConfig,                                                                          \
      (ncclComm_t * out, int size, ncclUniqueId id, int rank, ncclConfig_t *config),               \
      (out, size, id, rank, config))                                                               \
    E(CommInitRankScalable,                                                                        \
      (ncclComm_t * out, int size, int rank, int count, ncclUniqueId *ids, ncclConfig_t *config),  \
      (out, size, rank, count, ids, config))                                                       \
    E(CommInitAll, (ncclComm_t * out, int count, const int *devices), (out, count, devices))       \
    E(CommDestroy, (ncclComm_t comm), (comm))                                                      \
    E(CommAbort, (ncclComm_t comm), (comm))                                                        \
    E(MemAlloc, (void **out, size_t bytes), (out, bytes))                                          \
    E(MemFree, (void *memory), (memory))                                                           \
    E(GroupStart, (void), ())                                                                      \
    E(GroupEnd, (void), ())                                                                        \
    E(GroupSimulateEnd, (ncclSimInfo_t * info), (info))
#define COMM_ENTRIES(E)                                                                            \
    E(CommSplit, (ncclComm_t comm, int color, int key, ncclComm_t *out, ncclConfig_t *config),     \
      (comm, color, key, out, config))                                                             \
    E(CommShrink,                                                                                  \
      (ncclComm_t comm, int *excluded, int count, ncclComm_t *out, ncclConfig_t *config,           \
       int flags),                                                                                 \
      (comm, excluded, count, out, config, flags))                                                 \
    E(CommGetAsyncError, (ncclComm_t comm, ncclResult_t * out), (comm, out))                       \
    E(CommCount, (const ncclComm_t comm, int *out), (comm, out))                                   \
    E(CommCuDevice, (const ncclComm_t comm, int *out), (comm, out))                                \
    E(CommUserRank, (const ncclComm_t comm, int *out), (comm, out))                                \
    E(CommRegister, (const ncclComm_t comm, void *memory, size_t bytes, void **out),               \
      (comm, memory, bytes, out))                                                                  \
    E(CommDeregister, (const ncclComm_t comm, void *handle), (comm, handle))                       \
    E(CommWindowRegister,                                                                          \
      (ncclComm_t comm, void *memory, size_t bytes, ncclWindow_t *out, int flags),                 \
      (comm, memory, bytes, out, flags))                                                           \
    E(CommWindowDeregister, (ncclComm_t comm, ncclWindow_t window), (comm, window))                \
    E(RedOpCreatePreMulSum,                                                                        \
      (ncclRedOp_t * out, void *scalar, ncclDataType_t type, ncclScalarResidence_t residence,      \
       ncclComm_t comm),                                                                           \
      (out, scalar, type, residence, comm))                                                        \
    E(RedOpDestroy, (ncclRedOp_t op, ncclComm_t comm), (op, comm))                                 \
    E(AllReduce,                                                                                   \
      (const void *send, void *recv, size_t count, ncclDataType_t type, ncclRedOp_t op,            \
       ncclComm_t comm, cudaStream_t stream),                                                      \
      (send, recv, count, type, op, comm, stream))                                                 \
    E(Reduce,                                                                                      \
      (const void *send, void *recv, size_t count, ncclDataType_t type, ncclRedOp_t op, int root,  \
       ncclComm_t comm, cudaStream_t stream),                                                      \
      (send, recv, count, type, op, root, comm, stream))                                           \
    E(Bcast,                                                                                       \
      (void *buffer, size_t count, ncclDataType_t type, int root, ncclComm_t comm,                 \
       cudaStream_t stream),                                                                       \
      (buffer, count, type, root, comm, stream))                                                   \
    E(Broadcast,                                                                                   \
      (const void *send, void *recv, size_t count, ncclDataType_t type, int root, ncclComm_t comm, \
       cudaStream_t stream),                                                                       \
      (send, recv, count, type, root, comm, stream))                                               \
    E(ReduceScatter,                                                                               \
      (const void *send, void *recv, size_t count, ncclDataType_t type, ncclRedOp_t op,            \
       ncclComm_t comm, cudaStream_t stream),                                                      \
      (send, recv, count, type, op, comm, stream))                                                 \
    E(AllGather,                                                                                   \
      (const void *send, void *recv, size_t count, ncclDataType_t type, ncclComm_t comm,           \
       cudaStream_t stream),                                                                       \
      (send, recv, count, type, comm, stream))                                                     \
    E(AlltoAll,                                                                                    \
      (const void *send, void *recv, size_t count, ncclDataType_t type, ncclComm_t comm,           \
       cudaStream_t stream),                                                                       \
      (send, recv, count, type, comm, stream))                                                     \
    E(Gather,                                                                                      \
      (const void *send, void *recv, size_t count, ncclDataType_t type, int root, ncclComm_t comm, \
       cudaStream_t stream),                                                                       \
      (send, recv, count, type, root, comm, stream))                                               \
    E(Scatter,                                                                                     \
      (const void *send, void *recv, size_t count, ncclDataType_t type, int root, ncclComm_t comm, \
       cudaStream_t stream),                                                                       \
      (send, recv, count, type, root, comm, stream))                                               \
    E(Send,                                                                                        \
      (const void *send, size_t count, ncclDataType_t type, int peer, ncclComm_t comm,             \
       cudaStream_t stream),                                                                       \
      (send, count, type, peer, comm, stream))                                                     \
    E(Recv,                                                                                        \
      (void *recv, size_t count, ncclDataType_t type, int peer, ncclComm_t comm,                   \
       cudaStream_t stream),                                                                       \
      (recv, count, type, peer, comm, stream))
#define COMM_OR_NULL_ENTRIES(E)                                                                    \
    E(CommFinalize, (ncclComm_t comm), (comm))                                                     \
    E(CommRevoke, (ncclComm_t comm, int flags), (comm, flags))

/* Entry points whose types are in no header that every NCCL has: the GPU's own calls and what belongs to
 * them. With ALNICO_NCCL=off they go to the real NCCL as WORDS machine words, which is right for
 * pointers and integers on x86-64 and AArch64; otherwise they return ncclInvalidUsage. */
#define WORD_ENTRIES(E)                                                                            \
    E(CommQueryProperties)                                                                         \
    E(DevCommCreate)                                                                               \
    E(DevCommDestroy)                                                                              \
    E(GetLsaDevicePointer)                                                                         \
    E(GetLsaMultimemDevicePointer)                                                                 \
    E(GetMultimemDevicePointer)                                                                    \
    E(GetPeerDevicePointer)                                                                        \
    E(PutSignal)                                                                                   \
    E(ResetDebugInit)                                                                              \
    E(Signal)                                                                                      \
    E(WaitSignal)

#define WORDS                                                                                      \
    (size_t a, size_t b, size_t c, size_t d, size_t e, size_t f, size_t g, size_t h, size_t i,     \
     size_t j, size_t k, size_t l)
#define WORDS_PASSED (a, b, c, d, e, f, g, h, i, j, k, l)

#define ENTRY_MEMBER(name, parameters, arguments) ncclResult_t(*name) parameters;
#define ENTRY_WORDS_MEMBER(name) ncclResult_t(*name) WORDS;
struct entries {
    ENTRIES(ENTRY_MEMBER)
    WORD_ENTRIES(ENTRY_WORDS_MEMBER)
    const char *(*GetErrorString)(ncclResult_t result);
    const char *(*GetLastError)(ncclComm_t comm);
};
#undef ENTRY_MEMBER
#undef ENTRY_WORDS_MEMBER

extern const struct entries entries_ours;

/* The real NCCL's: the file ALNICO_NCCL_LIBRARY, else where the loader or the toolkit has one that is not
 * this library. What an older NCCL lacks returns ncclInvalidUsage. NULL, with the reason, if there is
 * none. */
const struct entries *entries_real(const char **reason);

#endif
