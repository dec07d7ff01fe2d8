/* The built-in table, and rank 0's settings. docs/performance.md says how the rows were measured. */
#include "comm/tuning.h"

#include "log.h"

#include <errno.h>
#include <limits.h>
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Two ranks exchange halves of a chunk, others a half and then quarters: up to 8 KB the MPIs of one host send at once
 * instead of asking the receiver first, which is worth more than fewer messages are. */
const struct tuning_row tuning_allreduce[] = {
    {INT_MAX, 4 << 10, &algorithm_recursive_doubling, 4 << 10},
    {2, SIZE_MAX, &algorithm_rabenseifner, 16 << 10},
    {INT_MAX, SIZE_MAX, &algorithm_rabenseifner, 32 << 10},
};

const struct tuning_row *tuning_choose(int ranks, size_t bytes)
{
    const struct tuning_row *row = tuning_allreduce;
    while (row->ranks < ranks || row->bytes < bytes)
        row++;
    return row;
}

static void refuse(struct settings *s, enum variable variable, const char *expected)
{
    s->status = ALNICO_ERROR_ARGUMENT;
    snprintf(s->detail, sizeof s->detail, "%s is '%.40s' on rank 0, expected %s",
             variable_info(variable)->name, variable_text(variable), expected);
}

static void read_timeout(struct settings *s)
{
    const char *text = variable_text(VARIABLE_TIMEOUT);
    char *end;
    s->timeout = strtod(text, &end);
    if (end == text || *end || !isfinite(s->timeout) || s->timeout <= 0)
        refuse(s, VARIABLE_TIMEOUT, "a positive number of seconds");
}

static void read_chunk(struct settings *s)
{
    const char *text = variable_text(VARIABLE_CHUNK);
    char *end;
    errno = 0;
    unsigned long long bytes = strtoull(text, &end, 10);
    s->chunk_bytes = (size_t)bytes;
    bool number = *text >= '0' && *text <= '9' && !*end && errno == 0;
    if (*text && (!number || bytes < 1024 || bytes > INT_MAX))
        refuse(s, VARIABLE_CHUNK, "bytes from 1024 to 2147483647");
}

static void read_algorithm(struct settings *s)
{
    const char *text = variable_text(VARIABLE_ALLREDUCE);
    if (*text && !algorithm_find(text))
        refuse(s, VARIABLE_ALLREDUCE, "the name of an algorithm, as alnico-info lists them");
    snprintf(s->algorithm, sizeof s->algorithm, "%s", text);
}

void settings_read(struct settings *s)
{
    memset(s, 0, sizeof *s);
    read_timeout(s);
    read_chunk(s);
    read_algorithm(s);
}
