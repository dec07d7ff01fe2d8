/* JSON texts that people write: parsed, with the lines on which things stand, for messages. Any
 * thread. */
#ifndef ALNICO_BASE_JSON_H
#define ALNICO_BASE_JSON_H

#include <alnico/alnico.h>

#include <cjson/cJSON.h>

/* Parses `length` bytes of text, with a NUL behind them; `name` is what messages call it. The
 * caller deletes *out, which is NULL on error. Errors: ARGUMENT (empty, not text, not JSON: with
 * the line). */
alnico_status_t json_parse(const char *name, const char *text, size_t length, cJSON **out);

/* The text of a regular file of at most `most` bytes, with a NUL behind it, which the caller frees.
 * Waits for nobody. Errors, with *out NULL: ARGUMENT (cannot be read, or is no such file), MEMORY.
 */
alnico_status_t json_file_text(const char *path, size_t most, char **out, size_t *length);

/* The line, from 1 on, on which a value of that text begins. */
int json_line(const char *text, const cJSON *root, const cJSON *item);

#endif
