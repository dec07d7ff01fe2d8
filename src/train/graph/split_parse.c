/* How to split a network, as text. See graph/split.h. */
#include "train/graph/split.h"

#include "base/number.h"
#include "base/status.h"

#include <string.h>

static const char *const axes[AXES] = {[AXIS_IMAGES] = "images",
                                       [AXIS_ROWS] = "rows",
                                       [AXIS_COLUMNS] = "columns",
                                       [AXIS_CHANNELS] = "channels"};

/* Takes a word off the front of a text, up to one of the ends. */
static bool take(const char **text, const char *ends, char *out, size_t bytes)
{
    const size_t length = strcspn(*text, ends);
    if (!length || length >= bytes)
        return false;
    memcpy(out, *text, length);
    out[length] = '\0';
    *text += length;
    return true;
}

static bool taken(const char **text, char mark)
{
    const bool there = **text == mark;
    *text += there;
    return there;
}

/* "rows=2" */
static bool take_part(const char **text, struct split_range *range)
{
    char name[16];
    uint64_t parts;
    if (!take(text, "=,;@", name, sizeof name) || !taken(text, '=') ||
        !number_leading(text, UINT16_MAX, &parts) || parts < 1)
        return false;
    for (enum axis axis = 0; axis < AXES; axis++)
        if (strcmp(axes[axis], name) == 0) {
            range->parts[axis] = (uint16_t)parts;
            return true;
        }
    return false;
}

/* "conv1..res4", or the name of one operation, up to a mark. */
static bool take_names(const char **text, char mark, struct split_range *range)
{
    const char marks[] = {mark, '\0'};
    const char *end = *text + strcspn(*text, marks), *dots = strstr(*text, "..");
    const bool two = dots && dots < end;
    const size_t first = (size_t)((two ? dots : end) - *text);
    const char *last = two ? dots + 2 : *text;
    const size_t length = (size_t)(end - last);
    if (!first || !length || first >= sizeof range->first || length >= sizeof range->last)
        return false;
    memcpy(range->first, *text, first);
    memcpy(range->last, last, length);
    *text = end;
    return true;
}

/* The names stand before ':' or behind '@'. */
static bool take_range(const char **text, struct split_range *range)
{
    *range = (struct split_range){.parts = {1, 1, 1, 1}};
    const bool named = (*text)[strcspn(*text, ":;")] == ':';
    if (named && !(take_names(text, ':', range) && taken(text, ':')))
        return false;
    do {
        if (!take_part(text, range))
            return false;
    } while (taken(text, ','));
    return !named && taken(text, '@') ? take_names(text, ';', range) : true;
}

alnico_status_t split_parse(const char *text, struct split *out)
{
    const char *rest = text;
    bool valid = true;
    *out = (struct split){.count = 0};
    do
        valid = out->count < SPLIT_RANGES && take_range(&rest, &out->ranges[out->count++]);
    while (valid && taken(&rest, ';'));
    if (valid && !*rest)
        return ALNICO_SUCCESS;
    return error_set(ALNICO_ERROR_ARGUMENT,
                     "split '%s', expected parts of images, rows and columns, as rows=2 or "
                     "images=2,rows=2, behind FIRST..LAST: or before @FIRST..LAST for some "
                     "operations only; or of "
                     "channels, as dense1:channels=2; up to %d of these joined by ';'",
                     text, SPLIT_RANGES);
}
