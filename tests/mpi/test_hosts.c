/* Ranks of several hosts, as ALNICO_HOST names them: who is where, every allreduce between them with
 * the same bits on all ranks, and parts of them. Other operations are alnico-conformance's. */
#include "comm/communicator/comm.h"
#include "tests/support/cases.h"
#include "tests/support/world.h"

#include <stdlib.h>
#include <string.h>

/* The first ranks are enough for fewer. */
static const char *const names[] = {"b", "a", "a", "b", "c"};
static const int hosts[] = {0, 1, 1, 0, 2}, places[] = {0, 0, 1, 1, 0};

static uint64_t seed;

static void test_map(void)
{
    alnico_comm_t comm = world_comm(NULL);
    int size = world_size();
    REQUIRE(comm->hosts == (size < 2 ? 1 : size < 5 ? 2 : 3));
    REQUIRE(comm->local_rank == places[world_rank()]);
    REQUIRE(comm->map->fewest == (size == 4 ? 2 : 1));
    for (int r = 0; r < size; r++)
        REQUIRE(comm->map->host[r] == hosts[r] && comm->map->place[r] == places[r]);
    alnico_comm_destroy(comm);
}

/* Hosts of one kernel: whoever may run where this rank does is counted, whichever host it is on. */
static void test_ranks_of_all_hosts_share_the_units(void)
{
    alnico_comm_t comm = world_comm(NULL);
    REQUIRE(comm->crowded == (world_size() > comm->family->topology.units));
    alnico_comm_destroy(comm);
}

static void test_a_split_has_a_map_of_its_own(void)
{
    alnico_comm_t comm = world_comm(NULL), part;
    REQUIRE_STATUS(alnico_comm_split(comm, hosts[world_rank()], 0, NULL, &part), ALNICO_SUCCESS);
    REQUIRE(part->hosts == 1 && part->map->fewest == part->size);
    struct allreduce_case c = {.count = 1000, .type = ALNICO_FLOAT64, .op = ALNICO_SUM};
    cases_run(part, &c, seed);
    alnico_comm_destroy(part);
    alnico_comm_destroy(comm);
}

static void test_allreduce(void)
{
    static const size_t counts[] = {0, 1, 4, 1023, 30000, 200003};
    alnico_comm_t comm = world_comm(NULL);
    for (int i = 0; cases_algorithm(i); i++) {
        if (strncmp(cases_algorithm(i)->name, "hierarchical", 12) != 0)
            continue;
        REQUIRE(cases_force(comm, cases_algorithm(i)));
        for (size_t c = 0; c < sizeof counts / sizeof *counts; c++)
            for (int how = 0; how < HOWS; how++) {
                struct allreduce_case one = {.count = counts[c],
                                             .type = ALNICO_FLOAT32,
                                             .op = how ? ALNICO_AVERAGE : ALNICO_SUM,
                                             .in_place = how,
                                             .how = (enum how)how};
                cases_run(comm, &one, seed + c);
            }
    }
    alnico_comm_destroy(comm);
}

int main(void)
{
    seed = world_begin(MPI_THREAD_MULTIPLE);
    REQUIRE(world_size() <= (int)(sizeof names / sizeof *names));
    setenv("ALNICO_HOST", names[world_rank()], 1);
    WORLD_RUN(test_map);
    WORLD_RUN(test_ranks_of_all_hosts_share_the_units);
    WORLD_RUN(test_a_split_has_a_map_of_its_own);
    WORLD_RUN(test_allreduce);
    return world_end();
}
