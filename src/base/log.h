/* The log (stderr, by ALNICO_LOG) and the table of environment variables. Any thread. */
#ifndef ALNICO_BASE_LOG_H
#define ALNICO_BASE_LOG_H

#include <stdbool.h>

enum log_level { LOG_ERROR, LOG_WARNING, LOG_INFO, LOG_DEBUG };

/* Writes one line to stderr if ALNICO_LOG (error, warning, info, debug; default warning) lets
 * it. */
void log_write(enum log_level level, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Warns of ALNICO_ names in the environment that are unknown, and of a level that is none; only the
 * first time in a process. For one process of a job: the others have the same environment. */
void log_check_environment(void);

/* Every variable that the library reads. To add one, add it here and to the table in log.c. */
enum variable {
    VARIABLE_LOG,
    VARIABLE_TIMEOUT,
    VARIABLE_ALLREDUCE, /* and the other collectives in their order, which is the public header's */
    VARIABLE_REDUCE,
    VARIABLE_BROADCAST,
    VARIABLE_ALLGATHER,
    VARIABLE_ALLGATHERV,
    VARIABLE_REDUCE_SCATTER,
    VARIABLE_REDUCE_SCATTERV,
    VARIABLE_GATHER,
    VARIABLE_GATHERV,
    VARIABLE_SCATTER,
    VARIABLE_SCATTERV,
    VARIABLE_ALLTOALL,
    VARIABLE_ALLTOALLV,
    VARIABLE_BARRIER,
    VARIABLE_SENDRECV,
    VARIABLE_CHUNK,
    VARIABLE_TRANSPORT,
    VARIABLE_CUDA_AWARE,
    VARIABLE_TUNING,
    VARIABLE_INTERFACE,
    VARIABLE_RANK,
    VARIABLE_SIZE,
    VARIABLE_ADDRESS,
    VARIABLE_SECRET, /* its value is never shown */
    VARIABLE_SECRET_FILE,
    VARIABLE_NCCL_LIBRARY,
    VARIABLE_NCCL,
    VARIABLE_LIBRARY,
    VARIABLE_CONNECTIONS,
    VARIABLE_ENGINE_CORE,
    VARIABLE_HOST,
    VARIABLE_CHECK,
    VARIABLE_TRAIN_WAYS,
    VARIABLES
};

struct variable_info {
    const char *name, *fallback, *about; /* "ALNICO_...", its default as text, one line of help */
};

/* The table's row. */
const struct variable_info *variable_info(enum variable variable);

/* The value in force as text: from the environment, or the default. The environment is read
 * once. */
const char *variable_text(enum variable variable);

/* Whether the environment sets it. */
bool variable_is_set(enum variable variable);

#endif
