/* JSON texts that people write, parsed by cJSON. That knows no lines: where one is needed, the text
 * is walked through again. */
#include "base/json.h"

#include "base/status.h"

#include <ctype.h>
#include <pthread.h>
#include <string.h>

static int line_at(const char *text, const char *place)
{
    int line = 1;
    for (; text < place; text++)
        line += *text == '\n';
    return line;
}

/* The quote that ends the string beginning at `quote`. */
static const char *string_end(const char *quote)
{
    const char *c = quote + 1;
    while (*c && *c != '"')
        c += *c == '\\' && c[1] ? 2 : 1;
    return c;
}

static bool is_key(const char *end)
{
    end += *end == '"';
    return end[strspn(end, " \t\r\n")] == ':';
}

/* The begin of the n-th value of a valid JSON text, in the order of the text. */
static const char *value_at(const char *text, int n)
{
    for (const char *c = text; *c; c++) {
        const char *end = c;
        bool value = *c == '{' || *c == '[';
        if (*c == '"') {
            end = string_end(c);
            value = !is_key(end);
        } else if (isalnum((unsigned char)*c) || *c == '-') {
            end = c + strspn(c, "+-.0123456789abcdefghijklmnopqrstuvwxyzE") - 1;
            value = true;
        }
        if (value && n-- == 0)
            return c;
        c = *end ? end : end - 1;
    }
    return text;
}

/* Counts the values before `target`, in the same order. */
static bool count_before(const cJSON *item, const cJSON *target, int *count)
{
    for (; item; item = item->next) {
        if (item == target)
            return true;
        ++*count;
        if (count_before(item->child, target, count))
            return true;
    }
    return false;
}

int json_line(const char *text, const cJSON *root, const cJSON *item)
{
    int n = 0;
    count_before(root, item, &n);
    return line_at(text, value_at(text, n));
}

/* cJSON keeps the place of its last error in a global. */
static cJSON *parse(const char *text, size_t length, const char **end)
{
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    pthread_mutex_lock(&lock);
    cJSON *root = cJSON_ParseWithLengthOpts(text, length + 1, end, true);
    pthread_mutex_unlock(&lock);
    return root;
}

alnico_status_t json_parse(const char *name, const char *text, size_t length, cJSON **out)
{
    const char *end = text;
    *out = NULL;
    if (length == 0)
        return error_set(ALNICO_ERROR_ARGUMENT, "%.120s, line 1: the file is empty", name);
    if (strlen(text) != length)
        return error_set(ALNICO_ERROR_ARGUMENT, "%.120s, line %d: not text, it has a zero byte",
                         name, line_at(text, text + strlen(text)));
    *out = parse(text, length, &end);
    if (*out)
        return ALNICO_SUCCESS;
    return error_set(ALNICO_ERROR_ARGUMENT, "%.120s, line %d: not JSON%s%.*s", name,
                     line_at(text, end), *end ? " at " : ", it ends too early",
                     (int)strcspn(end, "\r\n") < 20 ? (int)strcspn(end, "\r\n") : 20, end);
}
