/* The options of alnico-perf and the text of --help. */
#include "tools/perf/help.h"

#include "tools/perf/operations.h"

#include <stdio.h>

const struct argp_option perf_option_table[] = {
    {.doc = "What to measure:"},
    {"minbytes", 'b', "SIZE", 0, "first size in bytes; 64K and 64M are understood (8)", 0},
    {"maxbytes", 'e', "SIZE", 0, "last size (64M)", 0},
    {"stepfactor", 'f', "N", 0, "from one size to the next, multiply by N (2)", 0},
    {"stepbytes", 'i', "SIZE", 0, "from one size to the next, add SIZE", 0},
    {"datatype", 'd', "TYPE", 0,
     "int8 uint8 int32 uint32 int64 uint64 float16 bfloat16 float32 float64, or as nccl-tests has "
     "it half float double; or all (float32)",
     0},
    {"op", 'o', "OP", 0,
     "sum product minimum maximum average; for integers also logical_and logical_or logical_xor "
     "bitwise_and bitwise_or bitwise_xor; or as nccl-tests has it prod min max avg; or all that "
     "the type has (sum)",
     0},
    {"root", 'r', "RANK", 0, "the root of an operation that has one (0)", 0},
    {"in-place", KEY_IN_PLACE, NULL, 0,
     "send from the receive buffer; where there is a root, on the root only", 0},
    {.doc = "How to run it:"},
    {"device", KEY_DEVICE, "DEVICE", 0, "where the buffers are: cpu or cuda (cpu)", 0},
    {"algorithm", KEY_ALGORITHM, "NAME", 0,
     "force an algorithm of `alnico-info', or compare all of them", 0},
    {"nonblocking", KEY_NONBLOCKING, NULL, 0, "start and wait instead of one blocking call", 0},
    {"overlap", KEY_OVERLAP, NULL, 0,
     "how much of a nonblocking operation hides behind computation of the same length", 0},
    {"stream", KEY_STREAM, NULL, 0, "use a stream with its own worker, not the inline stream", 0},
    {"bootstrap", KEY_BOOTSTRAP, NULL, 0,
     "make our communicator by a callback, not from MPI_COMM_WORLD: ranks of one host then send "
     "through shared memory, not by MPI",
     0},
    {"threads", KEY_THREADS, "LEVEL", 0,
     "thread level asked of MPI: single or multiple (single; multiple with --nonblocking, "
     "--overlap and --stream)",
     0},
    {.doc = "On GPUs, one process each:"},
    {"gpu", KEY_GPU, "LIST", 0,
     "GPU of each rank of a host, as 0,1,2 (the rank's number on its host)", 0},
    {"graph", 'G', "REPLAYS", 0,
     "put -n calls (20) into a CUDA graph and time so many replays of it; 0: as many as fit into "
     "--seconds",
     0},
    {"register", KEY_REGISTER, NULL, 0, "register our buffers with the communicator", 0},
    {"memory", KEY_MEMORY, "KIND", 0,
     "where our buffers come from: cuda (cudaMalloc) or nccl (ncclMemAlloc) (cuda)", 0},
    {"host-time", KEY_HOST_TIME, NULL, 0,
     "also how long the host needs for one call, with --nonblocking for its start, for launching "
     "an "
     "empty kernel, and for the same call of NCCL's, if that is a peer",
     0},
    {.doc = "How to measure it:"},
    {"versus", KEY_VERSUS, "PEER,...", 0,
     "time these in turns with ours, in the same process (none). With --device cpu: mpi. With "
     "--device cuda: staged (cudaMemcpyAsync, MPI, cudaMemcpyAsync), nccl (by grouped sends and "
     "receives where it has no call), nccl-symmetric (buffers in registered windows). Or all",
     0},
    {"iters", 'n', "N", 0, "timed calls of each size (as many as fit into --seconds)", 0},
    {"seconds", KEY_SECONDS, "S", 0, "time to spend on each size, about (2)", 0},
    {"warmup_iters", 'w', "N", 0, "calls before anything is timed (5)", 0},
    {"check", 'c', "0|1", 0, "check every value of one more call (1)", 0},
    {"seed", KEY_SEED, "N", 0, "of the random inputs (by the clock)", 0},
    {"json", KEY_JSON, "FILE", 0, "also write everything to FILE", 0},
    {0}};

char *perf_help(int key, const char *text, void *input)
{
    (void)input;
    if (key != ARGP_KEY_HELP_EXTRA)
        return (char *)text;
    char *help = NULL;
    size_t bytes;
    FILE *out = open_memstream(&help, &bytes);
    if (!out)
        return NULL;
    fprintf(out, "Operations:\n");
    for (int i = 0; perf_operation_at(i); i++)
        fprintf(out, "  %-16s %s\n", perf_operation_at(i)->name, perf_operation_at(i)->about);
    fprintf(
        out,
        "\nSizes are those of a whole vector, of one message or, where each rank has a block, of "
        "the "
        "blocks of all ranks together, as in nccl-tests; count is of one block. The blocks of the "
        "vector forms are unequal: every second one is half as long as the average, rounded down, "
        "the next longer by as much, the last of an odd number just as long. In an alltoallv the "
        "block from rank a to b is as long as block (a + b) mod ranks elsewhere.\n\n"
        "Times are the slowest rank's, the median over many blocks of calls. algbw is size / "
        "time, busbw what the busiest link carries, by the factors of nccl-tests; for an exchange "
        "twice algbw. #wrong counts values that a reference in "
        "float64 or int64 does not allow, and ranks whose bits differ. ratio is our time over "
        "the peer's, of the fastest where --algorithm all. A wrong value makes the exit status "
        "1, a usage error 2.\n\n"
        "Example: mpirun -n 2 alnico-perf allreduce --versus mpi -b 8 -e 64M\n"
        "         mpirun -n 4 alnico-perf broadcast -r 2 --algorithm all\n"
        "         mpirun -n 4 alnico-perf allreduce --device cuda -G 0 --versus "
        "nccl,nccl-symmetric");
    fclose(out);
    return help;
}
