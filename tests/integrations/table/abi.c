/* The table of cases through alnico.h, on ranks that are threads: table_abi SIZE <TABLE. */
#include "tests/integrations/table/table.h"
#include "tests/support/ranks.h"

#include <stdlib.h>

enum { CASES = 4096 };

static struct table_case cases[CASES];
static int count;
static char results[CASES][TABLE_RANKS][TABLE_BYTES];

static alnico_status_t call(const struct table_case *c, const char *send, char *recv,
                            alnico_comm_t comm)
{
    alnico_datatype_t type = (alnico_datatype_t)c->type;
    alnico_op_t op = (alnico_op_t)c->op;
    int rank = alnico_comm_rank(comm), size = alnico_comm_size(comm);
    if (table_is(c, "allreduce"))
        return alnico_allreduce(send, recv, c->count, type, op, comm);
    if (table_is(c, "reduce"))
        return alnico_reduce(send, recv, c->count, type, op, c->root, comm);
    if (table_is(c, "broadcast"))
        return alnico_broadcast_to(send, recv, c->count, type, c->root, comm);
    if (table_is(c, "allgather"))
        return alnico_allgather(send, recv, c->count, type, comm);
    if (table_is(c, "reduce_scatter"))
        return alnico_reduce_scatter(send, recv, c->count, type, op, comm);
    if (table_is(c, "gather"))
        return alnico_gather(send, recv, c->count, type, c->root, comm);
    if (table_is(c, "scatter"))
        return alnico_scatter(send, recv, c->count, type, c->root, comm);
    if (table_is(c, "alltoall"))
        return alnico_alltoall(send, recv, c->count, type, comm);
    return alnico_sendrecv(send, c->count, (rank + 1) % size, recv, c->count,
                           (rank + size - 1) % size, type, comm);
}

/* Where the call's buffers are in the two that a rank has. */
static void play(const struct table_case *c, struct rank *rank, alnico_comm_t comm)
{
    char send[TABLE_BYTES], recv[TABLE_BYTES] = {0};
    char *from = send, *to = recv;
    size_t own = (size_t)rank->rank * c->count * c->bytes;
    if (c->in_place && table_is(c, "allgather"))
        from = recv + own;
    else if (c->in_place)
        to = send + (table_is(c, "reduce_scatter") ? own : 0);
    table_fill(c, rank->rank, rank->size, from);
    REQUIRE_STATUS(call(c, from, to, comm), ALNICO_SUCCESS);
    memcpy(results[c - cases][rank->rank], to, table_receives(c, rank->size) * c->bytes);
}

static void body(struct rank *rank)
{
    alnico_comm_t comm = ranks_comm(rank, NULL);
    for (int i = 0; i < count; i++)
        play(&cases[i], rank, comm);
    alnico_comm_destroy(comm);
}

int main(int arguments, char **argument)
{
    int size = arguments > 1 ? atoi(argument[1]) : 0;
    if (size < 1 || size > TABLE_RANKS)
        return 2;
    while (count < CASES && table_read(stdin, size, &cases[count]))
        count++;
    ranks_run(size, body, NULL);
    for (int i = 0; i < count; i++)
        for (int r = 0; r < size; r++)
            table_print(&cases[i], r, size, results[i][r]);
    return 0;
}
