/* The table of kernels residents, and where their tensors stand. See kernels.h. */
#include "kernels.h"

#include <string.h>

const struct kernels_ops *const kernels_all[KERNELS] = {&kernels_onednn, &kernels_naive};

const struct kernels_ops *kernels_find(const char *name)
{
    for (size_t i = 0; i < KERNELS; i++)
        if (strcmp(kernels_all[i]->name, name) == 0)
            return kernels_all[i];
    return NULL;
}

float *setup_value(const struct kernels_setup *setup, size_t tensor)
{
    if (tensor == 0)
        return setup->arenas->images;
    return setup->arenas->values + setup->plan->values[tensor];
}

float *setup_diff(const struct kernels_setup *setup, size_t tensor)
{
    const size_t at = setup->plan->diffs[tensor];
    return at == PLAN_NONE ? NULL : setup->arenas->diffs + at;
}
