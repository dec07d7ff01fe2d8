/* See cudnn/methods.h. */
#include "train/kernels/cudnn/methods.h"

#include "base/log.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct {
    const char *name;
    bool taken; /* unless the variable says otherwise */
} methods[METHODS] = {
    [METHOD_NORM_POOL] = {"stem", true},
    [METHOD_STATISTICS] = {"sums", true},
    [METHOD_IM2COL] = {"rows", true},
    [METHOD_GEMM] = {"products", true},
    [METHOD_STRIDED_GRADIENT] = {"spread", true},
    [METHOD_PROGRAMMATIC_LAUNCH] = {"early", true},
};

/* The last entry for the method, behind its "no-" if it has one; NULL: there is none. */
static const char *entry_find(enum cudnn_method method, bool *no)
{
    const size_t length = strlen(methods[method].name);
    const char *found = NULL;
    for (const char *at = variable_text(VARIABLE_TRAIN_WAYS); *at; at += *at == ',') {
        const bool negated = strncmp(at, "no-", 3) == 0;
        const char *name = negated ? at + 3 : at;
        at += strcspn(at, ",");
        if (strncmp(name, methods[method].name, length) != 0 || !strchr(",=", name[length]))
            continue;
        found = name;
        *no = negated;
    }
    return found;
}

static bool entry_known(const char *entry, size_t length)
{
    const size_t no = strncmp(entry, "no-", 3) == 0 ? 3 : 0, name = strcspn(entry + no, ",=");
    for (int method = 0; method < METHODS; method++)
        if (strlen(methods[method].name) == name &&
            strncmp(methods[method].name, entry + no, name) == 0)
            return true;
    return length == 0;
}

size_t methods_unknown(void)
{
    size_t unknown = 0;
    for (const char *at = variable_text(VARIABLE_TRAIN_WAYS); *at; at += *at == ',') {
        const size_t length = strcspn(at, ",");
        if (!entry_known(at, length)) {
            log_write(LOG_WARNING, "ALNICO_TRAIN_WAYS: there is no way '%.*s'", (int)length, at);
            unknown++;
        }
        at += length;
    }
    return unknown;
}

const char *method_name(enum cudnn_method method)
{
    return methods[method].name;
}

bool method_taken(enum cudnn_method method)
{
    bool no;
    return entry_find(method, &no) ? !no : methods[method].taken;
}

unsigned method_number(enum cudnn_method method)
{
    bool no;
    const char *entry = entry_find(method, &no);
    entry = entry ? entry + strlen(methods[method].name) : "";
    return *entry == '=' ? (unsigned)strtoul(entry + 1, NULL, 10) : 0;
}

void methods_list(char *out, size_t bytes)
{
    size_t at = 0;
    *out = '\0';
    for (int method = 0; method < METHODS; method++)
        if (method_taken((enum cudnn_method)method) && at < bytes)
            at +=
                (size_t)snprintf(out + at, bytes - at, "%s%s", at ? "," : "", methods[method].name);
}
