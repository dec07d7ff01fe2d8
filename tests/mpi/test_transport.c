/* The transport over MPI: a cancelled receive takes no message, and writes nothing. */
#include "comm/transports/transport.h"

#include "tests/support/world.h"

#include <string.h>

enum { BYTES = 20000, TAG = TAG_OPERATIONS + 5 };

static void wait_for(struct transport *t, struct transfer *transfer)
{
    const double end = ranks_seconds() + 20;
    alnico_status_t status;
    do {
        status = t->ops->test(t, transfer);
        REQUIRE(ranks_seconds() < end);
    } while (status == ALNICO_PENDING);
    REQUIRE_STATUS(status, ALNICO_SUCCESS);
}

/* Rank 0 sends when the last rank has cancelled its first receive. */
static void cancel_one(struct transport *t, size_t bytes)
{
    static char cancelled[BYTES], taken[BYTES], sent[BYTES];
    const int last = t->size - 1;
    struct transfer lost, transfer;
    memset(cancelled, 1, bytes);
    memset(taken, 2, bytes);
    memset(sent, 3, bytes);
    if (t->rank == last) {
        REQUIRE_STATUS(t->ops->irecv(t, 0, TAG, cancelled, bytes, &lost), ALNICO_SUCCESS);
        REQUIRE(t->ops->cancel(t, &lost));
        REQUIRE_STATUS(t->ops->irecv(t, 0, TAG, taken, bytes, &transfer), ALNICO_SUCCESS);
    }
    MPI_Barrier(MPI_COMM_WORLD);
    if (t->rank == 0) {
        struct transfer send;
        REQUIRE_STATUS(t->ops->isend(t, last, TAG, sent, bytes, &send), ALNICO_SUCCESS);
        wait_for(t, &send);
    }
    if (t->rank == last) {
        wait_for(t, &transfer);
        for (size_t i = 0; i < bytes; i++)
            REQUIRE(taken[i] == 3 && cancelled[i] == 1);
    }
    MPI_Barrier(MPI_COMM_WORLD);
}

static void test_cancelled_receives_take_nothing(void)
{
    const MPI_Comm world = MPI_COMM_WORLD;
    const size_t sizes[] = {0, 8, BYTES};
    struct transport *t;
    REQUIRE_STATUS(transport_mpi_create(&world, 20, &t), ALNICO_SUCCESS);
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        cancel_one(t, sizes[i]);
    t->ops->destroy(t);
}

int main(void)
{
    world_begin(MPI_THREAD_MULTIPLE);
    WORLD_RUN(test_cancelled_receives_take_nothing);
    return world_end();
}
