/* Status strings, the version, and the error detail of each thread. */
#include "base/status.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

static void every_status_has_a_text_of_its_own(void **state)
{
    (void)state;
    static const char unknown[] = "unknown status";
    for (int a = ALNICO_ERROR_SYSTEM; a <= ALNICO_PENDING; a++) {
        assert_string_not_equal(alnico_status_string((alnico_status_t)a), "");
        assert_string_not_equal(alnico_status_string((alnico_status_t)a), unknown);
        for (int b = ALNICO_ERROR_SYSTEM; b < a; b++)
            assert_string_not_equal(alnico_status_string((alnico_status_t)a),
                                    alnico_status_string((alnico_status_t)b));
    }
    static const int foreign[] = {2, 1000, ALNICO_ERROR_SYSTEM - 1, INT32_MIN, INT32_MAX};
    for (size_t i = 0; i < sizeof foreign / sizeof *foreign; i++)
        assert_string_equal(alnico_status_string((alnico_status_t)foreign[i]), unknown);
}

static void the_version_is_the_headers(void **state)
{
    (void)state;
    char expected[64];
    snprintf(expected, sizeof expected, "%d.%d.%d", ALNICO_VERSION_MAJOR, ALNICO_VERSION_MINOR,
             ALNICO_VERSION_PATCH);
    assert_string_equal(alnico_version(), expected);
}

static void the_detail_is_the_last_errors(void **state)
{
    (void)state;
    assert_string_equal(alnico_error_detail(), "");
    assert_int_equal(error_set(ALNICO_ERROR_TIMEOUT, "rank %d of %s", 3, "four"),
                     ALNICO_ERROR_TIMEOUT);
    assert_string_equal(alnico_error_detail(), "rank 3 of four");
    assert_int_equal(error_set(ALNICO_ERROR_MEMORY, "%%"), ALNICO_ERROR_MEMORY);
    assert_string_equal(alnico_error_detail(), "%");
}

static void a_detail_may_be_built_from_the_last(void **state)
{
    (void)state;
    error_set(ALNICO_ERROR_MPI, "inner");
    error_set(ALNICO_ERROR_MPI, "outer: %s", alnico_error_detail());
    assert_string_equal(alnico_error_detail(), "outer: inner");
}

/* A function's name comes first in a detail, and once. */
static void a_detail_names_one_function(void **state)
{
    (void)state;
    error_set(ALNICO_ERROR_MPI, "inner");
    assert_int_equal(error_of("alnico_outer", ALNICO_SUCCESS), ALNICO_SUCCESS);
    assert_string_equal(alnico_error_detail(), "inner");
    for (int i = 0; i < 2; i++) {
        assert_int_equal(error_of("alnico_outer", ALNICO_ERROR_MPI), ALNICO_ERROR_MPI);
        assert_string_equal(alnico_error_detail(), "alnico_outer: inner");
    }
}

static void a_long_detail_is_cut(void **state)
{
    (void)state;
    char text[5000];
    memset(text, 'y', sizeof text);
    text[sizeof text - 1] = '\0';
    error_set(ALNICO_ERROR_SYSTEM, "%s", text);
    size_t length = strlen(alnico_error_detail());
    assert_in_range(length, 200, sizeof text - 2);
    assert_memory_equal(alnico_error_detail(), text, length);
}

static void *fail_elsewhere(void *argument)
{
    if (strcmp(alnico_error_detail(), "") != 0)
        return NULL;
    error_set(ALNICO_ERROR_ABORTED, "elsewhere");
    return strcmp(alnico_error_detail(), "elsewhere") == 0 ? argument : NULL;
}

static void each_thread_has_its_own_detail(void **state)
{
    (void)state;
    pthread_t thread;
    int right = 1;
    void *result = NULL;
    error_set(ALNICO_ERROR_ARGUMENT, "here");
    assert_int_equal(pthread_create(&thread, NULL, fail_elsewhere, &right), 0);
    assert_int_equal(pthread_join(thread, &result), 0);
    assert_ptr_equal(result, &right);
    assert_string_equal(alnico_error_detail(), "here");
}

static alnico_status_t count_and_return(int *calls, alnico_status_t status)
{
    ++*calls;
    return status;
}

static alnico_status_t try_three(int *calls, alnico_status_t second)
{
    TRY(count_and_return(calls, ALNICO_SUCCESS));
    TRY(count_and_return(calls, second));
    return count_and_return(calls, ALNICO_SUCCESS);
}

static void try_returns_at_the_first_error(void **state)
{
    (void)state;
    int calls = 0;
    assert_int_equal(try_three(&calls, ALNICO_SUCCESS), ALNICO_SUCCESS);
    assert_int_equal(calls, 3);
    calls = 0;
    assert_int_equal(try_three(&calls, ALNICO_ERROR_MISMATCH), ALNICO_ERROR_MISMATCH);
    assert_int_equal(calls, 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_status_has_a_text_of_its_own),
        cmocka_unit_test(the_version_is_the_headers),
        cmocka_unit_test(the_detail_is_the_last_errors),
        cmocka_unit_test(a_detail_may_be_built_from_the_last),
        cmocka_unit_test(a_detail_names_one_function),
        cmocka_unit_test(a_long_detail_is_cut),
        cmocka_unit_test(each_thread_has_its_own_detail),
        cmocka_unit_test(try_returns_at_the_first_error),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
