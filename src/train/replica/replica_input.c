/*
 * How batches come into a replica. See replica.h. Each is copied to a buffer of the device, from
 * which the kernels take it. Ahead, the copies run on a stream of their own, into two buffers by
 * turns: a batch travels while the one before it is computed with. Otherwise they run on the
 * replica's stream once that is idle; kernels that do not load then find the batch in the arenas.
 */
#include "train/replica/replica.h"

#include "base/status.h"

#include <stdlib.h>
#include <string.h>

struct input_buffer {
    void *images;             /* of the device */
    int32_t *labels, *staged; /* of the device; pinned, as long as the batch */
    float *cropped;           /* pinned: the rank's boxes of images; NULL: they come as they are */
    struct device_event *copied; /* into the buffer, on the copying stream */
    struct device_event *taken;  /* out of it, on the replica's */
};

struct replica_input {
    void *stream; /* that copies */
    size_t buffers, sent;
    bool direct;   /* the buffer is the arenas' images and labels */
    float *levels; /* of the device, 256; NULL: images are float32 */
    struct input_buffer all[REPLICA_BUFFERS];
};

size_t replica_buffers(const struct replica_setup *setup)
{
    const bool flows = setup->kernels->device != ALNICO_DEVICE_CPU || setup->stream;
    return setup->ahead && flows ? REPLICA_BUFFERS : setup->kernels->load ? 1 : 0;
}

size_t replica_image_bytes(const struct replica_setup *setup, const struct network *network)
{
    return tensor_elements(&network->tensors[0]) * (setup->levels ? 1 : sizeof(float));
}

static size_t image_bytes(const struct replica *replica)
{
    return replica_image_bytes(&replica->asked, replica->network);
}

size_t replica_labels(const struct replica *replica)
{
    return plan_images(replica->plan, replica->network->count) * replica->network->labels;
}

/* Images of which the rank has boxes. */
static size_t images_most(const struct replica *replica)
{
    return plan_images(replica->plan, 0);
}

size_t replica_counted(const struct replica *replica)
{
    const struct network_part *part = replica->network->part;
    const size_t images = images_most(replica);
    if (!part)
        return images;
    return part->rank % (part->ranks / part->layouts[0].parts[AXIS_IMAGES]) ? 0 : images;
}

static alnico_status_t buffer_create(const struct replica *replica, struct input_buffer *buffer)
{
    const struct device_ops *device = replica->device;
    const size_t labels = replica_labels(replica) * sizeof *buffer->labels;
    if (replica->input->direct) {
        buffer->images = replica->arenas.images;
        buffer->labels = replica->arenas.labels;
    } else {
        TRY(device->alloc(images_most(replica) * image_bytes(replica), &buffer->images));
        TRY(device->alloc(labels, (void **)&buffer->labels));
    }
    TRY(device->pinned_alloc(labels + 1, (void **)&buffer->staged));
    if (replica->network->part)
        TRY(device->pinned_alloc(images_most(replica) * image_bytes(replica) + 1,
                                 (void **)&buffer->cropped));
    TRY(device->event_create(&buffer->taken));
    return device->event_create(&buffer->copied);
}

static void buffer_destroy(const struct replica *replica, const struct input_buffer *buffer)
{
    const struct device_ops *device = replica->device;
    if (!replica->input->direct) {
        device->free(buffer->images);
        device->free(buffer->labels);
    }
    device->pinned_free(buffer->staged);
    if (buffer->cropped)
        device->pinned_free(buffer->cropped);
    device->event_destroy(buffer->copied);
    device->event_destroy(buffer->taken);
}

static alnico_status_t levels_create(const struct replica *replica, const float *levels)
{
    const size_t bytes = REPLICA_LEVELS * sizeof *levels;
    TRY(replica->device->alloc(bytes, (void **)&replica->input->levels));
    return replica->device->copy(replica->input->levels, levels, bytes, replica->stream);
}

alnico_status_t replica_input_create(struct replica *replica)
{
    const struct replica_setup *setup = &replica->asked;
    const size_t buffers = replica_buffers(setup);
    struct replica_input *input = calloc(1, sizeof *input);
    if (!input)
        return error_set(ALNICO_ERROR_MEMORY, "replica_create: no memory");
    replica->input = input;
    input->stream = replica->stream;
    input->direct = !buffers;
    input->buffers = buffers ? buffers : 1;
    if (buffers > 1)
        TRY(replica->device->stream_create(&input->stream));
    for (size_t i = 0; i < input->buffers; i++)
        TRY(buffer_create(replica, &input->all[i]));
    return setup->levels ? levels_create(replica, setup->levels) : ALNICO_SUCCESS;
}

void replica_input_destroy(struct replica *replica)
{
    struct replica_input *input = replica->input;
    if (!input)
        return;
    replica->device->stream_synchronize(input->stream);
    for (size_t i = 0; i < input->buffers; i++)
        buffer_destroy(replica, &input->all[i]);
    replica->device->free(input->levels);
    if (input->stream != replica->stream)
        replica->device->stream_destroy(input->stream);
    free(input);
}

static alnico_status_t batch_check(const struct replica *replica, const int32_t *labels,
                                   size_t count)
{
    const struct network_part *part = replica->network->part;
    const size_t each = part ? part->whole->labels : replica->network->labels,
                 classes = replica->network->classes;
    const int32_t least = each > 1 ? -1 : 0;
    if (count > images_most(replica))
        return error_set(ALNICO_ERROR_ARGUMENT, "replica_load: %zu images, expected at most %zu",
                         count, images_most(replica));
    for (size_t i = 0; i < count * each; i++)
        if (labels[i] < least || (labels[i] >= 0 && (size_t)labels[i] >= classes))
            return error_set(ALNICO_ERROR_ARGUMENT,
                             "replica_load: label %d of image %zu, expected %d to %zu", labels[i],
                             i / each, least, classes - 1);
    return ALNICO_SUCCESS;
}

/* The rest of the batch is no image. */
static void labels_stage(const struct replica *replica, const struct input_buffer *buffer,
                         const int32_t *labels, size_t count)
{
    const size_t filled = count * replica->network->labels;
    if (filled)
        memcpy(buffer->staged, labels, filled * sizeof *labels);
    for (size_t i = filled; i < replica_labels(replica); i++)
        buffer->staged[i] = -1;
}

/* The rank's box of what a tensor of its network is of the whole one. */
static struct box box_of(const struct replica *replica, size_t tensor)
{
    const struct network *network = replica->network;
    return part_box(network, tensor, network->part->rank, replica->plan->batch);
}

/* Labels of the last loss's box: those of the batch's images that it has, and of their pixels. */
static void labels_crop(const struct replica *replica, const struct input_buffer *buffer,
                        const int32_t *labels, size_t count)
{
    const struct network *whole = replica->network->part->whole;
    const ptrdiff_t width = (ptrdiff_t)whole->tensors[whole->count].width;
    const struct box box = box_of(replica, replica->network->count), images = box_of(replica, 0);
    int32_t *out = buffer->staged;
    if (!replica_labels(replica))
        return;
    for (ptrdiff_t n = box.from[AXIS_IMAGES]; n < box.to[AXIS_IMAGES]; n++)
        for (ptrdiff_t i = box.from[AXIS_ROWS]; i < box.to[AXIS_ROWS]; i++)
            for (ptrdiff_t j = box.from[AXIS_COLUMNS]; j < box.to[AXIS_COLUMNS]; j++) {
                const size_t image = (size_t)(n - images.from[AXIS_IMAGES]);
                *out++ =
                    image < count ? labels[image * whole->labels + (size_t)(i * width + j)] : -1;
            }
}

/* A row of an image, in the columns of a box, with zeros where the image has none. */
static void row_crop(const struct tensor *whole, const struct box *box, const float *row,
                     float *out)
{
    const size_t channels = whole->channels;
    for (ptrdiff_t j = box->from[AXIS_COLUMNS]; j < box->to[AXIS_COLUMNS]; j++, out += channels)
        if (row && j >= 0 && j < (ptrdiff_t)whole->width)
            memcpy(out, row + (size_t)j * channels, channels * sizeof *out);
        else
            memset(out, 0, channels * sizeof *out);
}

static void images_crop(const struct replica *replica, const struct input_buffer *buffer,
                        const float *images, size_t count)
{
    const struct tensor *whole = &replica->network->part->whole->tensors[0];
    const struct box box = box_of(replica, 0);
    const size_t row = whole->width * whole->channels;
    float *out = buffer->cropped;
    for (size_t n = 0; n < count && replica->network->tensors[0].height; n++)
        for (ptrdiff_t i = box.from[AXIS_ROWS]; i < box.to[AXIS_ROWS]; i++) {
            const bool inside = i >= 0 && i < (ptrdiff_t)whole->height;
            const float *from = images + (n * whole->height + (size_t)i) * row;
            row_crop(whole, &box, inside ? from : NULL, out);
            out += box_extent(&box, AXIS_COLUMNS) * whole->channels;
        }
}

static alnico_status_t batch_copy(const struct replica *replica, const struct input_buffer *buffer,
                                  const void *images, size_t count)
{
    const struct device_ops *device = replica->device;
    const size_t batch = images_most(replica), each = image_bytes(replica);
    void *stream = replica->input->stream;
    TRY(device->copy(buffer->images, images, count * each, stream));
    TRY(device->clear((char *)buffer->images + count * each, (batch - count) * each, stream));
    return device->copy(buffer->labels, buffer->staged,
                        replica_labels(replica) * sizeof *buffer->staged, stream);
}

alnico_status_t replica_send(struct replica *replica, const void *images, const int32_t *labels,
                             size_t count)
{
    const struct device_ops *device = replica->device;
    struct replica_input *input = replica->input;
    struct input_buffer *before = &input->all[(input->sent + 1) % input->buffers];
    struct input_buffer *buffer = &input->all[input->sent % input->buffers];
    TRY(batch_check(replica, labels, count));
    if (input->buffers == 1) /* a copy from memory that is not pinned waits without a deadline */
        TRY(replica_synchronize(replica));
    TRY(stream_wait_for(&replica->wait, before->copied));
    if (replica->network->part) {
        labels_crop(replica, buffer, labels, count);
        images_crop(replica, buffer, images, count);
        images = buffer->cropped;
    } else {
        labels_stage(replica, buffer, labels, count);
    }
    TRY(device->stream_wait(input->stream, buffer->taken));
    TRY(batch_copy(replica, buffer, images, count));
    TRY(device->event_record(buffer->copied, input->stream));
    input->sent++;
    return device->stream_wait(replica->stream, buffer->copied);
}

alnico_status_t replica_take(struct replica *replica)
{
    const struct device_ops *device = replica->device;
    const struct replica_input *input = replica->input;
    const struct input_buffer *buffer = &input->all[(input->sent - 1) % input->buffers];
    const struct arenas *arenas = &replica->arenas;
    if (input->direct)
        return ALNICO_SUCCESS;
    if (replica->ops->load)
        TRY(replica->ops->load(replica->kernels, buffer->images, input->levels));
    else
        TRY(device->copy(arenas->images, buffer->images,
                         images_most(replica) * image_bytes(replica), replica->stream));
    TRY(device->copy(arenas->labels, buffer->labels,
                     replica_labels(replica) * sizeof *buffer->labels, replica->stream));
    return device->event_record(buffer->taken, replica->stream);
}

alnico_status_t replica_load(struct replica *replica, const void *images, const int32_t *labels,
                             size_t count)
{
    const struct replica_input *input = replica->input;
    TRY(replica_send(replica, images, labels, count));
    TRY(stream_wait_for(&replica->wait, input->all[(input->sent - 1) % input->buffers].copied));
    return replica_take(replica);
}
