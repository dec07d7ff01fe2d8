/*
 * The soak over one transport: `soak local` (threads), `soak shm` (processes without MPI) or, under
 * mpirun, `soak mpi`.
 *
 * Usage: soak local|shm|mpi [SECONDS [OPERATIONS [RANKS]]]
 */
#include "tests/soak/soak.h"

#include "tests/support/forks.h"
#include "tests/support/ranks.h"
#ifdef ALNICO_HAVE_MPI
#include "tests/support/world.h"
#endif

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static void run_rank(struct rank *rank)
{
    alnico_comm_t world = ranks_comm(rank, NULL);
    soak_body(world, rank->argument);
    alnico_comm_destroy(world);
}

#ifdef ALNICO_HAVE_MPI
static int run_mpi(struct soak *soak)
{
    soak->seed = world_begin(MPI_THREAD_MULTIPLE);
    alnico_comm_t world = world_comm(NULL);
    soak_body(world, soak);
    alnico_comm_destroy(world);
    return world_end();
}
#else
static int run_mpi(struct soak *soak)
{
    (void)soak;
    fprintf(stderr, "soak: mpi: this build has no MPI\n");
    return 77;
}
#endif

static int refuse(const char *transport)
{
    if (*transport)
        fprintf(stderr, "soak: %s: expected local, shm or mpi\n", transport);
    fprintf(stderr, "Usage: soak local|shm|mpi [SECONDS [OPERATIONS [RANKS]]]\n");
    return 2;
}

int main(int argc, char **argv)
{
    struct soak soak = {
        .seed = (uint64_t)time(NULL), .seconds = 5, .operations = UINT64_MAX, .streams = true};
    const char *transport = argc > 1 ? argv[1] : "";
    int ranks = argc > 4 ? atoi(argv[4]) : 3;
    if (argc > 2)
        soak.seconds = atof(argv[2]);
    if (argc > 3)
        soak.operations = strtoull(argv[3], NULL, 10);
    if (strcmp(transport, "mpi") == 0)
        return run_mpi(&soak);
    bool local = strcmp(transport, "local") == 0;
    if (!local && strcmp(transport, "shm") != 0)
        return refuse(transport);
    printf("%d ranks, seed %" PRIu64 "\n", ranks, soak.seed);
    if (local)
        ranks_run(ranks, run_rank, &soak);
    else
        forks_run_for((unsigned)soak.seconds + 60, ranks, 1, run_rank, &soak);
    return EXIT_SUCCESS;
}
