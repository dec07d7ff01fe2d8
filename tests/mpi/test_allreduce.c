/* Allreduce over MPI: sizes around every switch point, the same bits in every run, communicators
 * made of others and by a callback. Types, operations, placements, streams and threads are
 * alnico-conformance's. */
#include "comm/algorithms/algorithm.h"
#include "tests/support/cases.h"
#include "tests/support/reference.h"
#include "tests/support/world.h"

#include <stdlib.h>
#include <string.h>

static uint64_t seed;

static void test_sizes(void)
{
    static const size_t counts[] = {0, 2, 3, 4, 5, 1023, 1024, 1025, 30000, 1 << 18, 1000003};
    alnico_comm_t comm = world_comm(NULL);
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++)
        for (int how = 0; how < HOWS; how++) {
            struct allreduce_case c = {
                .count = counts[i], .type = ALNICO_FLOAT32, .op = ALNICO_SUM, .how = (enum how)how};
            cases_run(comm, &c, seed + i);
            c.type = ALNICO_INT32;
            c.op = ALNICO_AVERAGE;
            c.in_place = true;
            cases_run(comm, &c, seed + i);
        }
    alnico_comm_destroy(comm);
}

/* The same call twice gives the same bits, with every algorithm. */
static void test_repeated_runs(void)
{
    enum { COUNT = 70001 };
    float *input = malloc(COUNT * sizeof *input), *output = malloc(COUNT * sizeof *output);
    REQUIRE(input && output);
    reference_fill(input, COUNT, ALNICO_FLOAT32, ALNICO_SUM, seed, world_rank());
    for (int i = 0; cases_algorithm(i); i++) {
        uint64_t first = 0;
        for (int again = 0; again < 3; again++) {
            alnico_comm_t comm = world_comm(NULL);
            cases_force(comm, cases_algorithm(i));
            REQUIRE_STATUS(alnico_allreduce(input, output, COUNT, ALNICO_FLOAT32, ALNICO_SUM, comm),
                           ALNICO_SUCCESS);
            uint64_t hash = reference_hash(output, COUNT * sizeof *output);
            first = again ? first : hash;
            REQUIRE(hash == first);
            alnico_comm_destroy(comm);
        }
    }
    free(input);
    free(output);
}

static void test_duplicate_and_split(void)
{
    int rank = world_rank(), size = world_size();
    alnico_comm_t comm = world_comm(NULL), part, twin, none;
    REQUIRE_STATUS(alnico_comm_split(comm, rank % 2, -rank, NULL, &part), ALNICO_SUCCESS);
    int members = rank % 2 ? size / 2 : (size + 1) / 2;
    REQUIRE(alnico_comm_size(part) == members && alnico_comm_rank(part) == members - 1 - rank / 2);
    REQUIRE_STATUS(alnico_comm_duplicate(part, NULL, &twin), ALNICO_SUCCESS);
    REQUIRE_STATUS(alnico_comm_split(comm, rank ? -1 : 0, 0, NULL, &none), ALNICO_SUCCESS);
    REQUIRE((none != NULL) == (rank == 0));
    alnico_comm_destroy(comm);
    alnico_comm_destroy(none);
    struct allreduce_case c = {.count = 100, .type = ALNICO_INT64, .op = ALNICO_SUM};
    cases_run(part, &c, seed);
    alnico_comm_destroy(part);
    cases_run(twin, &c, seed);
    alnico_comm_destroy(twin);
}

/* Ranks that meet by a callback and live in several processes: their messages go over MPI. */
static int allgather(void *context, const void *mine, void *all, size_t bytes)
{
    return MPI_Allgather(mine, (int)bytes, MPI_BYTE, all, (int)bytes, MPI_BYTE,
                         *(MPI_Comm *)context) != MPI_SUCCESS;
}

static void test_bootstrap_by_a_callback(void)
{
    MPI_Comm reversed;
    int rank;
    MPI_Comm_split(MPI_COMM_WORLD, 0, -world_rank(), &reversed);
    MPI_Comm_rank(reversed, &rank);
    alnico_bootstrap_t bootstrap = {rank, world_size(), allgather, &reversed};
    alnico_comm_t comm;
    REQUIRE_STATUS(alnico_comm_create(&bootstrap, ALNICO_DEVICE_CPU, NULL, &comm), ALNICO_SUCCESS);
    REQUIRE(alnico_comm_rank(comm) == rank);
    struct allreduce_case c = {.count = 1000, .type = ALNICO_FLOAT64, .op = ALNICO_SUM};
    cases_run(comm, &c, seed);
    alnico_comm_destroy(comm);
    MPI_Comm_free(&reversed);
}

int main(void)
{
    seed = world_begin(MPI_THREAD_MULTIPLE);
    WORLD_RUN(test_sizes);
    WORLD_RUN(test_repeated_runs);
    WORLD_RUN(test_duplicate_and_split);
    WORLD_RUN(test_bootstrap_by_a_callback);
    return world_end();
}
