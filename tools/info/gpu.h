/* GPUs in alnico-info, in builds with CUDA. Main thread. */
#ifndef ALNICO_TOOLS_INFO_GPU_H
#define ALNICO_TOOLS_INFO_GPU_H

#include <cjson/cJSON.h>

/* Adds "gpus", an array of one object each, if there is a GPU. */
void info_add_gpus(cJSON *info);

/* Adds the versions of CUDA's runtime and driver, and of NCCL if this build has it. */
void info_add_gpu_libraries(cJSON *libraries);

#endif
