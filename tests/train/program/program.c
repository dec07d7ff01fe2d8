/* See program.h. */
#include "tests/train/program/program.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

const char *program, *mpiexec, *option;
char output[1 << 16], json_path[64];
static char printed_path[64];

bool program_arguments(int argc, char **argv)
{
    if (argc != 4)
        return false;
    program = argv[1];
    mpiexec = argv[2];
    option = argv[3];
    snprintf(json_path, sizeof json_path, "/tmp/alnico-train-%d.json", (int)getpid());
    snprintf(printed_path, sizeof printed_path, "/tmp/alnico-train-%d.txt", (int)getpid());
    return true;
}

static void command_make(int ranks, const char *arguments, const char *end, char *out, size_t bytes)
{
    if (ranks)
        snprintf(out, bytes, "exec %s %s %d %s %s %s", mpiexec, option, ranks, program, arguments,
                 end);
    else
        snprintf(out, bytes, "exec %s %s %s", program, arguments, end);
}

static int status_of(int status)
{
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

static void output_read(FILE *file)
{
    assert_non_null(file);
    output[fread(output, 1, sizeof output - 1, file)] = '\0';
}

int run(int ranks, const char *arguments)
{
    char command[2048];
    command_make(ranks, arguments, "2>&1", command, sizeof command);
    FILE *pipe = popen(command, "r");
    output_read(pipe);
    return status_of(pclose(pipe));
}

void expect(int ranks, const char *arguments, int status, const char *text)
{
    const int got = run(ranks, arguments);
    if (got != status || !strstr(output, text))
        fail_msg("alnico-train %s: exit status %d, expected %d and '%s', printed:\n%s", arguments,
                 got, status, text, output);
}

pid_t program_begin(int ranks, const char *arguments)
{
    char command[2048], end[80];
    snprintf(end, sizeof end, ">%s 2>&1", printed_path);
    command_make(ranks, arguments, end, command, sizeof command);
    const pid_t process = fork();
    assert_true(process >= 0);
    if (process == 0)
        execl("/bin/sh", "sh", "-c", command, NULL);
    return process;
}

void program_end(pid_t process, int status)
{
    int got;
    assert_int_equal(waitpid(process, &got, 0), process);
    FILE *file = fopen(printed_path, "r");
    output_read(file);
    fclose(file);
    remove(printed_path);
    if (status_of(got) != status)
        fail_msg("alnico-train: exit status %d, expected %d, printed:\n%s", status_of(got), status,
                 output);
}

cJSON *report_read(void)
{
    static char text[1 << 16];
    FILE *file = fopen(json_path, "r");
    assert_non_null(file);
    text[fread(text, 1, sizeof text - 1, file)] = '\0';
    fclose(file);
    cJSON *report = cJSON_Parse(text);
    assert_non_null(report);
    return report;
}

double number(const cJSON *object, const char *name)
{
    const cJSON *item = cJSON_GetObjectItemCaseSensitive(object, name);
    if (!cJSON_IsNumber(item))
        fail_msg("the report has no number '%s'", name);
    return item->valuedouble;
}

const cJSON *object(const cJSON *report, const char *name)
{
    const cJSON *item = cJSON_GetObjectItemCaseSensitive(report, name);
    if (!cJSON_IsObject(item))
        fail_msg("the report has no object '%s'", name);
    return item;
}
