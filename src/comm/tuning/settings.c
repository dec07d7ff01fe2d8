/* Rank 0's settings, from its environment. */
#include "comm/tuning/settings.h"

#include "base/log.h"
#include "base/number.h"
#include "comm/backends/backend.h"

#include <float.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>

static void refuse(struct settings *s, enum variable variable, const char *expected)
{
    s->status = ALNICO_ERROR_ARGUMENT;
    snprintf(s->detail, sizeof s->detail, "%s is '%.40s' on rank 0, expected %s",
             variable_info(variable)->name, variable_text(variable), expected);
}

static void read_timeout(struct settings *s)
{
    const char *text = variable_text(VARIABLE_TIMEOUT);
    if (!number_real(text, DBL_MIN, NUMBER_MOST_SECONDS, &s->timeout))
        refuse(s, VARIABLE_TIMEOUT, "a positive number of seconds, at most 1e9");
}

static void read_chunk(struct settings *s)
{
    const char *text = variable_text(VARIABLE_CHUNK);
    uint64_t bytes = 0;
    if (*text && !number_whole(text, CHUNK_BYTES_LEAST, INT_MAX, &bytes))
        refuse(s, VARIABLE_CHUNK, "bytes from 1024 to 2147483647");
    s->chunk_bytes = (size_t)bytes;
}

/* Whether it is `yes`; `no` or nothing says it is not. */
static bool read_choice(struct settings *s, enum variable variable, const char *yes, const char *no,
                        const char *expected)
{
    const char *text = variable_text(variable);
    bool chosen = strcmp(text, yes) == 0;
    if (!chosen && *text && strcmp(text, no) != 0)
        refuse(s, variable, expected);
    return chosen;
}

static void read_transport(struct settings *s)
{
    const char *text = variable_text(VARIABLE_TRANSPORT);
    s->over_mpi = strcmp(text, "mpi") == 0;
    s->over_tcp = strcmp(text, "tcp") == 0;
    if (*text && !s->over_mpi && !s->over_tcp && strcmp(text, "auto") != 0)
        refuse(s, VARIABLE_TRANSPORT, "auto, mpi or tcp");
}

static void read_aware(struct settings *s)
{
    const char *text = variable_text(VARIABLE_CUDA_AWARE);
    s->aware = strcmp(text, "0") == 0 ? AWARE_NEVER : AWARE_AUTO;
    if (strcmp(text, "1") == 0)
        s->aware = AWARE_ALWAYS;
    if (*text && s->aware == AWARE_AUTO && strcmp(text, "auto") != 0)
        refuse(s, VARIABLE_CUDA_AWARE, "auto, 0 or 1");
}

static bool connections_of(int *out)
{
    uint64_t count = 1;
    bool sound = number_whole(variable_text(VARIABLE_CONNECTIONS), 1, TCP_CONNECTIONS_MOST, &count);
    *out = (int)count;
    return sound;
}

static void read_connections(struct settings *s)
{
    int count;
    if (!connections_of(&count))
        refuse(s, VARIABLE_CONNECTIONS, "a number from 1 to 8");
}

static void read_algorithm(struct settings *s, int collective)
{
    enum variable variable = (enum variable)(VARIABLE_ALLREDUCE + collective);
    const char *text = variable_text(variable);
    bool known = !*text;
    for (int device = 0; device < DEVICES; device++)
        known |= backend_algorithm_named(device, collective, text, NULL) != NULL;
    if (!known)
        refuse(s, variable, "the name of an algorithm, as alnico-info lists them");
    snprintf(s->algorithm[collective], sizeof s->algorithm[collective], "%s", text);
}

void settings_read(struct settings *s)
{
    memset(s, 0, sizeof *s);
    read_timeout(s);
    read_chunk(s);
    s->check = read_choice(s, VARIABLE_CHECK, "1", "0", "0 or 1");
    read_transport(s);
    read_aware(s);
    read_connections(s);
    for (int c = 0; c < COLLECTIVES; c++)
        read_algorithm(s, c);
}

struct tcp_options settings_tcp(void)
{
    struct tcp_options options = {.interface = variable_text(VARIABLE_INTERFACE)};
    connections_of(&options.connections);
    return options;
}

double settings_own_timeout(void)
{
    struct settings own;
    settings_read(&own);
    return own.status == ALNICO_SUCCESS ? own.timeout : 600;
}

void settings_read_tuning(struct settings *s, struct tuning *out)
{
    const char *path = variable_text(VARIABLE_TUNING);
    memset(out, 0, sizeof *out);
    if (!*path || s->status != ALNICO_SUCCESS)
        return;
    s->status = tuning_file_read(path, out);
    s->tuning_rows = out->count;
    if (s->status != ALNICO_SUCCESS)
        snprintf(s->detail, sizeof s->detail, "%s on rank 0: %s",
                 variable_info(VARIABLE_TUNING)->name, alnico_error_detail());
}
