/* See replica.h. */
#include "replica.h"

#include "device/device.h"
#include "status.h"

#include <stdlib.h>
#include <string.h>

/* Allocates and zeroes one arena. */
static alnico_status_t arena_create(size_t elements, void **out)
{
    const size_t bytes = (elements ? elements : 1) * sizeof(float);
    TRY(device_cpu.alloc(bytes, out));
    memset(*out, 0, bytes);
    return ALNICO_SUCCESS;
}

static alnico_status_t arenas_create(const struct plan *plan, struct arenas *out)
{
    const struct network *network = plan->network;
    const size_t images = plan->batch * tensor_elements(&network->tensors[0]);
    TRY(arena_create(network->parameters, (void **)&out->parameters));
    TRY(arena_create(network->parameters, (void **)&out->gradients));
    TRY(arena_create(network->statistics, (void **)&out->statistics));
    TRY(arena_create(plan->value_elements, (void **)&out->values));
    TRY(arena_create(plan->diff_elements, (void **)&out->diffs));
    TRY(arena_create(images, (void **)&out->images));
    return arena_create(plan->batch, (void **)&out->labels);
}

static void arenas_destroy(struct arenas *arenas)
{
    device_cpu.free(arenas->parameters);
    device_cpu.free(arenas->gradients);
    device_cpu.free(arenas->statistics);
    device_cpu.free(arenas->values);
    device_cpu.free(arenas->diffs);
    device_cpu.free(arenas->images);
    device_cpu.free(arenas->labels);
}

static alnico_status_t replica_build(struct replica *replica, size_t batch, int threads)
{
    TRY(plan_create(replica->network, replica->ops->run, batch, &replica->plan));
    TRY(arenas_create(replica->plan, &replica->arenas));
    const struct kernels_setup setup = {.network = replica->network,
                                        .plan = replica->plan,
                                        .arenas = &replica->arenas,
                                        .threads = threads};
    return replica->ops->create(&setup, &replica->kernels);
}

alnico_status_t replica_create(const struct network *network, const struct kernels_ops *kernels,
                               size_t batch, int threads, uint64_t seed, struct replica **out)
{
    *out = NULL;
    struct replica *replica = malloc(sizeof *replica);
    if (!replica)
        return error_set(ALNICO_ERROR_MEMORY, "replica_create: no memory");
    *replica = (struct replica){.network = network, .ops = kernels};
    const alnico_status_t status = replica_build(replica, batch, threads);
    if (status != ALNICO_SUCCESS) {
        replica_destroy(replica);
        return status;
    }
    network_initialize(network, seed, replica->arenas.parameters, replica->arenas.statistics);
    *out = replica;
    return ALNICO_SUCCESS;
}

void replica_destroy(struct replica *replica)
{
    if (!replica)
        return;
    replica->ops->destroy(replica->kernels);
    arenas_destroy(&replica->arenas);
    plan_destroy(replica->plan);
    free(replica);
}

alnico_status_t replica_load(struct replica *replica, const float *images, const int32_t *labels,
                             size_t count)
{
    const size_t batch = replica->plan->batch;
    const size_t each = tensor_elements(&replica->network->tensors[0]);
    const size_t classes = replica->network->tensors[replica->network->count].channels;
    if (count > batch)
        return error_set(ALNICO_ERROR_ARGUMENT, "replica_load: %zu images, expected at most %zu",
                         count, batch);
    for (size_t i = 0; i < count; i++)
        if (labels[i] < 0 || (size_t)labels[i] >= classes)
            return error_set(ALNICO_ERROR_ARGUMENT,
                             "replica_load: label %d of image %zu, expected 0 to %zu", labels[i], i,
                             classes - 1);
    if (count) {
        memcpy(replica->arenas.images, images, count * each * sizeof *images);
        memcpy(replica->arenas.labels, labels, count * sizeof *labels);
    }
    memset(replica->arenas.images + count * each, 0, (batch - count) * each * sizeof *images);
    for (size_t i = count; i < batch; i++)
        replica->arenas.labels[i] = -1;
    return ALNICO_SUCCESS;
}

alnico_status_t replica_forward(struct replica *replica, bool training)
{
    for (size_t s = 0; s < replica->plan->count; s++)
        TRY(replica->ops->forward(replica->kernels, s, training));
    return ALNICO_SUCCESS;
}

alnico_status_t replica_backward(struct replica *replica,
                                 alnico_status_t (*filled)(void *context, size_t elements),
                                 void *context)
{
    for (size_t s = replica->plan->count; s-- > 0;) {
        TRY(replica->ops->backward(replica->kernels, s));
        if (filled)
            TRY(filled(context, replica->plan->steps[s].filled));
    }
    return ALNICO_SUCCESS;
}

struct outcome replica_outcome(const struct replica *replica)
{
    const size_t last = replica->network->count;
    const size_t classes = replica->network->tensors[last].channels;
    const float *row = replica->arenas.values + replica->plan->values[last];
    struct outcome outcome = {0};
    for (size_t n = 0; n < replica->plan->batch; n++, row += classes) {
        const int32_t label = replica->arenas.labels[n];
        size_t best = 0;
        for (size_t k = 1; k < classes; k++)
            if (row[k] > row[best])
                best = k;
        if (label < 0)
            continue;
        outcome.loss -= row[label];
        outcome.correct += best == (size_t)label;
        outcome.count++;
    }
    return outcome;
}
