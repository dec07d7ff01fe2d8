/* NCCL as a peer of alnico-perf: its own communicator over the ranks of the world, and memory in
 * symmetric windows. Main thread; open, memory and close are collective. */
#ifndef ALNICO_TOOLS_PERF_GPU_NCCL_H
#define ALNICO_TOOLS_PERF_GPU_NCCL_H

#include "tools/perf/operations.h"

#include <cuda_runtime_api.h>
#include <nccl.h>
#include <stdbool.h>

/* Symmetric windows came with NCCL 2.27. */
#if defined(NCCL_VERSION_CODE) && NCCL_VERSION_CODE >= 22700 && defined(NCCL_WIN_COLL_SYMMETRIC)
#define NCCL_HAS_WINDOWS 1
#else
#define NCCL_HAS_WINDOWS 0
#endif

enum { WINDOWS = 8 };

struct nccl_peer {
    ncclComm_t comm;
#if NCCL_HAS_WINDOWS
    ncclWindow_t window[WINDOWS];
    void *of[WINDOWS]; /* the memory of each window; NULL: none */
#endif
};

/* On the current device. Fails the program where NCCL does. */
struct nccl_peer *nccl_peer_open(int rank, int ranks);
void nccl_peer_close(struct nccl_peer *peer);

/* Fails the program unless `result` is ncclSuccess; `what` is the call, named up to a bracket. */
void nccl_must(ncclResult_t result, const char *what);
#define NCCL_MUST(call) nccl_must((call), #call)

/* In nccl_calls.c. Whether NCCL has the operation, natively or by grouped sends and receives, and
 * the reduction; `in_place` is the option. With `windows` only if it is native, since the rest does
 * not use them. The same on all ranks. */
bool nccl_peer_can(const struct perf_job *job, bool in_place, bool windows);

/* One call, enqueued on the stream. */
void nccl_peer_call(struct nccl_peer *peer, const struct perf_job *job, cudaStream_t stream);

/* Memory by ncclMemAlloc, in a symmetric window if `window`, where NCCL has them. */
void *nccl_peer_alloc(struct nccl_peer *peer, size_t bytes, bool window);
void nccl_peer_free(struct nccl_peer *peer, void *memory);

/* "2.28.3", of the library that is loaded. */
const char *nccl_peer_version(void);

#endif
