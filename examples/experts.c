/* Mixture of experts, one expert on each rank: alltoallv routes a different number of tokens to
 * each expert and back. Further vector forms: sendrecv of loads with neighbours, gatherv and
 * scatterv at rank 0, reduce-scatter and allgather of unequal shares. Run it under mpirun. */
#include <alnico/mpi.h>
#include <stdio.h>
#include <stdlib.h>

enum { TOKENS = 100, RANKS_MOST = 64, ROOT = 0 };

static void check(alnico_status_t status)
{
    if (status == ALNICO_SUCCESS)
        return;
    fprintf(stderr, "%s: %s\n", alnico_status_string(status), alnico_error_detail());
    MPI_Abort(MPI_COMM_WORLD, EXIT_FAILURE);
}

static size_t sum(const size_t *counts, int size)
{
    size_t total = 0;
    for (int i = 0; i < size; i++)
        total += counts[i];
    return total;
}

/* Tokens 0 to TOKENS - 1, sorted by expert: each comes back doubled. Returns this expert's load. */
static size_t layer(alnico_comm_t comm, bool *right)
{
    static float tokens[TOKENS], back[TOKENS], work[RANKS_MOST * TOKENS];
    size_t given[RANKS_MOST] = {0}, taken[RANKS_MOST];
    const int size = alnico_comm_size(comm);
    for (int i = 0; i < TOKENS; i++) {
        tokens[i] = (float)i;
        given[i * i / 3 % size]++;
    }
    check(alnico_alltoall(given, taken, 1, ALNICO_UINT64, comm));
    const size_t load = sum(taken, size);
    check(alnico_alltoallv(tokens, given, NULL, work, taken, NULL, ALNICO_FLOAT32, comm));
    for (size_t i = 0; i < load; i++)
        work[i] *= 2;
    check(alnico_alltoallv(work, taken, NULL, back, given, NULL, ALNICO_FLOAT32, comm));
    for (int i = 0; i < TOKENS; i++)
        *right &= back[i] == (float)(2 * i);
    return load;
}

/* Rank 0 gathers all loads, and sends each rank the load that it should have had. */
static void report(alnico_comm_t comm, size_t load, bool *right)
{
    size_t loads[RANKS_MOST], fair[RANKS_MOST], mine, before;
    const int rank = alnico_comm_rank(comm), size = alnico_comm_size(comm);
    check(alnico_sendrecv(&load, 1, (rank + 1) % size, &before, 1, (rank + size - 1) % size,
                          ALNICO_UINT64, comm));
    check(alnico_gather(&load, loads, 1, ALNICO_UINT64, ROOT, comm));
    for (int i = 0; i < size; i++)
        fair[i] = TOKENS;
    check(alnico_scatter(fair, &mine, 1, ALNICO_UINT64, ROOT, comm));
    printf("rank %d: %zu tokens, the rank before %zu, fair are %zu\n", rank, load, before, mine);
    *right &= mine == TOKENS && (rank != ROOT || sum(loads, size) == (size_t)size * TOKENS);
}

/* Rank r owns r + 1 weights: it gets the mean of their gradients, and all get all weights. */
static void shares(alnico_comm_t comm, bool *right)
{
    static float gradients[RANKS_MOST * RANKS_MOST], weights[RANKS_MOST * RANKS_MOST];
    float own[RANKS_MOST];
    size_t counts[RANKS_MOST];
    const int rank = alnico_comm_rank(comm), size = alnico_comm_size(comm);
    for (int i = 0; i < size; i++)
        counts[i] = (size_t)i + 1;
    const size_t all = sum(counts, size);
    for (size_t i = 0; i < all; i++)
        gradients[i] = (float)i;
    check(alnico_reduce_scatterv(gradients, own, counts, ALNICO_FLOAT32, ALNICO_AVERAGE, comm));
    check(alnico_allgatherv(own, counts[rank], weights, counts, NULL, ALNICO_FLOAT32, comm));
    for (size_t i = 0; i < all; i++)
        *right &= weights[i] == (float)i;
}

int main(int argc, char **argv)
{
    bool right = true;
    alnico_comm_t comm;
    MPI_Init(&argc, &argv);
    check(alnico_comm_create_mpi(MPI_COMM_WORLD, ALNICO_DEVICE_CPU, NULL, &comm));
    if (alnico_comm_size(comm) <= RANKS_MOST) {
        report(comm, layer(comm, &right), &right);
        shares(comm, &right);
    }
    alnico_comm_destroy(comm);
    MPI_Finalize();
    return right ? EXIT_SUCCESS : EXIT_FAILURE;
}
