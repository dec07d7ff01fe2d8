/* The table of cases through nccl.h, by one thread that is all ranks: table_nccl SIZE <TABLE. */
#include "tests/integrations/nccl/crew.h"
#include "tests/integrations/table/table.h"

#include <stdlib.h>

static const ncclDataType_t types[] = {ncclInt8,    ncclUint8,   ncclInt32,      ncclUint32,
                                       ncclInt64,   ncclUint64,  ncclFloat16,    ncclBfloat16,
                                       ncclFloat32, ncclFloat64, ncclFloat8e4m3, ncclFloat8e5m2};
static const ncclRedOp_t ops[] = {ncclSum, ncclProd, ncclMin, ncclMax, ncclAvg};

static ncclResult_t call(const struct table_case *c, int rank, int size, const char *send,
                         char *recv, ncclComm_t comm, cudaStream_t stream)
{
    ncclDataType_t type = types[c->type];
    size_t n = c->count;
    if (table_is(c, "allreduce"))
        return ncclAllReduce(send, recv, n, type, ops[c->op], comm, stream);
    if (table_is(c, "reduce"))
        return ncclReduce(send, recv, n, type, ops[c->op], c->root, comm, stream);
    if (table_is(c, "broadcast"))
        return ncclBroadcast(send, recv, n, type, c->root, comm, stream);
    if (table_is(c, "allgather"))
        return ncclAllGather(send, recv, n, type, comm, stream);
    if (table_is(c, "reduce_scatter"))
        return ncclReduceScatter(send, recv, n, type, ops[c->op], comm, stream);
    if (table_is(c, "gather"))
        return ncclGather(send, recv, n, type, c->root, comm, stream);
    if (table_is(c, "scatter"))
        return ncclScatter(send, recv, n, type, c->root, comm, stream);
    if (table_is(c, "alltoall"))
        return ncclAlltoAll(send, recv, n, type, comm, stream);
    CHECK(ncclSend(send, n, type, (rank + 1) % size, comm, stream));
    return ncclRecv(recv, n, type, (rank + size - 1) % size, comm, stream);
}

static void play(const struct table_case *c, struct crew *crew)
{
    static char send[TABLE_RANKS][TABLE_BYTES], recv[TABLE_RANKS][TABLE_BYTES];
    char *to[TABLE_RANKS];
    int size = crew->size;
    memset(recv, 0, sizeof recv);
    CHECK(ncclGroupStart());
    for (int r = 0; r < size; r++) {
        char *from = send[r];
        size_t own = (size_t)r * c->count * c->bytes;
        to[r] = recv[r];
        if (c->in_place && table_is(c, "allgather"))
            from = recv[r] + own;
        else if (c->in_place)
            to[r] = send[r] + (table_is(c, "reduce_scatter") ? own : 0);
        table_fill(c, r, size, from);
        CHECK(call(c, r, size, from, to[r], crew->comms[r], crew->streams[r][0]));
    }
    CHECK(ncclGroupEnd());
    crew_synchronize(crew);
    for (int r = 0; r < size; r++)
        table_print(c, r, size, to[r]);
}

static void play_all(struct crew *crew)
{
    struct table_case c;
    while (table_read(stdin, crew->size, &c))
        play(&c, crew);
}

int main(int arguments, char **argument)
{
    int size = arguments > 1 ? atoi(argument[1]) : 0;
    if (size < 1 || size > TABLE_RANKS)
        return 2;
    crew_run(ONE_THREAD, size, 1, play_all);
    return 0;
}
