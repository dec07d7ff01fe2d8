/* Weights in the working type and layout, the copy of their gradients to the arena, and the update.
 * See cudnn/steps.h. */
#include "train/kernels/cudnn/steps.h"

#include "base/status.h"

#include <stdlib.h>

static bool has_weights(const struct node *node)
{
    return node->operation.kind == OPERATION_CONVOLUTION || node->operation.kind == OPERATION_DENSE;
}

size_t weights_own_bytes(const struct plan *plan)
{
    const struct network *network = plan->network;
    size_t bytes =
        plan->precision == PRECISION_FP32
            ? 0
            : plan_line(network->parameters * datatype_bytes(precision_type(plan->precision)));
    for (size_t i = 0; i < network->count; i++) {
        bool direct = true;
        if (!has_weights(&network->nodes[i]))
            continue;
        const struct train_fold fold = weights_fold(plan, &network->nodes[i], &direct);
        bytes += direct ? 0 : plan_line(fold_bytes(&fold));
    }
    return bytes;
}

static size_t chunks_of(size_t count)
{
    return (count + TRAIN_CHUNK - 1) / TRAIN_CHUNK;
}

static size_t chunk_count(const struct network *network)
{
    size_t count = 0;
    for (size_t i = 0; i < network->count; i++)
        count +=
            chunks_of(network->nodes[i].weight.count) + chunks_of(network->nodes[i].bias.count);
    return count;
}

size_t update_own_bytes(const struct network *network)
{
    const size_t chunks = chunk_count(network), segments = 2 * network->count;
    return plan_line(chunks * sizeof(struct train_chunk)) +
           plan_line(segments * sizeof(struct train_segment)) +
           plan_line((2 * chunks + segments) * sizeof(float)) +
           plan_line(UPDATE_NUMBERS * sizeof(float)) + plan_line(sizeof(unsigned));
}

void *gradient_at(const struct cudnn_net *self, size_t offset)
{
    return (char *)self->setup.arenas->gradients +
           offset * datatype_bytes(self->setup.gradient_type);
}

/* The gradient is made where it belongs if type and place allow. */
alnico_status_t weights_make(struct cudnn_net *self, struct cudnn_step *step)
{
    struct cudnn_weights *w = &step->weights;
    w->node = step->node;
    w->fold = weights_fold(self->setup.plan, step->node, &w->direct);
    w->bytes = fold_bytes(&w->fold);
    w->working = w->direct
                     ? (char *)self->working + w->node->weight.offset * datatype_bytes(self->type)
                     : own_take(self, w->bytes);
    w->gradient_direct = w->direct && self->setup.gradient_type == self->type;
    w->gradient = w->gradient_direct ? gradient_at(self, w->node->weight.offset)
                                     : step_scratch_weights(self, step);
    return ALNICO_SUCCESS;
}

alnico_status_t weights_home(struct cudnn_net *self, const struct cudnn_step *step)
{
    const struct cudnn_weights *w = &step->weights;
    if (w->gradient_direct)
        return ALNICO_SUCCESS;
    return gpu_status(train_unfold(&self->gpu, &w->fold, gradient_at(self, w->node->weight.offset),
                                   (int)self->setup.gradient_type, w->gradient),
                      "bringing the gradient of weights home");
}

/* Cuts a parameter tensor into chunks. */
static void segment_add(const struct parameter *parameter, bool decays, struct train_chunk *chunks,
                        struct train_segment *segments, struct train_update *u)
{
    if (!parameter->count)
        return;
    segments[u->segment_count] = (struct train_segment){
        .first = u->chunk_count, .chunks = (uint32_t)chunks_of(parameter->count), .decays = decays};
    for (size_t at = 0; at < parameter->count; at += TRAIN_CHUNK) {
        const size_t left = parameter->count - at;
        chunks[u->chunk_count++] =
            (struct train_chunk){.begin = parameter->offset + at,
                                 .count = left < TRAIN_CHUNK ? (uint32_t)left : TRAIN_CHUNK,
                                 .decays = decays,
                                 .segment = u->segment_count};
    }
    u->segment_count++;
}

static alnico_status_t tables_copy(struct cudnn_net *self, const struct train_chunk *chunks,
                                   const struct train_segment *segments)
{
    struct train_update *u = &self->update;
    const size_t chunk_bytes = u->chunk_count * sizeof *chunks;
    const size_t segment_bytes = u->segment_count * sizeof *segments;
    void *chunk_memory = own_take(self, chunk_bytes);
    void *segment_memory = own_take(self, segment_bytes);
    u->sums = own_take(self, (2 * u->chunk_count + u->segment_count) * sizeof *u->sums);
    u->numbers = own_take(self, UPDATE_NUMBERS * sizeof *u->numbers);
    u->bad = own_take(self, sizeof *u->bad);
    u->chunks = chunk_memory;
    u->segments = segment_memory;
    TRY(CUDA(cudaMemsetAsync, u->bad, 0, sizeof *u->bad, self->setup.stream));
    TRY(copy_in(self, chunk_memory, chunks, chunk_bytes));
    return copy_in(self, segment_memory, segments, segment_bytes);
}

static void tables_fill(struct cudnn_net *self, struct train_chunk *chunks,
                        struct train_segment *segments)
{
    const struct network *network = self->setup.network;
    const struct arenas *arenas = self->setup.arenas;
    self->update = (struct train_update){
        .parameters = arenas->parameters,
        .states = {arenas->states[0], arenas->states[1]},
        .gradients = arenas->gradients,
        .working = self->type == ALNICO_FLOAT32 ? NULL : self->working,
        .count = network->parameters,
        .gradient_type = (int)self->setup.gradient_type,
        .working_type = (int)self->type,
        .find_scale = self->type == ALNICO_FLOAT16 && self->setup.options.loss_scale <= 0,
    };
    for (size_t i = 0; i < network->count; i++) {
        const struct node *node = &network->nodes[i];
        segment_add(&node->weight, layers_all[node->operation.kind]->decays, chunks, segments,
                    &self->update);
        segment_add(&node->bias, false, chunks, segments, &self->update);
    }
}

alnico_status_t update_make(struct cudnn_net *self)
{
    const struct network *network = self->setup.network;
    struct train_chunk *chunks = calloc(chunk_count(network) + 1, sizeof *chunks);
    struct train_segment *segments = calloc(2 * network->count + 1, sizeof *segments);
    if (chunks && segments)
        tables_fill(self, chunks, segments);
    const alnico_status_t status = chunks && segments
                                       ? tables_copy(self, chunks, segments)
                                       : error_set(ALNICO_ERROR_MEMORY, "cuDNN kernels: no memory");
    free(chunks);
    free(segments);
    return status;
}

alnico_status_t weights_fold_all(struct cudnn_net *self)
{
    const float *parameters = self->setup.arenas->parameters;
    for (size_t s = 0; s < self->setup.plan->count; s++) {
        const struct cudnn_weights *w = &self->steps[s].weights;
        if (w->node && !w->direct)
            TRY(gpu_status(
                train_fold(&self->gpu, &w->fold, w->working, parameters + w->node->weight.offset),
                "folding weights"));
    }
    return ALNICO_SUCCESS;
}

alnico_status_t weights_refresh(struct cudnn_net *self)
{
    TRY(gpu_status(train_refresh(&self->gpu, &self->update), "parameters in the working type"));
    return weights_fold_all(self);
}
