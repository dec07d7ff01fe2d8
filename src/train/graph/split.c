/* See graph/split.h. */
#include "train/graph/split.h"

#include "base/status.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Images of all ranks by which boxes are compared: each part of them has some. */
static size_t nominal_batch(const struct network_part *part)
{
    return part->ranks;
}

/* Whether a node can read what a rank holds in place of the box that it reads: it may leave a few
 * last rows and columns out, fewer than its stride. */
static bool serves(const struct node *node, const struct box *holds, const struct box *reads)
{
    if (box_equal(holds, reads))
        return true;
    if (!layers_all[node->operation.kind]->reads || !node->operation.window || !box_elements(reads))
        return false;
    for (enum axis axis = 0; axis < AXES; axis++) {
        const bool pixels = axis == AXIS_ROWS || axis == AXIS_COLUMNS;
        const ptrdiff_t left = holds->to[axis] - reads->to[axis];
        if (holds->from[axis] != reads->from[axis] || left < 0 ||
            left >= (pixels ? (ptrdiff_t)node->operation.stride : 1))
            return false;
    }
    return true;
}

/* Whether all ranks hold what they read. */
static bool serves_all(const struct network_part *part, size_t node, size_t input)
{
    const size_t batch = nominal_batch(part);
    const struct node *n = &part->whole->nodes[node];
    for (size_t rank = 0; rank < part->ranks; rank++) {
        struct box wanted;
        const struct box holds = part_held(part, n->in[input], rank, batch),
                         reads = part_reads(part, node, input, rank, batch, &wanted);
        if (!serves(n, &holds, &reads))
            return false;
    }
    return true;
}

static bool reads_same(const struct network_part *part, const struct part_tensor *a,
                       const struct part_tensor *b)
{
    for (size_t rank = 0; rank < part->ranks; rank++) {
        struct box wanted;
        const size_t batch = nominal_batch(part);
        const struct box x = part_reads(part, a->reader, a->input, rank, batch, &wanted),
                         y = part_reads(part, b->reader, b->input, rank, batch, &wanted);
        if (!box_equal(&x, &y))
            return false;
    }
    return a->tensor == b->tensor;
}

/* Describes a tensor of the part, of which a node has been appended. */
static void tensor_fill(struct network *network, size_t tensor, struct part_tensor from)
{
    struct network_part *part = network->part;
    part->tensors[tensor] = from;
    const struct box box = part_box(network, tensor, part->rank, nominal_batch(part));
    const bool empty = !box_elements(&box);
    network->tensors[tensor] =
        (struct tensor){.height = empty ? 0 : box_extent(&box, AXIS_ROWS),
                        .width = empty ? 0 : box_extent(&box, AXIS_COLUMNS),
                        .channels = empty ? part->whole->tensors[from.tensor].channels
                                          : box_extent(&box, AXIS_CHANNELS)};
}

static void node_append(struct network *network, const struct node *node, struct part_tensor from)
{
    for (size_t k = 0; k < node->inputs; k++)
        network->tensors[node->in[k]].readers++;
    network->nodes[network->count++] = *node;
    tensor_fill(network, network->count, from);
}

/* The tensor that a node of the whole reads: what the rank holds (`at`: by tensor of the whole), or
 * what a move makes of it, which is appended unless another node reads the same. */
static size_t tensor_read(struct network *network, size_t node, size_t input, const size_t *at)
{
    struct network_part *part = network->part;
    const struct node *reader = &part->whole->nodes[node];
    const struct part_tensor from = {reader->in[input], true, node, input};
    const size_t source = at[from.tensor];
    if (part->tensors[source].read || serves_all(part, node, input))
        return source;
    for (size_t t = 1; t <= network->count; t++)
        if (part->tensors[t].read && reads_same(part, &part->tensors[t], &from))
            return t;
    struct node move = {.operation = {.kind = OPERATION_MOVE}, .in = {source}, .inputs = 1};
    snprintf(move.operation.name, sizeof move.operation.name, "%.27s.in", reader->operation.name);
    node_append(network, &move, from);
    return network->count;
}

/* Where a window begins before its box, it pads. */
static void node_pad(const struct network_part *part, size_t node, struct node *out)
{
    struct box wanted;
    const struct box box = part_reads(part, node, 0, part->rank, nominal_batch(part), &wanted);
    out->pad_rows = (size_t)(box.from[AXIS_ROWS] - wanted.from[AXIS_ROWS]);
    out->pad_columns = (size_t)(box.from[AXIS_COLUMNS] - wanted.from[AXIS_COLUMNS]);
}

/* The first operation that reads the images; the only one reads its box of them as they come. */
static struct part_tensor images_of(const struct network *whole)
{
    for (size_t i = 0; i < whole->count; i++)
        for (size_t k = 0; k < whole->nodes[i].inputs; k++)
            if (whole->nodes[i].in[k] == 0)
                return (struct part_tensor){0, whole->tensors[0].readers == 1, i, k};
    return (struct part_tensor){0};
}

/* `at`: where the part has each tensor of the whole. */
static void nodes_make(struct network *network, size_t *at)
{
    struct network_part *part = network->part;
    const struct network *whole = part->whole;
    tensor_fill(network, 0, images_of(whole));
    for (size_t i = 0; i < whole->count; i++) {
        struct node node = whole->nodes[i];
        for (size_t k = 0; k < node.inputs; k++)
            node.in[k] = tensor_read(network, i, k, at);
        node_pad(part, i, &node);
        node_append(network, &node, (struct part_tensor){.tensor = i + 1});
        at[i + 1] = network->count;
    }
}

/* Labels are those of the losses' boxes, which are of images that the rank has. */
static alnico_status_t labels_find(struct network *network)
{
    const struct network_part *part = network->part;
    const size_t last = part->whole->count;
    for (size_t i = 0; i < last; i++) {
        const struct operation *operation = &part->whole->nodes[i].operation;
        if (is_loss(operation) &&
            memcmp(&part->layouts[i + 1], &part->layouts[last], sizeof(struct layout)) != 0)
            return error_set(ALNICO_ERROR_ARGUMENT,
                             "split: losses '%s' and '%s' are split in different ways",
                             operation->name, part->whole->nodes[last - 1].operation.name);
    }
    if (part->layouts[last].parts[AXIS_IMAGES] % part->layouts[0].parts[AXIS_IMAGES])
        return error_set(ALNICO_ERROR_ARGUMENT,
                         "split: '%s' has %d parts of images, expected a multiple of the input's "
                         "%d",
                         network_tensor_name(network, network->count),
                         part->layouts[last].parts[AXIS_IMAGES],
                         part->layouts[0].parts[AXIS_IMAGES]);
    const struct tensor *in = &network->tensors[network->nodes[network->count - 1].in[0]];
    network->labels = in->height * in->width;
    return ALNICO_SUCCESS;
}

static bool filters_split(const struct network *network, size_t node)
{
    const struct network_part *part = network->part;
    return part->layouts[part->tensors[node + 1].tensor].parts[AXIS_CHANNELS] > 1 &&
           network->nodes[node].weight.count;
}

/* In backward order, those that all ranks have first; behind them those of this rank's filters. */
static void parameters_place(struct network *network)
{
    for (int own = 0; own < 2; own++) {
        for (size_t i = network->count; i-- > 0;) {
            struct parameter *both[] = {&network->nodes[i].weight, &network->nodes[i].bias};
            const size_t filters = network->nodes[i].operation.filters;
            if (filters_split(network, i) != own)
                continue;
            for (int k = 0; k < 2; k++) {
                if (own)
                    both[k]->count = both[k]->count / filters * network->tensors[i + 1].channels;
                both[k]->offset = network->parameters;
                network->parameters += both[k]->count;
            }
            if (own)
                network->nodes[i].operation.filters = network->tensors[i + 1].channels;
        }
        if (!own)
            network->shared = network->parameters;
    }
}

/* Room for a move before every input. */
static alnico_status_t network_allocate(struct network *network, const struct network *whole)
{
    struct network_part *part = calloc(1, sizeof *part);
    size_t most = 1 + whole->count;
    for (size_t i = 0; i < whole->count; i++)
        most += whole->nodes[i].inputs;
    network->part = part;
    network->nodes = calloc(most, sizeof *network->nodes);
    network->tensors = calloc(most, sizeof *network->tensors);
    network->capacity = most - 1;
    if (part) {
        part->layouts = calloc(whole->count + 1, sizeof *part->layouts);
        part->tensors = calloc(most, sizeof *part->tensors);
    }
    return part && part->layouts && part->tensors && network->nodes && network->tensors
               ? ALNICO_SUCCESS
               : error_set(ALNICO_ERROR_MEMORY, "network_split: no memory");
}

static alnico_status_t network_make(struct network *network, const struct split *split, size_t *at,
                                    bool *inside)
{
    if (!at || !inside)
        return error_set(ALNICO_ERROR_MEMORY, "network_split: no memory");
    TRY(split_layouts(network->part, split, inside));
    nodes_make(network, at);
    parameters_place(network);
    return labels_find(network);
}

alnico_status_t network_split(const struct network *whole, const struct split *split, size_t rank,
                              size_t ranks, struct network **out)
{
    *out = NULL;
    struct network *network = calloc(1, sizeof *network);
    if (!network)
        return error_set(ALNICO_ERROR_MEMORY, "network_split: no memory");
    *network = (struct network){.statistics = whole->statistics,
                                .draws = whole->draws,
                                .classes = whole->classes,
                                .finished = true};
    alnico_status_t status = network_allocate(network, whole);
    if (status == ALNICO_SUCCESS) {
        network->part->whole = whole;
        network->part->rank = rank;
        network->part->ranks = ranks;
        network->part->norm = split->norm;
        size_t *at = calloc(whole->count + 1, sizeof *at);
        bool *inside = calloc(whole->count + 1, sizeof *inside);
        status = network_make(network, split, at, inside);
        free(at);
        free(inside);
    }
    if (status == ALNICO_SUCCESS)
        *out = network;
    else
        network_destroy(network);
    return status;
}
