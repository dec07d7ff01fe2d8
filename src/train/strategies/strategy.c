/* The table of strategies, and what they share. See strategy.h. */
#include "train/strategies/strategy.h"

#include "base/status.h"

#include <string.h>

const struct strategy_ops *const strategies_all[] = {&strategy_allreduce, &strategy_server,
                                                     &strategy_weights, &strategy_async, NULL};

const struct strategy_ops *strategy_find(const char *name)
{
    for (size_t i = 0; strategies_all[i]; i++)
        if (strcmp(strategies_all[i]->name, name) == 0)
            return strategies_all[i];
    return NULL;
}

alnico_status_t strategy_check_ends(const struct strategy_setup *setup, const char *name)
{
    size_t before = 0;
    for (size_t i = 0; i < setup->buckets; before = setup->ends[i++])
        if (setup->ends[i] <= before || setup->ends[i] > setup->count)
            return error_set(ALNICO_ERROR_ARGUMENT,
                             "strategy %s: bucket %zu ends at %zu, expected %zu to %zu", name, i,
                             setup->ends[i], before + 1, setup->count);
    if (before == setup->count)
        return ALNICO_SUCCESS;
    return error_set(ALNICO_ERROR_ARGUMENT,
                     "strategy %s: the last bucket ends at %zu, expected %zu", name, before,
                     setup->count);
}

bool strategy_is_inline(const struct strategy_setup *setup)
{
    return setup->device->kind == ALNICO_DEVICE_CPU && !setup->stream;
}

alnico_status_t strategy_wait(const struct strategy_setup *setup, alnico_request_t *request)
{
    if (!*request)
        return ALNICO_SUCCESS;
    return strategy_is_inline(setup) ? alnico_request_synchronize(request) : alnico_wait(request);
}
