/* The table of device residents. */
#include "device/device.h"

const struct device_ops *device_find(alnico_device_t device)
{
    static const struct device_ops *const residents[] = {&device_cpu};
    for (size_t i = 0; i < sizeof residents / sizeof *residents; i++)
        if (residents[i]->kind == device)
            return residents[i];
    return NULL;
}
