/* See kernels/methods.h. */
#include "train/kernels/methods.h"

#include "base/log.h"
#include "base/number.h"

#include <limits.h>
#include <stdio.h>
#include <string.h>

static const char *const names[METHODS] = {
    [METHOD_NORM_POOL] = "stem",
    [METHOD_STATISTICS] = "sums",
    [METHOD_IM2COL] = "rows",
    [METHOD_GEMM] = "products",
    [METHOD_STRIDED_GRADIENT] = "spread",
    [METHOD_PROGRAMMATIC_LAUNCH] = "early",
    [METHOD_JOIN] = "join",
    [METHOD_INTERIOR] = "interior",
};

/* An entry of the variable. */
struct entry {
    const char *text;
    size_t length;
    int method; /* METHODS: none of that name */
    bool no;
    unsigned number;
};

/* Reads the entry at *at, and moves *at behind it; false at the end. */
static bool entry_next(const char **at, struct entry *out)
{
    *out = (struct entry){.text = *at, .length = strcspn(*at, ",")};
    out->no = strncmp(*at, "no-", 3) == 0;
    const char *name = *at + (out->no ? 3 : 0);
    const size_t length = strcspn(name, ",=");
    if (!**at)
        return false;
    while (out->method < METHODS &&
           (strlen(names[out->method]) != length || strncmp(names[out->method], name, length) != 0))
        out->method++;
    const char *digits = name + length + 1;
    uint64_t number;
    if (name[length] == '=' && number_leading(&digits, UINT_MAX, &number))
        out->number = (unsigned)number;
    *at += out->length + ((*at)[out->length] == ',');
    return true;
}

/* The last entry for the method; zeros if there is none. */
static struct entry entry_of(enum kernels_method method)
{
    const char *at = variable_text(VARIABLE_TRAIN_WAYS);
    struct entry entry, found = {0};
    while (entry_next(&at, &entry))
        if (entry.method == (int)method)
            found = entry;
    return found;
}

size_t methods_unknown(void)
{
    const char *at = variable_text(VARIABLE_TRAIN_WAYS);
    size_t unknown = 0;
    for (struct entry entry; entry_next(&at, &entry);)
        if (entry.length && entry.method == METHODS) {
            log_write(LOG_WARNING, "ALNICO_TRAIN_WAYS: there is no way '%.*s'", (int)entry.length,
                      entry.text);
            unknown++;
        }
    return unknown;
}

const char *method_name(enum kernels_method method)
{
    return names[method];
}

bool method_taken(enum kernels_method method)
{
    return !entry_of(method).no;
}

unsigned method_number(enum kernels_method method)
{
    return entry_of(method).number;
}

void methods_list(char *out, size_t bytes)
{
    size_t at = 0;
    *out = '\0';
    for (int method = 0; method < METHODS; method++)
        if (method_taken((enum kernels_method)method) && at < bytes)
            at += (size_t)snprintf(out + at, bytes - at, "%s%s", at ? "," : "", names[method]);
}
