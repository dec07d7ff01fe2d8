/* See library.h. Loaded under a once, then only read. */
#include "comm/backends/nccl/library.h"

#include "base/log.h"
#include "base/status.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

static struct {
    pthread_once_t once;
    bool complete;
    char reason[512];
    struct nccl_library functions;
} found = {.once = PTHREAD_ONCE_INIT};

static const struct entry {
    const char *name; /* with the p */
    size_t offset;
    bool optional;
} entries[] = {
#define ENTRY(name) {"p" #name, offsetof(struct nccl_library, name), false},
#define NEWER_ENTRY(name) {"p" #name, offsetof(struct nccl_library, name), true},
    NCCL_FUNCTIONS(ENTRY) NCCL_NEWER_FUNCTIONS(NEWER_ENTRY)};

/* The first reason is kept. DEEPBIND: NCCL's own calls stay in it. The library of integrations/nccl has
 * NCCL's name, and its calls would come back here. */
static void *open_one(const char *path)
{
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL | RTLD_DEEPBIND);
    const char *error = library ? "it is Alnico's own libnccl.so.2" : dlerror();
    if (library && !dlsym(library, "alnico_nccl_dropin"))
        return library;
    if (library)
        dlclose(library);
    if (!found.reason[0])
        snprintf(found.reason, sizeof found.reason, "%s", error ? error : path);
    return NULL;
}

static void *open_any(void)
{
    static const char *const paths[] = {"libnccl.so.2", "/usr/local/cuda/lib64/libnccl.so.2",
                                        "/usr/local/cuda/lib/libnccl.so.2", ALNICO_NCCL_SEEN};
    const char *named = variable_text(VARIABLE_NCCL_LIBRARY);
    if (*named)
        return open_one(named);
    void *library = NULL;
    for (size_t i = 0; !library && i < sizeof paths / sizeof *paths; i++)
        library = open_one(paths[i]);
    return library;
}

static bool find_entry(void *library, const struct entry *entry)
{
    void *function = dlsym(library, entry->name);
    if (!function)
        function = dlsym(library, entry->name + 1);
    memcpy((char *)&found.functions + entry->offset, &function, sizeof function);
    if (!function && !entry->optional)
        snprintf(found.reason, sizeof found.reason, "NCCL's library has no %s", entry->name + 1);
    return function || entry->optional;
}

/* The library stays loaded for the process's life. */
static void find_all(void)
{
    void *library = open_any();
    bool complete = library != NULL;
    for (size_t i = 0; complete && i < sizeof entries / sizeof *entries; i++)
        complete = find_entry(library, &entries[i]);
    found.complete = complete;
}

const struct nccl_library *nccl_library(void)
{
    pthread_once(&found.once, find_all);
    if (found.complete)
        return &found.functions;
    error_set(ALNICO_ERROR_UNSUPPORTED, "NCCL is not there: %s; ALNICO_NCCL_LIBRARY may name it",
              found.reason);
    return NULL;
}
