/* Parsing of places. See place.h. */
#include "train/input/place.h"

#include "base/number.h"
#include "train/input/source.h"

#include <string.h>

/* "@SIZE" or "@SIZE+MARGIN". */
static bool parse_size(const char *text, struct place *out)
{
    uint64_t size, margin = SIZE_MAX;
    text++;
    if (!number_leading(&text, SOURCE_MOST_SIDE, &size) || size < 1)
        return false;
    if (*text == '+') {
        text++;
        if (!number_leading(&text, SOURCE_MOST_SIDE, &margin))
            return false;
    }
    if (*text)
        return false;
    out->size = (size_t)size;
    out->margin = (size_t)margin;
    return true;
}

bool place_parse(const char *text, struct place *out)
{
    const char *at = text ? strrchr(text, '@') : NULL;
    *out = (struct place){.margin = SIZE_MAX};
    if (!text)
        return false;
    const size_t length = at && parse_size(at, out) ? (size_t)(at - text) : strlen(text);
    if (!length || length >= sizeof out->path)
        return false;
    memcpy(out->path, text, length);
    return true;
}
