/* What a call costs the host: an allreduce of one number on a communicator of one rank by Alnico's interface and by NCCL's, by
 * turns. Prints the medians and what NCCL's adds, in nanoseconds. With an argument, the most that it may add, it measures up to
 * five times and ends with 1 if that was always more. */
#include <alnico/alnico.h>
#include <cuda_runtime_api.h>
#include <nccl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { ROUNDS = 201, CALLS = 500, TIMES = 5 };

static struct {
    alnico_comm_t alnico;
    ncclComm_t nccl;
    cudaStream_t stream;
    int32_t *number;
} test;

static void require(int right, const char *what)
{
    if (right)
        return;
    fprintf(stderr, "%s: %s %s\n", what, alnico_error_detail(), ncclGetLastError(NULL));
    exit(1);
}

static void by_alnico(void)
{
    alnico_comm_set_stream(test.alnico, test.stream);
    require(alnico_allreduce(test.number, test.number, 1, ALNICO_INT32, ALNICO_SUM, test.alnico) ==
                ALNICO_SUCCESS,
            "alnico_allreduce");
}

static void by_nccl(void)
{
    require(ncclAllReduce(test.number, test.number, 1, ncclInt32, ncclSum, test.nccl,
                          test.stream) == ncclSuccess,
            "ncclAllReduce");
}

/* Nanoseconds of one call. */
static double measure(void (*call)(void))
{
    struct timespec begin, end;
    clock_gettime(CLOCK_MONOTONIC, &begin);
    for (int i = 0; i < CALLS; i++)
        call();
    clock_gettime(CLOCK_MONOTONIC, &end);
    cudaStreamSynchronize(test.stream);
    return ((double)(end.tv_sec - begin.tv_sec) * 1e9 + (double)(end.tv_nsec - begin.tv_nsec)) /
           CALLS;
}

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* What NCCL's interface adds, in nanoseconds. */
static double compare_both(void)
{
    static double alnico[ROUNDS], nccl[ROUNDS], added[ROUNDS];
    for (int i = 0; i < ROUNDS; i++) {
        alnico[i] = measure(by_alnico);
        nccl[i] = measure(by_nccl);
        added[i] = nccl[i] - alnico[i];
    }
    qsort(alnico, ROUNDS, sizeof *alnico, compare);
    qsort(nccl, ROUNDS, sizeof *nccl, compare);
    qsort(added, ROUNDS, sizeof *added, compare);
    printf("a call: alnico.h %.0f ns, nccl.h %.0f ns; NCCL's adds %.0f ns (median of %d rounds)\n",
           alnico[ROUNDS / 2], nccl[ROUNDS / 2], added[ROUNDS / 2], ROUNDS);
    return added[ROUNDS / 2];
}

int main(int count, char **arguments)
{
    double most = count > 1 ? atof(arguments[1]) : 0;
    ncclUniqueId nccl_id;
    alnico_id_t id;
    require(cudaStreamCreateWithFlags(&test.stream, cudaStreamNonBlocking) == cudaSuccess,
            "stream");
    require(cudaMalloc((void **)&test.number, sizeof *test.number) == cudaSuccess, "memory");
    require(alnico_id_create(&id) == ALNICO_SUCCESS, "alnico_id_create");
    require(alnico_comm_create_id(&id, 0, 1, HOST_COST_DEVICE, test.stream, &test.alnico) ==
                ALNICO_SUCCESS,
            "alnico_comm_create_id");
    require(ncclGetUniqueId(&nccl_id) == ncclSuccess, "ncclGetUniqueId");
    require(ncclCommInitRank(&test.nccl, 1, nccl_id, 0) == ncclSuccess, "ncclCommInitRank");
    double added = compare_both();
    for (int i = 1; most > 0 && added > most && i < TIMES; i++)
        added = compare_both();
    ncclCommDestroy(test.nccl);
    alnico_comm_destroy(test.alnico);
    cudaFree(test.number);
    cudaStreamDestroy(test.stream);
    return most > 0 && added > most;
}
