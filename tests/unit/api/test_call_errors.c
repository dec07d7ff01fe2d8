/* What collectives but allreduce refuse, each named; what ALNICO_CHECK finds between ranks; and
 * averages, which scale without touching the input. Ranks are threads. */
#include "comm/api/library.h"
#include "comm/communicator/comm.h"

#include "tests/support/ranks.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#define REFUSED(expr, text)                                                                        \
    do {                                                                                           \
        REQUIRE_STATUS((expr), ALNICO_ERROR_ARGUMENT);                                             \
        ranks_require_detail(text);                                                                \
    } while (0)

enum { RANKS = 3, ROOM = 64 };

/* ---- One rank's arguments ---- */

static void bad_roots(alnico_comm_t comm, int32_t *a, int32_t *b)
{
    const size_t counts[RANKS] = {1, 1, 1};
    REFUSED(alnico_broadcast(a, 1, ALNICO_INT32, 3, comm),
            "alnico_broadcast: root 3 is not one of the ranks 0 to 2");
    REFUSED(alnico_reduce(a, b, 1, ALNICO_INT32, ALNICO_SUM, -1, comm), "root -1 is not");
    REFUSED(alnico_gather(a, b, 1, ALNICO_INT32, 7, comm), "root 7 is not");
    REFUSED(alnico_gatherv(a, 1, b, counts, NULL, ALNICO_INT32, 7, comm), "root 7 is not");
    REFUSED(alnico_scatter(a, b, 1, ALNICO_INT32, 7, comm), "root 7 is not");
    REFUSED(alnico_scatterv(a, counts, NULL, b, 1, ALNICO_INT32, 7, comm), "root 7 is not");
    int other = (alnico_comm_rank(comm) + 1) % RANKS;
    REFUSED(alnico_reduce(ALNICO_IN_PLACE, b, 1, ALNICO_INT32, ALNICO_SUM, other, comm),
            "it has a meaning at the root");
    REFUSED(alnico_gather(ALNICO_IN_PLACE, b, 1, ALNICO_INT32, other, comm),
            "send is ALNICO_IN_PLACE on rank");
    REFUSED(alnico_scatter(a, ALNICO_IN_PLACE, 1, ALNICO_INT32, other, comm),
            "recv is ALNICO_IN_PLACE on rank");
}

static void bad_counts(alnico_comm_t comm, int32_t *a, int32_t *b)
{
    const size_t ones[RANKS] = {1, 1, 1}, huge[RANKS] = {SIZE_MAX / 2, SIZE_MAX / 2, SIZE_MAX / 2};
    int me = alnico_comm_rank(comm);
    REFUSED(alnico_allgatherv(a, 1, b, NULL, NULL, ALNICO_INT32, comm), "counts is NULL");
    REFUSED(alnico_reduce_scatterv(a, b, NULL, ALNICO_INT32, ALNICO_SUM, comm), "counts is NULL");
    REFUSED(alnico_gatherv(a, 1, b, NULL, NULL, ALNICO_INT32, me, comm), "counts is NULL");
    REFUSED(alnico_scatterv(a, NULL, NULL, b, 1, ALNICO_INT32, me, comm), "counts is NULL");
    REFUSED(alnico_alltoallv(a, NULL, NULL, b, ones, NULL, ALNICO_INT32, comm),
            "send_counts is NULL");
    REFUSED(alnico_alltoallv(a, ones, NULL, b, NULL, NULL, ALNICO_INT32, comm),
            "recv_counts is NULL");
    REFUSED(alnico_allgatherv(a, 2, b, ones, NULL, ALNICO_INT32, comm), "send_count is 2 and");
    REFUSED(alnico_gatherv(a, 2, b, ones, NULL, ALNICO_INT32, me, comm), "send_count is 2 and");
    REFUSED(alnico_scatterv(a, ones, NULL, b, 2, ALNICO_INT32, me, comm), "recv_count is 2 and");
    const size_t other[RANKS] = {2, 2, 2};
    REFUSED(alnico_alltoallv(a, other, NULL, b, ones, NULL, ALNICO_INT32, comm),
            "the rank's own must be equal");
    REFUSED(alnico_reduce_scatterv(a, b, huge, ALNICO_INT32, ALNICO_SUM, comm), "overflows");
    REFUSED(alnico_allgather(a, b, SIZE_MAX / 12, ALNICO_INT32, comm), "overflows");
    REFUSED(alnico_alltoall(a, b, SIZE_MAX / 2, ALNICO_INT8, comm), "overflows");
}

static void bad_buffers(alnico_comm_t comm, int32_t *a, int32_t *b)
{
    int me = alnico_comm_rank(comm);
    const size_t ones[RANKS] = {1, 1, 1}, apart[RANKS] = {8, 4, 0};
    REFUSED(alnico_broadcast(NULL, 1, ALNICO_INT32, 0, comm), "buffer is NULL with count 1");
    REFUSED(alnico_allgather(NULL, b, 1, ALNICO_INT32, comm), "send is NULL");
    REFUSED(alnico_allgather(a, NULL, 1, ALNICO_INT32, comm), "recv is NULL with count 3");
    REFUSED(alnico_reduce(a, NULL, 1, ALNICO_INT32, ALNICO_SUM, me, comm), "recv is NULL");
    REFUSED(alnico_allgather((char *)a + 1, b, 1, ALNICO_INT32, comm), "is not aligned");
    REFUSED(alnico_broadcast(a, 1, (alnico_datatype_t)99, 0, comm), "unknown type 99");
    REFUSED(alnico_reduce(a, b, 1, ALNICO_FLOAT32, ALNICO_BITWISE_OR, 0, comm), "does not have");
    REFUSED(alnico_reduce_scatter(a, b, 1, ALNICO_INT32, (alnico_op_t)99, comm),
            "unknown operation 99");
    REFUSED(alnico_broadcast_to(a, NULL, 1, ALNICO_INT32, 0, comm), "recv is NULL with count 1");
    REFUSED(alnico_broadcast_to(NULL, a, 1, ALNICO_INT32, me, comm),
            "alnico_broadcast_to: send is NULL with count 1");
    REFUSED(alnico_broadcast_to(a, a + 1, 2, ALNICO_INT32, me, comm),
            "overlap; they must be equal or apart");
    REFUSED(alnico_broadcast(ALNICO_IN_PLACE, 1, ALNICO_INT8, 0, comm),
            "cannot be ALNICO_IN_PLACE");
    /* overlap, but for what is in place */
    REFUSED(alnico_allgather(a + (me + 1) % RANKS, a, 1, ALNICO_INT32, comm), "overlap");
    REFUSED(alnico_alltoall(a, a + 1, 1, ALNICO_INT32, comm), "overlap");
    REFUSED(alnico_reduce(a, a + 1, 2, ALNICO_INT32, ALNICO_SUM, me, comm), "overlap");
    REFUSED(alnico_reduce_scatter(a, a + (me + 1) % RANKS, 1, ALNICO_INT32, ALNICO_SUM, comm),
            "overlap");
    REFUSED(alnico_allgatherv(a + 8, 1, a, ones, apart, ALNICO_INT32, me == 0 ? NULL : comm),
            me == 0 ? "is NULL" : "overlap");
    /* the own blocks meet, but that is not in place */
    size_t from[RANKS] = {8, 8, 8}, to[RANKS] = {9, 9, 9};
    from[me] = 4;
    to[me] = 5;
    REFUSED(alnico_alltoallv(a + 1, ones, from, a, ones, to, ALNICO_INT32, comm), "overlap");
    REFUSED(alnico_ibarrier(comm, NULL), "request is NULL");
}

static void bad_arguments(struct rank *rank)
{
    int32_t a[ROOM] = {0}, b[ROOM] = {0};
    alnico_comm_t comm = ranks_comm(rank, NULL);
    bad_roots(comm, a, b);
    bad_counts(comm, a, b);
    bad_buffers(comm, a, b);
    REQUIRE_STATUS(alnico_barrier(comm), ALNICO_SUCCESS); /* nothing was done */
    alnico_comm_destroy(comm);
}

static void test_every_bad_argument(void **state)
{
    (void)state;
    ranks_run(RANKS, bad_arguments, NULL);
}

/* In the gaps between the blocks of the other buffer, and out of order: that is allowed. */
static void interleaved(struct rank *rank)
{
    const size_t counts[RANKS] = {2, 2, 2}, at[RANKS] = {8, 0, 4};
    int32_t a[12];
    alnico_comm_t comm = ranks_comm(rank, NULL);
    a[2] = a[3] = 100 + rank->rank;
    REQUIRE_STATUS(alnico_allgatherv(a + 2, 2, a, counts, at, ALNICO_INT32, comm), ALNICO_SUCCESS);
    for (int b = 0; b < RANKS; b++)
        REQUIRE(a[at[b]] == 100 + b && a[at[b] + 1] == 100 + b);
    REQUIRE(a[2] == 100 + rank->rank);
    alnico_comm_destroy(comm);
}

static void test_buffers_may_interleave(void **state)
{
    (void)state;
    ranks_run(RANKS, interleaved, NULL);
}

/* ---- What ranks call differently, under ALNICO_CHECK ---- */

#define DIFFERS(expr, text)                                                                        \
    do {                                                                                           \
        REQUIRE_STATUS((expr), ALNICO_ERROR_MISMATCH);                                             \
        ranks_require_detail(text);                                                                \
    } while (0)

static void compare_calls(alnico_comm_t comm, int odd, int32_t *a, int32_t *b)
{
    DIFFERS(odd ? alnico_barrier(comm) : alnico_broadcast(a, 1, ALNICO_INT32, 0, comm),
            "rank 0 calls alnico_broadcast, and rank 1 alnico_barrier");
    DIFFERS(alnico_broadcast(a, 1, ALNICO_INT32, odd, comm), "root is 0 on rank 0 and 1 on rank 1");
    DIFFERS(alnico_allgather(a, b, odd ? 2 : 1, ALNICO_INT32, comm),
            "count is 1 on rank 0 and 2 on rank 1");
    DIFFERS(alnico_alltoall(a, b, 1, odd ? ALNICO_INT8 : ALNICO_INT32, comm), "type is");
    DIFFERS(alnico_reduce(a, b, 1, ALNICO_INT32, odd ? ALNICO_SUM : ALNICO_MAXIMUM, 0, comm),
            "op is");
}

static void compare_vectors(alnico_comm_t comm, int odd, int32_t *a, int32_t *b)
{
    size_t counts[RANKS] = {1, 2, 3}, at[RANKS] = {0, 10, 20};
    size_t me = (size_t)alnico_comm_rank(comm);
    counts[2] += (size_t)odd;
    DIFFERS(alnico_allgatherv(a, counts[me], b, counts, NULL, ALNICO_INT32, comm),
            "block 2 has 3 elements on rank 0, and 4 on rank 1");
    DIFFERS(alnico_reduce_scatterv(a, b, counts, ALNICO_INT32, ALNICO_SUM, comm),
            "block 2 has 3 elements on rank 0, and 4 on rank 1");
    counts[2] = 3;
    DIFFERS(alnico_gatherv(a, odd ? 5 : counts[me], b, counts, NULL, ALNICO_INT32, 0, comm),
            "rank 1 has 5 elements for rank 0, which expects 2");
    DIFFERS(alnico_scatterv(a, counts, NULL, b, odd ? 5 : counts[me], ALNICO_INT32, 0, comm),
            "rank 0 has 2 elements for rank 1, which expects 5");
    size_t sent[RANKS] = {1, 1, 1}, got[RANKS] = {1, 1, 1};
    got[2] += (size_t)odd;
    DIFFERS(alnico_alltoallv(a, sent, NULL, b, got, at, ALNICO_INT32, comm),
            "rank 2 has 1 elements for rank 1, which expects 2");
    at[2] = odd ? 11 : 20;
    got[2] = sent[2] = 3;
    got[1] = sent[1] = 3;
    REFUSED(alnico_alltoallv(a, sent, NULL, b, got, at, ALNICO_INT32, comm),
            odd ? "blocks 1 and 2 overlap where they are received"
                : "rank 1 refuses its own arguments");
}

static void compared(struct rank *rank)
{
    int32_t a[ROOM] = {0}, b[ROOM] = {0};
    alnico_comm_t comm = ranks_comm(rank, NULL);
    comm->family->settings.check = true;
    compare_calls(comm, rank->rank == 1, a, b);
    compare_vectors(comm, rank->rank == 1, a, b);
    REQUIRE_STATUS(alnico_barrier(comm), ALNICO_SUCCESS);
    a[0] = rank->rank;
    REQUIRE_STATUS(alnico_allgather(a, b, 1, ALNICO_INT32, comm), ALNICO_SUCCESS);
    REQUIRE(b[0] == 0 && b[1] == 1 && b[2] == 2);
    alnico_comm_destroy(comm);
}

static void test_what_ranks_call_differently(void **state)
{
    (void)state;
    ranks_run(RANKS, compared, NULL);
}

/* ---- What only one rank can refuse: the others hear of it ---- */

#define TOLD(expr, text)                                                                           \
    do {                                                                                           \
        REFUSED(expr, text);                                                                       \
        if (!odd)                                                                                  \
            ranks_require_detail("rank 1 refuses its own arguments: ");                            \
        REQUIRE_STATUS(alnico_barrier(comm), ALNICO_SUCCESS);                                      \
    } while (0)

static void tell_rooted(alnico_comm_t comm, bool odd, int32_t *a, int32_t *b)
{
    const size_t ones[RANKS] = {1, 1, 1};
    TOLD(alnico_broadcast(a, 1, ALNICO_INT32, odd ? 9 : 0, comm), "root 9 is not one of");
    TOLD(alnico_reduce(odd ? ALNICO_IN_PLACE : a, b, 1, ALNICO_INT32, ALNICO_SUM, 0, comm),
         "send is ALNICO_IN_PLACE on rank 1");
    TOLD(alnico_gather(odd ? ALNICO_IN_PLACE : a, b, 1, ALNICO_INT32, 0, comm),
         "send is ALNICO_IN_PLACE on rank 1");
    TOLD(alnico_scatter(a, odd ? ALNICO_IN_PLACE : b, 1, ALNICO_INT32, 0, comm),
         "recv is ALNICO_IN_PLACE on rank 1");
    TOLD(alnico_gatherv(a, 1, b, odd ? NULL : ones, NULL, ALNICO_INT32, 1, comm), "counts is NULL");
    TOLD(alnico_scatterv(a, ones, NULL, b, odd ? 2 : 1, ALNICO_INT32, 1, comm),
         "recv_count is 2 and counts[1] 1");
}

static void tell_blocks(alnico_comm_t comm, bool odd, int32_t *a, int32_t *b)
{
    const size_t ones[RANKS] = {1, 1, 1}, twos[RANKS] = {2, 2, 2}, at[RANKS] = {0, 5, 5};
    TOLD(alnico_allgatherv(a, 1, b, odd ? NULL : ones, NULL, ALNICO_INT32, comm), "counts is NULL");
    TOLD(alnico_allgatherv(a, odd ? 3 : 1, b, ones, NULL, ALNICO_INT32, comm), "send_count is 3");
    TOLD(alnico_allgatherv(a, 1, b, ones, odd ? at : NULL, ALNICO_INT32, comm),
         "blocks 1 and 2 overlap where they are received");
    TOLD(alnico_reduce_scatterv(a, b, odd ? NULL : ones, ALNICO_INT32, ALNICO_SUM, comm),
         "counts is NULL");
    TOLD(alnico_alltoallv(a, ones, NULL, b, odd ? twos : ones, NULL, ALNICO_INT32, comm),
         "the rank's own must be equal");
    TOLD(alnico_alltoall(odd ? b : a, odd ? b + 1 : b, 1, ALNICO_INT32, comm), "overlap");
    TOLD(alnico_allgather(ALNICO_IN_PLACE, b, 1, odd ? (alnico_datatype_t)99 : ALNICO_INT32, comm),
         "unknown type 99");
}

static void tell_others(alnico_comm_t comm, bool odd, int32_t *a, int32_t *b)
{
    alnico_request_t request = NULL;
    TOLD(alnico_iallreduce(a, b, 1, ALNICO_INT32, ALNICO_SUM, comm, odd ? NULL : &request),
         "request is NULL");
    TOLD(alnico_ibarrier(comm, odd ? NULL : &request), "request is NULL");
    if (odd)
        REQUIRE_STATUS(alnico_group_begin(comm), ALNICO_SUCCESS);
    REFUSED(alnico_allreduce(a, b, 1, ALNICO_INT32, ALNICO_SUM, comm), "a group is open");
    if (odd)
        REQUIRE_STATUS(alnico_group_end(comm, NULL), ALNICO_SUCCESS);
    REQUIRE_STATUS(alnico_barrier(comm), ALNICO_SUCCESS);
}

static void told(struct rank *rank)
{
    int32_t a[ROOM] = {0}, b[ROOM] = {0};
    alnico_comm_t comm = ranks_comm(rank, NULL);
    bool odd = rank->rank == 1;
    comm->family->settings.check = true;
    comm->family->settings.timeout = 5;
    tell_rooted(comm, odd, a, b);
    tell_blocks(comm, odd, a, b);
    tell_others(comm, odd, a, b);
    alnico_comm_destroy(comm);
}

static void test_the_others_hear_what_one_refuses(void **state)
{
    (void)state;
    ranks_run(RANKS, told, NULL);
}

/* ---- Without it: at the deadline ---- */

static void different_roots(struct rank *rank)
{
    int32_t value = 0;
    alnico_comm_t comm = ranks_comm(rank, NULL);
    comm->family->settings.timeout = 2; /* then both have time to hear what the other calls */
    REQUIRE_STATUS(alnico_broadcast(&value, 1, ALNICO_INT32, (rank->rank + 1) % 2, comm),
                   ALNICO_ERROR_MISMATCH);
    ranks_require_detail("calls broadcast of 1 elements of int32, root");
    alnico_comm_destroy(comm);
}

static void test_different_roots_are_named_at_the_deadline(void **state)
{
    (void)state;
    ranks_run(2, different_roots, NULL);
}

/* ---- Averages ---- */

static void average_floats(alnico_comm_t comm, int me)
{
    float a[2 * RANKS], b[2 * RANKS], all[2 * RANKS];
    for (int i = 0; i < 2 * RANKS; i++)
        a[i] = (float)(3 * (me + 1) + 6 * i);
    memcpy(all, a, sizeof all);
    REQUIRE_STATUS(alnico_reduce(a, b, 2 * RANKS, ALNICO_FLOAT32, ALNICO_AVERAGE, 1, comm),
                   ALNICO_SUCCESS);
    for (int i = 0; i < 2 * RANKS && me == 1; i++)
        REQUIRE(b[i] > (float)(6 + 6 * i) - 0.01f && b[i] < (float)(6 + 6 * i) + 0.01f);
    REQUIRE_STATUS(alnico_reduce_scatter(a, b, 2, ALNICO_FLOAT32, ALNICO_AVERAGE, comm),
                   ALNICO_SUCCESS);
    for (int i = 0; i < 2; i++) {
        float right = (float)(6 + 6 * (2 * me + i));
        REQUIRE(b[i] > right - 0.01f && b[i] < right + 0.01f);
    }
    REQUIRE(memcmp(a, all, sizeof a) == 0);
}

static void average_integers(alnico_comm_t comm, int me)
{
    const size_t counts[RANKS] = {0, 3, 1};
    int64_t a[4] = {-7 - me, me, 100 * me, 4}, b[4];
    const int64_t right[4] = {-8, 1, 100, 4}; /* truncated towards zero */
    REQUIRE_STATUS(alnico_reduce_scatterv(a, b, counts, ALNICO_INT64, ALNICO_AVERAGE, comm),
                   ALNICO_SUCCESS);
    for (size_t i = 0, at = me == 2 ? 3 : 0; i < counts[me]; i++)
        REQUIRE(b[i] == right[at + i]);
    REQUIRE_STATUS(
        alnico_reduce(me == 2 ? ALNICO_IN_PLACE : a, a, 4, ALNICO_INT64, ALNICO_AVERAGE, 2, comm),
        ALNICO_SUCCESS);
    for (int i = 0; i < 4 && me == 2; i++)
        REQUIRE(a[i] == right[i]);
}

static void averages(struct rank *rank)
{
    alnico_comm_t comm = ranks_comm(rank, NULL);
    average_floats(comm, rank->rank);
    average_integers(comm, rank->rank);
    alnico_comm_destroy(comm);
}

static void test_averages(void **state)
{
    (void)state;
    ranks_run(RANKS, averages, NULL);
}

/* libalnico-mpi beside a libalnico that was replaced. */
static void test_a_part_of_another_version(void **state)
{
    const struct library *library = NULL;
    (void)state;
    assert_int_equal(alnico_library_attach(LIBRARY_VERSION + 1, NULL, &library),
                     ALNICO_ERROR_UNSUPPORTED);
    assert_null(library);
    assert_non_null(strstr(alnico_error_detail(), "libalnico-mpi is of version "));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_bad_argument),
        cmocka_unit_test(test_buffers_may_interleave),
        cmocka_unit_test(test_what_ranks_call_differently),
        cmocka_unit_test(test_the_others_hear_what_one_refuses),
        cmocka_unit_test(test_different_roots_are_named_at_the_deadline),
        cmocka_unit_test(test_averages),
        cmocka_unit_test(test_a_part_of_another_version),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
