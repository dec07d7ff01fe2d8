/* The log and the environment's table. The environment is read once per process, so each case runs
 * in a child with an environment of its own and hands back what it wrote to stderr. */
#include "base/log.h"

#include "tests/support/forks.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

static char written[1 << 18];

static void in_child(int output, const char *const *environment, int (*body)(void))
{
    dup2(output, STDERR_FILENO);
    clearenv();
    for (; *environment; environment++)
        putenv((char *)*environment);
    _exit(body());
}

/* Runs `body` in a child with only these variables; its stderr is then in `written`. */
static void run(const char *const *environment, int (*body)(void))
{
    int ends[2], status = -1;
    size_t length = 0;
    assert_int_equal(pipe(ends), 0);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0)
        in_child(ends[1], environment, body);
    close(ends[1]);
    for (ssize_t got; (got = read(ends[0], written + length, sizeof written - 1 - length)) > 0;)
        length += (size_t)got;
    written[length] = '\0';
    close(ends[0]);
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
}

#define RUN(body, ...) run((const char *const[]){__VA_ARGS__, NULL}, body)

static int log_all_levels(void)
{
    log_write(LOG_ERROR, "first %d", 1);
    log_write(LOG_WARNING, "second %s", "2");
    log_write(LOG_INFO, "third");
    log_write(LOG_DEBUG, "fourth");
    return 0;
}

static int check_and_log(void)
{
    log_check_environment();
    return log_all_levels();
}

static void levels_let_pass_what_is_as_grave(void **state)
{
    (void)state;
    static const char lines[] = "alnico error: first 1\nalnico warning: second 2\n"
                                "alnico info: third\nalnico debug: fourth\n";
    static const char *const settings[] = {"ALNICO_LOG=error", "ALNICO_LOG=warning",
                                           "ALNICO_LOG=info", "ALNICO_LOG=debug"};
    const char *end = lines;
    for (int level = LOG_ERROR; level <= LOG_DEBUG; level++) {
        end = strchr(end, '\n') + 1;
        RUN(log_all_levels, settings[level]);
        assert_int_equal(strlen(written), end - lines);
        assert_memory_equal(written, lines, end - lines);
    }
}

static void the_default_level_is_warning(void **state)
{
    (void)state;
    RUN(log_all_levels, "HOME=/");
    assert_string_equal(written, "alnico error: first 1\nalnico warning: second 2\n");
}

static void a_foreign_level_is_warned_about_and_ignored(void **state)
{
    (void)state;
    static const char *const settings[] = {"ALNICO_LOG=loud", "ALNICO_LOG=", "ALNICO_LOG=Error",
                                           "ALNICO_LOG=errors"};
    for (size_t i = 0; i < sizeof settings / sizeof *settings; i++) {
        char expected[200];
        snprintf(expected, sizeof expected, "alnico warning: ALNICO_LOG is '%s', expected error, ",
                 strchr(settings[i], '=') + 1);
        RUN(check_and_log, settings[i]);
        assert_memory_equal(written, expected, strlen(expected));
        assert_non_null(strstr(written, "\nalnico error: first 1\nalnico warning: second 2\n"));
        assert_null(strstr(written, "third"));
    }
}

static int ask_often(void)
{
    for (int i = 0; i < 3; i++) {
        variable_text(VARIABLE_TIMEOUT);
        variable_is_set(VARIABLE_CHUNK);
        log_check_environment();
        log_write(LOG_DEBUG, "not shown");
    }
    return 0;
}

static void an_unknown_variable_is_warned_about_once(void **state)
{
    (void)state;
    RUN(ask_often, "ALNICO_TYPO=secret", "ALNICO=1", "XALNICO_LOG=x", "alnico_log=debug");
    const char *first = strstr(written, "alnico warning: unknown variable ALNICO_TYPO ");
    assert_ptr_equal(first, written);
    assert_int_equal(strchr(written, '\n') - written, strlen(written) - 1);
    assert_null(strstr(written, "secret"));
}

static void names_that_only_begin_alike_are_unknown(void **state)
{
    (void)state;
    RUN(ask_often, "ALNICO_LOGS=debug", "ALNICO_LO=debug", "ALNICO_=debug");
    assert_non_null(strstr(written, "ALNICO_LOGS "));
    assert_non_null(strstr(written, "ALNICO_LO "));
    assert_non_null(strstr(written, "ALNICO_ "));
}

static void known_variables_raise_no_warning(void **state)
{
    (void)state;
    for (int i = 0; i < VARIABLES; i++) {
        char setting[100];
        const struct variable_info *info = variable_info((enum variable)i);
        snprintf(setting, sizeof setting, "%s=%s", info->name,
                 i == VARIABLE_LOG ? "error" : info->fallback);
        RUN(ask_often, setting);
        assert_string_equal(written, "");
    }
}

static void communicate(struct rank *rank)
{
    for (int i = 0; i < 2; i++) {
        alnico_comm_t comm = ranks_comm(rank, NULL);
        REQUIRE_STATUS(alnico_barrier(comm), ALNICO_SUCCESS);
        alnico_comm_destroy(comm);
    }
}

static int communicate_in_processes(void)
{
    forks_run(2, 1, communicate, NULL);
    return 0;
}

/* Not each process that a job, or a framework's, loads the library in. */
static void one_rank_warns_for_all(void **state)
{
    (void)state;
    RUN(communicate_in_processes, "ALNICO_LIB=/opt", "ALNICO_LOG=loud");
    const char *first = strstr(written, "unknown variable ALNICO_LIB ");
    assert_non_null(first);
    assert_null(strstr(first + 1, "unknown variable"));
    first = strstr(written, "ALNICO_LOG is 'loud'");
    assert_non_null(first);
    assert_null(strstr(first + 1, "ALNICO_LOG is"));
}

static int read_values(void)
{
    bool right = strcmp(variable_text(VARIABLE_TIMEOUT), "7.5") == 0;
    right = right && variable_is_set(VARIABLE_TIMEOUT);
    right = right && strcmp(variable_text(VARIABLE_ALLREDUCE), "") == 0;
    right = right && variable_is_set(VARIABLE_ALLREDUCE);
    right = right && strcmp(variable_text(VARIABLE_ENGINE_CORE),
                            variable_info(VARIABLE_ENGINE_CORE)->fallback) == 0;
    right = right && !variable_is_set(VARIABLE_ENGINE_CORE);
    setenv("ALNICO_ENGINE_CORE", "3", 1);
    unsetenv("ALNICO_TIMEOUT");
    right = right && !variable_is_set(VARIABLE_ENGINE_CORE);
    right = right && strcmp(variable_text(VARIABLE_TIMEOUT), "7.5") == 0;
    return right ? 0 : 1;
}

static void values_are_the_environments_as_first_read(void **state)
{
    (void)state;
    RUN(read_values, "ALNICO_TIMEOUT=7.5", "ALNICO_ALLREDUCE=");
    assert_string_equal(written, "");
}

static void every_variable_is_described(void **state)
{
    (void)state;
    for (int i = 0; i < VARIABLES; i++) {
        const struct variable_info *info = variable_info((enum variable)i);
        assert_true(info->name && info->fallback && info->about);
        assert_memory_equal(info->name, "ALNICO_", 7);
        assert_true(strlen(info->name) > 7 && strlen(info->about) > 7);
        assert_null(strchr(info->about, '\n'));
        for (int j = 0; j < i; j++)
            assert_string_not_equal(info->name, variable_info((enum variable)j)->name);
    }
}

static int log_a_long_line(void)
{
    char text[5000];
    memset(text, 'x', sizeof text);
    text[sizeof text - 1] = '\0';
    log_write(LOG_ERROR, "%s", text);
    log_write(LOG_ERROR, "short");
    return 0;
}

static void a_long_line_is_cut_but_ended(void **state)
{
    (void)state;
    RUN(log_a_long_line, "HOME=/");
    assert_memory_equal(written, "alnico error: xxx", 17);
    assert_string_equal(strchr(written, '\n'), "\nalnico error: short\n");
    assert_true(strlen(written) > 500);
}

enum { THREADS = 8, LINES = 500 };

static pthread_barrier_t all_started;

static void *log_lines(void *argument)
{
    pthread_barrier_wait(&all_started);
    log_check_environment();
    for (int i = 0; i < LINES; i++)
        log_write(LOG_ERROR, "thread %d line %d", *(int *)argument, i);
    return NULL;
}

static int log_from_threads(void)
{
    pthread_t threads[THREADS];
    int numbers[THREADS];
    pthread_barrier_init(&all_started, NULL, THREADS);
    for (int i = 0; i < THREADS; i++) {
        numbers[i] = i;
        if (pthread_create(&threads[i], NULL, log_lines, &numbers[i]) != 0)
            return 1;
    }
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    return 0;
}

static void lines_of_several_threads_stay_whole(void **state)
{
    (void)state;
    RUN(log_from_threads, "ALNICO_TYPO=1");
    int next[THREADS] = {0}, warnings = 0;
    for (char *line = strtok(written, "\n"); line; line = strtok(NULL, "\n")) {
        int thread, number, length = 0;
        if (strncmp(line, "alnico warning: ", 16) == 0 && ++warnings)
            continue;
        assert_int_equal(
            sscanf(line, "alnico error: thread %d line %d%n", &thread, &number, &length), 2);
        assert_int_equal(length, strlen(line));
        assert_int_equal(number, next[thread]++);
    }
    for (int i = 0; i < THREADS; i++)
        assert_int_equal(next[i], LINES);
    assert_int_equal(warnings, 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(levels_let_pass_what_is_as_grave),
        cmocka_unit_test(the_default_level_is_warning),
        cmocka_unit_test(a_foreign_level_is_warned_about_and_ignored),
        cmocka_unit_test(an_unknown_variable_is_warned_about_once),
        cmocka_unit_test(one_rank_warns_for_all),
        cmocka_unit_test(names_that_only_begin_alike_are_unknown),
        cmocka_unit_test(known_variables_raise_no_warning),
        cmocka_unit_test(values_are_the_environments_as_first_read),
        cmocka_unit_test(every_variable_is_described),
        cmocka_unit_test(a_long_line_is_cut_but_ended),
        cmocka_unit_test(lines_of_several_threads_stay_whole),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
