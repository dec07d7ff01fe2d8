/* See graph/split.h. */
#include "train/graph/split.h"

#include "base/status.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct layer_ops *layer_of(const struct node *node)
{
    return layers_all[node->operation.kind];
}

static bool reads_images(const struct node *node)
{
    return layer_of(node)->reads_images && !node->operation.window;
}

static struct box held(const struct network_part *part, size_t tensor, size_t rank, size_t batch)
{
    const struct tensor *t = &part->whole->tensors[tensor];
    const size_t sizes[AXES] = {batch, t->height, t->width, t->channels};
    return layout_box(&part->layouts[tensor], sizes, rank);
}

/* What a node of the whole reads of its input to make a rank's box. *wanted reaches over the image's
 * ends, the result only where zeros are to stand there. */
static struct box node_reads(const struct network_part *part, size_t node, size_t input,
                             size_t rank, size_t batch, struct box *wanted)
{
    const struct node *n = &part->whole->nodes[node];
    const struct layer_ops *layer = layer_of(n);
    const struct tensor *in = &part->whole->tensors[n->in[input]];
    const ptrdiff_t ends[AXES] = {
        [AXIS_ROWS] = (ptrdiff_t)in->height, [AXIS_COLUMNS] = (ptrdiff_t)in->width};
    struct box box = held(part, node + 1, rank, batch);
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
    return t->read ? node_reads(network->part, t->reader, t->input, rank, batch, &wanted)
                   : held(network->part, t->tensor, rank, batch);
}

size_t network_images(const struct network *network, size_t tensor, size_t batch)
{
    if (!network->part)
        return batch;
    const struct box box = part_box(network, tensor, network->part->rank, batch);
    return box_extent(&box, AXIS_IMAGES);
}

/* Groups of ranks, by the images that they have boxes of, in which a node's sums are taken. */
static size_t norm_groups(const struct network_part *part, size_t tensor)
{
    const size_t images = part->layouts[tensor].parts[AXIS_IMAGES];
    return part->norm == NORM_ALL ? 1 : part->norm == NORM_SAMPLE ? images : part->ranks;
}

double network_joint(const struct network *network, size_t node, size_t batch)
{
    const struct network_part *part = network->part;
    if (!part || network->nodes[node].operation.kind != OPERATION_BATCH_NORM)
        return 0;
    const size_t tensor = part->tensors[node + 1].tensor, groups = norm_groups(part, tensor);
    const struct tensor *whole = &part->whole->tensors[tensor];
    const struct box box = held(part, tensor, part->rank, batch);
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

/* ---- Layouts ---- */

static bool name_begins(const char *name, const char *prefix)
{
    const size_t length = strlen(prefix);
    return strncmp(name, prefix, length) == 0 && (!name[length] || name[length] == '.');
}

/* The nodes of a range, *first to *last. */
static alnico_status_t range_find(const struct network *whole, const struct split_range *range,
                                  size_t *first, size_t *last)
{
    bool begins = !range->first[0], ends = !range->last[0];
    *first = 0;
    *last = whole->count - 1;
    for (size_t i = 0; i < whole->count; i++) {
        const char *name = whole->nodes[i].operation.name;
        if (!begins && name_begins(name, range->first)) {
            *first = i;
            begins = true;
        }
        if (range->last[0] && name_begins(name, range->last)) {
            *last = i;
            ends = true;
        }
    }
    if (begins && ends && *first <= *last)
        return ALNICO_SUCCESS;
    return error_set(ALNICO_ERROR_ARGUMENT,
                     "split: '%s..%s' names no operations of the network in their order",
                     range->first, range->last);
}

/* Whether all that a node reads is split as its range says. */
static bool follows(const struct node *node, const bool *inside)
{
    for (size_t k = 0; k < node->inputs; k++)
        if (node->in[k] && !inside[node->in[k]])
            return false;
    return !reads_images(node);
}

static size_t grain_of(const struct network_part *part, const struct node *node)
{
    const size_t before = part->layouts[node->in[0]].grain;
    if (node->operation.kind == OPERATION_UPSAMPLE)
        return before * node->operation.stride;
    return layer_of(node)->reads ? 1 : before;
}

static bool has_pixels(const struct network_part *part, size_t tensor)
{
    for (size_t rank = 0; rank < part->ranks; rank++) {
        const struct box box = held(part, tensor, rank, part->ranks);
        if (!box_elements(&box))
            return false;
    }
    return true;
}

static bool cuts_pixels(const struct split_range *range)
{
    return range->parts[AXIS_ROWS] > 1 || range->parts[AXIS_COLUMNS] > 1;
}

/* Gives the outputs of a range's nodes their layouts. `inside`: by tensor, those that have one. */
static alnico_status_t range_apply(struct network_part *part, const struct split_range *range,
                                   bool *inside)
{
    const struct network *whole = part->whole;
    size_t first, last;
    TRY(range_find(whole, range, &first, &last));
    for (size_t i = first; i <= last; i++) {
        const struct node *node = &whole->nodes[i];
        struct layout *layout = &part->layouts[i + 1];
        if (range->first[0] && reads_images(node) && cuts_pixels(range))
            return error_set(ALNICO_ERROR_ARGUMENT,
                             "split: %s '%s' reads whole images, so it cannot be split by rows or "
                             "columns",
                             operation_kind_name(node->operation.kind), node->operation.name);
        if (!range->first[0] && !follows(node, inside))
            continue;
        inside[i + 1] = true;
        memcpy(layout->parts, range->parts, sizeof layout->parts);
        layout->grain = (uint16_t)grain_of(part, node);
        if (i == first && !has_pixels(part, i + 1))
            return error_set(ALNICO_ERROR_ARGUMENT,
                             "split: '%s' makes %zux%zu pixels, so that of %zu x %zu parts some "
                             "ranks would have none",
                             node->operation.name, whole->tensors[i + 1].height,
                             whole->tensors[i + 1].width, (size_t)range->parts[AXIS_ROWS],
                             (size_t)range->parts[AXIS_COLUMNS]);
    }
    return ALNICO_SUCCESS;
}

static alnico_status_t ranges_check(const struct split *split, size_t ranks)
{
    for (size_t i = 0; i < split->count; i++) {
        const struct layout layout = {{split->ranges[i].parts[0], split->ranges[i].parts[1],
                                       split->ranges[i].parts[2], split->ranges[i].parts[3]},
                                      1};
        if (layout_ranks(&layout) != ranks)
            return error_set(ALNICO_ERROR_ARGUMENT,
                             "split: images=%zu,rows=%zu,columns=%zu makes %zu parts, expected one "
                             "for each of the %zu ranks",
                             (size_t)layout.parts[AXIS_IMAGES], (size_t)layout.parts[AXIS_ROWS],
                             (size_t)layout.parts[AXIS_COLUMNS], layout_ranks(&layout), ranks);
    }
    return ALNICO_SUCCESS;
}

/* The images are held as the first operation's output is. */
static alnico_status_t layouts_choose(struct network_part *part, const struct split *split,
                                      bool *inside)
{
    const struct network *whole = part->whole;
    for (size_t t = 0; t <= whole->count; t++)
        part->layouts[t] = (struct layout){{(uint16_t)part->ranks, 1, 1, 1}, 1};
    for (size_t i = 0; i < split->count; i++)
        TRY(range_apply(part, &split->ranges[i], inside));
    memcpy(part->layouts[0].parts, part->layouts[1].parts, sizeof part->layouts[0].parts);
    return ALNICO_SUCCESS;
}

/* ---- This rank's network ---- */

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
    if (!layer_of(node)->reads || !node->operation.window || !box_elements(reads))
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
        const struct box holds = held(part, n->in[input], rank, batch),
                         reads = node_reads(part, node, input, rank, batch, &wanted);
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
        const struct box x = node_reads(part, a->reader, a->input, rank, batch, &wanted),
                         y = node_reads(part, b->reader, b->input, rank, batch, &wanted);
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
                        .channels = part->whole->tensors[from.tensor].channels};
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
    const struct box box = node_reads(part, node, 0, part->rank, nominal_batch(part), &wanted);
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

static alnico_status_t norms_find(struct network_part *part)
{
    for (size_t i = 0; i < part->whole->count; i++) {
        const struct operation *operation = &part->whole->nodes[i].operation;
        const size_t groups = norm_groups(part, i + 1);
        if (operation->kind != OPERATION_BATCH_NORM || groups == part->ranks)
            continue;
        if (part->norm_parts && part->norm_parts != groups)
            return error_set(ALNICO_ERROR_ARGUMENT,
                             "split: batch norm '%s' is over the ranks of %zu parts of images, and "
                             "those before it over %zu",
                             operation->name, groups, part->norm_parts);
        part->norm_parts = groups;
    }
    return ALNICO_SUCCESS;
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
    TRY(layouts_choose(network->part, split, inside));
    TRY(norms_find(network->part));
    nodes_make(network, at);
    return labels_find(network);
}

alnico_status_t network_split(const struct network *whole, const struct split *split, size_t rank,
                              size_t ranks, struct network **out)
{
    *out = NULL;
    TRY(ranges_check(split, ranks));
    struct network *network = calloc(1, sizeof *network);
    if (!network)
        return error_set(ALNICO_ERROR_MEMORY, "network_split: no memory");
    *network = (struct network){.parameters = whole->parameters,
                                .statistics = whole->statistics,
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

void network_part_destroy(struct network_part *part)
{
    if (!part)
        return;
    free(part->layouts);
    free(part->tensors);
    free(part);
}
