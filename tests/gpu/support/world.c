/* Starts ranks on GPUs, as threads or over MPI, and watches the sub-tests. */
#include "tests/gpu/support/world.h"

#include "tests/support/world.h"

#include <alnico/mpi.h>

#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { WATCHDOG_S = 60 };

/* ---- What runs ---- */

/* For the handlers, which may not print by printf, and the line of the test. */
static struct {
    char hangs[160], crashes[160];
    char note[512];
    int seconds;
} now;

static void write_text(const char *text)
{
    if (write(2, text, strlen(text)) < 0)
        _Exit(3);
}

static void on_signal(int number)
{
    write_text(number == SIGALRM ? now.hangs : now.crashes);
    _Exit(1);
}

static void watch(const char *name, int size)
{
    now.seconds = gpu_number("GPU_WATCHDOG", WATCHDOG_S);
    now.note[0] = '\0';
    snprintf(now.hangs, sizeof now.hangs, "%s on %d ranks: not done after %d s\n", name, size,
             now.seconds);
    snprintf(now.crashes, sizeof now.crashes, "%s on %d ranks: segmentation fault\n", name, size);
    signal(SIGALRM, on_signal);
    if (!ranks_sanitized())
        signal(SIGSEGV, on_signal);
    alarm((unsigned)now.seconds);
}

static void report(const char *name, int size, double seconds)
{
    alarm(0);
    printf("%-44s %d rank%s ok %6.2f s%s\n", name, size, size == 1 ? " " : "s", seconds, now.note);
    fflush(stdout);
}

void gpu_note(struct gpu_rank *rank, const char *format, ...)
{
    size_t length = strlen(now.note);
    va_list arguments;
    if (rank->rank != 0)
        return;
    length +=
        (size_t)snprintf(now.note + length, sizeof now.note - length, "%s", length ? ", " : "  ");
    if (length >= sizeof now.note)
        return;
    va_start(arguments, format);
    vsnprintf(now.note + length, sizeof now.note - length, format, arguments);
    va_end(arguments);
}

static bool is_possible(const struct gpu_test *test, int size, bool tell)
{
    const char *only = getenv("GPU_ONLY");
    if (only && !strstr(test->name, only))
        return false;
    if (size < test->least && tell)
        printf("%-44s skipped: needs %d GPUs, here are %d\n", test->name, test->least, size);
    return size >= test->least;
}

static uint64_t choose_seed(void)
{
    const char *text = getenv("GPU_SEED");
    return text ? strtoull(text, NULL, 10) : (uint64_t)time(NULL);
}

/* ---- Ranks as threads ---- */

struct run {
    const struct gpu_test *test;
    uint64_t seed;
};

static void thread_body(struct rank *thread)
{
    const struct run *run = thread->argument;
    struct gpu_rank rank = {.rank = thread->rank,
                            .size = thread->size,
                            .device = thread->rank,
                            .seed = run->seed,
                            .bootstrap = thread->bootstrap};
    CUDA(cudaSetDevice(rank.device));
    run->test->body(&rank);
}

static int run_threads(const struct gpu_test *tests, int number, int gpus)
{
    int most = gpus < GPU_RANKS ? gpus : GPU_RANKS;
    uint64_t seed = choose_seed();
    int done = 0, wanted = gpu_number("GPU_SIZE", 0);
    printf("%d GPUs, ranks as threads, seed %llu\n", gpus, (unsigned long long)seed);
    for (int size = 1; size <= most; size++)
        for (int i = 0; i < number; i++) {
            if ((wanted && size != wanted) || !is_possible(&tests[i], size, size == most))
                continue;
            done++;
            struct run run = {&tests[i], seed + (uint64_t)size};
            double start = ranks_seconds();
            watch(tests[i].name, size);
            ranks_run(size, thread_body, &run);
            report(tests[i].name, size, ranks_seconds() - start);
        }
    return done ? 0 : GPU_SKIPPED;
}

/* ---- Ranks as processes of mpirun ---- */

static int mpi_allgather(void *context, const void *mine, void *all, size_t bytes)
{
    (void)context;
    return MPI_Allgather(mine, (int)bytes, MPI_BYTE, all, (int)bytes, MPI_BYTE, MPI_COMM_WORLD) !=
           MPI_SUCCESS;
}

static bool is_under_mpirun(void)
{
    return getenv("PMI_RANK") || getenv("PMIX_RANK") || getenv("OMPI_COMM_WORLD_RANK");
}

/* False, on every rank, if one finds no GPU of its own. */
static bool find_device(struct gpu_rank *rank)
{
    rank->device = world_local_rank();
    int enough = rank->device < gpu_count(), all;
    MPI_Allreduce(&enough, &all, 1, MPI_INT, MPI_MIN, MPI_COMM_WORLD);
    if (all)
        CUDA(cudaSetDevice(rank->device));
    else if (rank->rank == 0)
        printf("skipped: fewer GPUs than the %d ranks\n", rank->size);
    return all;
}

static int run_in_process(const struct gpu_test *tests, int number, struct gpu_rank *rank)
{
    int done = 0;
    MPI_Bcast(&rank->seed, 1, MPI_UINT64_T, 0, MPI_COMM_WORLD);
    if (rank->rank == 0)
        printf("%d processes, seed %llu\n", rank->size, (unsigned long long)rank->seed);
    for (int i = 0; i < number; i++) {
        if (!is_possible(&tests[i], rank->size, rank->rank == 0))
            continue;
        done++;
        double start = ranks_seconds();
        watch(tests[i].name, rank->size);
        tests[i].body(rank);
        MPI_Barrier(MPI_COMM_WORLD);
        alarm(0);
        if (rank->rank == 0)
            report(tests[i].name, rank->size, ranks_seconds() - start);
    }
    return done;
}

static int run_processes(const struct gpu_test *tests, int number)
{
    struct gpu_rank rank = {.seed = choose_seed(), .mpi = true};
    int level;
    MPI_Init_thread(NULL, NULL, MPI_THREAD_MULTIPLE, &level);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank.rank);
    MPI_Comm_size(MPI_COMM_WORLD, &rank.size);
    rank.bootstrap = (alnico_bootstrap_t){rank.rank, rank.size, mpi_allgather, NULL};
    bool possible = level == MPI_THREAD_MULTIPLE && find_device(&rank);
    int done = possible ? run_in_process(tests, number, &rank) : 0;
    MPI_Finalize();
    return done ? 0 : GPU_SKIPPED;
}

/* ---- For tests ---- */

int gpu_number(const char *variable, int otherwise)
{
    const char *text = getenv(variable);
    return text ? atoi(text) : otherwise;
}

/* Streams that share a connection to the GPU wait for each other, and ranks that issue in different
 * orders then wait for ever: there are as many connections as can be. NVLink multicast stays
 * off. */
void gpu_world_prepare(void)
{
    setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", 0);
    setenv("NCCL_NVLS_ENABLE", "0", 1);
    setenv("ALNICO_TIMEOUT", "30", 0);
}

int gpu_world_run(const struct gpu_test *tests, int number)
{
    gpu_world_prepare();
    int gpus = gpu_count();
    if (gpus == 0) {
        printf("skipped: no GPU\n");
        return GPU_SKIPPED;
    }
    return is_under_mpirun() ? run_processes(tests, number) : run_threads(tests, number, gpus);
}

void gpu_allgather(struct gpu_rank *rank, const void *mine, void *all, size_t bytes)
{
    REQUIRE(rank->bootstrap.allgather(rank->bootstrap.context, mine, all, bytes) == 0);
}

void gpu_barrier(struct gpu_rank *rank)
{
    char mine = 0, all[256];
    gpu_allgather(rank, &mine, all, 1);
}

void gpu_world_require(cudaError_t status, const char *text, const char *file, int line)
{
    if (status == cudaSuccess)
        return;
    fprintf(stderr, "%s:%d: %s: %s (detail: %s)\n", file, line, text, cudaGetErrorString(status),
            alnico_error_detail());
    _Exit(1);
}

static alnico_comm_t make(struct gpu_rank *rank, alnico_device_t device, void *stream)
{
    alnico_comm_t comm = NULL;
    alnico_status_t status = rank->mpi
                                 ? alnico_comm_create_mpi(MPI_COMM_WORLD, device, stream, &comm)
                                 : alnico_comm_create(&rank->bootstrap, device, stream, &comm);
    if (status != ALNICO_SUCCESS)
        fprintf(stderr, "rank %d of %d, GPU %d:\n", rank->rank, rank->size, rank->device);
    REQUIRE_STATUS(status, ALNICO_SUCCESS);
    return comm;
}

alnico_comm_t gpu_comm(struct gpu_rank *rank, cudaStream_t stream)
{
    return make(rank, ALNICO_DEVICE_CUDA, stream);
}

alnico_comm_t gpu_twin(struct gpu_rank *rank)
{
    return make(rank, ALNICO_DEVICE_CPU, NULL);
}
