/* See graph/moves.h. */
#include "train/graph/moves.h"

#include "base/status.h"

#include <stdlib.h>

/* Appends the common box of two, unless it is empty. */
static void message_add(struct move_message *boxes, size_t *count, int peer, const struct box *a,
                        const struct box *b)
{
    const struct box common = box_common(a, b);
    if (box_elements(&common))
        boxes[(*count)++] = (struct move_message){peer, common};
}

/* Rows above and below the image, then columns beside it. */
static void margins_find(const struct network *network, size_t tensor, struct move *move)
{
    const struct network_part *part = network->part;
    const struct tensor *whole = &part->whole->tensors[part->tensors[tensor].tensor];
    const ptrdiff_t ends[AXES] = {
        [AXIS_ROWS] = (ptrdiff_t)whole->height, [AXIS_COLUMNS] = (ptrdiff_t)whole->width};
    struct box rest = move->made;
    for (enum axis axis = AXIS_ROWS; axis <= AXIS_COLUMNS; axis++) {
        struct box *before = &move->margins[2 * (axis - AXIS_ROWS)], *behind = before + 1;
        *before = *behind = rest;
        before->to[axis] = rest.to[axis] < 0 ? rest.to[axis] : 0;
        behind->from[axis] = rest.from[axis] > ends[axis] ? rest.from[axis] : ends[axis];
        rest.from[axis] = rest.from[axis] > 0 ? rest.from[axis] : 0;
        rest.to[axis] = rest.to[axis] < ends[axis] ? rest.to[axis] : ends[axis];
    }
}

alnico_status_t move_create(const struct network *network, size_t node, size_t batch,
                            struct move *out)
{
    const size_t from = network->nodes[node].in[0], to = node + 1, rank = network->part->rank,
                 ranks = network->part->ranks;
    *out = (struct move){.held = part_box(network, from, rank, batch),
                         .made = part_box(network, to, rank, batch)};
    out->kept = box_common(&out->held, &out->made);
    margins_find(network, to, out);
    out->sends = calloc(ranks, sizeof *out->sends);
    out->receives = calloc(ranks, sizeof *out->receives);
    if (!out->sends || !out->receives) {
        move_destroy(out);
        return error_set(ALNICO_ERROR_MEMORY, "move_create: no memory");
    }
    for (size_t peer = 0; peer < ranks; peer++) {
        if (peer == rank)
            continue;
        const struct box held = part_box(network, from, peer, batch),
                         made = part_box(network, to, peer, batch);
        message_add(out->sends, &out->send_count, (int)peer, &out->held, &made);
        message_add(out->receives, &out->receive_count, (int)peer, &out->made, &held);
    }
    return ALNICO_SUCCESS;
}

void move_destroy(struct move *move)
{
    free(move->sends);
    free(move->receives);
    *move = (struct move){.sends = NULL};
}

static size_t elements(const struct move_message *boxes, size_t count)
{
    size_t sum = 0;
    for (size_t i = 0; i < count; i++)
        sum += box_elements(&boxes[i].box);
    return sum;
}

size_t move_sends(const struct move *move)
{
    return elements(move->sends, move->send_count);
}

size_t move_receives(const struct move *move)
{
    return elements(move->receives, move->receive_count);
}
