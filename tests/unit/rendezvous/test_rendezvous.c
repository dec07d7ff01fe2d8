/* Ranks that meet by an id over TCP: threads, processes and both; ranks that are missing, die, come
 * twice or are none of the job; strangers at the root's port. No MPI is initialised. */
#include "base/status.h"
#include "comm/net/connector.h"
#include "comm/rendezvous/root.h"
#include "comm/rendezvous/tree.h"
#include "device/backoff.h"
#include "tests/support/forks.h"
#include "tests/support/ranks.h"

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

/* The first one makes the communicator, the second uses the same id in vain. */
static void meet_body(struct rank *rank)
{
    int64_t sum = rank->rank + 1;
    alnico_comm_t comm;
    alnico_id_t id = ranks_share_id(rank);
    double before = ranks_seconds();
    REQUIRE_STATUS(
        alnico_comm_create_id(&id, rank->rank, rank->size, ALNICO_DEVICE_CPU, NULL, &comm),
        ALNICO_SUCCESS);
    if (rank->rank == 0)
        printf("%d ranks: %.3f s\n", rank->size, ranks_seconds() - before);
    REQUIRE(alnico_comm_rank(comm) == rank->rank && alnico_comm_size(comm) == rank->size);
    REQUIRE_STATUS(alnico_allreduce(ALNICO_IN_PLACE, &sum, 1, ALNICO_INT64, ALNICO_SUM, comm),
                   ALNICO_SUCCESS);
    REQUIRE(sum == (int64_t)rank->size * (rank->size + 1) / 2);
    alnico_comm_destroy(comm);
    REQUIRE_STATUS(
        alnico_comm_create_id(&id, rank->rank, rank->size, ALNICO_DEVICE_CPU, NULL, &comm),
        ALNICO_ERROR_SYSTEM);
    REQUIRE(!comm);
    ranks_require_detail("alnico_comm_create_id: cannot connect to ");
}

static void ranks_meet_by_an_id(void **state)
{
    static const int shapes[][2] = {{1, 1}, {2, 1}, {1, 2}, {5, 1}, {2, 3}, {1, 7}, {13, 1}};
    (void)state;
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
        forks_run(shapes[i][0], shapes[i][1], meet_body, NULL);
}

/* The must is 1 s and 2 s on two cores; here only that it does not grow with the square. */
static void many_ranks_meet_soon(void **state)
{
    (void)state;
    double before = ranks_seconds();
    forks_run(32, 1, meet_body, NULL);
    if (!ranks_sanitized())
        ranks_run(256, meet_body, NULL);
    assert_true(ranks_seconds() - before < 30);
}

/* ---- What goes wrong, on the tree itself, with a deadline of its own ---- */

static const struct net_address loopback = {.version = 4, .bytes = {127, 0, 0, 1}};

struct trial {
    struct place place;
    double timeout;
};

static struct trial start_root(double timeout)
{
    struct trial trial = {.place = {.address = loopback, .ports = 1}, .timeout = timeout};
    assert_int_equal(net_key_create(&trial.place.key), ALNICO_SUCCESS);
    assert_int_equal(root_start(&trial.place, timeout), ALNICO_SUCCESS);
    return trial;
}

static alnico_status_t join(const struct trial *trial, int rank, int size, struct tree **out)
{
    const struct tree_options options = {.place = trial->place,
                                         .rank = rank,
                                         .size = size,
                                         .timeout = trial->timeout,
                                         .interface = "",
                                         .who = "test"};
    return tree_create(&options, out);
}

/* Exchanges of every length, with the numbers of all ranks. */
static void gather_body(struct rank *rank)
{
    struct tree *tree;
    REQUIRE_STATUS(join(rank->argument, rank->rank, rank->size, &tree), ALNICO_SUCCESS);
    struct rendezvous *r = tree_rendezvous(tree);
    unsigned char mine[RENDEZVOUS_BYTES], *all = malloc((size_t)rank->size * sizeof mine);
    for (size_t bytes = 1; bytes <= sizeof mine; bytes = 2 * bytes + bytes % 3) {
        memset(mine, rank->rank + (int)bytes, sizeof mine);
        memset(all, 0xee, (size_t)rank->size * sizeof mine);
        REQUIRE_STATUS(rendezvous_gather(r, mine, rank->rank % 3 ? all : NULL, bytes),
                       ALNICO_SUCCESS);
        for (size_t i = 0; rank->rank % 3 && i < (size_t)rank->size * bytes; i++)
            REQUIRE(all[i] == (unsigned char)(i / bytes + bytes));
    }
    ranks_barrier(rank);
    free(all);
    tree_destroy(tree);
}

static void trees_of_every_size_gather(void **state)
{
    (void)state;
    for (int size = 1; size <= 17; size++) {
        struct trial trial = start_root(20);
        ranks_run(size, gather_body, &trial);
    }
}

static void missing_body(struct rank *rank)
{
    struct tree *tree;
    double before = ranks_seconds();
    if (rank->rank == 2 || rank->rank >= 5)
        return;
    REQUIRE_STATUS(join(rank->argument, rank->rank, rank->size, &tree), ALNICO_ERROR_TIMEOUT);
    ranks_require_detail("ranks 2, 5 to 7 did not come within 0.5 s");
    REQUIRE(ranks_seconds() - before < 5);
}

static void missing_ranks_are_named(void **state)
{
    struct trial trial = start_root(0.5);
    (void)state;
    ranks_run(8, missing_body, &trial);
}

/* Rank 5 meets the others and does not call the allgather. */
static void absent_body(struct rank *rank)
{
    struct tree *tree;
    char mine = 0, all[11];
    REQUIRE_STATUS(join(rank->argument, rank->rank, rank->size, &tree), ALNICO_SUCCESS);
    if (rank->rank != 5) {
        REQUIRE_STATUS(rendezvous_gather(tree_rendezvous(tree), &mine, all, 1),
                       ALNICO_ERROR_TIMEOUT);
        ranks_require_detail("rank 5 did not come within 1 s");
        REQUIRE(tree_rendezvous(tree)->failed);
        REQUIRE_STATUS(rendezvous_gather(tree_rendezvous(tree), &mine, all, 1),
                       ALNICO_ERROR_TIMEOUT);
    }
    ranks_barrier(rank);
    tree_destroy(tree);
}

static void absent_rank_is_named_by_all(void **state)
{
    struct trial trial = start_root(1);
    (void)state;
    ranks_run(11, absent_body, &trial);
}

/* The victim's process ends: the others know at once, whatever the deadline. */
static void victim_body(struct rank *rank)
{
    struct trial trial = {.timeout = 100};
    struct tree *tree;
    char mine = 0, all[7];
    const alnico_id_t id = ranks_share_id(rank);
    REQUIRE_STATUS(id_read(&id, &trial.place), ALNICO_SUCCESS);
    REQUIRE_STATUS(join(&trial, rank->rank, rank->size, &tree), ALNICO_SUCCESS);
    REQUIRE_STATUS(rendezvous_gather(tree_rendezvous(tree), &mine, all, 1), ALNICO_SUCCESS);
    if (rank->rank == 6)
        raise(SIGKILL);
    double before = ranks_seconds();
    REQUIRE_STATUS(rendezvous_gather(tree_rendezvous(tree), &mine, all, 1), ALNICO_ERROR_TIMEOUT);
    ranks_require_detail("rank 6 did not come: its process has ended");
    REQUIRE(ranks_seconds() - before < 5);
    tree_destroy(tree);
}

static void dead_rank_is_named_at_once(void **state)
{
    (void)state;
    forks_run_victim(7, 6, SIGKILL, victim_body, NULL);
}

/* Calls the root and leaves again, as a rank that dies before all have come. */
static void leave_early(const struct trial *trial, int rank, int size)
{
    struct net_connector c;
    struct net_identity mine = {
        .purpose = NET_RENDEZVOUS, .rank = rank, .size = size, .number = CONNECTION_TO_ROOT};
    int fd;
    net_connector_begin(&c, &trial->place.address, &trial->place.key, &mine, false, deadline_ns(5));
    REQUIRE_STATUS(net_connector_run(&c, &fd), ALNICO_SUCCESS);
    close(fd);
}

static void early_body(struct rank *rank)
{
    struct tree *tree;
    double before = ranks_seconds();
    if (rank->rank == 1) {
        usleep(100000);
        leave_early(rank->argument, 1, rank->size);
    } else if (rank->rank != 2) {
        REQUIRE_STATUS(join(rank->argument, rank->rank, rank->size, &tree), ALNICO_ERROR_TIMEOUT);
        ranks_require_detail("rank 1 did not come: it left");
        REQUIRE(ranks_seconds() - before < 5);
    }
}

static void rank_that_leaves_early_is_named(void **state)
{
    struct trial trial = start_root(100);
    (void)state;
    ranks_run(4, early_body, &trial);
}

/* ---- Whoever is none of the job ---- */

static void send_text(const struct net_address *to, const char *text, size_t bytes)
{
    int fd;
    REQUIRE_STATUS(net_connect(to, &fd), ALNICO_SUCCESS);
    while (net_connected(fd, to) == ALNICO_PENDING)
        ;
    REQUIRE_STATUS(net_send(fd, text, bytes, deadline_ns(5)), ALNICO_SUCCESS);
    close(fd);
}

/* Rank 3 comes last, and does first what others should not. */
static void intruders_body(struct rank *rank)
{
    const struct trial *trial = rank->argument;
    struct tree *tree = NULL;
    if (rank->rank == 3) {
        usleep(200000); /* the others wait at the root */
        send_text(&trial->place.address, "GET / HTTP/1.1\r\n\r\n", 18);
        send_text(&trial->place.address, "", 0);
        struct trial other = *trial;
        other.place.key.bytes[5] ^= 1;
        REQUIRE_STATUS(join(&other, 3, 4, &tree), ALNICO_ERROR_MISMATCH);
        ranks_require_detail("secret");
        REQUIRE_STATUS(join(trial, 1, 4, &tree), ALNICO_ERROR_ARGUMENT);
        ranks_require_detail("rank 1 has come already");
        REQUIRE_STATUS(join(trial, 3, 5, &tree), ALNICO_ERROR_ARGUMENT);
        ranks_require_detail("rank 3 says that there are 5 ranks, others say 4");
    }
    REQUIRE_STATUS(join(trial, rank->rank, 4, &tree), ALNICO_SUCCESS);
    char mine = (char)rank->rank, all[4];
    REQUIRE_STATUS(rendezvous_gather(tree_rendezvous(tree), &mine, all, 1), ALNICO_SUCCESS);
    REQUIRE(memcmp(all, "\0\1\2\3", 4) == 0);
    ranks_barrier(rank);
    tree_destroy(tree);
}

static void intruders_are_refused_and_the_job_goes_on(void **state)
{
    struct trial trial = start_root(60);
    (void)state;
    ranks_run(4, intruders_body, &trial);
}

static void root_takes_the_next_free_port(void **state)
{
    struct trial first = start_root(5), second = first, third = first;
    (void)state;
    assert_int_equal(root_start(&second.place, 5), ALNICO_ERROR_SYSTEM);
    assert_non_null(strstr(alnico_error_detail(), "cannot listen at 127.0.0.1:"));
    third.place.ports = 20;
    assert_int_equal(root_start(&third.place, 5), ALNICO_SUCCESS);
    assert_true(third.place.address.port > first.place.address.port);
    third.place.address.port = first.place.address.port;
    third.place.key.bytes[0] ^= 1; /* of the second job: its ranks do not stay at the first */
    struct tree *tree;
    third.timeout = 0.2;
    assert_int_equal(join(&third, 0, 1, &tree), ALNICO_ERROR_TIMEOUT);
    assert_non_null(strstr(alnico_error_detail(), "no rank 0 of this job came to 127.0.0.1:"));
    third.timeout = 5;
    third.place.key.bytes[0] ^= 1;
    assert_int_equal(join(&first, 0, 1, &tree), ALNICO_SUCCESS);
    tree_destroy(tree);
    assert_int_equal(join(&third, 0, 1, &tree), ALNICO_SUCCESS);
    tree_destroy(tree);
}

static void arguments_are_checked(void **state)
{
    alnico_id_t id;
    alnico_comm_t comm = (alnico_comm_t)&id;
    (void)state;
    assert_int_equal(alnico_id_create(NULL), ALNICO_ERROR_ARGUMENT);
    memset(&id, 0, sizeof id);
    assert_int_equal(alnico_comm_create_id(&id, 0, 1, ALNICO_DEVICE_CPU, NULL, &comm),
                     ALNICO_ERROR_ARGUMENT);
    assert_null(comm);
    assert_non_null(strstr(alnico_error_detail(), "not those that alnico_id_create made"));
    const struct place place = {.address = loopback, .ports = 1};
    id_write(&place, &id);
    for (int i = 0; i < 72; i++) { /* what was changed on its way is no id */
        id.bytes[i] ^= 4;
        assert_int_equal(alnico_comm_create_id(&id, 0, 1, ALNICO_DEVICE_CPU, NULL, &comm),
                         ALNICO_ERROR_ARGUMENT);
        id.bytes[i] ^= 4;
    }
    assert_int_equal(alnico_comm_create_id(&id, 2, 2, ALNICO_DEVICE_CPU, NULL, &comm),
                     ALNICO_ERROR_ARGUMENT);
    assert_int_equal(alnico_comm_create_id(&id, 0, 0, ALNICO_DEVICE_CPU, NULL, &comm),
                     ALNICO_ERROR_ARGUMENT);
    assert_int_equal(alnico_comm_create_id(NULL, 0, 1, ALNICO_DEVICE_CPU, NULL, &comm),
                     ALNICO_ERROR_ARGUMENT);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ranks_meet_by_an_id),
        cmocka_unit_test(many_ranks_meet_soon),
        cmocka_unit_test(trees_of_every_size_gather),
        cmocka_unit_test(missing_ranks_are_named),
        cmocka_unit_test(absent_rank_is_named_by_all),
        cmocka_unit_test(dead_rank_is_named_at_once),
        cmocka_unit_test(rank_that_leaves_early_is_named),
        cmocka_unit_test(intruders_are_refused_and_the_job_goes_on),
        cmocka_unit_test(root_takes_the_next_free_port),
        cmocka_unit_test(arguments_are_checked),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
