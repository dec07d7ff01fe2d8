/* The table of device residents. */
#include "device/device.h"

#ifdef ALNICO_HAVE_CUDA
#include "device/cuda/driver.h"
#endif
#include "base/status.h"

const struct device_ops *device_find(alnico_device_t device)
{
    static const struct device_ops *const residents[] = {&device_cpu,
#ifdef ALNICO_HAVE_CUDA
                                                         &device_cuda
#endif
    };
    for (size_t i = 0; i < sizeof residents / sizeof *residents; i++) {
        if (residents[i]->kind != device)
            continue;
        bool there = !residents[i]->probe || residents[i]->probe() == ALNICO_SUCCESS;
        return there ? residents[i] : NULL;
    }
    error_set(ALNICO_ERROR_UNSUPPORTED, "this build has no %s device",
              device == ALNICO_DEVICE_CUDA ? "CUDA" : "such");
    return NULL;
}

alnico_status_t device_ready(const struct device_ops *device, void *stream, const char *who)
{
    if (device->check_stream)
        TRY(device->check_stream(stream, who));
    alnico_status_t status = device->prepare ? device->prepare() : ALNICO_SUCCESS;
    if (status != ALNICO_SUCCESS)
        error_set(status, "%s: %s", who, alnico_error_detail());
    return status;
}

#ifndef ALNICO_HAVE_CUDA
static bool cuda_in_use(void)
{
    return false;
}

static alnico_status_t cuda_refuse_memory(const void *memory, const char *name, const char *who)
{
    (void)memory, (void)name, (void)who;
    return ALNICO_SUCCESS;
}
#endif

alnico_status_t device_check_host(const void *memory, const char *name, const char *who)
{
    return cuda_in_use() ? cuda_refuse_memory(memory, name, who) : ALNICO_SUCCESS;
}

/* Its page. */
bool device_host_extent(const void *memory, uintptr_t *from, size_t *bytes)
{
    if (!cuda_in_use())
        return false;
    *bytes = 4096;
    *from = (uintptr_t)memory / 4096 * 4096;
    return true;
}
