/* Failures, the launcher, the machine and JSON files, for all programs. Main thread. */
#include "tools/common/program.h"

#include "base/replace.h"
#include "device/topology.h"
#include "tools/common/ranks.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>
#include <time.h>
#include <unistd.h>

enum { TEXT_SIZE = 1024 };

static void (*on_failure)(int status);

/* At the end of the program, whichever that is. */
static void output_close(void)
{
    const bool lost = ferror(stdout) != 0;
    errno = EIO;
    if (lost)
        putchar('\n'); /* fails for the reason that an earlier flush failed for */
    if (fclose(stdout) == 0 && !lost)
        return;
    fprintf(stderr, "%s: cannot write to standard output: %s\n", program_invocation_short_name,
            strerror(errno));
    _exit(EXIT_FAILURE);
}

void program_start(void)
{
    atexit(output_close);
    signal(SIGXFSZ, SIG_IGN); /* a file that is too large is an error of the write */
}

void program_fail(const char *format, ...)
{
    char text[TEXT_SIZE];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    fflush(stdout);
    fprintf(stderr, "%s: %s\n", program_invocation_short_name, text);
    if (program_launched())
        usleep(200000); /* launchers drop what is still in their pipes when a rank ends so */
    if (on_failure)
        on_failure(EXIT_FAILURE);
    if (program_launched()) /* the launcher is not told that this was an end in order */
        _Exit(EXIT_FAILURE);
    exit(EXIT_FAILURE);
}

void program_on_failure(void (*function)(int status))
{
    on_failure = function;
}

static _Noreturn void end_together(int status, const char *text)
{
    if (program_rank() == 0)
        fprintf(stderr, "%s: %s\n", program_invocation_short_name, text);
    program_ranks_close();
    exit(status);
}

void program_refuse(const char *format, ...)
{
    char text[TEXT_SIZE];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    end_together(EXIT_USAGE, text);
}

void program_fail_together(const char *format, ...)
{
    char text[TEXT_SIZE] = "";
    va_list arguments;
    va_start(arguments, format);
    if (format)
        vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    int first = format ? program_rank() : program_size();
    program_least(&first, 1);
    if (first == program_size())
        return;
    program_broadcast(text, sizeof text, first);
    end_together(EXIT_FAILURE, text);
}

void program_check(alnico_status_t status, const char *what)
{
    if (status != ALNICO_SUCCESS)
        program_fail("%s: %s: %s", what, alnico_status_string(status), alnico_error_detail());
}

/* NULL: no launcher started this process. In alnico_comm_create_env's order. */
static const char *launch_text(void)
{
    static const char *const names[] = {
        "ALNICO_RANK", "RANK", "PMIX_RANK", "PMI_RANK", "OMPI_COMM_WORLD_RANK", "SLURM_PROCID"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (getenv(names[i]) && (strcmp(names[i], "RANK") != 0 || getenv("WORLD_SIZE")))
            return getenv(names[i]);
    return NULL;
}

bool program_launched(void)
{
    return launch_text() != NULL;
}

int program_launch_rank(void)
{
    return program_launched() ? atoi(launch_text()) : 0;
}

struct program_streams program_silence(int rank)
{
    struct program_streams streams = {-1, -1};
    int null = rank > 0 ? open("/dev/null", O_WRONLY | O_CLOEXEC) : -1;
    if (null < 0)
        return streams;
    fflush(stdout);
    streams.out = dup(STDOUT_FILENO);
    streams.err = dup(STDERR_FILENO);
    dup2(null, STDOUT_FILENO);
    dup2(null, STDERR_FILENO);
    close(null);
    return streams;
}

void program_restore(struct program_streams streams)
{
    if (streams.out < 0)
        return;
    fflush(stdout);
    dup2(streams.out, STDOUT_FILENO);
    dup2(streams.err, STDERR_FILENO);
    close(streams.out);
    close(streams.err);
}

const char *program_cpu_name(void)
{
    static char name[128] = "unknown";
    char line[256];
    FILE *file = fopen("/proc/cpuinfo", "r");
    while (file && fgets(line, sizeof line, file))
        if (strncmp(line, "model name", 10) == 0 && strchr(line, ':')) {
            snprintf(name, sizeof name, "%.*s", (int)strcspn(strchr(line, ':') + 2, "\n"),
                     strchr(line, ':') + 2);
            break;
        }
    if (file)
        fclose(file);
    return name;
}

cJSON *program_machine(void)
{
    struct topology topology;
    struct utsname kernel;
    cJSON *machine = cJSON_CreateObject();
    if (topology_read(&topology) == ALNICO_SUCCESS) {
        json_add(machine,
                 "host %s cores %d units %d numa_nodes %d l1_bytes %zu l2_bytes %zu l3_bytes %zu",
                 topology.host, topology.cores, topology.units, topology.numa_nodes, topology.l1,
                 topology.l2, topology.l3);
    }
    json_add(machine, "cpu %s", program_cpu_name());
    if (uname(&kernel) == 0)
        json_add(machine, "kernel %s", kernel.release);
    json_add(machine, "compiler %s", __VERSION__);
    return machine;
}

double seconds_now(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

int program_threads(void)
{
    int count = 0;
    DIR *tasks = opendir("/proc/self/task");
    for (struct dirent *entry; tasks && (entry = readdir(tasks)) != NULL;)
        count += entry->d_name[0] != '.';
    if (tasks)
        closedir(tasks);
    return count;
}

const char *program_date(void)
{
    static char text[32];
    time_t now = time(NULL);
    struct tm utc;
    strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", gmtime_r(&now, &utc));
    return text;
}

char *program_command(int argc, char **argv)
{
    char *text = NULL;
    size_t bytes;
    FILE *out = open_memstream(&text, &bytes);
    if (!out)
        program_fail("no memory");
    for (int i = 0; i < argc; i++)
        fprintf(out, "%s%s", i ? " " : "", argv[i]);
    fclose(out);
    return text;
}

cJSON *json_add(cJSON *object, const char *format, ...)
{
    char key[64], conversion[8];
    int length;
    va_list values;
    va_start(values, format);
    for (; sscanf(format, " %63s %%%7s%n", key, conversion, &length) == 2; format += length) {
        if (*conversion == 's')
            cJSON_AddStringToObject(object, key, va_arg(values, const char *));
        else if (*conversion == 'h')
            cJSON_AddBoolToObject(object, key, va_arg(values, int));
        else
            cJSON_AddNumberToObject(object, key,
                                    *conversion == 'd'   ? va_arg(values, int)
                                    : *conversion == 'z' ? (double)va_arg(values, size_t)
                                                         : va_arg(values, double));
    }
    va_end(values);
    return object;
}

cJSON *json_row(cJSON *array)
{
    cJSON *row = cJSON_CreateObject();
    cJSON_AddItemToArray(array, row);
    return row;
}

static void json_check(alnico_status_t status)
{
    if (status != ALNICO_SUCCESS)
        program_fail("--json %s", alnico_error_detail());
}

void program_json_try(const char *path)
{
    if (path)
        json_check(replacement_try(path, REPLACEMENT_ANY));
}

void program_json_write(const char *path, cJSON *object)
{
    char *text = path ? cJSON_Print(object) : NULL;
    cJSON_Delete(object);
    if (path && !text)
        program_fail("--json %s: no memory", path);
    if (path)
        json_check(replacement_text(path, REPLACEMENT_ANY, text));
    cJSON_free(text);
}
