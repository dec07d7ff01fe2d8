/* One status for all ranks of a step. */
#include "comm/agree.h"

#include "base/status.h"

#include <stdio.h>

static alnico_status_t first_error(const struct step_result *all, int size)
{
    for (int i = 0; i < size; i++)
        if (all[i].status != ALNICO_SUCCESS)
            return error_set((alnico_status_t)all[i].status, "rank %d: %.*s", i,
                             (int)sizeof all[i].detail - 1, all[i].detail);
    return ALNICO_SUCCESS;
}

alnico_status_t agree_on_status(out_of_band_allgather *allgather, void *context,
                                struct step_result *all, int size, void *address,
                                alnico_status_t *status)
{
    struct step_result mine = {.address = address, .status = *status};
    if (*status != ALNICO_SUCCESS)
        snprintf(mine.detail, sizeof mine.detail, "%s", alnico_error_detail());
    TRY(allgather(context, &mine, all, sizeof mine));
    *status = first_error(all, size);
    return ALNICO_SUCCESS;
}
