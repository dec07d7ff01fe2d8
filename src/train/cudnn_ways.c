/* See cudnn_ways.h. */
#include "cudnn_ways.h"

#include "log.h"

#include <stdlib.h>
#include <string.h>

static const struct {
    const char *name;
    bool taken; /* unless the variable says otherwise */
} ways[WAYS] = {
    [WAY_BESIDE] = {"beside", false},
    [WAY_STEM] = {"stem", false},
    [WAY_SUMS] = {"sums", false},
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

const char *way_name(enum cudnn_way way)
{
    return ways[way].name;
}
