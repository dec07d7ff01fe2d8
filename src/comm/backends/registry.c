/* The table of backends, and searching it. */
#include "comm/backends/backend.h"

#include <string.h>

#define POINTER(INDEX, NAME) &backend_##NAME,
const struct backend *const backends[] = {BACKENDS_EACH(POINTER)};

static bool serves(const struct backend *backend, int device)
{
    return backend->devices & 1u << device;
}

const struct backend *backend_find(const char *name, int device)
{
    for (int b = 0; b < BACKENDS; b++)
        if (serves(backends[b], device) && strcmp(backends[b]->name, name) == 0)
            return backends[b];
    return NULL;
}

const struct algorithm *backend_algorithm(const struct backend *backend, int collective,
                                          const char *name)
{
    for (const struct algorithm *const *a = backend->algorithms[collective]; a && *a; a++)
        if (strcmp((*a)->name, name) == 0)
            return *a;
    return NULL;
}

const struct algorithm *backend_algorithm_at(int device, int collective, int i,
                                             const struct backend **backend)
{
    for (int b = 0; b < BACKENDS; b++) {
        const struct algorithm *const *list = backends[b]->algorithms[collective];
        for (; serves(backends[b], device) && list && *list; list++)
            if (i-- == 0) {
                if (backend)
                    *backend = backends[b];
                return *list;
            }
    }
    return NULL;
}

const struct algorithm *backend_algorithm_named(int device, int collective, const char *name,
                                                const struct backend **backend)
{
    const struct algorithm *algorithm;
    for (int i = 0; (algorithm = backend_algorithm_at(device, collective, i, backend)); i++)
        if (strcmp(algorithm->name, name) == 0)
            return algorithm;
    return NULL;
}
