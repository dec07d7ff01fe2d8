/* Every collective and message as a nonblocking call, all in flight at once, and the three ways to
 * wait. The buffers of a call belong to it until it has ended. Run it under mpirun. */
#include <alnico/mpi.h>
#include <stdio.h>
#include <stdlib.h>

enum { RANKS_MOST = 16, CALLS = 19, ROOT = 0 };

static const alnico_datatype_t I32 = ALNICO_INT32;

/* The buffers of one call: one element for each rank. */
struct buffers {
    int send[RANKS_MOST], recv[RANKS_MOST];
};

static void check(alnico_status_t status)
{
    if (status == ALNICO_SUCCESS)
        return;
    fprintf(stderr, "%s: %s\n", alnico_status_string(status), alnico_error_detail());
    MPI_Abort(MPI_COMM_WORLD, EXIT_FAILURE);
}

/* Reductions, rooted operations, and those of equal blocks. */
static alnico_request_t *start_some(struct buffers *b, alnico_comm_t c, alnico_request_t *q)
{
    check(alnico_iallreduce(b[0].send, b[0].recv, 1, I32, ALNICO_SUM, c, q++));
    check(alnico_ireduce(b[1].send, b[1].recv, 1, I32, ALNICO_MAXIMUM, ROOT, c, q++));
    check(alnico_ireduce_scatter(b[2].send, b[2].recv, 1, I32, ALNICO_SUM, c, q++));
    check(alnico_ibroadcast(b[3].send, 1, I32, ROOT, c, q++));
    check(alnico_ibroadcast_to(b[16].send, b[16].recv, 1, I32, ROOT, c, q++));
    check(alnico_igather(b[4].send, b[4].recv, 1, I32, ROOT, c, q++));
    check(alnico_iscatter(b[5].send, b[5].recv, 1, I32, ROOT, c, q++));
    check(alnico_iallgather(b[6].send, b[6].recv, 1, I32, c, q++));
    check(alnico_ialltoall(b[7].send, b[7].recv, 1, I32, c, q++));
    check(alnico_ibarrier(c, q++));
    return q;
}

/* The vector forms, with one element for each rank, contiguous (`at` is NULL). */
static alnico_request_t *start_vectors(struct buffers *b, const size_t *ones, alnico_comm_t c,
                                       alnico_request_t *q)
{
    check(alnico_ireduce_scatterv(b[8].send, b[8].recv, ones, I32, ALNICO_SUM, c, q++));
    check(alnico_igatherv(b[9].send, 1, b[9].recv, ones, NULL, I32, ROOT, c, q++));
    check(alnico_iscatterv(b[10].send, ones, NULL, b[10].recv, 1, I32, ROOT, c, q++));
    check(alnico_iallgatherv(b[11].send, 1, b[11].recv, ones, NULL, I32, c, q++));
    check(alnico_ialltoallv(b[12].send, ones, NULL, b[12].recv, ones, NULL, I32, c, q++));
    return q;
}

/* Messages to the next rank and from the previous one: send and recv, sendrecv, and a group. */
static alnico_request_t *start_messages(struct buffers *b, int next, int before, alnico_comm_t c,
                                        alnico_request_t *q)
{
    check(alnico_isend(b[13].send, 1, I32, next, c, q++));
    check(alnico_irecv(b[13].recv, 1, I32, before, c, q++));
    check(alnico_isendrecv(b[14].send, 1, next, b[14].recv, 1, before, I32, c, q++));
    check(alnico_group_begin(c));
    check(alnico_recv(b[15].recv, 1, I32, before, c));
    check(alnico_send(b[15].send, 1, I32, next, c));
    check(alnico_group_end(c, q++));
    return q;
}

/* Tests request 0 until it is done, blocks the host for request 1, waits for the others. */
static void finish(alnico_request_t *requests)
{
    for (bool done = false; !done;)
        check(alnico_test(&requests[0], &done));
    check(alnico_request_synchronize(&requests[1]));
    for (int i = 2; i < CALLS; i++)
        check(alnico_wait(&requests[i]));
}

/* Every rank has sent its rank number. */
static bool is_right(const struct buffers *b, int rank, int size, int before)
{
    const int sum = size * (size - 1) / 2;
    bool right = b[0].recv[0] == sum && b[2].recv[0] == sum && b[8].recv[0] == sum &&
                 b[3].send[0] == ROOT && b[5].recv[0] == ROOT && b[10].recv[0] == ROOT &&
                 b[16].recv[0] == ROOT;
    right &= rank != ROOT || (b[1].recv[0] == size - 1 && b[4].recv[size - 1] == size - 1 &&
                              b[9].recv[size - 1] == size - 1);
    for (int i = 0; i < size; i++)
        right &= b[6].recv[i] == i && b[7].recv[i] == i && b[11].recv[i] == i && b[12].recv[i] == i;
    for (int i = 13; i <= 15; i++)
        right &= b[i].recv[0] == before;
    return right;
}

int main(int argc, char **argv)
{
    static struct buffers buffers[17];
    size_t ones[RANKS_MOST];
    alnico_request_t requests[CALLS];
    alnico_comm_t comm;
    int level;
    MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &level);
    check(alnico_comm_create_mpi(MPI_COMM_WORLD, ALNICO_DEVICE_CPU, NULL, &comm));
    const int rank = alnico_comm_rank(comm), size = alnico_comm_size(comm);
    const int next = (rank + 1) % size, before = (rank + size - 1) % size;
    if (size > RANKS_MOST)
        MPI_Abort(MPI_COMM_WORLD, EXIT_FAILURE);
    for (int i = 0; i < size; i++) {
        ones[i] = 1;
        for (int k = 0; k < 17; k++)
            buffers[k].send[i] = rank;
    }
    alnico_request_t *end = start_some(buffers, comm, requests);
    end = start_vectors(buffers, ones, comm, end);
    start_messages(buffers, next, before, comm, end);
    finish(requests);
    const bool right = is_right(buffers, rank, size, before);
    printf("rank %d: %d calls, %s\n", rank, CALLS, right ? "right" : "wrong");
    alnico_comm_destroy(comm);
    MPI_Finalize();
    return right ? EXIT_SUCCESS : EXIT_FAILURE;
}
