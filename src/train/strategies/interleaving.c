/* See interleaving.h. */
#include "train/strategies/interleaving.h"

#include "base/status.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* Of a head, and of a row. */
#define HEAD "alnico interleaving 1: %d ranks, shard %d, %zu parameters\n"
#define ROW "%" PRIu64 " %" PRIu64 " %" PRIu64 "\n"

enum { LINE = 128 };

static alnico_status_t file_open(const char *path, int shard, const char *mode, FILE **out)
{
    const size_t room = strlen(path) + 16;
    char *name = malloc(room);
    if (!name)
        return error_set(ALNICO_ERROR_MEMORY, "interleaving: no memory");
    snprintf(name, room, "%s.%d", path, shard);
    *out = fopen(name, mode);
    const alnico_status_t status =
        *out ? ALNICO_SUCCESS
             : error_set(*mode == 'r' ? ALNICO_ERROR_ARGUMENT : ALNICO_ERROR_SYSTEM,
                         "interleaving %s: it cannot be opened: %s", name, strerror(errno));
    free(name);
    return status;
}

alnico_status_t interleaving_create(const char *path, const struct interleaving_head *head,
                                    FILE **out)
{
    TRY(file_open(path, head->shard, "w", out));
    fprintf(*out, HEAD, head->ranks, head->shard, head->parameters);
    return interleaving_flush(*out);
}

void interleaving_append(FILE *file, const struct interleaving_row *row)
{
    fprintf(file, ROW, row->worker, row->step, row->pulled);
}

alnico_status_t interleaving_flush(FILE *file)
{
    if (fflush(file) == 0 && !ferror(file))
        return ALNICO_SUCCESS;
    return error_set(ALNICO_ERROR_SYSTEM, "interleaving: it cannot be written: %s",
                     strerror(errno));
}

static bool row_read(const char *line, const struct interleaving_head *head, uint64_t version,
                     struct interleaving_row *out)
{
    char written[LINE];
    if (sscanf(line, ROW, &out->worker, &out->step, &out->pulled) != 3)
        return false;
    snprintf(written, sizeof written, ROW, out->worker, out->step, out->pulled);
    return strcmp(line, written) == 0 && out->worker < (uint64_t)head->ranks &&
           out->step <= version && out->pulled <= version;
}

static alnico_status_t row_append(struct interleaving *log, const struct interleaving_row *row)
{
    if ((log->count & (log->count - 1)) == 0) { /* a power of two: the room is used up */
        const size_t room = log->count ? 2 * log->count : 1;
        struct interleaving_row *rows = realloc(log->rows, room * sizeof *rows);
        if (!rows)
            return error_set(ALNICO_ERROR_MEMORY, "interleaving: no memory for %zu rows", room);
        log->rows = rows;
    }
    log->rows[log->count++] = *row;
    return ALNICO_SUCCESS;
}

static alnico_status_t rows_read(FILE *file, const char *path, const struct interleaving_head *head,
                                 struct interleaving *out)
{
    char line[LINE], expected[LINE];
    snprintf(expected, sizeof expected, HEAD, head->ranks, head->shard, head->parameters);
    if (!fgets(line, sizeof line, file) || strcmp(line, expected) != 0)
        return error_set(ALNICO_ERROR_ARGUMENT, "interleaving %s.%d: it does not begin with '%.*s'",
                         path, head->shard, (int)strcspn(expected, "\n"), expected);
    while (fgets(line, sizeof line, file)) {
        struct interleaving_row row;
        if (!row_read(line, head, out->count, &row))
            return error_set(ALNICO_ERROR_ARGUMENT,
                             "interleaving %s.%d: line %zu is no row of worker, step and version",
                             path, head->shard, out->count + 2);
        TRY(row_append(out, &row));
    }
    return ALNICO_SUCCESS;
}

alnico_status_t interleaving_read(const char *path, const struct interleaving_head *head,
                                  struct interleaving *out)
{
    FILE *file;
    *out = (struct interleaving){0};
    TRY(file_open(path, head->shard, "r", &file));
    const alnico_status_t status = rows_read(file, path, head, out);
    fclose(file);
    if (status != ALNICO_SUCCESS)
        interleaving_free(out);
    return status;
}

void interleaving_free(struct interleaving *log)
{
    free(log->rows);
    *log = (struct interleaving){0};
}
