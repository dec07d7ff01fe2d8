/* The table of kernels residents, and where their tensors stand. See kernels.h. */
#include "train/kernels/kernels.h"

#include "base/status.h"

#include <string.h>

const struct kernels_ops *const kernels_all[] = {
#ifdef ALNICO_HAVE_ONEDNN
    &kernels_onednn,
#endif
#ifdef ALNICO_HAVE_CUDNN
    &kernels_cudnn,
#endif
    &kernels_naive,
    NULL,
};

const struct kernels_ops *kernels_find(const char *name)
{
    for (size_t i = 0; kernels_all[i]; i++)
        if (strcmp(kernels_all[i]->name, name) == 0)
            return kernels_all[i];
    return NULL;
}

const struct kernels_ops *kernels_default(alnico_device_t device)
{
    for (size_t i = 0; kernels_all[i]; i++)
        if (kernels_all[i]->device == device)
            return kernels_all[i];
    return NULL;
}

alnico_status_t kernels_capability(enum precision precision, int major, int minor)
{
    static const int least[PRECISIONS] = {
        [PRECISION_BF16] = 8, [PRECISION_FP16] = 7}; /* tensor cores that have it */
    if (major >= least[precision])
        return ALNICO_SUCCESS;
    return error_set(ALNICO_ERROR_UNSUPPORTED,
                     "the GPU is of compute capability %d.%d, and %s needs %d.0", major, minor,
                     precision_name(precision), least[precision]);
}

static void *place(const struct kernels_setup *setup, size_t offset)
{
    return offset == PLAN_NONE ? NULL : (char *)setup->arenas->activations + offset;
}

void *setup_value(const struct kernels_setup *setup, size_t tensor)
{
    return tensor == 0 ? setup->arenas->images : place(setup, setup->plan->values[tensor]);
}

void *setup_diff(const struct kernels_setup *setup, size_t tensor)
{
    return place(setup, setup->plan->diffs[tensor]);
}

void *setup_saved(const struct kernels_setup *setup, const struct step *step)
{
    return place(setup, step->saved);
}

void *setup_scratch(const struct kernels_setup *setup, const struct step *step, int backward)
{
    return place(setup, step->scratch[backward]);
}

struct dropout setup_masks(const struct kernels_setup *setup, size_t node)
{
    const struct network *network = setup->network;
    struct dropout dropout = dropout_make(setup->options.seed, network_number(network, node),
                                          network->nodes[node].operation.rate);
    if (!network->part)
        return dropout;
    const struct network_part *part = network->part;
    const struct box box = part_box(network, node + 1, part->rank, setup->plan->batch);
    dropout.draw.image = (uint32_t)box.from[AXIS_IMAGES];
    dropout.own_width = (uint32_t)network->tensors[node + 1].width;
    dropout.width = (uint32_t)part->whole->tensors[part->tensors[node + 1].tensor].width;
    dropout.first =
        (uint32_t)(box.from[AXIS_ROWS] * (ptrdiff_t)dropout.width + box.from[AXIS_COLUMNS]);
    return dropout;
}

struct dropout setup_dropout(const struct kernels_setup *setup, size_t node)
{
    struct dropout dropout = setup_masks(setup, node);
    dropout.draw.step = setup->arenas->draw->step;
    dropout.draw.image += setup->arenas->draw->image;
    return dropout;
}
