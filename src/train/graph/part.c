/* See graph/part.h. */
#include "train/graph/part.h"

#include <stdlib.h>

const char *norm_group_name(enum norm_group group)
{
    static const char *const names[NORM_GROUPS] = {"local", "sample", "all"};
    return names[group];
}

struct box part_held(const struct network_part *part, size_t tensor, size_t rank, size_t batch)
{
    const struct tensor *t = &part->whole->tensors[tensor];
    const size_t sizes[AXES] = {batch, t->height, t->width, t->channels};
    return layout_box(&part->layouts[tensor], sizes, rank);
}

struct box part_reads(const struct network_part *part, size_t node, size_t input, size_t rank,
                      size_t batch, struct box *wanted)
{
    const struct node *n = &part->whole->nodes[node];
    const struct layer_ops *layer = layers_all[n->operation.kind];
    const struct tensor *in = &part->whole->tensors[n->in[input]];
    const ptrdiff_t ends[AXES] = {
        [AXIS_ROWS] = (ptrdiff_t)in->height, [AXIS_COLUMNS] = (ptrdiff_t)in->width};
    struct box box = part_held(part, node + 1, rank, batch);
    const bool empty = !box_elements(&box);
    if (layer->reads && !empty)
        layer->reads(n, in, &box);
    box.from[AXIS_CHANNELS] = 0;
    box.to[AXIS_CHANNELS] = empty ? 0 : (ptrdiff_t)in->channels;
    *wanted = box;
    for (enum axis axis = AXIS_ROWS; axis <= AXIS_COLUMNS; axis++) {
        if (layer->margins && part->layouts[node + 1].parts[axis] > 1)
            continue;
        box.from[axis] = box.from[axis] > 0 ? box.from[axis] : 0;
        box.to[axis] = box.to[axis] < ends[axis] ? box.to[axis] : ends[axis];
    }
    return box;
}

struct box part_box(const struct network *network, size_t tensor, size_t rank, size_t batch)
{
    const struct part_tensor *t = &network->part->tensors[tensor];
    struct box wanted;
    return t->read ? part_reads(network->part, t->reader, t->input, rank, batch, &wanted)
                   : part_held(network->part, t->tensor, rank, batch);
}

size_t network_images(const struct network *network, size_t tensor, size_t batch)
{
    if (!network->part)
        return batch;
    const struct box box = part_box(network, tensor, network->part->rank, batch);
    return box_extent(&box, AXIS_IMAGES);
}

size_t part_norms(const struct network_part *part, size_t tensor)
{
    const size_t images = part->layouts[tensor].parts[AXIS_IMAGES];
    return part->norm == NORM_ALL ? 1 : part->norm == NORM_SAMPLE ? images : part->ranks;
}

double network_joint(const struct network *network, size_t node, size_t batch)
{
    const struct network_part *part = network->part;
    if (!part || network->nodes[node].operation.kind != OPERATION_BATCH_NORM)
        return 0;
    const size_t tensor = part->tensors[node + 1].tensor, groups = part_norms(part, tensor);
    const struct tensor *whole = &part->whole->tensors[tensor];
    const struct box box = part_held(part, tensor, part->rank, batch);
    const size_t images = groups == 1 ? batch : (size_t)(box.to[0] - box.from[0]);
    return groups == part->ranks ? 0 : (double)images * (double)(whole->height * whole->width);
}

double network_terms(const struct network *network, size_t node, size_t batch)
{
    const struct network_part *part = network->part;
    const struct tensor *in = part ? &part->whole->tensors[part->tensors[node + 1].tensor]
                                   : &network->tensors[network->nodes[node].in[0]];
    return (double)batch * (double)(in->height * in->width) / (double)(part ? part->ranks : 1);
}

void network_part_destroy(struct network_part *part)
{
    if (!part)
        return;
    free(part->layouts);
    free(part->tensors);
    free(part);
}
