/* The table of strategies. See strategy.h. */
#include "train/strategies/strategy.h"

#include <string.h>

const struct strategy_ops *const strategy_all[STRATEGIES] = {&strategy_allreduce};

const struct strategy_ops *strategy_find(const char *name)
{
    for (size_t i = 0; i < STRATEGIES; i++)
        if (strcmp(strategy_all[i]->name, name) == 0)
            return strategy_all[i];
    return NULL;
}
