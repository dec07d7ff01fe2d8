/* Boxes of tensors and messages, for moves between the ranks of a split network. See cudnn/steps.h. */
#include "train/kernels/cudnn/steps.h"

#include "base/status.h"

struct plan_part move_within(const struct plan *plan, size_t tensor)
{
    return plan_between(plan, tensor,
                        padded_channels(plan->network, tensor) *
                            datatype_bytes(precision_type(plan->precision)));
}

static char *tensor_at(const struct cudnn_net *self, const struct box_end *end)
{
    if (end->diff)
        return setup_diff(&self->setup, end->tensor);
    if (end->tensor)
        return setup_value(&self->setup, end->tensor);
    for (size_t s = 0; s < self->setup.plan->count; s++)
        if (self->steps[s].images &&
            step_is(self->setup.network, self->steps[s].step, 0, OPERATION_MOVE))
            return self->steps[s].images;
    return NULL;
}

/* A message is a tensor of its box alone. */
static struct train_place place_of(const struct cudnn_net *self, const struct box_end *end,
                                   const size_t count[AXES])
{
    const struct tensor *tensor = &self->setup.network->tensors[end->tensor];
    const size_t pixel = end->message ? count[AXIS_CHANNELS]
                                      : padded_channels(self->setup.network, end->tensor),
                 row = pixel * (end->message ? count[AXIS_COLUMNS] : tensor->width),
                 image = row * (end->message ? count[AXIS_ROWS] : tensor->height);
    struct train_place place = {.at = end->message, .image = image, .row = row, .pixel = pixel};
    if (!end->message)
        place.at =
            tensor_at(self, end) + (end->from[AXIS_IMAGES] * image + end->from[AXIS_ROWS] * row +
                                    end->from[AXIS_COLUMNS] * pixel + end->from[AXIS_CHANNELS]) *
                                       datatype_bytes(self->type);
    return place;
}

static bool is_aligned(const struct train_place *place)
{
    return (place->image | place->row | place->pixel) % 8 == 0 && (uintptr_t)place->at % 16 == 0;
}

static struct train_box box_of(const struct cudnn_net *self, const struct box_copy *copy)
{
    const struct network *network = self->setup.network;
    const size_t *count = copy->count, *first = copy->to.from,
                 end = first[AXIS_CHANNELS] + count[AXIS_CHANNELS], tensor = copy->to.tensor;
    const bool last = !copy->to.message && end == network->tensors[tensor].channels;
    struct train_box box = {.to = place_of(self, &copy->to, count),
                            .images = (unsigned)count[AXIS_IMAGES],
                            .rows = (unsigned)count[AXIS_ROWS],
                            .columns = (unsigned)count[AXIS_COLUMNS],
                            .channels = (unsigned)count[AXIS_CHANNELS],
                            .add = copy->add,
                            .zero = copy->zero};
    if (!copy->zero)
        box.from = place_of(self, &copy->from, count);
    if (last && !copy->add)
        box.pads = (unsigned)(padded_channels(network, tensor) - end);
    for (enum axis axis = 0; axis < AXES; axis++)
        box.first[axis] = (unsigned)first[axis];
    box.aligned =
        box.channels % 8 == 0 && !box.pads && is_aligned(&box.from) && is_aligned(&box.to);
    return box;
}

void *cudnn_direct(void *pointer, const struct box_end *end, const size_t count[AXES])
{
    const struct cudnn_net *self = pointer;
    const struct tensor *tensor = &self->setup.network->tensors[end->tensor];
    const bool whole = count[AXIS_CHANNELS] == padded_channels(self->setup.network, end->tensor),
               band = count[AXIS_IMAGES] == 1 && count[AXIS_COLUMNS] == tensor->width;
    return whole && band ? place_of(self, end, count).at : NULL;
}

/* What stands in its place already is left out. */
alnico_status_t cudnn_copy(void *pointer, const struct box_copy *copies, size_t count)
{
    const struct cudnn_net *self = pointer;
    struct train_box boxes[TRAIN_BOXES];
    for (size_t done = 0; done < count;) {
        unsigned some = 0;
        while (done < count && some < TRAIN_BOXES) {
            boxes[some] = box_of(self, &copies[done++]);
            some += boxes[some].from.at != boxes[some].to.at;
        }
        if (some)
            TRY(gpu_status(train_boxes(&self->gpu, boxes, some, (int)self->type),
                           "copying boxes of a move"));
    }
    return ALNICO_SUCCESS;
}
