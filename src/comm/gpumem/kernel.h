/*
 * Kernels over memory that the GPUs of one host map: how a backend describes one, what it gets, and
 * its launch. No communicator is known here: ranks may be processes, threads, or streams of one
 * GPU. Shared by C and CUDA C. Any thread whose current device is the rank's.
 *
 * All ranks launch the same kernels with the same grids in the same order, one at a time on each
 * scratch, except kernels of messages, which only the ranks concerned launch. Every other launch is
 * an epoch. Epochs are counted in the scratch itself, so that a graph may replay a launch; flags
 * carry the epoch. Each epoch needs every rank's part, so no rank is two epochs ahead: buffers
 * alternate by the epoch's parity.
 */
#ifndef ALNICO_COMM_GPUMEM_KERNEL_H
#define ALNICO_COMM_GPUMEM_KERNEL_H

#include <alnico/alnico.h>

#include <stddef.h>
#include <stdint.h>

enum {
    PEER_GPUS = 8,
    PEER_BLOCKS = 128,       /* of a grid, at most */
    PEER_BLOCK_THREADS = 512 /* of a block, at most: what the kernels are compiled for */
};

/* The common part of every rank's scratch; a backend's own buffers lie behind it. If the scratch is
 * host memory, blocks, running and claimed words lie in memory of the rank's own GPU. */
enum {
    PEER_AT_BLOCKS = 0,     /* struct peer_block, one a block */
    PEER_AT_RUNNING = 4096, /* uint32_t: a kernel is under way */
    PEER_AT_REPORT = 4224,  /* uint32_t: PEER_REPORT of a rank that gave up, written by it */
    PEER_AT_NOTHING = 4288, /* uint32_t: nobody looks */
    PEER_AT_CLAIMED = 4352  /* uint32_t: a kernel gave up, and reports why */
};

/* Equal in all blocks between two kernels. `broken` is set for good when one gave up. */
struct peer_block {
    uint64_t epoch; /* of the next kernel */
    uint32_t broken, padding;
};

/* Why a kernel gave up. */
enum peer_fault {
    PEER_FAULT_NONE,
    PEER_FAULT_TIMEOUT,  /* `rank` did not come before the deadline */
    PEER_FAULT_ABORTED,  /* this rank's host raised `abort` */
    PEER_FAULT_REPORTED, /* `rank` gave up */
    PEER_FAULT_BUSY,     /* two kernels used this rank's scratch at once */
    PEER_FAULT_MISMATCH  /* a message from `rank` has another length than its receive */
};

/* Words that host and kernels share: mapped host memory, one a rank, zero at first. */
struct peer_words {
    uint32_t own_report; /* PEER_REPORT of this rank, which an abort copies to the others */
    uint32_t report;     /* PEER_REPORT of `rank`, if it is PEER_FAULT_REPORTED */
    uint32_t abort;      /* raised by the host */
    uint32_t fault; /* enum peer_fault, the first one; the fields below are written before it */
    uint32_t rank, kernel;
    uint64_t epoch;
    uint64_t sent, received; /* bytes, of a mismatch */
};

/* The report of a rank that gave up to the others: who it is, why, and whom it missed. */
#define PEER_REPORT(RANK, FAULT, MISSED)                                                           \
    ((1u + (uint32_t)(RANK)) | (uint32_t)(FAULT) << 8 | (uint32_t)(MISSED) << 16)
#define PEER_REPORT_BY(REPORT) ((int)((REPORT)&0xffu) - 1)
#define PEER_REPORT_FAULT(REPORT) ((REPORT) >> 8 & 0xffu)
#define PEER_REPORT_MISSED(REPORT) ((REPORT) >> 16 & 0xffu)

/* One rank's view of all scratches; written once. */
struct peer_world {
    char *own; /* this rank's scratch, or what of it is in its own GPU's memory */
    int rank, size;
    char *scratch[PEER_GPUS]; /* by rank, as this rank's device maps them */
    struct peer_words *words; /* this rank's, as its device maps it */
    uint64_t timeout_ns;      /* how long a kernel waits for another rank */
    int most_blocks;          /* of a grid, by the communicator's limits; 0: the kernel's own */
    uint32_t line_bytes;      /* of a buffer of lines, whose place only peer_cuda has */
    int modern; /* the kernels are compiled for compute capability 9: peer_kernels_load says so */
};

/* The arguments of a kernel; peer_arguments_finish fills in what the caller does not. The first few
 * cache lines hold all that small messages need. */
struct peer_arguments {
    struct peer_world world;
    const char *send;
    char *recv;
    uint64_t bytes;   /* > 0: of the vector, or of a block */
    int32_t aligned;  /* 1 send, 2 recv; direct: 3 if all of all ranks are; to be finished */
    int32_t type, op; /* alnico_datatype_t and alnico_op_t */
    float factor;     /* what a result is multiplied by: 1, or 1/size for an average of floats */
    double scale;     /* the same; both to be finished */
    uint32_t depth;   /* places of a group of lanes; to be finished */
    int32_t kernel;   /* its place in the backend's table */
    int32_t root;     /* of a broadcast */
    /* Direct only, as mapped here: of an allreduce every rank's vectors; of allgather
     * and alltoall what this rank has for each and where to; of reduce-scatter every rank's block
     * for this one, and in `recvs` this rank's alone. */
    const char *sends[PEER_GPUS];
    char *recvs[PEER_GPUS];
};

/* At most 64 registers a thread for up to 4 ranks: 264 blocks of 512 threads are on 132
 * multiprocessors at once. */
struct peer_grid {
    int blocks, threads; /* threads: a multiple of 32 */
};

/* Variants by type and operation: sums of three types have kernels of their own. */
enum peer_kind {
    PEER_KIND_FLOAT32,
    PEER_KIND_FLOAT16,
    PEER_KIND_BFLOAT16,
    PEER_KIND_ANY,
    PEER_KINDS
};

/* A host function, from a .cu file, that returns the kernel for an enum peer_kind and so many
 * ranks. */
typedef const void *peer_function(int kind, int size);

/* A kernel of a backend, which has them in one table. All slots are functions of their arguments
 * only, and of what is equal on all ranks in `world`; `bytes` are those of the vector, or of a block. */
struct peer_kernel {
    const char *name;
    peer_function *function;

    /* Whether it can carry out a call of so many bytes. NULL: any. */
    int (*fits)(const struct peer_world *world, size_t bytes);

    /* The default grid, or one of about `blocks` blocks if that is not 0. NULL: a plan says so. */
    void (*grid)(const struct peer_world *world, size_t bytes, int blocks, struct peer_grid *out);

    /* Places that a group of lanes has in the others' scratch, each used several times in an epoch,
     * with tickets that tell the uses apart. NULL: no place is used twice. */
    uint32_t (*depth)(const struct peer_arguments *arguments, const struct peer_grid *grid);

    int direct;         /* accesses other ranks' registered buffers */
    int strided_blocks; /* block b of `send` or `recv` begins at b times the bytes */
};

int peer_kernel_fits(const struct peer_kernel *kernel, const struct peer_world *world,
                     size_t bytes);
void peer_kernel_grid(const struct peer_kernel *kernel, const struct peer_world *world,
                      size_t bytes, int blocks, struct peer_grid *out);
void peer_arguments_finish(struct peer_arguments *out, const struct peer_kernel *kernel,
                           const struct peer_grid *grid);

static inline size_t peer_divide_up(size_t a, size_t b)
{
    return (a + b - 1) / b;
}

/* A grid for so many threads: blocks of `few` threads up to `most` blocks, and then larger ones.
 * Small messages are fastest where a block has few warps, and large ones where no lane has more
 * than one item. */
void peer_grid_spread(size_t threads, size_t few, int most, int blocks, struct peer_grid *out);

/* The functions of a backend's kernels for so many ranks, as the driver has them in one context:
 * launching by these, instead of by what the runtime has to look up, takes the host less time. */
enum { PEER_KERNELS_MOST = 16 };
struct peer_functions {
    void *of[PEER_KERNELS_MOST][PEER_KINDS];
};

/* Loads a table's kernels onto the current device: before anyone spins, since loading one may wait
 * for kernels that run. *modern becomes peer_world's. Returns a cudaError_t. */
int peer_kernels_load(const struct peer_kernel *kernels, int count, int size,
                      struct peer_functions *out, int *modern);

/* Enqueues arguments->kernel on a cudaStream_t, in the functions' context; cuda_driver() is there.
 * The kernel may start while the one before it on the stream ends; it waits for that end before it
 * does anything that others could see. Returns a CUresult. */
int peer_kernel_launch(const struct peer_functions *functions,
                       const struct peer_arguments *arguments, const struct peer_grid *grid,
                       void *stream);

/* Finishes the arguments for arguments->kernel, which is `kernel`, and launches it with its grid;
 * `blocks` is the tuning row's. */
alnico_status_t peer_call_launch(const struct peer_functions *functions,
                                 const struct peer_kernel *kernel, struct peer_arguments *arguments,
                                 int blocks, void *stream);

/* Makes `bytes` bytes of scratch of the current device what they are before its first kernel, whose
 * epoch is `epoch`: 1, or another for a test. Blocks. Returns a cudaError_t. */
int peer_scratch_clear(char *scratch, size_t bytes, uint64_t epoch);

#endif
