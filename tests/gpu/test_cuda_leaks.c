/*
 * Nothing grows: the GPU's memory, the host's, descriptors and threads after many calls, and after many communicators.
 *
 *     gpu_cuda_leaks                  ranks as threads, on 1 to 4 GPUs one after the other
 *     mpirun -n 4 gpu_cuda_leaks      a process a GPU
 *
 * GPU_CALLS: calls, 100000 by default. GPU_COMMUNICATORS: communicators that are made and destroyed, 50 by default. As
 * threads, a quarter of them on each number of ranks.
 */
#include "gpu_graph.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

enum { MEGABYTE = 1 << 20 };

/* ---- What is in use ---- */

struct use {
    long long gpu, host; /* bytes */
    int descriptors, threads;
};

static int count_entries(const char *path)
{
    int count = 0;
    DIR *folder = opendir(path);
    REQUIRE(folder != NULL);
    while (readdir(folder))
        count++;
    closedir(folder);
    return count;
}

static long long resident_bytes(void)
{
    long long pages = 0, resident = 0;
    FILE *file = fopen("/proc/self/statm", "r");
    REQUIRE(file && fscanf(file, "%lld %lld", &pages, &resident) == 2);
    fclose(file);
    return resident * sysconf(_SC_PAGESIZE);
}

/* With all ranks at rest. */
static struct use measure(struct gpu_rank *rank)
{
    size_t free_bytes, total;
    CUDA(cudaDeviceSynchronize());
    gpu_barrier(rank);
    CUDA(cudaMemGetInfo(&free_bytes, &total));
    struct use use = {.gpu = (long long)(total - free_bytes),
                      .host = resident_bytes(),
                      .descriptors = count_entries("/proc/self/fd"),
                      .threads = ranks_threads()};
    gpu_barrier(rank);
    return use;
}

/* Bytes within the slack; descriptors and threads not at all, but for what another rank's thread has open. */
static void require_no_growth(struct gpu_rank *rank, struct use before, struct use after,
                              long long gpu_slack, long long host_slack)
{
    long long gpu = after.gpu - before.gpu, host = after.host - before.host;
    gpu_note(rank, "GPU %+lld KB, host %+lld KB, descriptors %+d, threads %+d", gpu / 1024,
             host / 1024, after.descriptors - before.descriptors, after.threads - before.threads);
    if (gpu > gpu_slack || host > host_slack)
        fprintf(stderr, "rank %d: grown by %lld bytes on the GPU and %lld on the host\n",
                rank->rank, gpu, host);
    REQUIRE(gpu <= gpu_slack);
    REQUIRE(ranks_sanitized() || host <= host_slack);
    REQUIRE(after.descriptors <= before.descriptors + rank->size);
    REQUIRE(after.threads <= before.threads);
}

/* ---- Calls ---- */

static void call_many(struct gpu_tally *tally, int calls)
{
    for (int i = 0; i < calls; i++) {
        gpu_tally_call(tally, tally->site->comm, i % 4 == 3);
        if (i % 500 == 499)
            REQUIRE_STATUS(alnico_synchronize(tally->site->comm), ALNICO_SUCCESS);
    }
    REQUIRE_STATUS(alnico_synchronize(tally->site->comm), ALNICO_SUCCESS);
    gpu_tally_add(tally, calls);
}

/* Small ones by the table, and a hundredth of them through the host. */
static void many_calls_leave_nothing(struct gpu_rank *rank)
{
    struct gpu_site site;
    struct gpu_tally tally;
    struct gpu_way table, ring = gpu_way_named("ring");
    int calls = gpu_number("GPU_CALLS", 100000) / (rank->mpi ? 1 : GPU_RANKS);
    struct use before = {0};
    gpu_way_at(0, &table);
    gpu_site_open(&site, rank, MEGABYTE);
    gpu_tally_open(&tally, &site, 100);
    for (int warm = 0; warm < 2; warm++) {
        before = measure(rank);
        REQUIRE(gpu_force(&site, &table));
        call_many(&tally, warm ? calls : 2000);
        REQUIRE(gpu_force(&site, &ring));
        call_many(&tally, warm ? calls / 100 : 500);
    }
    require_no_growth(rank, before, measure(rank), 2 * MEGABYTE, 2 * MEGABYTE);
    gpu_tally_close(&tally, "many calls");
    gpu_site_close(&site);
    gpu_note(rank, "%d calls", calls);
}

/* ---- Communicators ---- */

/* Where the build has NCCL, its communicator is made for this. */
static void go_by_nccl(alnico_comm_t comm, float *memory)
{
    alnico_status_t status = alnico_comm_set_algorithm(comm, ALNICO_ALLREDUCE, "nccl");
    if (status == ALNICO_ERROR_UNSUPPORTED)
        return;
    REQUIRE_STATUS(status, ALNICO_SUCCESS);
    REQUIRE_STATUS(
        alnico_allreduce(ALNICO_IN_PLACE, memory, 5000, ALNICO_FLOAT32, ALNICO_SUM, comm),
        ALNICO_SUCCESS);
    REQUIRE_STATUS(alnico_comm_set_algorithm(comm, ALNICO_ALLREDUCE, NULL), ALNICO_SUCCESS);
}

/* Created from the bootstrap or as a duplicate, with a call of each kind, and a registration that is left to destroy. */
static void come_and_go(struct gpu_rank *rank, alnico_comm_t origin, cudaStream_t stream,
                        float *memory, int i)
{
    alnico_comm_t comm;
    alnico_registration_t registration;
    alnico_request_t request;
    if (i % 2)
        comm = gpu_comm(rank, stream);
    else
        REQUIRE_STATUS(alnico_comm_duplicate(origin, stream, &comm), ALNICO_SUCCESS);
    REQUIRE_STATUS(alnico_comm_register(comm, memory, MEGABYTE, &registration), ALNICO_SUCCESS);
    if (i % 4 == 3)
        go_by_nccl(comm, memory);
    REQUIRE_STATUS(
        alnico_allreduce(ALNICO_IN_PLACE, memory, 5000, ALNICO_FLOAT32, ALNICO_MAXIMUM, comm),
        ALNICO_SUCCESS);
    REQUIRE_STATUS(alnico_iallreduce(ALNICO_IN_PLACE, memory, 50, ALNICO_FLOAT32, ALNICO_MAXIMUM,
                                     comm, &request),
                   ALNICO_SUCCESS);
    REQUIRE_STATUS(alnico_wait(&request), ALNICO_SUCCESS);
    alnico_comm_destroy(comm);
}

static void many_communicators_leave_nothing(struct gpu_rank *rank)
{
    enum { WARM = 4 };
    int made = gpu_number("GPU_COMMUNICATORS", 50) / (rank->mpi ? 1 : GPU_RANKS);
    struct gpu_site site;
    struct use before = {0};
    gpu_site_open(&site, rank, MEGABYTE);
    float *memory = gpu_arena_take(&site.plain, MEGABYTE);
    CUDA(cudaMemset(memory, 0, MEGABYTE));
    for (int i = 0; i < WARM + made; i++) {
        if (i == WARM)
            before = measure(rank);
        come_and_go(rank, site.comm, site.stream, memory, i);
    }
    require_no_growth(rank, before, measure(rank), (4 + made / 10) * MEGABYTE,
                      (4 + made / 5) * MEGABYTE);
    gpu_arena_give(&site.plain);
    gpu_site_close(&site);
    gpu_note(rank, "%d communicators", made);
}

int main(void)
{
    static const struct gpu_test tests[] = {
        GPU_TEST(many_calls_leave_nothing, 1),
        GPU_TEST(many_communicators_leave_nothing, 1),
    };
    char watchdog[16];
    int work = gpu_number("GPU_CALLS", 100000) / 2000 + gpu_number("GPU_COMMUNICATORS", 50);
    snprintf(watchdog, sizeof watchdog, "%d", 60 + work);
    setenv("GPU_WATCHDOG", watchdog, 0);
    return gpu_world_run(tests, sizeof tests / sizeof *tests);
}
