/* Tensors that stand between the margins of what a move makes of them. See graph/memory_plan.h. */
#include "train/graph/memory_plan.h"

/* The node that is the only one to read a tensor, if that is a move; otherwise the number of nodes. */
static size_t move_of(const struct network *network, size_t tensor)
{
    size_t at = tensor;
    if (!network->part || !tensor || network->tensors[tensor].readers != 1)
        return network->count;
    while (at < network->count && (network->nodes[at].in[0] != tensor ||
                                   network->nodes[at].operation.kind != OPERATION_MOVE))
        at++;
    return at;
}

/* A band: rows of one image, each as long as those of `outer`. */
static bool is_band(const struct box *inner, const struct box *outer)
{
    bool same = box_elements(inner) && box_extent(inner, AXIS_IMAGES) == 1;
    for (enum axis axis = 0; axis < AXES; axis++)
        same &= axis == AXIS_ROWS
                    ? inner->from[axis] >= outer->from[axis] && inner->to[axis] <= outer->to[axis]
                    : inner->from[axis] == outer->from[axis] && inner->to[axis] == outer->to[axis];
    return same;
}

struct plan_part plan_between(const struct plan *plan, size_t tensor, size_t pixel)
{
    const struct network *network = plan->network;
    const size_t move = move_of(network, tensor);
    if (move >= network->count || network->nodes[tensor - 1].operation.kind == OPERATION_CONCAT)
        return (struct plan_part){0};
    const size_t rank = network->part->rank;
    const struct box held = part_box(network, tensor, rank, plan->batch),
                     made = part_box(network, move + 1, rank, plan->batch);
    if (!is_band(&held, &made))
        return (struct plan_part){0};
    const size_t rows = (size_t)(held.from[AXIS_ROWS] - made.from[AXIS_ROWS]);
    return (struct plan_part){move + 1, rows * network->tensors[tensor].width * pixel};
}
