/* See layers/box.h. */
#include "train/layers/box.h"

#include <string.h>

size_t box_extent(const struct box *box, enum axis axis)
{
    return box->to[axis] > box->from[axis] ? (size_t)(box->to[axis] - box->from[axis]) : 0;
}

size_t box_elements(const struct box *box)
{
    size_t count = 1;
    for (enum axis axis = 0; axis < AXES; axis++)
        count *= box_extent(box, axis);
    return count;
}

bool box_equal(const struct box *a, const struct box *b)
{
    const size_t count = box_elements(a);
    return count == box_elements(b) && (!count || memcmp(a, b, sizeof *a) == 0);
}

struct box box_common(const struct box *a, const struct box *b)
{
    struct box common;
    for (enum axis axis = 0; axis < AXES; axis++) {
        common.from[axis] = a->from[axis] > b->from[axis] ? a->from[axis] : b->from[axis];
        common.to[axis] = a->to[axis] < b->to[axis] ? a->to[axis] : b->to[axis];
    }
    return common;
}
