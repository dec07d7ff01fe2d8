/* One operation on a simulated machine: machine files, and the library's executors, one for each
 * rank and chunk, driven over virtual time by one thread. Any number of them may run at once. */
#ifndef ALNICO_TOOLS_SIMULATE_RUN_H
#define ALNICO_TOOLS_SIMULATE_RUN_H

#include "comm/algorithms/algorithm.h"
#include "comm/collectives.h"
#include "comm/transports/sim/sim.h"

/* The figures of a machine. docs/simulation.md lists the keys of its JSON file. */
struct simulate_machine {
    char name[64], path[4096];
    struct sim_machine sim;
    struct simulate_staging {
        double latency_us, bandwidth_gbps; /* of a copy between a rank's GPU and its host */
        double reduce_gbps;                /* the host's */
    } staging;                             /* bandwidth_gbps 0: the file has none */
};

/* Reads a machine from text, with a NUL behind it. Errors: ARGUMENT, with a detail that names
 * `file`, the key and its value; `file` is for that only. */
alnico_status_t machine_parse(const char *text, size_t bytes, const char *file,
                              struct simulate_machine *out);

/* Reads the file, or the installed machine of that name where there is no slash and no dot in it.
 * Also SYSTEM. */
alnico_status_t machine_read(const char *name, struct simulate_machine *out);

struct simulate_case {
    const struct sim_machine *machine;
    const struct algorithm *algorithm;
    int ranks;
    size_t count;       /* float32 elements of the vector, or of each rank's block */
    size_t chunk_count; /* elements of a chunk, three of which are in flight; 0: one chunk */
    bool data;          /* move, add and check real elements */
    const struct simulate_staging
        *staging; /* of an allreduce whose vectors the host carries; or NULL */
    const struct collective *operation; /* NULL: allreduce; the root is rank 0 */
    const struct host_map *map;         /* of all ranks; NULL: algorithms see one host */
};

/* The map of ranks that fill hosts in order, for free(); NULL: no memory. */
struct host_map *simulate_map(int ranks, int per_host);

struct simulate_result {
    double time_us;    /* until the last rank has its result */
    uint64_t messages; /* sent in all */
    size_t wrong;      /* elements on all ranks; 0 without data */
};

/* Errors: MEMORY, SYSTEM (the ranks wait for each other), and the executor's. */
alnico_status_t simulate_run(const struct simulate_case *what, struct simulate_result *out);

/* Bytes of elements that a case with data holds at once, about; all ranks together. */
double simulate_data_bytes(const struct simulate_case *what);

/* Rounds of all ranks and chunks: what the time of simulating goes with. */
double simulate_rounds(const struct simulate_case *what);

/* Its algorithms, up to NULL. Blocks of vector forms have equal lengths here. */
const struct algorithm *const *operation_algorithms(const struct collective *operation);

/* A case's operation: allreduce unless it names one. */
const struct collective *operation_of(const struct simulate_case *what);

/* Whether it is a group of messages: sendrecv, in which each rank sends to the next one. */
bool operation_is_ring(const struct collective *operation);

/* All ranks' SEND and RECV. Without data they are addresses that nobody touches, of one rank. */
struct simulate_buffers {
    const struct simulate_case *what;
    float *send, *recv;
    size_t send_bytes, recv_bytes; /* as allocated */
};

/* Makes them and fills in the inputs. Errors: MEMORY. */
alnico_status_t buffers_create(const struct simulate_case *what, struct simulate_buffers *out);
void buffers_destroy(struct simulate_buffers *buffers);

/* A rank's SEND or RECV. */
float *buffers_side(const struct simulate_buffers *buffers, int rank, bool sends);

/* Counts the received elements that are wrong. */
size_t buffers_wrong(const struct simulate_buffers *buffers);

/* Bytes of all ranks' SEND and RECV with data. */
double buffers_bytes(const struct simulate_case *what);

/* Memory of `bytes`: of zeros, or without data addresses only. NULL if there is none. */
void *memory_take(size_t bytes, bool data);
void memory_give(void *memory, size_t bytes, bool data);

#endif
