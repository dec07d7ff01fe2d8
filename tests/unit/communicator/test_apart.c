/* Ranks of which one stops in the middle of a call, which some of the others complete without it: those
 * are one call further then, and wait for a rank that waits for the missing one. All name that one. */
#include "comm/communicator/comm.h"

#include "tests/support/ranks.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>

#include <cmocka.h>

enum { MESSAGES = 12 };

/* The hub of a creation in which a rank is missing stays, as the rank may still join it. */
__attribute__((visibility("default"))) const char *__lsan_default_suppressions(void);
const char *__lsan_default_suppressions(void)
{
    return "leak:local_hub_create\n";
}

static const double deadline = 2;

struct scene {
    alnico_status_t (*call)(alnico_comm_t);
    int missing, messages; /* which rank sends so many messages and then nothing */
};

/* Of the missing rank, whose thread sends its messages. */
static _Thread_local struct {
    struct transport_ops ops;
    const struct transport_ops *real;
    struct rank *rank;
    int left;
} stops;

static alnico_status_t send_while_there(struct transport *t, int to, uint32_t tag,
                                        const void *buffer, size_t bytes, struct transfer *out)
{
    if (stops.left-- == 0) {
        ranks_barrier(stops.rank); /* until the others have given up */
        stops.left = -1;
    }
    return stops.real->isend(t, to, tag, buffer, bytes, out);
}

static void stop(struct rank *rank, alnico_comm_t comm, int messages)
{
    stops.real = comm->transport->ops;
    stops.ops = *stops.real;
    stops.ops.isend = send_while_there;
    stops.rank = rank;
    stops.left = messages;
    comm->transport->ops = &stops.ops;
}

static void body(struct rank *rank)
{
    const struct scene *s = rank->argument;
    alnico_comm_t comm = ranks_comm(rank, NULL);
    char expected[64];
    snprintf(expected, sizeof expected, ": rank %d did not come within 2 s", s->missing);
    comm->family->settings.timeout = deadline;
    if (rank->rank == s->missing)
        stop(rank, comm, s->messages);
    double start = ranks_seconds();
    alnico_status_t status = ALNICO_SUCCESS;
    while (status == ALNICO_SUCCESS)
        status = s->call(comm);
    REQUIRE_STATUS(status, ALNICO_ERROR_TIMEOUT);
    if (rank->rank != s->missing) {
        ranks_require_detail(expected);
        REQUIRE(ranks_seconds() - start < 2 * deadline);
        ranks_barrier(rank);
    }
    alnico_comm_destroy(comm);
}

static void *run(void *scene)
{
    ranks_run(4, body, scene);
    return NULL;
}

/* With each rank missing from its first message on, from its second one, and so on. All at once: they
 * mostly sleep. */
static void play(alnico_status_t (*call)(alnico_comm_t), int most)
{
    struct scene scenes[MESSAGES];
    pthread_t threads[MESSAGES];
    for (int i = 0; i < most; i++) {
        scenes[i] = (struct scene){call, i % 4, i};
        REQUIRE(pthread_create(&threads[i], NULL, run, &scenes[i]) == 0);
    }
    for (int i = 0; i < most; i++)
        pthread_join(threads[i], NULL);
}

static alnico_status_t set_algorithm(alnico_comm_t comm)
{
    return alnico_comm_set_algorithm(comm, ALNICO_ALLREDUCE, NULL);
}

static void test_exchanges(void **state)
{
    (void)state;
    play(set_algorithm, 8);
}

static alnico_status_t duplicate(alnico_comm_t comm)
{
    alnico_comm_t copy;
    alnico_status_t status = alnico_comm_duplicate(comm, NULL, &copy);
    alnico_comm_destroy(copy);
    return status;
}

/* Behind the last exchange on the old communicator comes the first on the copy. */
static void test_a_communicator_that_is_made(void **state)
{
    (void)state;
    play(duplicate, MESSAGES);
}

/* Around the ring. */
static alnico_status_t sendrecv(alnico_comm_t comm)
{
    int rank = alnico_comm_rank(comm), size = alnico_comm_size(comm);
    float sent = 1, received;
    return alnico_sendrecv(&sent, 1, (rank + 1) % size, &received, 1, (rank + size - 1) % size,
                           ALNICO_FLOAT32, comm);
}

static void test_messages(void **state)
{
    (void)state;
    play(sendrecv, 4);
}

/* The missing rank's neighbour waits for it in a message, and the others for that one in a barrier. */
static alnico_status_t mixed(alnico_comm_t comm)
{
    alnico_status_t status = sendrecv(comm);
    return status == ALNICO_SUCCESS ? alnico_barrier(comm) : status;
}

static void test_messages_and_operations(void **state)
{
    (void)state;
    play(mixed, 8);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_exchanges),
        cmocka_unit_test(test_a_communicator_that_is_made),
        cmocka_unit_test(test_messages),
        cmocka_unit_test(test_messages_and_operations),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
