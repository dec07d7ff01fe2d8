/* Numbers of options are read, and those of JSON files written, in the same way whatever the program's
 * locale is. Run as it is, and in two locales (support/locale.c). */
#include "tools/common/options.h"
#include "tools/common/program.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

/* The exit status of a child that runs `body` in silence. */
static int in_child(int (*body)(const char *text), const char *text)
{
    int status = -1;
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        close(STDERR_FILENO);
        _exit(body(text));
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    return WEXITSTATUS(status);
}

/* ---- Options ---- */

enum fruit { APPLE, FIG };

struct values {
    double real, positive;
    size_t size;
    int fruit;
};

static const char *const fruits[] = {"apple", "INDIGO-fig", NULL};

static const struct option_row rows[] = {
    {"real", 'r', "X", "real", OPTION_REAL, "0.25", OPTION_FIELD(struct values, real), .low = -2,
     .high = 2, .key = "real"},
    {"positive", 'p', "X", "positive", OPTION_POSITIVE, "2.5",
     OPTION_FIELD(struct values, positive), .high = 9, .key = "positive"},
    {"size", 's', "N", "size", OPTION_SIZE, "1k", OPTION_FIELD(struct values, size), .key = "size"},
    {"fruit", 'f', "NAME", "fruit", OPTION_CHOICE, "apple", OPTION_FIELD(struct values, fruit),
     .choices = fruits, .key = "fruit"},
    {0}};

static const struct option_table table = {.options = rows, .about = "A test."};

static struct values read_line(int count, const char *const *words)
{
    char *line[8] = {(char *)"test"};
    struct values values = {0};
    for (int i = 0; i < count; i++)
        line[i + 1] = (char *)words[i];
    options_read(&table, count + 1, line, &values);
    return values;
}

static int read_one(const char *word)
{
    read_line(1, &word);
    return 0;
}

static void test_options(void **state)
{
    (void)state;
    static const char *const words[] = {"--real=-1.5", "--size=64m", "--fruit=INDIGO-fig"};
    struct values values = read_line(3, words);
    assert_true(values.real == -1.5 && values.positive == 2.5);
    assert_int_equal(values.size, 64 << 20);
    assert_int_equal(values.fruit, FIG);
    static const char *const refused[] = {
        "--real=1,5",  "--positive=0x1p1",    "--positive=0,5",    "--size=1.000",
        "--size=1,5k", "--size=99999999999g", "--fruit=indigo-fig"};
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++)
        assert_int_equal(in_child(read_one, refused[i]), 2);
}

/* ---- JSON ---- */

static void test_json(void **state)
{
    (void)state;
    struct values values = {.real = 1.5, .positive = 0.125, .size = 3, .fruit = FIG};
    cJSON *object = json_add(cJSON_CreateObject(), "loss %g", 1234567.5);
    options_json(rows, &values, object);
    char *text = cJSON_PrintUnformatted(object);
    assert_string_equal(text, "{\"loss\":1234567.5,\"real\":1.5,\"positive\":0.125,\"size\":3,"
                              "\"fruit\":\"INDIGO-fig\"}");
    cJSON *again = cJSON_Parse(text);
    assert_true(cJSON_GetNumberValue(cJSON_GetObjectItem(again, "loss")) == 1234567.5);
    cJSON_Delete(again);
    cJSON_free(text);
    cJSON_Delete(object);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_options),
        cmocka_unit_test(test_json),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
