/* Capturing and replaying, calls with their buffers, and vectors that count the sums. */
#include "tests/gpu/support/graph.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LENGTH(array) ((int)(sizeof(array) / sizeof *(array)))

bool gpu_can_capture(struct gpu_site *site)
{
    struct gpu_way nccl = gpu_way_named("nccl"), table;
    gpu_way_at(0, &table);
    bool can = alnico_comm_size(site->comm) > 1 || gpu_force(site, &nccl);
    gpu_force(site, &table);
    return can;
}

void gpu_capture_begin(struct gpu_site *site)
{
    CUDA(cudaStreamBeginCapture(site->stream, site->rank->mpi ? cudaStreamCaptureModeGlobal
                                                              : cudaStreamCaptureModeThreadLocal));
}

cudaGraphExec_t gpu_capture_end(struct gpu_site *site)
{
    cudaGraph_t graph;
    cudaGraphExec_t exec;
    CUDA(cudaStreamEndCapture(site->stream, &graph));
    CUDA(cudaGraphInstantiate(&exec, graph, 0));
    CUDA(cudaGraphDestroy(graph));
    return exec;
}

void gpu_replay(struct gpu_site *site, cudaGraphExec_t graph)
{
    CUDA(cudaGraphLaunch(graph, site->stream));
}

/* ---- Several calls ---- */

static alnico_status_t call_entry(const struct gpu_entry *e, alnico_comm_t comm)
{
    const void *send = e->in_place ? ALNICO_IN_PLACE : e->send;
    alnico_request_t request;
    if (!e->nonblocking)
        return alnico_allreduce(send, e->recv, e->v.count, e->v.type, e->v.op, comm);
    alnico_status_t status =
        alnico_iallreduce(send, e->recv, e->v.count, e->v.type, e->v.op, comm, &request);
    return status == ALNICO_SUCCESS ? alnico_wait(&request) : status;
}

static struct gpu_entry make_entry(struct gpu_site *site, int k, int turn)
{
    static const size_t counts[] = {1, 120, 1000, 4099, 0, 30001, 129};
    static const struct gpu_vector kinds[] = {{.type = ALNICO_FLOAT32, .op = ALNICO_SUM},
                                              {.type = ALNICO_BFLOAT16, .op = ALNICO_SUM},
                                              {.type = ALNICO_INT32, .op = ALNICO_MAXIMUM},
                                              {.type = ALNICO_FLOAT64, .op = ALNICO_AVERAGE},
                                              {.type = ALNICO_FLOAT16, .op = ALNICO_PRODUCT}};
    struct gpu_entry e = {.v = kinds[turn % LENGTH(kinds)],
                          .arena = k % 2 ? &site->shared : &site->plain,
                          .in_place = k % 3 == 0,
                          .nonblocking = k >= GPU_ENTRIES / 2};
    e.v.count = counts[turn % LENGTH(counts)];
    e.send = gpu_arena_take(e.arena, gpu_vector_bytes(&e.v) + 1);
    e.recv = gpu_arena_take(e.arena, gpu_vector_bytes(&e.v) + 1);
    return e;
}

static void drop_entry(const struct gpu_entry *e)
{
    gpu_arena_give(e->arena);
    gpu_arena_give(e->arena);
}

/* What the way may refuse is tried. */
static bool can_do(struct gpu_site *site, const struct gpu_entry *e, const struct gpu_way *way)
{
    struct allreduce_case c = {.count = e->v.count,
                               .type = e->v.type,
                               .op = e->v.op,
                               .registered = e->arena == &site->shared};
    if (!gpu_may_refuse(&c, way))
        return true;
    alnico_status_t status = call_entry(e, site->comm);
    if (status != ALNICO_ERROR_UNSUPPORTED)
        REQUIRE_STATUS(status, ALNICO_SUCCESS);
    REQUIRE_STATUS(alnico_synchronize(site->comm), ALNICO_SUCCESS);
    return status == ALNICO_SUCCESS;
}

void gpu_record(struct gpu_site *site, struct gpu_recording *r, const struct gpu_way *way, int turn)
{
    memset(r, 0, sizeof *r);
    for (int k = 0; k < GPU_ENTRIES; k++) {
        struct gpu_entry e = make_entry(site, k, turn + k);
        if (can_do(site, &e, way))
            r->entries[r->count++] = e;
        else
            drop_entry(&e);
    }
    gpu_capture_begin(site);
    for (int k = 0; k < r->count; k++)
        REQUIRE_STATUS(call_entry(&r->entries[k], site->comm), ALNICO_SUCCESS);
    r->graph = gpu_capture_end(site);
}

void gpu_recording_run(struct gpu_site *site, struct gpu_recording *r, uint64_t seed, bool replay)
{
    for (int k = 0; k < r->count; k++) {
        struct gpu_entry *e = &r->entries[k];
        e->v.seed = seed + (uint64_t)k;
        gpu_fill(site, e->in_place ? e->recv : e->send, &e->v);
        if (!e->in_place)
            CUDA(cudaMemsetAsync(e->recv, 0x5a, gpu_vector_bytes(&e->v), site->stream));
    }
    if (replay)
        gpu_replay(site, r->graph);
    for (int k = 0; k < r->count && !replay; k++)
        REQUIRE_STATUS(call_entry(&r->entries[k], site->comm), ALNICO_SUCCESS);
    REQUIRE_STATUS(alnico_synchronize(site->comm), ALNICO_SUCCESS);
    for (int k = 0; k < r->count; k++) {
        const struct gpu_entry *e = &r->entries[k];
        const char *what = replay ? "a replay" : "a call beside replays";
        REQUIRE(gpu_same(site, gpu_verify(site, e->recv, &e->v, what)));
    }
}

void gpu_recording_close(struct gpu_recording *r)
{
    CUDA(cudaGraphExecDestroy(r->graph));
    for (int k = 0; k < r->count; k++)
        drop_entry(&r->entries[k]);
}

/* ---- Tallies ---- */

void gpu_tally_open(struct gpu_tally *tally, struct gpu_site *site, size_t count)
{
    uint64_t *host = malloc(count * sizeof *host);
    *tally = (struct gpu_tally){.site = site, .count = count, .expected = 1};
    tally->memory = gpu_arena_take(&site->shared, count * sizeof *host);
    REQUIRE(host != NULL);
    for (size_t i = 0; i < count; i++)
        host[i] = i;
    CUDA(cudaMemcpyAsync(tally->memory, host, count * sizeof *host, cudaMemcpyHostToDevice,
                         site->stream));
    CUDA(cudaStreamSynchronize(site->stream));
    free(host);
}

void gpu_tally_call(struct gpu_tally *tally, alnico_comm_t comm, bool nonblocking)
{
    alnico_request_t request;
    if (!nonblocking) {
        REQUIRE_STATUS(alnico_allreduce(ALNICO_IN_PLACE, tally->memory, tally->count, ALNICO_UINT64,
                                        ALNICO_SUM, comm),
                       ALNICO_SUCCESS);
        return;
    }
    REQUIRE_STATUS(alnico_iallreduce(ALNICO_IN_PLACE, tally->memory, tally->count, ALNICO_UINT64,
                                     ALNICO_SUM, comm, &request),
                   ALNICO_SUCCESS);
    REQUIRE_STATUS(alnico_wait(&request), ALNICO_SUCCESS);
}

void gpu_tally_add(struct gpu_tally *tally, int sums)
{
    for (int i = 0; i < sums; i++)
        tally->expected *= (uint64_t)alnico_comm_size(tally->site->twin);
}

void gpu_tally_close(struct gpu_tally *tally, const char *what)
{
    size_t bytes = tally->count * sizeof(uint64_t), wrong = 0;
    uint64_t *host = malloc(bytes);
    REQUIRE(host != NULL);
    CUDA(cudaMemcpyAsync(host, tally->memory, bytes, cudaMemcpyDeviceToHost, tally->site->stream));
    CUDA(cudaStreamSynchronize(tally->site->stream));
    for (size_t i = 0; i < tally->count; i++)
        if (host[i] != i * tally->expected && wrong++ == 0)
            fprintf(stderr, "%s, rank %d: element %zu of %zu is %llu, expected %llu\n", what,
                    tally->site->rank->rank, i, tally->count, (unsigned long long)host[i],
                    (unsigned long long)(i * tally->expected));
    REQUIRE(wrong == 0);
    free(host);
    gpu_arena_give(&tally->site->shared);
}
