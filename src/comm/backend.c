/* The table of backends. */
#include "comm/backend.h"

#include <string.h>

const struct backend_ops *const backend_all[] = {&backend_host,
                                                 &backend_peer,
#ifdef ALNICO_HAVE_CUDA
                                                 &backend_peer_cuda,
                                                 &backend_shared,
#endif
#ifdef ALNICO_HAVE_NCCL
                                                 &backend_nccl,
#endif
                                                 NULL};

const struct backend_ops *backend_find(const char *name, const struct device_ops *device)
{
    for (const struct backend_ops *const *backend = backend_all; *backend; backend++)
        if ((*backend)->devices & 1u << device->kind && strcmp((*backend)->name, name) == 0)
            return *backend;
    return NULL;
}
