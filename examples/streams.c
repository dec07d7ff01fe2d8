/* Communicators on CPU streams: calls return at once, and later work of the stream runs after
 * them. Also: limits and memory of a communicator, another stream for later calls, a duplicate on a
 * stream of its own, a split, registered memory, an algorithm forced by name, and ending a run after
 * an error. Run it under mpirun. */
#include <alnico/mpi.h>
#include <stdio.h>
#include <stdlib.h>

enum { COUNT = 1000 };

static void check(alnico_status_t status)
{
    if (status == ALNICO_SUCCESS)
        return;
    fprintf(stderr, "%s: %s\n", alnico_status_string(status), alnico_error_detail());
    MPI_Abort(MPI_COMM_WORLD, EXIT_FAILURE);
}

static void fill(void *argument)
{
    float *values = argument;
    for (int i = 0; i < COUNT; i++)
        values[i] = 1;
}

static void halve(void *argument)
{
    float *values = argument;
    for (int i = 0; i < COUNT; i++)
        values[i] /= 2;
}

/* Enqueues compute, reduce, compute, in this order; only the last line waits. */
static void work(alnico_comm_t comm, alnico_stream_t stream, float *values)
{
    check(alnico_stream_enqueue(stream, fill, values));
    check(alnico_allreduce(ALNICO_IN_PLACE, values, COUNT, ALNICO_FLOAT32, ALNICO_SUM, comm));
    check(alnico_stream_enqueue(stream, halve, values));
    check(alnico_stream_synchronize(stream));
}

/* Even and odd ranks apart, on the inline stream: a call has ended when it returns. */
static bool every_second(alnico_comm_t comm)
{
    alnico_comm_t part;
    int members = 1, rank = alnico_comm_rank(comm);
    check(alnico_comm_split(comm, rank % 2, rank, NULL, &part));
    check(alnico_allreduce(ALNICO_IN_PLACE, &members, 1, ALNICO_INT32, ALNICO_SUM, part));
    const bool right = members == alnico_comm_size(part);
    alnico_comm_destroy(part);
    return right;
}

int main(int argc, char **argv)
{
    static float others[COUNT];
    void *memory;
    alnico_stream_t stream, beside;
    alnico_comm_t comm, copy;
    alnico_registration_t registration, own;
    int level;
    MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &level);
    check(alnico_stream_create(&stream));
    check(alnico_stream_create(&beside));
    check(alnico_comm_create_mpi(MPI_COMM_WORLD, ALNICO_DEVICE_CPU, stream, &comm));
    const alnico_limits_t limits = {.scratch = 16 << 20};
    check(alnico_comm_set_limits(comm, &limits));
    check(alnico_comm_duplicate(comm, beside, &copy)); /* with the same limits */
    check(alnico_memory_allocate(ALNICO_DEVICE_CPU, COUNT * sizeof(float), &memory));
    check(alnico_comm_register(comm, memory, COUNT * sizeof(float), &registration));
    check(alnico_comm_register_local(copy, others, sizeof others, &own)); /* by this rank alone */
    float *values = memory;
    check(alnico_comm_set_algorithm(copy, ALNICO_ALLREDUCE, "recursive_doubling"));
    work(comm, stream, values);
    check(alnico_comm_set_stream(copy, stream)); /* behind what it has on the other one */
    work(copy, stream, others);
    const int rank = alnico_comm_rank(comm), size = alnico_comm_size(comm);
    bool right = values[COUNT - 1] == (float)size / 2 && others[0] == values[0];
    right &= every_second(comm);
    check(alnico_synchronize(comm));
    check(alnico_comm_status(comm));
    alnico_comm_memory_t use;
    check(alnico_comm_memory(comm, &use));
    right &= use.scratch <= limits.scratch;
    check(alnico_comm_deregister(comm, registration));
    check(alnico_comm_deregister(copy, own));
    /* A rank that cannot go on aborts, so that others stop waiting for it. */
    check(alnico_comm_abort(copy));
    right &= alnico_comm_status(copy) == ALNICO_ERROR_ABORTED;
    printf("rank %d of Alnico %s: %g\n", rank, alnico_version(), values[0]);
    alnico_comm_destroy(copy);
    alnico_comm_destroy(comm);
    check(alnico_memory_free(ALNICO_DEVICE_CPU, memory));
    alnico_stream_destroy(beside);
    alnico_stream_destroy(stream);
    MPI_Finalize();
    return right ? EXIT_SUCCESS : EXIT_FAILURE;
}
