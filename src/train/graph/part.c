/* See graph/part.h. */
#include "train/graph/part.h"

#include <stdlib.h>
#include <string.h>

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
    if (empty || layer->channels != CHANNELS_EACH) {
        box.from[AXIS_CHANNELS] = 0;
        box.to[AXIS_CHANNELS] = empty ? 0 : (ptrdiff_t)in->channels;
    }
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

const struct network *network_whole(const struct network *network)
{
    return network->part ? network->part->whole : network;
}

bool node_own(const struct network *network, size_t node)
{
    return network->nodes[node].weight.offset >= network->shared &&
           network->nodes[node].weight.count;
}

/* Where in the whole a parameter of a node begins: of filters that are split, the rank's. */
static size_t place_of(const struct network *network, size_t node, const struct parameter *whole)
{
    const struct network_part *part = network->part;
    const size_t tensor = part->tensors[node + 1].tensor;
    const struct box held = part_held(part, tensor, part->rank, part->ranks);
    const size_t from = (size_t)held.from[AXIS_CHANNELS];
    return whole->offset + from * (whole->count / part->whole->tensors[tensor].channels);
}

/* The parameters of a node and their places in the whole; a move has none. */
static void node_places(const struct network *network, size_t node, struct parameter own[2],
                        size_t places[2])
{
    const struct node *n = &network->nodes[node];
    own[0] = n->weight;
    own[1] = n->bias;
    if (n->operation.kind == OPERATION_MOVE)
        return;
    const struct node *whole =
        &network->part->whole->nodes[network->part->tensors[node + 1].tensor - 1];
    places[0] = place_of(network, node, &whole->weight);
    places[1] = place_of(network, node, &whole->bias);
}

void part_take(const struct network *network, const float *whole, float *part)
{
    for (size_t i = 0; i < network->count; i++) {
        struct parameter own[2];
        size_t places[2];
        node_places(network, i, own, places);
        for (int k = 0; k < 2; k++)
            if (own[k].count)
                memcpy(part + own[k].offset, whole + places[k], own[k].count * sizeof *part);
    }
}

void part_give(const struct network *network, const float *part, float *whole, bool all)
{
    for (size_t i = 0; i < network->count; i++) {
        struct parameter own[2];
        size_t places[2];
        node_places(network, i, own, places);
        for (int k = 0; k < 2; k++)
            if (own[k].count && (all || node_own(network, i)))
                memcpy(whole + places[k], part + own[k].offset, own[k].count * sizeof *part);
    }
}

void network_part_destroy(struct network_part *part)
{
    if (!part)
        return;
    free(part->layouts);
    free(part->tensors);
    free(part);
}
