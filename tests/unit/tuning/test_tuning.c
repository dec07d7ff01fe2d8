/* Steps follow from rows as the table says, the built-in table covers everything, and the settings
 * refuse what they cannot use, naming it. The environment is read once in a process: each case has
 * its own. */
#include "comm/tuning/settings.h"

#include <limits.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

/* Whether the row's backend can work there: shared memory needs company, and one host. */
static bool can_work(const struct tuning_row *row, int ranks, int hosts)
{
    return strcmp(row->backend, "peer") != 0 || (ranks >= 2 && ranks <= 64 && hosts == 1);
}

/* The first of some rows for a collective that fits, by the definition. */
static const struct tuning_row *fit_for(int collective, const struct tuning_row *rows, int count,
                                        int ranks, int hosts, size_t bytes)
{
    for (int i = 0; i < count; i++)
        if (rows[i].collective == collective && rows[i].device == ALNICO_DEVICE_CPU &&
            rows[i].ranks >= ranks && rows[i].hosts >= hosts && rows[i].bytes >= bytes &&
            can_work(&rows[i], ranks, hosts))
            return &rows[i];
    return NULL;
}

static const struct tuning_row *first_fit(const struct tuning_row *rows, int count, int ranks,
                                          int hosts, size_t bytes)
{
    return fit_for(ALNICO_ALLREDUCE, rows, count, ranks, hosts, bytes);
}

static void require_step(const struct tuning_step *step, const struct tuning_row *row)
{
    assert_string_equal(step->choice.backend->name, row->backend);
    assert_string_equal(step->choice.algorithm->name, row->algorithm);
    assert_int_equal(step->choice.chunk_bytes, row->chunk_bytes);
}

static void test_every_call_has_a_built_in_row(void **state)
{
    (void)state;
    static const int ranks[] = {1, 2, 3, 64, 100000, INT_MAX};
    for (size_t i = 0; i < sizeof ranks / sizeof *ranks; i++) {
        struct tuning_steps steps;
        assert_int_equal(tuning_steps_init(&steps, NULL, ALNICO_DEVICE_CPU, ranks[i], ranks[i]),
                         ALNICO_SUCCESS);
        for (int c = 0; c < COLLECTIVES; c++)
            for (size_t bytes = 0; bytes < SIZE_MAX / 2; bytes = 2 * bytes + 1)
                require_step(
                    tuning_choose(&steps, (alnico_collective_t)c, 0, bytes),
                    fit_for(c, tuning_builtin, tuning_builtin_count, ranks[i], ranks[i], bytes));
        tuning_steps_finish(&steps);
    }
}

static void test_the_built_in_rows_are_sound(void **state)
{
    (void)state;
    for (int i = 0; i < tuning_builtin_count; i++) {
        const struct tuning_row *row = &tuning_builtin[i];
        const struct backend *backend = backend_find(row->backend, row->device);
        assert_non_null(backend);
        assert_non_null(backend_algorithm(backend, row->collective, row->algorithm));
        assert_int_equal(tuning_shadow(tuning_builtin, i), -1);
        assert_in_range(row->chunk_bytes, CHUNK_BYTES_LEAST, INT_MAX);
        assert_true(row->chunk_bytes % 8 == 0); /* whole elements of every type */
    }
}

static unsigned random_state;

static int pick(int count)
{
    return rand_r(&random_state) % count;
}

enum { ROWS = 24 };

static void fill_rows(struct tuning_row *rows, int count)
{
    static const char *const algorithms[] = {"ring", "binomial", "rabenseifner"};
    for (int i = 0; i < count; i++) {
        rows[i] = (struct tuning_row){.device = pick(4) ? ALNICO_DEVICE_CPU : ALNICO_DEVICE_CUDA,
                                      .ranks = pick(8) ? 1 + pick(9) : INT_MAX,
                                      .hosts = pick(4) ? 1 + pick(4) : INT_MAX,
                                      .bytes = pick(6) ? (size_t)1 + (size_t)pick(20) : SIZE_MAX,
                                      .backend = "host",
                                      .chunk_bytes = 1024 + (size_t)i};
        strcpy(rows[i].algorithm, algorithms[pick(3)]);
    }
}

/* Random tables: the steps say what the definition says, with the built-in rows behind a file's. */
static void test_the_first_row_that_fits_counts(void **state)
{
    (void)state;
    struct tuning_row rows[ROWS];
    for (int round = 0; round < 300; round++) {
        struct tuning tuning = {.rows = rows, .count = 1 + pick(ROWS)};
        fill_rows(rows, tuning.count);
        int ranks = 1 + pick(11), hosts = 1 + pick(ranks);
        struct tuning_steps steps;
        assert_int_equal(tuning_steps_init(&steps, &tuning, ALNICO_DEVICE_CPU, ranks, hosts),
                         ALNICO_SUCCESS);
        for (size_t bytes = 0; bytes < 23; bytes++) {
            const struct tuning_row *row = first_fit(rows, tuning.count, ranks, hosts, bytes);
            if (!row)
                row = first_fit(tuning_builtin, tuning_builtin_count, ranks, hosts, bytes);
            require_step(tuning_choose(&steps, ALNICO_ALLREDUCE, 0, bytes), row);
        }
        tuning_steps_finish(&steps);
    }
}

/* A row is called hidden exactly when no call chooses it. */
static void test_hidden_rows(void **state)
{
    (void)state;
    struct tuning_row rows[ROWS];
    int hidden = 0;
    for (int round = 0; round < 200; round++) {
        int count = 1 + pick(ROWS);
        fill_rows(rows, count);
        for (int i = 0; i < count; i++) {
            if (rows[i].device != ALNICO_DEVICE_CPU)
                continue;
            bool chosen = false;
            for (int ranks = 1; ranks < 12 && !chosen; ranks++)
                for (int hosts = 1; hosts <= ranks && !chosen; hosts++)
                    for (size_t bytes = 0; bytes < 23 && !chosen; bytes++)
                        chosen = first_fit(rows, count, ranks, hosts, bytes) == &rows[i];
            assert_int_equal(tuning_shadow(rows, i) < 0, chosen);
            hidden += !chosen;
        }
    }
    assert_true(hidden > 100);
}

/* Between hosts long vectors cost bytes rather than messages: doubling sends a host's vector once for
 * each round, and a number of hosts that is no power of two is folded, but in a ring. */
static const char *best_between(int hosts, size_t bytes)
{
    bool folds = hosts <= 8 && (hosts & (hosts - 1)) != 0;
    if (bytes <= 16 << 10)
        return "hierarchical_leaders";
    if (bytes <= (hosts <= 3 ? 64 << 10 : 32 << 10))
        return "hierarchical_doubling";
    return folds && (hosts == 3 || bytes > 128 << 10) ? "hierarchical_ring"
                                                      : "hierarchical_rabenseifner";
}

static void test_between_hosts_bytes_decide(void **state)
{
    (void)state;
    for (int hosts = 2; hosts <= 9; hosts++)
        for (size_t bytes = 16 << 10; bytes <= 16 << 20; bytes += bytes / 2)
            assert_string_equal(
                first_fit(tuning_builtin, tuning_builtin_count, 2 * hosts, hosts, bytes)->algorithm,
                best_between(hosts, bytes));
}

static void test_a_device_without_rows(void **state)
{
    (void)state;
    struct tuning_steps steps;
    assert_int_equal(tuning_steps_init(&steps, NULL, DEVICES, 2, 1), ALNICO_ERROR_UNSUPPORTED);
    assert_non_null(strstr(alnico_error_detail(), "allreduce of every size"));
    assert_null(steps.of[ALNICO_ALLREDUCE][0]);
}

static struct tuning_row gpu_row(size_t bytes, unsigned modes, const char *backend,
                                 const char *algorithm)
{
    struct tuning_row row = {.device = ALNICO_DEVICE_CUDA,
                             .ranks = INT_MAX,
                             .hosts = INT_MAX,
                             .bytes = bytes,
                             .modes = modes,
                             .chunk_bytes = 1024,
                             .blocks = 3};
    strcpy(row.backend, backend);
    strcpy(row.algorithm, algorithm);
    return row;
}

/* Rows that ask for a mode count in calls that have it, and the next row that fits is there for who
 * cannot use the first. */
static void test_modes_and_the_next_row(void **state)
{
    (void)state;
    struct tuning_row rows[] = {
        gpu_row(100, MODE_REGISTERED | MODE_CAPTURED, "peer", "two_shot_line"),
        gpu_row(100, MODE_REGISTERED, "peer", "two_shot_direct"),
        gpu_row(100, 0, "peer", "one_shot"),
        gpu_row(SIZE_MAX, 0, "nccl", "nccl"),
    };
    static const char *const first[MODES] = {"one_shot", "two_shot_direct", "one_shot",
                                             "two_shot_line"};
    struct tuning tuning = {.rows = rows, .count = 4};
    struct tuning_steps steps;
    for (int i = 0; i < tuning.count; i++)
        assert_int_equal(tuning_shadow(rows, i), -1);
    assert_int_equal(tuning_steps_init(&steps, &tuning, ALNICO_DEVICE_CUDA, 4, 1), ALNICO_SUCCESS);
    assert_true(steps.captured_same[ALNICO_ALLREDUCE][0]);
    assert_false(steps.captured_same[ALNICO_ALLREDUCE][MODE_REGISTERED]);
    for (unsigned modes = 0; modes < MODES; modes++) {
        const struct tuning_step *step = tuning_choose(&steps, ALNICO_ALLREDUCE, modes, 100);
        assert_string_equal(step->choice.algorithm->name, first[modes]);
        assert_int_equal(step->choice.blocks, 3);
        while (strcmp(step->choice.backend->name, "nccl") != 0)
            step = tuning_next(step, 100);
        assert_ptr_equal(step, tuning_choose(&steps, ALNICO_ALLREDUCE, modes, 101));
        while (tuning_next(step, 101))
            step = tuning_next(step, 101);
        assert_string_equal(step->choice.backend->name, "host");
    }
    tuning_steps_finish(&steps);
    rows[3] = gpu_row(50, MODE_REGISTERED, "peer", "one_shot_line");
    assert_int_equal(tuning_shadow(rows, 3), 1);
}

static void test_algorithms_of_a_device(void **state)
{
    (void)state;
    const struct backend *backend;
    for (int device = 0; device < DEVICES; device++)
        for (int i = 0; backend_algorithm_at(device, ALNICO_ALLREDUCE, i, &backend); i++) {
            const struct algorithm *a = backend_algorithm_at(device, ALNICO_ALLREDUCE, i, NULL);
            assert_true(backend->devices & 1u << device);
            assert_ptr_equal(backend_algorithm(backend, ALNICO_ALLREDUCE, a->name), a);
            assert_ptr_equal(backend_algorithm_named(device, ALNICO_ALLREDUCE, a->name, NULL), a);
        }
    assert_null(backend_algorithm_named(ALNICO_DEVICE_CPU, ALNICO_ALLREDUCE, "nccl", NULL));
    assert_null(backend_algorithm_named(ALNICO_DEVICE_CPU, ALNICO_ALLREDUCE, "", NULL));
    assert_non_null(backend_algorithm_named(ALNICO_DEVICE_CUDA, ALNICO_ALLREDUCE, "nccl", NULL));
}

static void test_one_step_by_force(void **state)
{
    (void)state;
    struct tuning_steps steps;
    assert_int_equal(tuning_steps_init(&steps, NULL, ALNICO_DEVICE_CPU, 3, 1), ALNICO_SUCCESS);
    const struct choice only = {
        .backend = &backend_host, .algorithm = &algorithm_ring, .chunk_bytes = 4444};
    tuning_steps_force(&steps, ALNICO_ALLREDUCE, &only);
    for (size_t bytes = 0; bytes < SIZE_MAX / 2; bytes = 2 * bytes + 1) {
        const struct tuning_step *step =
            tuning_choose(&steps, ALNICO_ALLREDUCE, bytes % MODES, bytes);
        assert_null(tuning_next(step, bytes));
        assert_ptr_equal(step->choice.algorithm, &algorithm_ring);
        assert_int_equal(step->choice.chunk_bytes, 4444);
    }
    tuning_steps_finish(&steps);
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
    {"ALNICO_TIMEOUT", "0x10", ALNICO_ERROR_ARGUMENT, "a positive number of seconds"},
    {"ALNICO_TIMEOUT", "1e300", ALNICO_ERROR_ARGUMENT, "a positive number of seconds"},
    {"ALNICO_TIMEOUT", "1,5", ALNICO_ERROR_ARGUMENT, "a positive number of seconds"},
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
    {"ALNICO_CHECK", "1", ALNICO_SUCCESS, NULL},
    {"ALNICO_CHECK", "0", ALNICO_SUCCESS, NULL},
    {"ALNICO_CHECK", "yes", ALNICO_ERROR_ARGUMENT,
     "ALNICO_CHECK is 'yes' on rank 0, expected 0 or 1"},
    {"ALNICO_TRANSPORT", "tcp", ALNICO_SUCCESS, NULL},
    {"ALNICO_TRANSPORT", "mpi", ALNICO_SUCCESS, NULL},
    {"ALNICO_TRANSPORT", "auto", ALNICO_SUCCESS, NULL},
    {"ALNICO_CUDA_AWARE", "auto", ALNICO_SUCCESS, NULL},
    {"ALNICO_CUDA_AWARE", "0", ALNICO_SUCCESS, NULL},
    {"ALNICO_CUDA_AWARE", "1", ALNICO_SUCCESS, NULL},
    {"ALNICO_CUDA_AWARE", "yes", ALNICO_ERROR_ARGUMENT,
     "ALNICO_CUDA_AWARE is 'yes' on rank 0, expected auto, 0 or 1"},
    {"ALNICO_CONNECTIONS", "8", ALNICO_SUCCESS, NULL},
    {"ALNICO_CONNECTIONS", "9", ALNICO_ERROR_ARGUMENT,
     "ALNICO_CONNECTIONS is '9' on rank 0, expected a number from 1 to 8"},
    {"ALNICO_TRANSPORT", "shm", ALNICO_ERROR_ARGUMENT,
     "ALNICO_TRANSPORT is 'shm' on rank 0, expected auto, mpi or tcp"},
    {"ALNICO_ALLREDUCE", "bogus", ALNICO_ERROR_ARGUMENT, "ALNICO_ALLREDUCE is 'bogus' on rank 0"},
};

static enum aware aware_of(const struct setting *c)
{
    bool asks = strcmp(c->variable, "ALNICO_CUDA_AWARE") == 0;
    return asks && *c->value == '0'   ? AWARE_NEVER
           : asks && *c->value == '1' ? AWARE_ALWAYS
                                      : AWARE_AUTO;
}

/* In a process of its own; exits with 0 if all is as expected. */
static void check_setting(const struct setting *c)
{
    struct settings s;
    setenv(c->variable, c->value, 1);
    settings_read(&s);
    bool right = s.status == c->status && (!c->detail || strstr(s.detail, c->detail));
    if (right && !c->detail)
        right = s.check == (strcmp(c->variable, "ALNICO_CHECK") == 0 && *c->value == '1') &&
                s.timeout == (strstr(c->variable, "TIMEOUT") ? 2.5 : 600) &&
                s.over_mpi == (strcmp(c->value, "mpi") == 0) &&
                s.over_tcp == (strcmp(c->value, "tcp") == 0) && s.aware == aware_of(c) &&
                s.chunk_bytes == (strstr(c->variable, "CHUNK") ? 65536 : 0) &&
                strcmp(s.algorithm[ALNICO_ALLREDUCE],
                       strstr(c->variable, "ALLREDUCE") ? c->value : "") == 0;
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
    random_state = (unsigned)time(NULL);
    print_message("seed %u\n", random_state);
    unsetenv("ALNICO_TIMEOUT");
    unsetenv("ALNICO_CHUNK");
    unsetenv("ALNICO_ALLREDUCE");
    unsetenv("ALNICO_CHECK");
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_call_has_a_built_in_row),
        cmocka_unit_test(test_the_built_in_rows_are_sound),
        cmocka_unit_test(test_the_first_row_that_fits_counts),
        cmocka_unit_test(test_hidden_rows),
        cmocka_unit_test(test_between_hosts_bytes_decide),
        cmocka_unit_test(test_a_device_without_rows),
        cmocka_unit_test(test_modes_and_the_next_row),
        cmocka_unit_test(test_algorithms_of_a_device),
        cmocka_unit_test(test_one_step_by_force),
        cmocka_unit_test(test_settings),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
