/* See graph/views.h. */
#include "train/graph/views.h"

/* A node at work on a rank: what it makes, the tensor that it reads, what of that stands on the rank. */
struct reader {
    const struct node *node; /* of the whole network */
    const struct tensor *in; /* the same */
    struct box out, made, kept;
};

/* The box of the input that a box of the output reads; it may reach over the ends of the image. */
static struct box windows_of(const struct reader *reader, struct box out)
{
    layers_all[reader->node->operation.kind]->reads(reader->node, reader->in, &out);
    return out;
}

/* Whether all pixels of the image that are read for a row, or column, of the output stand on the rank. */
static bool is_inner(const struct reader *reader, enum axis axis, ptrdiff_t at)
{
    const ptrdiff_t end = (ptrdiff_t)(axis == AXIS_ROWS ? reader->in->height : reader->in->width);
    struct box out = reader->out;
    out.from[axis] = at;
    out.to[axis] = at + 1;
    const struct box reads = windows_of(reader, out);
    const ptrdiff_t from = reads.from[axis] > 0 ? reads.from[axis] : 0,
                    to = reads.to[axis] < end ? reads.to[axis] : end;
    return from >= reader->kept.from[axis] && to <= reader->kept.to[axis];
}

static struct box interior_of(const struct reader *reader)
{
    struct box box = reader->out;
    for (enum axis axis = AXIS_ROWS; axis <= AXIS_COLUMNS; axis++) {
        while (box.from[axis] < box.to[axis] && !is_inner(reader, axis, box.from[axis]))
            box.from[axis]++;
        while (box.from[axis] < box.to[axis] && !is_inner(reader, axis, box.to[axis] - 1))
            box.to[axis]--;
    }
    return box;
}

static struct box box_within(struct box box, const struct box *outer)
{
    for (enum axis axis = 0; axis < AXES; axis++) {
        box.from[axis] -= outer->from[axis];
        box.to[axis] -= outer->from[axis];
    }
    return box;
}

static void view_add(const struct reader *reader, const struct box *out, struct view *views,
                     size_t *count)
{
    if (!box_elements(out))
        return;
    struct box windows = windows_of(reader, *out), in = windows;
    for (enum axis axis = AXIS_ROWS; axis <= AXIS_COLUMNS; axis++) {
        if (in.from[axis] < reader->made.from[axis])
            in.from[axis] = reader->made.from[axis];
        if (in.to[axis] > reader->made.to[axis])
            in.to[axis] = reader->made.to[axis];
    }
    in.from[AXIS_CHANNELS] = reader->made.from[AXIS_CHANNELS];
    in.to[AXIS_CHANNELS] = reader->made.to[AXIS_CHANNELS];
    views[(*count)++] =
        (struct view){.out = box_within(*out, &reader->out),
                      .in = box_within(in, &reader->made),
                      .pad_rows = (size_t)(in.from[AXIS_ROWS] - windows.from[AXIS_ROWS]),
                      .pad_columns = (size_t)(in.from[AXIS_COLUMNS] - windows.from[AXIS_COLUMNS])};
}

/* Rows before and behind the interior, then columns beside it. */
static size_t views_cut(const struct reader *reader, const struct box *interior,
                        struct view views[VIEWS])
{
    struct box rest = reader->out;
    size_t count = 0;
    view_add(reader, interior, views, &count);
    for (enum axis axis = AXIS_ROWS; axis <= AXIS_COLUMNS; axis++) {
        struct box before = rest, behind = rest;
        before.to[axis] = rest.from[axis] = interior->from[axis];
        behind.from[axis] = rest.to[axis] = interior->to[axis];
        view_add(reader, &before, views, &count);
        view_add(reader, &behind, views, &count);
    }
    return count;
}

/* Whether the node of a part reads by windows what a move makes, which brings nothing but pixels. */
static bool reader_find(const struct network *network, size_t node, size_t batch,
                        struct reader *out)
{
    const struct network_part *part = network->part;
    const struct node *own = &network->nodes[node];
    const size_t made = own->in[0];
    if (!part || !made || network->nodes[made - 1].operation.kind != OPERATION_MOVE ||
        !layers_all[own->operation.kind]->reads || !own->operation.window)
        return false;
    *out = (struct reader){.node = &part->whole->nodes[part->tensors[node + 1].tensor - 1],
                           .in = &part->whole->tensors[part->tensors[made].tensor],
                           .out = part_box(network, node + 1, part->rank, batch),
                           .made = part_box(network, made, part->rank, batch)};
    const struct box held = part_box(network, network->nodes[made - 1].in[0], part->rank, batch);
    out->kept = box_common(&held, &out->made);
    return box_extent(&out->kept, AXIS_IMAGES) == box_extent(&out->made, AXIS_IMAGES) &&
           box_extent(&out->kept, AXIS_CHANNELS) == box_extent(&out->made, AXIS_CHANNELS);
}

size_t views_make(const struct network *network, size_t node, size_t batch,
                  struct view views[VIEWS])
{
    struct reader reader;
    if (!reader_find(network, node, batch, &reader) || !box_elements(&reader.out))
        return 0;
    const struct box interior = interior_of(&reader);
    if (!box_elements(&interior) || box_equal(&interior, &reader.out))
        return 0;
    return views_cut(&reader, &interior, views);
}

size_t views_halo(const struct network *network, size_t node, size_t batch)
{
    struct reader reader;
    if (!reader_find(network, node, batch, &reader))
        return 0;
    struct box image = reader.made;
    image.from[AXIS_ROWS] = image.from[AXIS_COLUMNS] = 0;
    image.to[AXIS_ROWS] = (ptrdiff_t)reader.in->height;
    image.to[AXIS_COLUMNS] = (ptrdiff_t)reader.in->width;
    image = box_common(&image, &reader.made);
    return box_elements(&image) - box_elements(&reader.kept);
}
