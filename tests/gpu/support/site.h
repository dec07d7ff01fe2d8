/* A communicator on a GPU with what tests need around it: its stream, a twin on the CPU, memory
 * that is registered and memory that is not, and the ways in which it can carry out an allreduce.
 * Of one rank; opened and closed by all. */
#ifndef ALNICO_TESTS_GPU_SUPPORT_SITE_H
#define ALNICO_TESTS_GPU_SUPPORT_SITE_H

#include "comm/tuning/tuning.h"
#include "tests/gpu/support/world.h"
#include "tests/support/cases.h"

/* Memory that is taken from its start on, and is whole again when all was given back. */
struct gpu_arena {
    char *base;
    size_t bytes, used, mapped; /* mapped: bytes of cuMemCreate; 0: it is cudaMalloc's */
    unsigned long long handle;
    int taken;
};

enum gpu_memory { GPU_MALLOC, GPU_MAPPED }; /* cudaMalloc, cuMemCreate */

void gpu_arena_open(struct gpu_arena *arena, size_t bytes, enum gpu_memory kind, int device);
void gpu_arena_close(struct gpu_arena *arena);
void *gpu_arena_take(struct gpu_arena *arena, size_t bytes); /* aligned to 256 */
void gpu_arena_give(struct gpu_arena *arena);

struct gpu_site {
    struct gpu_rank *rank;
    cudaStream_t stream;
    bool own_stream;
    alnico_comm_t comm, twin;
    struct gpu_arena plain, shared; /* shared: registered */
    alnico_registration_t registration;
    struct cases_memory memory; /* for the table of cases */
};

/* On a non-blocking stream of its own, with `bytes` of each kind of memory. */
void gpu_site_open(struct gpu_site *site, struct gpu_rank *rank, size_t bytes);

/* The same on that stream and with registered memory of that kind. */
void gpu_site_open_on(struct gpu_site *site, struct gpu_rank *rank, size_t bytes,
                      cudaStream_t stream, enum gpu_memory kind);

/* Around a communicator and its twin, which it takes over: duplicates and splits. */
void gpu_site_wrap(struct gpu_site *site, struct gpu_rank *rank, size_t bytes, cudaStream_t stream,
                   enum gpu_memory kind, alnico_comm_t comm, alnico_comm_t twin);

/* By all ranks at once. The communicator may have an error, or have been destroyed and be NULL. */
void gpu_site_close(struct gpu_site *site);

/* ---- Vectors ---- */

struct gpu_vector {
    size_t count;
    alnico_datatype_t type;
    alnico_op_t op;
    uint64_t seed;
};

size_t gpu_vector_bytes(const struct gpu_vector *v);

/* Writes this rank's input, on the site's stream; done on return. */
void gpu_fill(struct gpu_site *site, void *to, const struct gpu_vector *v);

/* Requires that the memory holds the result, once the site's stream has run; returns its hash. */
uint64_t gpu_verify(struct gpu_site *site, const void *from, const struct gpu_vector *v,
                    const char *what);

uint64_t gpu_hash(struct gpu_site *site, const void *from, size_t bytes);

/* Whether the hashes of all ranks of the site are equal. */
bool gpu_same(struct gpu_site *site, uint64_t hash);

/* One blocking allreduce in the site's plain memory by the way in force, checked: the communicator
 * works. */
void gpu_try(struct gpu_site *site, size_t count, const char *what);

/* Requires that the current GPU still copies and runs kernels. */
void gpu_require_alive(struct gpu_rank *rank);

/* ---- Ways ---- */

/* An algorithm of CUDA and whose it is; by the table if `algorithm` is NULL. */
struct gpu_way {
    const struct algorithm *algorithm;
    const struct backend *backend;
};

/* Way i: the table's choice is 0, then come all algorithms that `alnico-info` lists. False after
 * the last. */
bool gpu_way_at(int i, struct gpu_way *out);

/* The way of that name; it must exist. */
struct gpu_way gpu_way_named(const char *name);
const char *gpu_way_name(const struct gpu_way *way);
bool gpu_way_is(const struct gpu_way *way, const char *backend);

/* Whether it can be captured into a graph, in this build. */
bool gpu_way_captures(const struct gpu_way *way);

/* Forces it (collective). False if this build lacks it or it needs more ranks than there are; the
 * test fails if it cannot be forced otherwise. */
bool gpu_force(struct gpu_site *site, const struct gpu_way *way);

/* Which calls a way need not carry out, for struct cases: `argument` is a struct gpu_way. */
bool gpu_may_refuse(const struct allreduce_case *c, const void *argument);

#endif
