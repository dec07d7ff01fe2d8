/* See cudnn_ways.h. */
#include "train/kernels/cudnn/methods.h"

#include "base/log.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct {
    const char *name;
    bool taken; /* unless the variable says otherwise */
} ways[WAYS] = {
    [WAY_STEM] = {"stem", true},     [WAY_SUMS] = {"sums", true},
    [WAY_ROWS] = {"rows", true},     [WAY_PRODUCTS] = {"products", true},
    [WAY_SPREAD] = {"spread", true}, [WAY_EARLY] = {"early", true},
};

/* The last entry for the way, behind its "no-" if it has one; NULL: there is none. */
static const char *entry_find(enum cudnn_way way, bool *no)
{
    const size_t length = strlen(ways[way].name);
    const char *found = NULL;
    for (const char *at = variable_text(VARIABLE_TRAIN_WAYS); *at; at += *at == ',') {
        const bool negated = strncmp(at, "no-", 3) == 0;
        const char *name = negated ? at + 3 : at;
        at += strcspn(at, ",");
        if (strncmp(name, ways[way].name, length) != 0 || !strchr(",=", name[length]))
            continue;
        found = name;
        *no = negated;
    }
    return found;
}

static bool entry_known(const char *entry, size_t length)
{
    const size_t no = strncmp(entry, "no-", 3) == 0 ? 3 : 0, name = strcspn(entry + no, ",=");
    for (int way = 0; way < WAYS; way++)
        if (strlen(ways[way].name) == name && strncmp(ways[way].name, entry + no, name) == 0)
            return true;
    return length == 0;
}

size_t ways_unknown(void)
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

const char *way_name(enum cudnn_way way)
{
    return ways[way].name;
}

bool way_taken(enum cudnn_way way)
{
    bool no;
    return entry_find(way, &no) ? !no : ways[way].taken;
}

unsigned way_number(enum cudnn_way way)
{
    bool no;
    const char *entry = entry_find(way, &no);
    entry = entry ? entry + strlen(ways[way].name) : "";
    return *entry == '=' ? (unsigned)strtoul(entry + 1, NULL, 10) : 0;
}

void ways_list(char *out, size_t bytes)
{
    size_t at = 0;
    *out = '\0';
    for (int way = 0; way < WAYS; way++)
        if (way_taken((enum cudnn_way)way) && at < bytes)
            at += (size_t)snprintf(out + at, bytes - at, "%s%s", at ? "," : "", ways[way].name);
}
