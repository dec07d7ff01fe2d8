/* CUDA graphs of a site's stream: of several calls with their buffers; and what grows with every
 * allreduce, for order between replays and calls. */
#ifndef ALNICO_TESTS_GPU_SUPPORT_GRAPH_H
#define ALNICO_TESTS_GPU_SUPPORT_GRAPH_H

#include "tests/gpu/support/site.h"

/* Whether anything that the table may choose for these ranks can be captured: the peer backend or
 * NCCL (collective). */
bool gpu_can_capture(struct gpu_site *site);

/* Captures what the calling thread gives to the stream. Where ranks are threads, a capture is this
 * thread's only: the others may do meanwhile what a capture of all threads would forbid. */
void gpu_capture_begin(struct gpu_site *site);
cudaGraphExec_t gpu_capture_end(struct gpu_site *site);

void gpu_replay(struct gpu_site *site, cudaGraphExec_t graph);

/* ---- Several calls ---- */

enum { GPU_ENTRIES = 6 };

struct gpu_recording {
    struct gpu_entry {
        struct gpu_vector v;
        char *send, *recv;
        struct gpu_arena *arena;
        bool in_place, nonblocking;
    } entries[GPU_ENTRIES];
    int count;
    cudaGraphExec_t graph;
};

/* Captures calls of different kinds that the way in force can carry out, in plain and in registered
 * memory; which ones depends on `turn` (collective). */
void gpu_record(struct gpu_site *site, struct gpu_recording *r, const struct gpu_way *way,
                int turn);

/* New inputs; replays the graph, or makes its calls without it; requires right results, the same on
 * all ranks. */
void gpu_recording_run(struct gpu_site *site, struct gpu_recording *r, uint64_t seed, bool replay);
void gpu_recording_close(struct gpu_recording *r);

/* ---- Tallies ---- */

/* A vector of uint64, in registered memory, that every in-place sum multiplies by the number of
 * ranks: element i is i * size^sums. */
struct gpu_tally {
    struct gpu_site *site;
    uint64_t *memory;
    size_t count;
    uint64_t expected; /* size^sums */
};

void gpu_tally_open(struct gpu_tally *tally, struct gpu_site *site, size_t count);

/* One sum on a communicator, blocking or not and waited for; does not wait on the host. */
void gpu_tally_call(struct gpu_tally *tally, alnico_comm_t comm, bool nonblocking);

/* `sums` were or will be carried out. */
void gpu_tally_add(struct gpu_tally *tally, int sums);

/* Waits for the site's stream, and requires what is expected. */
void gpu_tally_close(struct gpu_tally *tally, const char *what);

#endif
