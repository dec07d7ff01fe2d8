/*
 * Nothing grows: the GPU's memory, the host's, descriptors and threads after many calls, and after
 * many communicators.
 *
 *     gpu_cuda_leaks                  ranks as threads, on 1 to 4 GPUs one after the other
 *     mpirun -n 4 gpu_cuda_leaks      a process a GPU
 *
 * GPU_CALLS: calls, 100000 by default. GPU_COMMUNICATORS: communicators that are made and
 * destroyed, 50 by default. As threads, a quarter of them on each number of ranks. GPU_NCCL=0:
 * nothing asks for NCCL's communicators.
 *
 * NCCL leaves something behind by itself. So as many of its communicators come and go without the
 * library first, and the library's may leave no more than those.
 */
#include "tests/gpu/support/bare_nccl.h"
#include "tests/gpu/support/graph.h"

#include <dirent.h>
#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { MEGABYTE = 1 << 20 };

/* ---- What is in use ---- */

struct use {
    long long gpu, host;         /* bytes; host: resident, of which there are */
    long long anonymous, shared; /* these two, and files */
    long long heap, heap_all;    /* malloc's in use, and with what it keeps free */
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

/* Kilobytes after a name in /proc/self/status. */
static long long status_kb(const char *name)
{
    char line[160];
    long long kb = -1;
    FILE *file = fopen("/proc/self/status", "r");
    REQUIRE(file != NULL);
    while (kb < 0 && fgets(line, sizeof line, file))
        if (strncmp(line, name, strlen(name)) == 0)
            kb = atoll(line + strlen(name));
    fclose(file);
    REQUIRE(kb >= 0);
    return kb;
}

static void read_host(struct use *out)
{
    struct mallinfo2 heap = mallinfo2(); /* of all arenas */
    out->host = 1024 * status_kb("VmRSS:");
    out->anonymous = 1024 * status_kb("RssAnon:");
    out->shared = 1024 * status_kb("RssShmem:");
    out->heap = (long long)(heap.uordblks + heap.hblkhd);
    out->heap_all = (long long)(heap.arena + heap.hblkhd);
}

/* With all ranks at rest. */
static struct use measure(struct gpu_rank *rank)
{
    size_t free_bytes, total;
    CUDA(cudaDeviceSynchronize());
    gpu_barrier(rank);
    CUDA(cudaMemGetInfo(&free_bytes, &total));
    struct use use = {.gpu = (long long)(total - free_bytes),
                      .descriptors = count_entries("/proc/self/fd"),
                      .threads = ranks_threads()};
    read_host(&use);
    gpu_barrier(rank);
    return use;
}

static struct use growth(struct use before, struct use after)
{
    return (struct use){.gpu = after.gpu - before.gpu,
                        .host = after.host - before.host,
                        .anonymous = after.anonymous - before.anonymous,
                        .shared = after.shared - before.shared,
                        .heap = after.heap - before.heap,
                        .heap_all = after.heap_all - before.heap_all,
                        .descriptors = after.descriptors - before.descriptors,
                        .threads = after.threads - before.threads};
}

/* Of every rank: they differ. */
static void show(const struct gpu_rank *rank, const char *what, const struct use *use)
{
    fprintf(stderr,
            "rank %d: %s: GPU %+lld KB, host %+lld KB (anonymous %+lld, shared %+lld; heap in use "
            "%+lld, with what is free %+lld), descriptors %+d, threads %+d\n",
            rank->rank, what, use->gpu / 1024, use->host / 1024, use->anonymous / 1024,
            use->shared / 1024, use->heap / 1024, use->heap_all / 1024, use->descriptors,
            use->threads);
}

/* Bytes within the slack; descriptors and threads not at all, but for what another rank's thread
 * has open. */
static void require_no_growth(struct gpu_rank *rank, struct use grown, long long gpu_slack,
                              long long host_slack)
{
    gpu_note(rank, "GPU %+lld KB, host %+lld KB, heap %+lld KB, descriptors %+d, threads %+d",
             grown.gpu / 1024, grown.host / 1024, grown.heap / 1024, grown.descriptors,
             grown.threads);
    if (grown.gpu > gpu_slack || grown.host > host_slack)
        show(rank, "more than allowed", &grown);
    REQUIRE(grown.gpu <= gpu_slack);
    REQUIRE(ranks_sanitized() || grown.host <= host_slack);
    REQUIRE(grown.descriptors <= rank->size);
    REQUIRE(grown.threads <= 0);
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
    require_no_growth(rank, growth(before, measure(rank)), 2 * MEGABYTE, 2 * MEGABYTE);
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

/* Created from the bootstrap or as a duplicate, with a call of each kind, and a registration that
 * is left to destroy. Returns how many NCCL communicators it had. */
static int come_and_go(struct gpu_rank *rank, alnico_comm_t origin, cudaStream_t stream,
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
    if (i % 4 == 3 && gpu_number("GPU_NCCL", 1))
        go_by_nccl(comm, memory);
    REQUIRE_STATUS(
        alnico_allreduce(ALNICO_IN_PLACE, memory, 5000, ALNICO_FLOAT32, ALNICO_MAXIMUM, comm),
        ALNICO_SUCCESS);
    REQUIRE_STATUS(alnico_iallreduce(ALNICO_IN_PLACE, memory, 50, ALNICO_FLOAT32, ALNICO_MAXIMUM,
                                     comm, &request),
                   ALNICO_SUCCESS);
    REQUIRE_STATUS(alnico_wait(&request), ALNICO_SUCCESS);
    int nccl = bare_nccl_count(comm);
    alnico_comm_destroy(comm);
    return nccl;
}

/* What as many communicators of NCCL's leave behind without the library. */
static struct use bare_growth(struct gpu_rank *rank, cudaStream_t stream, int nccl)
{
    struct use before = {0};
    for (int i = 0; i < 2 + nccl && nccl > 0; i++) {
        if (i == 2)
            before = measure(rank);
        bare_nccl_come_and_go(rank, stream);
    }
    struct use bare = nccl > 0 ? growth(before, measure(rank)) : (struct use){0};
    gpu_note(rank, "%d of NCCL alone: host %+lld KB, heap %+lld KB", nccl, bare.host / 1024,
             bare.heap / 1024);
    return bare;
}

static void many_communicators_leave_nothing(struct gpu_rank *rank)
{
    enum { TURN = 4 }; /* communicators until all kinds were there */
    int made = gpu_number("GPU_COMMUNICATORS", 50) / (rank->mpi ? 1 : GPU_RANKS), nccl = 0;
    struct gpu_site site;
    gpu_site_open(&site, rank, MEGABYTE);
    float *memory = gpu_arena_take(&site.plain, MEGABYTE);
    CUDA(cudaMemset(memory, 0, MEGABYTE));
    for (int i = 0; i < TURN; i++)
        nccl += come_and_go(rank, site.comm, site.stream, memory, i);
    struct use bare = bare_growth(rank, site.stream, nccl * made / TURN);
    struct use before = measure(rank);
    nccl = 0;
    for (int i = 0; i < made; i++)
        nccl += come_and_go(rank, site.comm, site.stream, memory, i);
    struct use grown = growth(before, measure(rank));
    show(rank, "NCCL alone", &bare);
    show(rank, "communicators", &grown);
    gpu_note(rank, "%d communicators with %d of NCCL", made, nccl);
    require_no_growth(rank, grown, (4 + made / 10) * MEGABYTE,
                      (4 + made / 5) * MEGABYTE + (bare.host > 0 ? bare.host : 0));
    gpu_arena_give(&site.plain);
    gpu_site_close(&site);
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
