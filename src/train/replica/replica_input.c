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
    void *images;                /* of the device */
    int32_t *labels, *staged;    /* of the device; pinned, as long as the batch */
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
    return replica->plan->batch * replica->network->labels;
}

static alnico_status_t buffer_create(const struct replica *replica, struct input_buffer *buffer)
{
    const struct device_ops *device = replica->device;
    const size_t labels = replica_labels(replica) * sizeof *buffer->labels;
    if (replica->input->direct) {
        buffer->images = replica->arenas.images;
        buffer->labels = replica->arenas.labels;
    } else {
        TRY(device->alloc(replica->plan->batch * image_bytes(replica), &buffer->images));
        TRY(device->alloc(labels, (void **)&buffer->labels));
    }
    TRY(device->pinned_alloc(labels, (void **)&buffer->staged));
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
    const size_t each = replica->network->labels, classes = replica->network->classes;
    const int32_t least = each > 1 ? -1 : 0;
    if (count > replica->plan->batch)
        return error_set(ALNICO_ERROR_ARGUMENT, "replica_load: %zu images, expected at most %zu",
                         count, replica->plan->batch);
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

static alnico_status_t batch_copy(const struct replica *replica, const struct input_buffer *buffer,
                                  const void *images, size_t count)
{
    const struct device_ops *device = replica->device;
    const size_t batch = replica->plan->batch, each = image_bytes(replica);
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
    labels_stage(replica, buffer, labels, count);
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
                         replica->plan->batch * image_bytes(replica), replica->stream));
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
