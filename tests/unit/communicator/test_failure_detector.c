/* What ranks conclude from each other's reports: who is late, who calls something else, and that a
 * rank held up in the middle of an operation, without which some went on, is no mismatch. */
#include "comm/communicator/failure_detector.h"

#include "tests/support/ranks.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>

#include <cmocka.h>

enum { SIZE = 3 };

/* All ranks give up with these reports, or none, and rank `me`, to whom only `awaited` was to come or with -1
 * all, must conclude `status` with `detail`. */
static void conclude_on(const struct report *reports, int me, int awaited, alnico_status_t status,
                        const char *detail)
{
    struct local_hub *hub = local_hub_create(SIZE);
    struct transport *transports[SIZE];
    struct failure_detector watches[SIZE];
    assert_non_null(hub);
    for (int r = 0; r < SIZE; r++) {
        assert_int_equal(transport_local_create(hub, r, &transports[r]), ALNICO_SUCCESS);
        detector_init(&watches[r]);
        struct report report = reports[r];
        report.rank = r;
        if (report.status)
            detector_report_failure(&watches[r], transports[r], &report);
    }
    alnico_status_t verdict;
    do
        verdict = detector_decide(&watches[me], transports[me], 8, "this call", awaited);
    while (verdict == ALNICO_PENDING);
    assert_int_equal(verdict, status);
    ranks_require_detail(detail);
    for (int r = 0; r < SIZE; r++) {
        detector_finish(&watches[r], transports[r]);
        transports[r]->ops->destroy(transports[r]);
    }
}

static void conclude(const struct report *reports, int me, alnico_status_t status,
                     const char *detail)
{
    conclude_on(reports, me, -1, status, detail);
}

static void all_conclude(const struct report *reports, alnico_status_t status, const char *detail)
{
    for (int me = 0; me < SIZE; me++)
        conclude(reports, me, status, detail);
}

#define GIVES_UP(n, elements)                                                                      \
    {                                                                                              \
        .status = ALNICO_ERROR_TIMEOUT, .sequence = (n), .count = (elements)                       \
    }

static void test_other_arguments_are_a_mismatch(void **state)
{
    (void)state;
    const struct report reports[] = {GIVES_UP(3, 10), GIVES_UP(3, 11), GIVES_UP(3, 10)};
    all_conclude(reports, ALNICO_ERROR_MISMATCH, "allreduce of 11 elements");
}

/* Whether rank 0 takes this report of rank 1's. */
static bool is_taken(struct report report)
{
    struct local_hub *hub = local_hub_create(2);
    struct transport *transports[2];
    struct failure_detector watches[2];
    assert_non_null(hub);
    for (int r = 0; r < 2; r++) {
        assert_int_equal(transport_local_create(hub, r, &transports[r]), ALNICO_SUCCESS);
        detector_init(&watches[r]);
    }
    report.rank = 1;
    detector_report_failure(&watches[1], transports[1], &report);
    const bool taken = detector_reported(&watches[0], transports[0]);
    for (int r = 0; r < 2; r++) {
        detector_finish(&watches[r], transports[r]);
        transports[r]->ops->destroy(transports[r]);
    }
    return taken;
}

static void test_reports_that_make_no_sense_are_ignored(void **state)
{
    (void)state;
    struct report good = GIVES_UP(3, 10), rows[] = {good, good, good, good, good, good, good, good};
    rows[0].type = -1;
    rows[1].type = ALNICO_FLOAT8_E5M2 + 1;
    rows[2].op = 1000;
    rows[3].collective = -1;
    rows[4].collective = ALNICO_SENDRECV + 1;
    rows[5].status = ALNICO_PENDING;
    rows[6].late = -1;
    rows[7].late = 3;
    assert_true(is_taken(good));
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        assert_false(is_taken(rows[i]));
}

static void test_other_operations_are_not(void **state)
{
    (void)state;
    const struct report reports[] = {GIVES_UP(4, 5), GIVES_UP(3, 10), GIVES_UP(3, 10)};
    conclude(reports, 0, ALNICO_ERROR_TIMEOUT, "rank 1 gave up in operation 3");
    conclude(reports, 1, ALNICO_ERROR_TIMEOUT, "rank 0 gave up in operation 4");
    conclude(reports, 2, ALNICO_ERROR_TIMEOUT, "rank 0 gave up in operation 4");
}

/* Each rank has a block of its own length. */
static void test_other_counts_of_vector_forms_are_not(void **state)
{
    (void)state;
    struct report reports[] = {GIVES_UP(3, 10), GIVES_UP(3, 11), GIVES_UP(3, 12)};
    const alnico_collective_t vectors[] = {ALNICO_ALLGATHERV, ALNICO_GATHERV, ALNICO_SCATTERV};
    for (int i = 0; i < 3; i++) {
        for (int r = 0; r < SIZE; r++)
            reports[r].collective = vectors[i];
        all_conclude(reports, ALNICO_ERROR_TIMEOUT, "came too late");
    }
    reports[1].collective = ALNICO_GATHER;
    all_conclude(reports, ALNICO_ERROR_MISMATCH, "gather of 11 elements");
}

/* Rank 1 is done with its part of operation 3, and went on to messages. */
static void test_messages_after_an_operation_are_not(void **state)
{
    (void)state;
    struct report reports[] = {GIVES_UP(3, 10), GIVES_UP(3, 0), GIVES_UP(3, 10)};
    reports[1].collective = ALNICO_SENDRECV;
    conclude(reports, 0, ALNICO_ERROR_TIMEOUT, "rank 1 gave up after operation 3");
    conclude(reports, 1, ALNICO_ERROR_TIMEOUT, "rank 0 gave up in operation 3");
    conclude(reports, 2, ALNICO_ERROR_TIMEOUT, "rank 1 gave up after operation 3");
}

/* Synchronizing, after operation 3 or before. */
static void test_being_in_none_is_not(void **state)
{
    (void)state;
    const struct report reports[] = {GIVES_UP(0, 0), GIVES_UP(3, 10), GIVES_UP(3, 10)};
    conclude(reports, 0, ALNICO_ERROR_TIMEOUT, "rank 1 gave up in operation 3");
    conclude(reports, 1, ALNICO_ERROR_TIMEOUT, "came too late");
}

static void test_the_one_that_waited_least_is_late(void **state)
{
    (void)state;
    struct report reports[] = {GIVES_UP(3, 10), GIVES_UP(3, 10), GIVES_UP(3, 10)};
    reports[0].waited = 8;
    reports[1].waited = 1;
    reports[2].waited = 7;
    all_conclude(reports, ALNICO_ERROR_TIMEOUT, "rank 1 came too late, after 8 s");
}

/* Its own giving up is not why a message to itself met none. */
static void test_who_waits_for_itself_did_not_come(void **state)
{
    (void)state;
    const struct report reports[] = {GIVES_UP(3, 0), GIVES_UP(3, 0), GIVES_UP(3, 0)};
    conclude_on(reports, 0, 0, ALNICO_ERROR_TIMEOUT, "rank 0 did not come within 8 s");
    conclude_on(reports, 0, 1, ALNICO_ERROR_TIMEOUT, "rank 1 gave up before");
}

/* Rank 0 waits for rank 1, which waited for rank 2, which waited for nobody in particular, or for rank 0. */
static void test_whom_the_last_one_missed_is_named(void **state)
{
    (void)state;
    struct report reports[] = {GIVES_UP(3, 0), GIVES_UP(3, 0), {0}};
    reports[1].late = 1 + 2;
    conclude_on(reports, 0, 1, ALNICO_ERROR_TIMEOUT, "rank 2 did not come within 8 s");
    const struct report others[] = {{0}, reports[1], {0}};
    conclude_on(others, 0, 1, ALNICO_ERROR_TIMEOUT, "this call: rank 2 did not come within 8 s");
    reports[1].late = 0;
    conclude_on(reports, 0, 1, ALNICO_ERROR_TIMEOUT, "rank 2 did not come within 8 s");
    reports[1].late = 1 + 0;
    reports[0].late = 1 + 1;
    conclude_on(reports, 0, 1, ALNICO_ERROR_TIMEOUT, "rank 1 gave up before");
}

static void test_other_errors_come_first(void **state)
{
    (void)state;
    struct report reports[] = {GIVES_UP(3, 10), GIVES_UP(3, 11), GIVES_UP(4, 10)};
    reports[2].status = ALNICO_ERROR_ABORTED;
    all_conclude(reports, ALNICO_ERROR_ABORTED, "rank 2 gave up: ");
}

/* Of a rank whose process ends. */
static struct {
    struct failure_detector detector;
    struct transport *transport;
} ending;

/* It tells and ends after this rank has listened, and before this rank asks whether it lives. */
static bool gone_by_now(struct transport *transport, int rank)
{
    (void)transport;
    struct report report = {.rank = 1, .status = ALNICO_ERROR_ABORTED};
    if (rank == 1)
        detector_report_failure(&ending.detector, ending.transport, &report);
    return rank == 1;
}

/* What a rank told before its process ended is heard, and not taken for silence. */
static void test_last_words_are_heard(void **state)
{
    (void)state;
    struct local_hub *hub = local_hub_create(2);
    struct transport *mine;
    struct failure_detector detector;
    assert_non_null(hub);
    assert_int_equal(transport_local_create(hub, 0, &mine), ALNICO_SUCCESS);
    assert_int_equal(transport_local_create(hub, 1, &ending.transport), ALNICO_SUCCESS);
    struct transport_ops ops = *mine->ops;
    ops.gone = gone_by_now;
    mine->ops = &ops;
    detector_init(&detector);
    detector_init(&ending.detector);
    struct report report = {.rank = 0, .status = ALNICO_ERROR_TIMEOUT, .sequence = 1};
    detector_report_failure(&detector, mine, &report);
    assert_int_equal(detector_decide(&detector, mine, 8, "this call", -1), ALNICO_ERROR_ABORTED);
    ranks_require_detail("rank 1 gave up");
    detector_finish(&detector, mine);
    detector_finish(&ending.detector, ending.transport);
    mine->ops->destroy(mine);
    ending.transport->ops->destroy(ending.transport);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_other_arguments_are_a_mismatch),
        cmocka_unit_test(test_reports_that_make_no_sense_are_ignored),
        cmocka_unit_test(test_other_operations_are_not),
        cmocka_unit_test(test_other_counts_of_vector_forms_are_not),
        cmocka_unit_test(test_messages_after_an_operation_are_not),
        cmocka_unit_test(test_being_in_none_is_not),
        cmocka_unit_test(test_the_one_that_waited_least_is_late),
        cmocka_unit_test(test_who_waits_for_itself_did_not_come),
        cmocka_unit_test(test_whom_the_last_one_missed_is_named),
        cmocka_unit_test(test_other_errors_come_first),
        cmocka_unit_test(test_last_words_are_heard),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
