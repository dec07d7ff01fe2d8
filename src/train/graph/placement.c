/* See graph/placement.h. */
#include "train/graph/placement.h"

#include <stdbool.h>
#include <stdlib.h>

static int larger_first(const void *a, const void *b)
{
    const struct buffer *p = a, *q = b;
    if (p->bytes != q->bytes)
        return p->bytes < q->bytes ? 1 : -1;
    if (p->from != q->from)
        return p->from < q->from ? -1 : 1;
    return p->to < q->to ? -1 : p->to > q->to;
}

static int longest_first(const void *a, const void *b)
{
    const struct buffer *p = a, *q = b;
    const size_t lasts = p->to - p->from, other = q->to - q->from;
    return lasts != other ? (lasts < other ? 1 : -1) : larger_first(a, b);
}

/* Whether `buffer` at offset `at` runs into one of those placed before; *next is where that
 * ends. */
static bool blocked(const struct buffer *buffer, const struct buffer *placed, size_t count,
                    size_t at, size_t *next)
{
    for (size_t i = 0; i < count; i++) {
        const size_t begin = *placed[i].place, end = begin + placed[i].bytes;
        if (buffer->from <= placed[i].to && placed[i].from <= buffer->to &&
            begin < at + buffer->bytes && at < end) {
            *next = end;
            return true;
        }
    }
    return false;
}

typedef int order_function(const void *a, const void *b);

static size_t place_all(struct buffer *buffers, size_t count, order_function *order)
{
    size_t bytes = 0;
    qsort(buffers, count, sizeof *buffers, order);
    for (size_t i = 0; i < count; i++) {
        size_t at = 0, next;
        while (blocked(&buffers[i], buffers, i, at, &next))
            at = next;
        *buffers[i].place = at;
        if (bytes < at + buffers[i].bytes)
            bytes = at + buffers[i].bytes;
    }
    return bytes;
}

size_t buffers_place(struct buffer *buffers, size_t count)
{
    const size_t longest = place_all(buffers, count, longest_first);
    const size_t largest = place_all(buffers, count, larger_first);
    return largest <= longest ? largest : place_all(buffers, count, longest_first);
}

size_t buffers_least(const struct buffer *buffers, size_t count, size_t times)
{
    size_t most = 0;
    for (size_t time = 0; time < times; time++) {
        size_t live = 0;
        for (size_t i = 0; i < count; i++)
            if (buffers[i].from <= time && time <= buffers[i].to)
                live += buffers[i].bytes;
        if (most < live)
            most = live;
    }
    return most;
}
