/* See range.h. NVTX is headers only: the first call looks for a tool. */
#include "train/base/nvtx.h"

#include <nvtx3/nvToolsExt.h>

void nvtx_begin(const char *name)
{
    nvtxRangePushA(name);
}

void nvtx_end(void)
{
    nvtxRangePop();
}
