/*
 * A process with a GPU ends while the others' kernels wait for it: they get a status that names it
 * within a second, whatever the deadline, which is a minute here, and their GPUs can be used on.
 *
 *     gpu_cuda_exits      on 2 and on 4 GPUs; starts the processes itself
 */
#include "tests/gpu/support/site.h"
#include "tests/support/forks.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

static const double at_once = 1; /* seconds */

enum { COUNT_MOST = 200000 };

#define LENGTH(array) ((int)(sizeof(array) / sizeof *(array)))

/* Communicators and memory of one process; the twin on the CPU of a site would wait for the
 * dead. */
struct survivor {
    struct rank *rank;
    cudaStream_t stream;
    alnico_comm_t comm;
    float *memory;
};

static alnico_status_t sum(struct survivor *s, size_t count)
{
    return alnico_allreduce(ALNICO_IN_PLACE, s->memory, count, ALNICO_FLOAT32, ALNICO_SUM, s->comm);
}

static void survivor_open(struct survivor *s, struct rank *rank, const char *way)
{
    alnico_registration_t registration;
    void *memory;
    s->rank = rank;
    CUDA(cudaStreamCreateWithFlags(&s->stream, cudaStreamNonBlocking));
    REQUIRE_STATUS(alnico_comm_create(&rank->bootstrap, ALNICO_DEVICE_CUDA, s->stream, &s->comm),
                   ALNICO_SUCCESS);
    CUDA(cudaMalloc(&memory, COUNT_MOST * sizeof(float)));
    s->memory = memory;
    CUDA(cudaMemsetAsync(memory, 0, COUNT_MOST * sizeof(float), s->stream));
    REQUIRE_STATUS(alnico_comm_register(s->comm, memory, COUNT_MOST * sizeof(float), &registration),
                   ALNICO_SUCCESS);
    REQUIRE_STATUS(alnico_comm_set_algorithm(s->comm, ALNICO_ALLREDUCE, way), ALNICO_SUCCESS);
    REQUIRE_STATUS(sum(s, 1000), ALNICO_SUCCESS);
    REQUIRE_STATUS(alnico_synchronize(s->comm), ALNICO_SUCCESS);
}

/* The stream comes to rest by itself, as where a graph is replayed and nobody calls the library. */
static void survivor_require(struct survivor *s, double start, const char *way)
{
    CUDA(cudaStreamSynchronize(s->stream));
    alnico_status_t status = alnico_synchronize(s->comm);
    double waited = ranks_seconds() - start;
    printf("rank %d, %s: status %d after %.2f s: %s\n", s->rank->rank, way ? way : "table",
           (int)status, waited, alnico_error_detail());
    REQUIRE_STATUS(status, ALNICO_ERROR_TIMEOUT);
    ranks_require_detail("rank 1 did not come");
    REQUIRE(waited < at_once);
}

/* Rank 1 ends, by a signal (argument: its number) or with exit status 9, when the others' kernels
 * spin. */
static void ending_body(struct rank *rank)
{
    static const char *const ways[] = {NULL, "two_shot_direct", "two_shot_staged",
                                       "shared_two_shot", "ring"};
    struct survivor s[LENGTH(ways)];
    int signal_number = *(const int *)rank->argument;
    struct gpu_rank here = {.rank = rank->rank, .size = rank->size, .device = rank->rank};
    double begin = ranks_seconds();
    CUDA(cudaSetDevice(rank->rank));
    for (int i = 0; i < LENGTH(ways); i++)
        survivor_open(&s[i], rank, ways[i]);
    double start = ranks_seconds();
    if (rank->rank == 0)
        printf("%d communicators took %.2f s to make\n", LENGTH(ways), start - begin);
    for (int i = 0; i < LENGTH(ways) && rank->rank != 1; i++)
        REQUIRE_STATUS(sum(&s[i], i % 3 ? COUNT_MOST : 1000), ALNICO_SUCCESS);
    forks_barrier(rank);
    usleep(100000);
    start = ranks_seconds();
    if (rank->rank == 1 && signal_number)
        raise(signal_number);
    if (rank->rank == 1)
        _exit(9);
    for (int i = 0; i < LENGTH(ways); i++)
        survivor_require(&s[i], start, ways[i]);
    gpu_require_alive(&here);
    for (int i = 0; i < LENGTH(ways); i++) {
        alnico_comm_destroy(s[i].comm);
        CUDA(cudaFree(s[i].memory));
        CUDA(cudaStreamDestroy(s[i].stream));
    }
    gpu_require_alive(&here);
    REQUIRE(ranks_seconds() - start < 10 * at_once);
    printf("rank %d: the GPU is usable after the end of rank 1\n", rank->rank);
}

/* This process must not use CUDA, or those that it starts could not. */
static int count_elsewhere(void)
{
    int status;
    pid_t pid = fork();
    REQUIRE(pid >= 0);
    if (pid == 0)
        _exit(gpu_count());
    REQUIRE(waitpid(pid, &status, 0) == pid && WIFEXITED(status));
    return WEXITSTATUS(status);
}

int main(void)
{
    static const int signals[] = {SIGKILL, 0};
    setenv("ALNICO_TIMEOUT", "60", 1); /* before the library reads its environment */
    gpu_world_prepare();
    int gpus = count_elsewhere();
    if (gpus < 2) {
        printf("skipped: needs 2 GPUs, here are %d\n", gpus);
        return GPU_SKIPPED;
    }
    for (int size = 2; size <= gpus && size <= GPU_RANKS; size += 2)
        for (int i = 0; i < LENGTH(signals); i++) {
            double start = ranks_seconds();
            int number = signals[i];
            forks_run_victim(size, 1, number, ending_body, &number);
            printf("a process that ends by %-21s %d ranks ok %6.2f s\n",
                   number ? "a signal" : "itself", size, ranks_seconds() - start);
        }
    return 0;
}
