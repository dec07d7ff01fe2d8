/*
 * The peer backend's kernels on CUDA: collectives of 2 to 8 GPUs of one host over scratch memory
 * that all of them map. This layer knows scratch, calls and grids only, no communicator: ranks may
 * be processes, threads, or streams of one GPU. Shared by C and CUDA C. Any thread whose current
 * device is the rank's.
 *
 * All ranks launch the same kernels with the same grids in the same order, one at a time on each
 * scratch, but for those of messages, which only the ranks concerned launch (peer_cuda/messages.h).
 * Every other launch is an epoch, counted in the scratch itself, so that a graph may replay it;
 * flags carry the epoch. Each epoch needs every rank's part, so that no rank is two epochs ahead:
 * buffers alternate by the epoch's parity.
 */
#ifndef ALNICO_COMM_BACKENDS_PEER_CUDA_PEER_CUDA_H
#define ALNICO_COMM_BACKENDS_PEER_CUDA_PEER_CUDA_H

#include <stddef.h>
#include <stdint.h>

enum {
    PEER_CUDA_RANKS = 8,
    PEER_CUDA_BLOCKS = 128, /* of a grid, at most */
    PEER_CUDA_THREADS = 1024,
    PEER_LINE_PAYLOAD = 120 /* of 128 bytes: the last 8 are the flag */
};

/* Where things lie in a rank's scratch. peer_cuda_clear makes its first state. */
enum {
    PEER_AT_BLOCKS = 0,     /* struct peer_block, one a block */
    PEER_AT_RUNNING = 4096, /* uint32_t: a kernel is under way */
    PEER_AT_TOLD = 4224,    /* uint32_t: PEER_TELL of a rank that gave up, written by it */
    PEER_AT_NOTHING = 4288, /* uint32_t: nobody looks */
    PEER_AT_CLAIMED = 4352, /* uint32_t: a kernel gave up, and reports why */
    PEER_AT_BARRIER = 4608, /* uint64_t [rank]: what an allgather moves that is a barrier */
    PEER_AT_STARTS = 8192, /* uint64_t [block][rank]: that block of that rank has begun the epoch */
    PEER_AT_ENDS = 16384,  /* the same: it has done all its stores */
    PEER_AT_LL = 65536,    /* two buffers of slots {data, flag, data, flag} */
    PEER_LL_BYTES = 2 << 20,
    PEER_AT_LINES = PEER_AT_LL + 2 * PEER_LL_BYTES, /* two buffers of lines */
    PEER_LINES_BYTES = 10 << 20,
    PEER_AT_MESSAGES = PEER_AT_LINES + 2 * PEER_LINES_BYTES, /* peer_cuda/messages.h */
    PEER_MESSAGES_BYTES = (6 << 20) + (64 << 10),
    PEER_SCRATCH_BYTES = PEER_AT_MESSAGES + PEER_MESSAGES_BYTES
};

/*
 * Where things lie for the shared kernels, whose GPUs reach no memory of each other. A rank's
 * scratch is then a part of host memory that all of them map, and its blocks, running and claimed
 * words lie in PEER_OWN_BYTES of its own GPU's. A rank writes to its own part only, but for
 * PEER_AT_TOLD.
 */
enum {
    PEER_OWN_BYTES = 8192,
    SHARED_AT_WORDS = 4416,  /* struct peer_words of the rank */
    SHARED_AT_FLAGS = 8192,  /* uint64_t [block][2], each in 64 bytes of its own */
    SHARED_AT_SLOTS = 16384, /* two buffers of slots {data, flag, data, flag} */
    SHARED_SLOTS_BYTES = 256 << 10,
    SHARED_BLOCKS = 32, /* of a grid, at most */
    SHARED_DEPTH = 2,   /* places of a block, used in turn */
    SHARED_PLACE_BYTES = 512 * 16,
    SHARED_AREA_BYTES = SHARED_DEPTH * SHARED_BLOCKS * SHARED_PLACE_BYTES,
    SHARED_AT_RESULTS = SHARED_AT_SLOTS + 2 * SHARED_SLOTS_BYTES, /* one area */
    SHARED_AT_INPUTS = SHARED_AT_RESULTS + SHARED_AREA_BYTES      /* one a rank */
};

/* Equal in all blocks between two kernels. `broken` is set for good when one gave up. */
struct peer_block {
    uint64_t epoch; /* of the next kernel */
    uint32_t broken, padding;
};

/* Why a kernel gave up. */
enum peer_fault {
    PEER_FAULT_NONE,
    PEER_FAULT_TIMEOUT, /* `rank` did not come before the deadline */
    PEER_FAULT_ABORTED, /* this rank's host raised `abort` */
    PEER_FAULT_TOLD,    /* `rank` gave up */
    PEER_FAULT_BUSY,    /* two kernels used this rank's scratch at once */
    PEER_FAULT_MISMATCH /* a message from `rank` has another length than its receive */
};

/* Words that host and kernels share: mapped host memory, one a rank, the rest zero at first. */
struct peer_words {
    uint32_t told;  /* PEER_TELL of this rank: what an abort copies to the others */
    uint32_t heard; /* what `rank` told, if it is PEER_FAULT_TOLD */
    uint32_t abort; /* raised by the host */
    uint32_t fault; /* enum peer_fault, the first one; the fields below are written before it */
    uint32_t rank, kernel;
    uint64_t epoch;
    uint64_t sent, received; /* bytes, of a mismatch */
};

/* What a rank tells the others when it gives up: who it is, why, and whom it missed. */
#define PEER_TELL(RANK, FAULT, MISSED)                                                             \
    ((1u + (uint32_t)(RANK)) | (uint32_t)(FAULT) << 8 | (uint32_t)(MISSED) << 16)
#define PEER_TOLD_BY(TOLD) ((int)((TOLD)&0xffu) - 1)
#define PEER_TOLD_FAULT(TOLD) ((TOLD) >> 8 & 0xffu)
#define PEER_TOLD_MISSED(TOLD) ((TOLD) >> 16 & 0xffu)

enum peer_kernel {
    PEER_ONE_SHOT,
    PEER_ONE_SHOT_LINE,
    PEER_TWO_SHOT_LINE,
    PEER_TWO_SHOT_STAGED,
    PEER_TWO_SHOT_DIRECT,
    PEER_RECURSIVE_DOUBLING,
    PEER_ALLREDUCES, /* up to here; of the others `bytes` and `count` are those of a block */
    PEER_ALLGATHER_LINE = PEER_ALLREDUCES,
    PEER_ALLTOALL_LINE,
    PEER_BROADCAST_LINE, /* one block: send at the root, recv elsewhere */
    PEER_REDUCE_SCATTER_LINE,
    PEER_ALLGATHER_DIRECT,
    PEER_ALLTOALL_DIRECT,
    PEER_REDUCE_SCATTER_DIRECT,
    PEER_MESSAGES, /* messages: peer_cuda/messages.h */
    PEER_KERNELS,  /* over GPUs' memory; the others over the host's */
    SHARED_ONE_SHOT = PEER_KERNELS,
    SHARED_TWO_SHOT,
    SHARED_KERNELS_END
};

/* One rank's view of all scratches; written once. */
struct peer_world {
    char *own; /* this rank's scratch, or what of it is in its own GPU's memory */
    int rank, size;
    char *scratch[PEER_CUDA_RANKS]; /* by rank, as this rank's device maps them */
    struct peer_words *words;       /* this rank's, as its device maps it */
    uint64_t timeout_ns;            /* how long a kernel waits for another rank */
    int modern; /* the kernels are compiled for compute capability 9: peer_cuda_load says so */
};

/* What a kernel gets: `type` and `op` are alnico_datatype_t and alnico_op_t. What small messages
 * need comes first, in few lines of the cache that a kernel's arguments start out of. */
struct peer_arguments {
    struct peer_world world;
    const char *send;
    char *recv;
    uint64_t bytes;
    int32_t aligned; /* for the kernel: 1 send, 2 recv; direct: 3 if all of all ranks are */
    int32_t type, op;
    float factor;   /* what a result is multiplied by: 1, or 1/size for an average of floats */
    double scale;   /* the same */
    uint32_t depth; /* two_shot in lines: slots of a group of lanes, used in turn */
    int32_t kernel;
    int32_t dependent; /* enum peer_dependent */
    int32_t root;      /* of a broadcast: the caller's to set */
    /* Direct only, as mapped here: of an allreduce every rank's vectors; of allgather and alltoall
     * what this rank has for each and where to; of reduce-scatter every rank's block for this one,
     * and in `recvs` this rank's alone. */
    const char *sends[PEER_CUDA_RANKS];
    char *recvs[PEER_CUDA_RANKS];
};

/* When the kernel of the same stream before it and after it are launched. A kernel always waits for
 * the end of the one before, and only then does anything that others could see; a foreign one that
 * comes after may not. */
enum peer_dependent {
    PEER_DEPENDENT, /* while the one before ends */
    PEER_SEPARATE,  /* one after the other */
    PEER_EAGER,     /* as the first, and allows the next one from its begin */
    PEER_LATE,      /* or once its results are there for all of this GPU */
    PEER_BARE,      /* as the first, without fetching arguments and data ahead */
    PEER_DEPENDENTS
};

/* How to launch; all ranks alike. At most 64 registers a thread for up to 4 ranks: 264 blocks of
 * 512 threads are on 132 multiprocessors at once. */
struct peer_grid {
    int blocks, threads; /* threads: a multiple of 32 */
    enum peer_dependent dependent;
};

/* Whether it accesses other ranks' registered buffers. */
int peer_cuda_is_direct(enum peer_kernel kernel);

/* Whether the kernel can carry out a call of so many bytes. */
int peer_cuda_fits(enum peer_kernel kernel, int size, size_t bytes);

/* The default grid, or one of about `blocks` blocks if that is not 0: a function of these arguments
 * only. */
void peer_cuda_grid(enum peer_kernel kernel, int size, size_t bytes, int blocks,
                    struct peer_grid *out);

/* Fills in what depends on the call: bytes > 0; the `sends` and `recvs` are the caller's if it is
 * direct. */
void peer_cuda_arguments(struct peer_arguments *out, const struct peer_world *world,
                         enum peer_kernel kernel, const void *send, void *recv, size_t count,
                         int type, int op, const struct peer_grid *grid);

/* Enqueues it on a cudaStream_t; returns a cudaError_t. */
int peer_cuda_launch(const struct peer_arguments *arguments, const struct peer_grid *grid,
                     void *stream);

/* Makes a scratch of the current device what it is before its first kernel, whose epoch is `epoch`:
 * 1, or another for a test. Blocks. Returns a cudaError_t. */
int peer_cuda_clear(char *scratch, uint64_t epoch);

/* The same for `own` of the shared kernels; the parts in host memory are zero at first. */
int peer_cuda_clear_own(char *own, uint64_t epoch);

/* Bytes of a part, a multiple of 4096. */
size_t peer_cuda_part_bytes(int size);

/* Loads all kernels for so many ranks onto the current device: before anyone spins, since loading
 * one may wait for those that run. *modern becomes peer_world's. Returns a cudaError_t. */
int peer_cuda_load(int size, int *modern);
int peer_cuda_load_shared(int size, int *modern);

/* What peer_cuda/launch.c makes of type and operation, to choose a kernel by. */
enum peer_kind {
    PEER_KIND_FLOAT32,
    PEER_KIND_FLOAT16,
    PEER_KIND_BFLOAT16,
    PEER_KIND_ANY,
    PEER_KINDS
};

/* The kernels for so many ranks as the driver has them in one context: launching by these, instead
 * of by what the runtime has to look up, takes the host less time. */
struct peer_functions {
    void *of[PEER_KERNELS][PEER_KINDS];
};

/* For the context that is current, once the kernels are loaded. Returns a cudaError_t. */
int peer_cuda_functions(int size, struct peer_functions *out);

/* As peer_cuda_launch, in the functions' context; cuda_driver() is there. Returns a CUresult. */
int peer_cuda_launch_by(const struct peer_functions *functions,
                        const struct peer_arguments *arguments, const struct peer_grid *grid,
                        void *stream);

/* A launch of an empty kernel, to compare with. Returns a cudaError_t. */
int peer_cuda_launch_empty(void *stream);

/* The kernels' host functions, from the .cu files: kind is an enum peer_kind, size the ranks. */
#ifdef __cplusplus
extern "C" {
#endif
const void *peer_one_shot_function(int kind, int size);
const void *peer_one_shot_line_function(int kind, int size);
const void *peer_two_shot_function(int kind, int size);
const void *peer_direct_function(int kernel, int kind, int size);
const void *peer_doubling_function(int kind);
const void *peer_blocks_function(int kernel, int kind, int size);
const void *peer_messages_function(int many);
const void *shared_one_shot_function(int kind, int size);
const void *shared_two_shot_function(int kind, int size);
const void *peer_empty_function(void);
#ifdef __cplusplus
}
#endif

#endif
