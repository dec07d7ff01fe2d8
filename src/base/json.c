/* JSON texts that people write, parsed by cJSON. That knows no lines: where one is needed, the text
 * is walked through again. */
#include "base/json.h"

#include "base/status.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

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

static alnico_status_t file_refuse(const char *path)
{
    return error_set(ALNICO_ERROR_ARGUMENT, "%.120s: %s", path, strerror(errno));
}

static alnico_status_t file_check(const char *path, int file, size_t most, size_t *bytes)
{
    struct stat about;
    if (file < 0 || fstat(file, &about) != 0)
        return file_refuse(path);
    if (!S_ISREG(about.st_mode))
        return error_set(ALNICO_ERROR_ARGUMENT, "%.120s: %s, expected a file", path,
                         S_ISDIR(about.st_mode) ? "is a directory" : "is not a regular file");
    *bytes = (size_t)about.st_size;
    if (*bytes > most)
        return error_set(ALNICO_ERROR_ARGUMENT, "%.120s: has %zu bytes, expected at most %zu", path,
                         *bytes, most);
    return ALNICO_SUCCESS;
}

static alnico_status_t file_read(const char *path, int file, size_t bytes, char **out,
                                 size_t *length)
{
    ssize_t got = 1;
    *out = calloc(bytes + 1, 1);
    if (!*out)
        return error_set(ALNICO_ERROR_MEMORY, "%.120s: no memory for %zu bytes", path, bytes);
    for (*length = 0; *length < bytes && got > 0; *length += got > 0 ? (size_t)got : 0)
        got = read(file, *out + *length, bytes - *length);
    if (got >= 0)
        return ALNICO_SUCCESS;
    free(*out);
    *out = NULL;
    return file_refuse(path);
}

alnico_status_t json_file_text(const char *path, size_t most, char **out, size_t *length)
{
    const int file = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    size_t bytes = 0;
    *out = NULL;
    alnico_status_t status = file_check(path, file, most, &bytes);
    if (status == ALNICO_SUCCESS)
        status = file_read(path, file, bytes, out, length);
    if (file >= 0)
        close(file);
    return status;
}
