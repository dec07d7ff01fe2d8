/* See graph/layout.h. */
#include "train/graph/layout.h"

size_t layout_ranks(const struct layout *layout)
{
    size_t ranks = 1;
    for (enum axis axis = 0; axis < AXES; axis++)
        ranks *= layout->parts[axis];
    return ranks;
}

size_t layout_part(const struct layout *layout, enum axis axis, size_t rank)
{
    for (enum axis inner = AXES - 1; inner > axis; inner--)
        rank /= layout->parts[inner];
    return rank % layout->parts[axis];
}

/* Where a part of an axis begins: units are dealt out evenly, the larger parts last. */
static ptrdiff_t cut(size_t size, size_t grain, size_t part, size_t parts)
{
    const size_t units = (size + grain - 1) / grain, at = units * part / parts * grain;
    return (ptrdiff_t)(at < size ? at : size);
}

struct box layout_box(const struct layout *layout, const size_t sizes[AXES], size_t rank)
{
    struct box box;
    for (enum axis axis = 0; axis < AXES; axis++) {
        const bool pixels = axis == AXIS_ROWS || axis == AXIS_COLUMNS;
        const size_t part = layout_part(layout, axis, rank), parts = layout->parts[axis],
                     grain = pixels ? layout->grain : 1;
        box.from[axis] = cut(sizes[axis], grain, part, parts);
        box.to[axis] = cut(sizes[axis], grain, part + 1, parts);
    }
    return box;
}
