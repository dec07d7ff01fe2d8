/* The table of backends. */
#include "comm/backends/backend.h"

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

/* Each call looks its backend up: two short names that are mostly not equal are compared faster so
 * than by strcmp. */
static bool is_named(const struct backend_ops *backend, const char *name)
{
    const char *own = backend->name;
    for (; *own && *own == *name; own++)
        name++;
    return *own == *name;
}

const struct backend_ops *backend_find(const char *name, const struct device_ops *device)
{
    for (const struct backend_ops *const *backend = backend_all; *backend; backend++)
        if ((*backend)->devices & 1u << device->kind && is_named(*backend, name))
            return *backend;
    return NULL;
}
