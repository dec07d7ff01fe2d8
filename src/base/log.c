/* Log levels, and every ALNICO_ variable in one table. The environment is read once per process, at
 * the first question. */
#include "base/log.h"

#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

extern char **environ;

/* The variable of a collective. */
#define FORCES(COLLECTIVE)                                                                         \
    [VARIABLE_##                                                                                   \
        COLLECTIVE] = {"ALNICO_" #COLLECTIVE, "",                                                  \
                       "algorithm to force, instead of the table's choice (rank 0's counts)"}

static const struct variable_info table[VARIABLES] = {
    [VARIABLE_LOG] = {"ALNICO_LOG", "warning", "what to log: error, warning, info or debug"},
    [VARIABLE_TIMEOUT] = {"ALNICO_TIMEOUT", "600",
                          "seconds before a wait gives up (rank 0's counts)"},
    FORCES(ALLREDUCE),
    FORCES(REDUCE),
    FORCES(BROADCAST),
    FORCES(ALLGATHER),
    FORCES(ALLGATHERV),
    FORCES(REDUCE_SCATTER),
    FORCES(REDUCE_SCATTERV),
    FORCES(GATHER),
    FORCES(GATHERV),
    FORCES(SCATTER),
    FORCES(SCATTERV),
    FORCES(ALLTOALL),
    FORCES(ALLTOALLV),
    FORCES(BARRIER),
    FORCES(SENDRECV),
    [VARIABLE_CHUNK] = {"ALNICO_CHUNK", "", "bytes of a large message's chunks (rank 0's counts)"},
    [VARIABLE_TRANSPORT] = {"ALNICO_TRANSPORT", "auto",
                            "messages: mpi (through MPI also within a host), tcp (between hosts "
                            "also under MPI) or auto (rank 0's counts)"},
    [VARIABLE_CUDA_AWARE] =
        {"ALNICO_CUDA_AWARE", "auto",
         "whether MPI gets messages of GPUs from their memory: auto (where it says "
         "that it takes them), 0 or 1 (rank 0's counts)"},
    [VARIABLE_TUNING] = {"ALNICO_TUNING", "",
                         "tuning file that goes before the built-in table (rank 0's counts)"},
    [VARIABLE_INTERFACE] = {"ALNICO_INTERFACE", "",
                            "interface, or address, that other hosts reach this one by"},
    [VARIABLE_RANK] = {"ALNICO_RANK", "", "this process's rank, where no launcher says it"},
    [VARIABLE_SIZE] = {"ALNICO_SIZE", "", "how many ranks there are; with ALNICO_RANK"},
    [VARIABLE_ADDRESS] = {"ALNICO_ADDRESS", "", "HOST:PORT where rank 0 listens; with ALNICO_RANK"},
    [VARIABLE_SECRET] = {"ALNICO_SECRET", "",
                         "what ranks that meet at an address have to know, the same on all"},
    [VARIABLE_SECRET_FILE] = {"ALNICO_SECRET_FILE", "", "the file that holds ALNICO_SECRET"},
    [VARIABLE_NCCL_LIBRARY] = {"ALNICO_NCCL_LIBRARY", "",
                               "which libnccl.so.2 is loaded when NCCL is first wanted"},
    [VARIABLE_NCCL] = {"ALNICO_NCCL", "on",
                       "off: Alnico's libnccl.so.2 passes every call on to the real NCCL"},
    [VARIABLE_LIBRARY] = {"ALNICO_LIBRARY", "", "which libalnico.so the Python package loads"},
    [VARIABLE_CONNECTIONS] = {"ALNICO_CONNECTIONS", "1",
                              "TCP connections between two ranks, 1 to 8, which share large "
                              "messages (rank 0's counts)"},
    [VARIABLE_ENGINE_CORE] = {"ALNICO_ENGINE_CORE", "auto",
                              "core of the engine thread: auto, none or a number"},
    [VARIABLE_HOST] = {"ALNICO_HOST", "",
                       "a name that tells ranks of one kernel apart which share no memory"},
    [VARIABLE_CHECK] =
        {"ALNICO_CHECK", "0",
         "1: ranks compare what they call, and wait for each other (rank 0's counts)"},
    [VARIABLE_TRAIN_WAYS] =
        {"ALNICO_TRAIN_WAYS", "",
         "ways of training to take, or to leave (no-NAME): of a GPU stem, sums, rows, products, "
         "spread, early, join; interior"},
};

static char *values[VARIABLES];
static enum log_level level_in_force = LOG_WARNING;
static pthread_once_t once = PTHREAD_ONCE_INIT;

static const char *const level_names[] = {"error", "warning", "info", "debug"};

static void write_line(enum log_level level, const char *format, va_list arguments)
{
    char text[1024];
    vsnprintf(text, sizeof text, format, arguments);
    fprintf(stderr, "alnico %s: %s\n", level_names[level], text);
}

static int find_variable(const char *entry, size_t length)
{
    for (int i = 0; i < VARIABLES; i++)
        if (strlen(table[i].name) == length && memcmp(table[i].name, entry, length) == 0)
            return i;
    return -1;
}

/* The level of that name; -1 if there is none. */
static int find_level(const char *name)
{
    int level = LOG_DEBUG;
    while (level >= 0 && strcmp(name, level_names[level]) != 0)
        level--;
    return level;
}

/* The entry's row in the table; -1 if it is unknown, VARIABLES if it is not one of ours. */
static int row_of(const char *entry)
{
    const char *equals = strchr(entry, '=');
    if (!equals || strncmp(entry, "ALNICO_", 7) != 0)
        return VARIABLES;
    return find_variable(entry, (size_t)(equals - entry));
}

static void read_environment(void)
{
    for (char **entry = environ; entry && *entry; entry++) {
        int row = row_of(*entry);
        if (row >= 0 && row < VARIABLES)
            values[row] = strdup(strchr(*entry, '=') + 1);
    }
    int level = values[VARIABLE_LOG] ? find_level(values[VARIABLE_LOG]) : -1;
    if (level >= 0)
        level_in_force = (enum log_level)level;
}

static void check_environment(void)
{
    const char *level = variable_text(VARIABLE_LOG);
    if (find_level(level) < 0)
        log_write(LOG_WARNING, "ALNICO_LOG is '%s', expected error, warning, info or debug", level);
    for (char **entry = environ; entry && *entry; entry++)
        if (row_of(*entry) < 0)
            log_write(LOG_WARNING,
                      "unknown variable %.*s in the environment (alnico-info lists them)",
                      (int)(strchr(*entry, '=') - *entry), *entry);
}

void log_check_environment(void)
{
    static pthread_once_t checked = PTHREAD_ONCE_INIT;
    pthread_once(&checked, check_environment);
}

void log_write(enum log_level level, const char *format, ...)
{
    pthread_once(&once, read_environment);
    if (level > level_in_force)
        return;
    va_list arguments;
    va_start(arguments, format);
    write_line(level, format, arguments);
    va_end(arguments);
}

const struct variable_info *variable_info(enum variable variable)
{
    return &table[variable];
}

const char *variable_text(enum variable variable)
{
    pthread_once(&once, read_environment);
    return values[variable] ? values[variable] : table[variable].fallback;
}

bool variable_is_set(enum variable variable)
{
    pthread_once(&once, read_environment);
    return values[variable] != NULL;
}
