/* The table of strategies. See strategy.h. */
#include "train/strategies/strategy.h"

#include <string.h>

const struct strategy_ops *const strategies_all[] = {&strategy_allreduce, NULL};

const struct strategy_ops *strategy_find(const char *name)
{
    for (size_t i = 0; strategies_all[i]; i++)
        if (strcmp(strategies_all[i]->name, name) == 0)
            return strategies_all[i];
    return NULL;
}
