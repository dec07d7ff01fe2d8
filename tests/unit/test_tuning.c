/* The built-in table covers everything, and the settings refuse what they cannot use, naming it. The
 * environment is read once in a process: each case has its own. */
#include "comm/tuning.h"

#include <limits.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

static void test_every_call_has_a_row(void **state)
{
    (void)state;
    static const int ranks[] = {1, 2, 3, 64, 100000, INT_MAX};
    for (size_t i = 0; i < sizeof ranks / sizeof *ranks; i++)
        for (size_t bytes = 0; bytes < SIZE_MAX / 2; bytes = 2 * bytes + 1) {
            const struct tuning_row *row = tuning_choose(ranks[i], bytes);
            assert_true(row->ranks >= ranks[i] && row->bytes >= bytes);
            assert_non_null(row->algorithm);
            assert_in_range(row->chunk_bytes, 1024,
                            INT_MAX);               /* a message's bytes are an int in MPI */
            assert_true(row->chunk_bytes % 8 == 0); /* whole elements of every type */
        }
}

static void test_the_first_row_that_fits_counts(void **state)
{
    (void)state;
    for (const struct tuning_row *row = tuning_allreduce;; row++) {
        bool last = row->ranks == INT_MAX && row->bytes == SIZE_MAX;
        const struct tuning_row *chosen = tuning_choose(row->ranks, row->bytes);
        assert_true(chosen <= row);
        if (last)
            break;
    }
    assert_ptr_equal(tuning_choose(2, 8), &tuning_allreduce[0]);
}

struct setting {
    const char *variable, *value;
    alnico_status_t status;
    const char *detail; /* NULL: none */
};

static const struct setting settings_cases[] = {
    {"ALNICO_TIMEOUT", "2.5", ALNICO_SUCCESS, NULL},
    {"ALNICO_TIMEOUT", "0", ALNICO_ERROR_ARGUMENT, "ALNICO_TIMEOUT is '0' on rank 0, expected"},
    {"ALNICO_TIMEOUT", "-1", ALNICO_ERROR_ARGUMENT, "'-1'"},
    {"ALNICO_TIMEOUT", "soon", ALNICO_ERROR_ARGUMENT, "'soon'"},
    {"ALNICO_TIMEOUT", "5s", ALNICO_ERROR_ARGUMENT, "a positive number of seconds"},
    {"ALNICO_TIMEOUT", "inf", ALNICO_ERROR_ARGUMENT, "'inf'"},
    {"ALNICO_TIMEOUT", "nan", ALNICO_ERROR_ARGUMENT, "'nan'"},
    {"ALNICO_TIMEOUT", "", ALNICO_ERROR_ARGUMENT, "''"},
    {"ALNICO_CHUNK", "65536", ALNICO_SUCCESS, NULL},
    {"ALNICO_CHUNK", "1023", ALNICO_ERROR_ARGUMENT, "ALNICO_CHUNK is '1023' on rank 0"},
    {"ALNICO_CHUNK", "-65536", ALNICO_ERROR_ARGUMENT, "'-65536'"},
    {"ALNICO_CHUNK", "64K", ALNICO_ERROR_ARGUMENT, "'64K'"},
    {"ALNICO_CHUNK", "99999999999999999999", ALNICO_ERROR_ARGUMENT, "bytes from 1024"},
    {"ALNICO_ALLREDUCE", "ring", ALNICO_SUCCESS, NULL},
    {"ALNICO_ALLREDUCE", "", ALNICO_SUCCESS, NULL},
    {"ALNICO_ALLREDUCE", "bogus", ALNICO_ERROR_ARGUMENT, "ALNICO_ALLREDUCE is 'bogus' on rank 0"},
};

/* In a process of its own; exits with 0 if all is as expected. */
static void check_setting(const struct setting *c)
{
    struct settings s;
    setenv(c->variable, c->value, 1);
    settings_read(&s);
    bool right = s.status == c->status && (!c->detail || strstr(s.detail, c->detail));
    if (right && !c->detail)
        right = s.timeout == (strstr(c->variable, "TIMEOUT") ? 2.5 : 600) &&
                s.chunk_bytes == (strstr(c->variable, "CHUNK") ? 65536 : 0) &&
                strcmp(s.algorithm, strstr(c->variable, "ALLREDUCE") ? c->value : "") == 0;
    _Exit(!right);
}

static void test_settings(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof settings_cases / sizeof *settings_cases; i++) {
        pid_t child = fork();
        assert_true(child >= 0);
        if (child == 0)
            check_setting(&settings_cases[i]);
        int status = -1;
        assert_int_equal(waitpid(child, &status, 0), child);
        if (status)
            fail_msg("%s=%s", settings_cases[i].variable, settings_cases[i].value);
    }
}

int main(void)
{
    unsetenv("ALNICO_TIMEOUT");
    unsetenv("ALNICO_CHUNK");
    unsetenv("ALNICO_ALLREDUCE");
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_call_has_a_row),
        cmocka_unit_test(test_the_first_row_that_fits_counts),
        cmocka_unit_test(test_settings),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
