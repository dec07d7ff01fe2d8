/* The ranks of a program, by alnico_comm_create_env. */
#include "tools/common/ranks.h"

#include "device/topology.h"
#include "tools/common/program.h"

#include <stdio.h>
#include <stdlib.h>

static alnico_comm_t ranks;

void program_ranks_open(void)
{
    program_check(alnico_comm_create_env(ALNICO_DEVICE_CPU, NULL, &ranks),
                  "alnico_comm_create_env");
}

void program_ranks_close(void)
{
    /* Launchers may drop what a rank prints after another one has ended. One that was lost on the way,
     * which the program knows how to do without, is no error here. */
    fflush(stdout);
    if (alnico_barrier(ranks) != ALNICO_SUCCESS)
        alnico_comm_abort(ranks);
    alnico_comm_destroy(ranks);
    ranks = NULL;
}

int program_rank(void)
{
    return ranks ? alnico_comm_rank(ranks) : 0;
}

int program_size(void)
{
    return ranks ? alnico_comm_size(ranks) : 1;
}

void program_barrier(void)
{
    program_check(alnico_barrier(ranks), "alnico_barrier");
}

void program_gather(const void *mine, void *all, size_t bytes)
{
    program_check(alnico_allgather(mine, all, bytes, ALNICO_UINT8, ranks), "alnico_allgather");
}

void program_broadcast(void *data, size_t bytes, int root)
{
    program_check(alnico_broadcast(data, bytes, ALNICO_UINT8, root, ranks), "alnico_broadcast");
}

static void reduce(void *values, size_t count, alnico_datatype_t type, alnico_op_t op)
{
    program_check(alnico_allreduce(ALNICO_IN_PLACE, values, count, type, op, ranks),
                  "alnico_allreduce");
}

void program_least(int *values, int count)
{
    reduce(values, (size_t)count, ALNICO_INT32, ALNICO_MINIMUM);
}

void program_greatest(int *values, int count)
{
    reduce(values, (size_t)count, ALNICO_INT32, ALNICO_MAXIMUM);
}

void program_slowest(double *seconds, int count)
{
    reduce(seconds, (size_t)count, ALNICO_FLOAT64, ALNICO_MAXIMUM);
}

uint64_t program_sum(uint64_t value)
{
    reduce(&value, 1, ALNICO_UINT64, ALNICO_SUM);
    return value;
}

void program_host(int *rank, int *size)
{
    uint64_t mine = topology_host_id(), *all = calloc((size_t)program_size(), sizeof *all);
    if (!all)
        program_fail("no memory for the hosts of %d ranks", program_size());
    program_gather(&mine, all, sizeof mine);
    *rank = *size = 0;
    for (int i = 0; i < program_size(); i++) {
        *rank += all[i] == mine && i < program_rank();
        *size += all[i] == mine;
    }
    free(all);
}

static int gather(void *context, const void *mine, void *all, size_t bytes)
{
    (void)context;
    return alnico_allgather(mine, all, bytes, ALNICO_UINT8, ranks);
}

alnico_status_t program_comm(alnico_device_t device, void *stream, alnico_comm_t *out)
{
    const alnico_bootstrap_t bootstrap = {program_rank(), program_size(), gather, NULL};
    return alnico_comm_create(&bootstrap, device, stream, out);
}
