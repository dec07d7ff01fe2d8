/* Which layout each tensor of a network has when it is split over ranks. See graph/split.h. */
#include "train/graph/split.h"

#include "base/status.h"

#include <string.h>

static bool reads_images(const struct node *node)
{
    return layers_all[node->operation.kind]->reads_images && !node->operation.window;
}

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
    return layers_all[node->operation.kind]->reads ? 1 : before;
}

static bool has_pixels(const struct network_part *part, size_t tensor)
{
    for (size_t rank = 0; rank < part->ranks; rank++) {
        const struct box box = part_held(part, tensor, rank, part->ranks);
        if (!box_elements(&box))
            return false;
    }
    return true;
}

static bool cuts_pixels(const struct split_range *range)
{
    return range->parts[AXIS_ROWS] > 1 || range->parts[AXIS_COLUMNS] > 1;
}

/* Filters, and what is made of each by itself; the others of the range stay split by images. */
static alnico_status_t channels_apply(struct network_part *part, const struct split_range *range,
                                      bool *inside)
{
    const struct network *whole = part->whole;
    size_t first, last, split = 0;
    TRY(range_find(whole, range, &first, &last));
    for (size_t i = first; i <= last; i++) {
        const struct node *node = &whole->nodes[i];
        const enum layer_channels channels = layers_all[node->operation.kind]->channels;
        const bool follows = part->layouts[node->in[0]].parts[AXIS_CHANNELS] > 1;
        if (channels == CHANNELS_TOGETHER || (channels == CHANNELS_EACH && !follows))
            continue;
        if (whole->tensors[i + 1].channels < part->ranks)
            return error_set(
                ALNICO_ERROR_ARGUMENT,
                "split: '%s' makes %zu channels, so that of %zu parts some ranks would "
                "have none",
                node->operation.name, whole->tensors[i + 1].channels, part->ranks);
        inside[i + 1] = true;
        memcpy(part->layouts[i + 1].parts, range->parts, sizeof range->parts);
        split++;
    }
    const struct operation *operation = &whole->nodes[first].operation;
    if (!split)
        return error_set(ALNICO_ERROR_ARGUMENT,
                         "split: %s '%s' has no filters, so it cannot be split by channels",
                         operation_kind_name(operation->kind), operation->name);
    return ALNICO_SUCCESS;
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
        const size_t channels = layout.parts[AXIS_CHANNELS];
        if (layout_ranks(&layout) != ranks)
            return error_set(ALNICO_ERROR_ARGUMENT,
                             "split: images=%zu,rows=%zu,columns=%zu,channels=%zu makes %zu parts, "
                             "expected one for each of the %zu ranks",
                             (size_t)layout.parts[AXIS_IMAGES], (size_t)layout.parts[AXIS_ROWS],
                             (size_t)layout.parts[AXIS_COLUMNS], channels, layout_ranks(&layout),
                             ranks);
        if (channels > 1 && (channels != ranks || !split->ranges[i].first[0]))
            return error_set(ALNICO_ERROR_ARGUMENT,
                             "split: channels=%zu, expected nothing beside it but the names of "
                             "operations, as dense1:channels=%zu",
                             channels, ranks);
    }
    return ALNICO_SUCCESS;
}

/* All batch norms over several ranks are over as many. */
static alnico_status_t norms_find(struct network_part *part)
{
    for (size_t i = 0; i < part->whole->count; i++) {
        const struct operation *operation = &part->whole->nodes[i].operation;
        const size_t groups = part_norms(part, i + 1);
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

size_t split_image_parts(const struct network *whole, const struct split *split, size_t ranks)
{
    const bool images = reads_images(&whole->nodes[0]);
    size_t parts = ranks, first, last;
    for (size_t i = 0; i < split->count; i++) {
        const struct split_range *range = &split->ranges[i];
        if (range->parts[AXIS_CHANNELS] == 1 && !(images && !range->first[0]) &&
            range_find(whole, range, &first, &last) == ALNICO_SUCCESS && first == 0)
            parts = range->parts[AXIS_IMAGES];
    }
    return parts;
}

/* The images are held as the first operation's output is, or by images if that is split by channels. */
alnico_status_t split_layouts(struct network_part *part, const struct split *split, bool *inside)
{
    const struct network *whole = part->whole;
    TRY(ranges_check(split, part->ranks));
    for (size_t t = 0; t <= whole->count; t++)
        part->layouts[t] = (struct layout){{(uint16_t)part->ranks, 1, 1, 1}, 1};
    for (int channels = 0; channels < 2; channels++)
        for (size_t i = 0; i < split->count; i++)
            if ((split->ranges[i].parts[AXIS_CHANNELS] > 1) == channels)
                TRY((channels ? channels_apply : range_apply)(part, &split->ranges[i], inside));
    if (part->layouts[1].parts[AXIS_CHANNELS] == 1)
        memcpy(part->layouts[0].parts, part->layouts[1].parts, sizeof part->layouts[0].parts);
    return norms_find(part);
}
