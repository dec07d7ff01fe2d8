/* Memory of a replica, and the largest batch that fits. See replica.h. */
#include "train/replica/replica.h"

#include "base/datatype.h"
#include "base/status.h"

#include <stdio.h>

/* Batches as they come, with boxes of them in what takes them over, where the network is split; of a GPU
 * these are the host's. */
static size_t whole_images(const struct plan *plan, const struct replica_setup *setup)
{
    const struct network_part *part = plan->network->part;
    const size_t images = plan_float_bytes(plan, 0), extra = setup->extras.batches,
                 buffers = replica_buffers(setup) ? replica_buffers(setup) : 1;
    if (!part || setup->kernels->device != ALNICO_DEVICE_CPU)
        return extra * images;
    return extra * plan_images(plan, 0) * tensor_elements(&part->whole->tensors[0]) *
               sizeof(float) +
           buffers * images;
}

static struct replica_memory plan_count(const struct plan *plan, const struct replica_setup *setup,
                                        size_t own, size_t messages)
{
    const struct network *network = plan->network;
    const size_t images = plan_float_bytes(plan, 0);
    const size_t labels = plan_images(plan, network->count) * network->labels * sizeof(int32_t);
    const size_t buffer = plan_images(plan, 0) * replica_image_bytes(setup, network) + labels;
    const size_t extra = setup->extras.batches;
    struct replica_memory memory = {
        .parameters = network->parameters * sizeof(float),
        .gradients =
            network->parameters * (datatype_bytes(setup->gradient_type) + setup->extras.gradients +
                                   (setup->sums ? sizeof(float) : 0)),
        .optimizer = optimizers_all[setup->optimizer]->states * network->parameters * sizeof(float),
        .statistics = network->statistics * sizeof(float),
        .images = whole_images(plan, setup) + !setup->kernels->load * images +
                  (extra + 1) * labels + replica_buffers(setup) * buffer,
        .activations = plan->bytes,
        .messages = messages,
        .kernels = own,
    };
    memory.total = memory.parameters + memory.gradients + memory.optimizer + memory.statistics +
                   memory.images + memory.activations + memory.messages + memory.kernels;
    return memory;
}

/* Before the kernels are made, about. */
static size_t own_bytes(const struct plan *plan, const struct kernels_ops *kernels)
{
    return kernels->own_bytes ? kernels->own_bytes(plan) : 0;
}

struct replica_memory replica_memory(const struct replica *replica)
{
    const struct kernels_ops *kernels = replica->ops;
    const size_t own = kernels->held_bytes ? kernels->held_bytes(replica->kernels)
                                           : own_bytes(replica->plan, kernels);
    size_t messages = 0;
    replica_moves_measure(replica->plan, &messages);
    return plan_count(replica->plan, &replica->asked, own, messages);
}

alnico_status_t replica_measure(const struct network *network, const struct replica_setup *setup,
                                struct replica_memory *out)
{
    struct plan *plan;
    TRY(plan_create(network, &setup->kernels->rules, setup->batch, setup->options.precision,
                    &plan));
    size_t messages;
    const alnico_status_t status = replica_moves_measure(plan, &messages);
    if (status == ALNICO_SUCCESS)
        *out = plan_count(plan, setup, own_bytes(plan, setup->kernels), messages);
    plan_destroy(plan);
    return status;
}

/* Whether a batch takes at most `bytes`. A batch that cannot be planned does not. */
static bool batch_fits(const struct network *network, struct replica_setup setup, size_t batch,
                       size_t bytes)
{
    struct replica_memory memory;
    setup.batch = batch;
    return replica_measure(network, &setup, &memory) == ALNICO_SUCCESS && memory.total <= bytes;
}

alnico_status_t replica_largest(const struct network *network, const struct replica_setup *setup,
                                size_t bytes, size_t *batch)
{
    struct replica_memory one;
    struct replica_setup single = *setup;
    single.batch = 1;
    TRY(replica_measure(network, &single, &one));
    size_t fits = 0, beyond = 1;
    while (beyond < SIZE_MAX / 4 && batch_fits(network, *setup, beyond, bytes)) {
        fits = beyond;
        beyond *= 2;
    }
    while (beyond - fits > 1) {
        const size_t middle = fits + (beyond - fits) / 2;
        if (batch_fits(network, *setup, middle, bytes))
            fits = middle;
        else
            beyond = middle;
    }
    *batch = fits;
    return ALNICO_SUCCESS;
}

alnico_status_t replica_fits(const struct network *network, const struct replica_setup *setup)
{
    const struct device_ops *device = device_find(setup->kernels->device);
    struct replica_memory memory;
    size_t limit = setup->memory_limit, total, largest;
    TRY(replica_measure(network, setup, &memory));
    if (!limit && !(device && device->memory))
        return ALNICO_SUCCESS;
    if (!limit)
        TRY(device->memory(&limit, &total));
    if (memory.total <= limit)
        return ALNICO_SUCCESS;
    TRY(replica_largest(network, setup, limit, &largest));
    char fits[64] = "not even a batch of 1 fits";
    if (largest)
        snprintf(fits, sizeof fits, "the largest batch that fits is %zu", largest);
    return error_set(ALNICO_ERROR_MEMORY, "batch %zu needs %.1f MiB, and there are %.1f MiB: %s",
                     setup->batch, (double)memory.total / 1048576, (double)limit / 1048576, fits);
}
