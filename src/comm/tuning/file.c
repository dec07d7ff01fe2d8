/*
 * Tuning files: JSON, as docs/tuning.md describes it. What is wrong with one is said with its line
 * and key. Rank 0 reads the file when a communicator is created; alnico-tune writes it.
 */
#include "comm/tuning/tuning.h"

#include "base/json.h"
#include "base/replace.h"
#include "base/status.h"

#include <limits.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { FORMAT = 1, FILE_BYTES_MOST = 4 << 20 };

static const double whole_most = 9007199254740992; /* 2^53: doubles count so far */

/* A file on its way to a table. */
struct reading {
    const char *name, *text;
    cJSON *root;
};

static alnico_status_t wrong(const struct reading *r, const cJSON *item, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
static alnico_status_t wrong(const struct reading *r, const cJSON *item, const char *format, ...)
{
    char text[512];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    return error_set(ALNICO_ERROR_ARGUMENT, "%.120s, line %d: %s", r->name,
                     json_line(r->text, r->root, item), text);
}

/* "KEY is VALUE, expected ...". */
static alnico_status_t unexpected(const struct reading *r, const cJSON *item, const char *expected)
{
    char *value = cJSON_PrintUnformatted(item);
    alnico_status_t status =
        wrong(r, item, "%.40s is %.40s, expected %s", item->string ? item->string : "the value",
              value ? value : "?", expected);
    cJSON_free(value);
    return status;
}

/* An object's values by the place of their keys in `keys`, which ends with NULL. Refuses what has
 * another key, or one twice, or lacks one of the first `needed`. */
static alnico_status_t sort_keys(const struct reading *r, const cJSON *object,
                                 const char *const *keys, int needed, const cJSON **values)
{
    for (int i = 0; keys[i]; i++)
        values[i] = NULL;
    for (const cJSON *value = object->child; value; value = value->next) {
        int i = 0;
        while (keys[i] && strcmp(keys[i], value->string) != 0)
            i++;
        if (!keys[i])
            return wrong(r, value, "unknown key '%.40s'", value->string);
        if (values[i])
            return wrong(r, value, "%s is there twice", keys[i]);
        values[i] = value;
    }
    for (int i = 0; i < needed; i++)
        if (!values[i])
            return wrong(r, object, "%s is missing", keys[i]);
    return ALNICO_SUCCESS;
}

/* A whole number from `least` to `most`; where null may stand for any, it gives `any`. */
static alnico_status_t read_number(const struct reading *r, const cJSON *item, double least,
                                   double most, const size_t *any, size_t *out)
{
    char expected[80];
    double value = item->valuedouble;
    if (any && cJSON_IsNull(item)) {
        *out = *any;
        return ALNICO_SUCCESS;
    }
    snprintf(expected, sizeof expected, "a whole number from %.0f to %.0f%s", least, most,
             any ? ", or null for any" : "");
    if (!cJSON_IsNumber(item) || !(value >= least && value <= most) ||
        value != (double)(uint64_t)value)
        return unexpected(r, item, expected);
    *out = (size_t)value;
    return ALNICO_SUCCESS;
}

/* Ranks or hosts. */
static alnico_status_t read_members(const struct reading *r, const cJSON *item, int *out)
{
    static const size_t any = INT_MAX;
    size_t value = 0;
    TRY(read_number(r, item, 1, INT_MAX, &any, &value));
    *out = (int)value;
    return ALNICO_SUCCESS;
}

/* The place of a name in a list that ends with NULL. */
static alnico_status_t read_name(const struct reading *r, const cJSON *item,
                                 const char *const *names, int *out)
{
    char expected[320] = "one of";
    for (*out = 0; names[*out]; ++*out) {
        if (cJSON_IsString(item) && strcmp(item->valuestring, names[*out]) == 0)
            return ALNICO_SUCCESS;
        size_t used = strlen(expected);
        snprintf(expected + used, sizeof expected - used, " %s", names[*out]);
    }
    return unexpected(r, item, expected);
}

enum key {
    COLLECTIVE,
    DEVICE,
    RANKS,
    HOSTS,
    BYTES,
    BACKEND,
    ALGORITHM,
    CHUNK,
    NEEDED_KEYS,
    REGISTERED = NEEDED_KEYS,
    CAPTURED,
    BLOCKS,
    ROW_KEYS
};

static const char *const row_keys[] = {
    [COLLECTIVE] = "collective", [DEVICE] = "device",     [RANKS] = "ranks_up_to",
    [HOSTS] = "hosts_up_to",     [BYTES] = "bytes_up_to", [BACKEND] = "backend",
    [ALGORITHM] = "algorithm",   [CHUNK] = "chunk_bytes", [REGISTERED] = "registered",
    [CAPTURED] = "captured",     [BLOCKS] = "blocks",     [ROW_KEYS] = NULL};

enum { NAMES_MOST = 32 };
_Static_assert((int)BACKENDS < (int)NAMES_MOST, "the names of all backends fit");

static alnico_status_t read_collective(const struct reading *r, const cJSON *item,
                                       struct tuning_row *row)
{
    const char *names[COLLECTIVES + 1] = {NULL};
    for (int c = 0; c < COLLECTIVES; c++)
        names[c] = collectives[c].name;
    return read_name(r, item, names, &row->collective);
}

static alnico_status_t read_backend(const struct reading *r, const cJSON *const *values,
                                    struct tuning_row *row)
{
    const char *names[NAMES_MOST] = {NULL};
    int place, count = 0;
    for (int b = 0; b < BACKENDS; b++)
        if (backends[b]->devices & 1u << row->device)
            names[count++] = backends[b]->name;
    TRY(read_name(r, values[BACKEND], names, &place));
    snprintf(row->backend, sizeof row->backend, "%s", names[place]);
    const struct algorithm *const *algorithms =
        backend_find(row->backend, row->device)->algorithms[row->collective];
    for (count = 0; algorithms && algorithms[count] && count < NAMES_MOST - 1; count++)
        names[count] = algorithms[count]->name;
    names[count] = NULL;
    TRY(read_name(r, values[ALGORITHM], names, &place));
    snprintf(row->algorithm, sizeof row->algorithm, "%s", names[place]);
    return ALNICO_SUCCESS;
}

static alnico_status_t read_mode(const struct reading *r, const cJSON *item, unsigned mode,
                                 unsigned *modes)
{
    if (item && !cJSON_IsBool(item))
        return unexpected(r, item, "true or false");
    if (item && cJSON_IsTrue(item))
        *modes |= mode;
    return ALNICO_SUCCESS;
}

/* Keys that a row may leave out. */
static alnico_status_t read_extras(const struct reading *r, const cJSON *const *values,
                                   struct tuning_row *row)
{
    size_t blocks = 0;
    TRY(read_mode(r, values[REGISTERED], MODE_REGISTERED, &row->modes));
    TRY(read_mode(r, values[CAPTURED], MODE_CAPTURED, &row->modes));
    if (values[BLOCKS])
        TRY(read_number(r, values[BLOCKS], 0, TUNING_BLOCKS_MOST, NULL, &blocks));
    row->blocks = (int)blocks;
    return ALNICO_SUCCESS;
}

static alnico_status_t read_row(const struct reading *r, const cJSON *object,
                                struct tuning_row *row)
{
    static const size_t any_size = SIZE_MAX;
    const cJSON *values[ROW_KEYS];
    if (!cJSON_IsObject(object))
        return unexpected(r, object, "an object, a row of the table");
    TRY(sort_keys(r, object, row_keys, NEEDED_KEYS, values));
    TRY(read_collective(r, values[COLLECTIVE], row));
    TRY(read_name(r, values[DEVICE], tuning_devices, &row->device));
    TRY(read_members(r, values[RANKS], &row->ranks));
    TRY(read_members(r, values[HOSTS], &row->hosts));
    TRY(read_number(r, values[BYTES], 1, whole_most, &any_size, &row->bytes));
    TRY(read_backend(r, values, row));
    TRY(read_extras(r, values, row));
    return read_number(r, values[CHUNK], CHUNK_BYTES_LEAST, INT_MAX, NULL, &row->chunk_bytes);
}

static alnico_status_t check_use(const struct reading *r, const cJSON *rows,
                                 const struct tuning *tuning, const cJSON *row, int index)
{
    int shadow = tuning_shadow(tuning->rows, index);
    if (shadow < 0)
        return ALNICO_SUCCESS;
    const struct tuning_row *a = &tuning->rows[shadow], *b = &tuning->rows[index];
    int line = json_line(r->text, r->root, cJSON_GetArrayItem(rows, shadow));
    if (a->ranks == b->ranks && a->hosts == b->hosts && a->bytes == b->bytes &&
        a->modes == b->modes)
        return wrong(r, row, "rows has a duplicate: the row of line %d has the same bounds", line);
    return wrong(r, row,
                 "rows has one that is never chosen: the row of line %d comes first and fits all "
                 "that this one fits",
                 line);
}

static alnico_status_t read_rows(const struct reading *r, const cJSON *rows, struct tuning *out)
{
    if (!cJSON_IsArray(rows))
        return wrong(r, rows, "rows is not an array");
    int count = cJSON_GetArraySize(rows);
    if (count < 1 || count > TUNING_ROWS_MOST)
        return wrong(r, rows, "rows has %d rows, expected 1 to %d", count, TUNING_ROWS_MOST);
    out->rows = calloc((size_t)count, sizeof *out->rows);
    if (!out->rows)
        return error_set(ALNICO_ERROR_MEMORY, "%.120s: no memory for %d rows", r->name, count);
    for (const cJSON *row = rows->child; row; row = row->next) {
        TRY(read_row(r, row, &out->rows[out->count]));
        TRY(check_use(r, rows, out, row, out->count));
        out->count++;
    }
    return ALNICO_SUCCESS;
}

static alnico_status_t read_machines(const struct reading *r, const cJSON *machines,
                                     struct tuning *out)
{
    if (!machines)
        return ALNICO_SUCCESS;
    bool good = cJSON_IsArray(machines);
    for (const cJSON *machine = machines->child; good && machine; machine = machine->next)
        good = cJSON_IsObject(machine);
    if (!good)
        return wrong(r, machines, "machines is not an array of objects");
    out->machines = cJSON_PrintUnformatted(machines);
    return out->machines ? ALNICO_SUCCESS
                         : error_set(ALNICO_ERROR_MEMORY, "%.120s: no memory", r->name);
}

static alnico_status_t read_root(const struct reading *r, struct tuning *out)
{
    enum { KEY_FORMAT, KEY_ROWS, KEY_MACHINES, FILE_KEYS };
    static const char *const keys[] = {"alnico_tuning", "rows", "machines", NULL};
    const cJSON *values[FILE_KEYS];
    size_t format = 0;
    if (!cJSON_IsObject(r->root))
        return unexpected(r, r->root, "an object with alnico_tuning and rows");
    TRY(sort_keys(r, r->root, keys, KEY_MACHINES, values));
    TRY(read_number(r, values[KEY_FORMAT], FORMAT, FORMAT, NULL, &format));
    TRY(read_machines(r, values[KEY_MACHINES], out));
    return read_rows(r, values[KEY_ROWS], out);
}

alnico_status_t tuning_file_parse(const char *name, const char *text, size_t length,
                                  struct tuning *out)
{
    struct reading r = {name, text, NULL};
    memset(out, 0, sizeof *out);
    TRY(json_parse(name, text, length, &r.root));
    alnico_status_t status = read_root(&r, out);
    cJSON_Delete(r.root);
    if (status != ALNICO_SUCCESS)
        tuning_finish(out);
    return status;
}

alnico_status_t tuning_file_read(const char *path, struct tuning *out)
{
    char *text;
    size_t length;
    memset(out, 0, sizeof *out);
    TRY(json_file_text(path, FILE_BYTES_MOST, &text, &length));
    alnico_status_t status = tuning_file_parse(path, text, length, out);
    free(text);
    return status;
}

static void write_bound(FILE *file, const char *key, size_t value, bool any)
{
    if (any)
        fprintf(file, "\"%s\": null, ", key);
    else
        fprintf(file, "\"%s\": %zu, ", key, value);
}

static void write_row(FILE *file, const struct tuning_row *row)
{
    fprintf(file, "        {\"collective\": \"%s\", \"device\": \"%s\", ",
            collectives[row->collective].name, tuning_devices[row->device]);
    write_bound(file, row_keys[RANKS], (size_t)row->ranks, row->ranks == INT_MAX);
    write_bound(file, row_keys[HOSTS], (size_t)row->hosts, row->hosts == INT_MAX);
    write_bound(file, row_keys[BYTES], row->bytes, row->bytes == SIZE_MAX);
    fprintf(file, "\"backend\": \"%s\", \"algorithm\": \"%s\", \"chunk_bytes\": %zu", row->backend,
            row->algorithm, row->chunk_bytes);
    if (row->modes & MODE_REGISTERED)
        fprintf(file, ", \"%s\": true", row_keys[REGISTERED]);
    if (row->modes & MODE_CAPTURED)
        fprintf(file, ", \"%s\": true", row_keys[CAPTURED]);
    if (row->blocks)
        fprintf(file, ", \"%s\": %d", row_keys[BLOCKS], row->blocks);
    fprintf(file, "}");
}

static void write_table(FILE *file, const struct tuning *tuning)
{
    fprintf(file, "{\n    \"alnico_tuning\": %d,\n", FORMAT);
    if (tuning->machines)
        fprintf(file, "    \"machines\": %s,\n", tuning->machines);
    fprintf(file, "    \"rows\": [\n");
    for (int i = 0; i < tuning->count; i++) {
        write_row(file, &tuning->rows[i]);
        fprintf(file, "%s\n", i < tuning->count - 1 ? "," : "");
    }
    fprintf(file, "    ]\n}\n");
}

alnico_status_t tuning_file_write(const char *path, const struct tuning *tuning)
{
    struct replacement replacement;
    TRY(replacement_begin(path, REPLACEMENT_REGULAR, &replacement));
    write_table(replacement.file, tuning);
    return replacement_finish(&replacement);
}
