/* The real NCCL, loaded when it is first wanted, and its table of functions. Those that begin with p are
 * taken, and RTLD_DEEPBIND keeps NCCL's own calls in it: none comes back here. Loaded under a once, then
 * only read. */
#include "integrations/nccl/entries.h"
#include "integrations/nccl/errors.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* What stands in for a function that the real NCCL does not have. */
#define LACKING(name, parameters, arguments)                                                       \
    static ncclResult_t lacking_##name parameters                                                  \
    {                                                                                              \
        return fail(ncclInvalidUsage, "the real NCCL is too old for it");                          \
    }
#define LACKING_WORDS(name) LACKING(name, WORDS, )
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wunused-parameter"
ENTRIES(LACKING)
WORD_ENTRIES(LACKING_WORDS)
#pragma GCC diagnostic pop

static struct {
    pthread_once_t once;
    bool complete;
    char reason[400];
    struct entries entries;
} real = {.once = PTHREAD_ONCE_INIT,
          .entries = {
#define LACKING_MEMBER(name, parameters, arguments) .name = lacking_##name,
#define LACKING_WORDS_MEMBER(name) .name = lacking_##name,
              ENTRIES(LACKING_MEMBER) WORD_ENTRIES(LACKING_WORDS_MEMBER)}};

static const struct {
    const char *name; /* with the p */
    size_t offset;
} members[] = {
#define MEMBER(name, parameters, arguments) {"pnccl" #name, offsetof(struct entries, name)},
#define WORDS_MEMBER(name) {"pnccl" #name, offsetof(struct entries, name)},
    ENTRIES(MEMBER)
        WORD_ENTRIES(WORDS_MEMBER){"pncclGetErrorString", offsetof(struct entries, GetErrorString)},
    {"pncclGetLastError", offsetof(struct entries, GetLastError)}};

/* This library has the name of the real one, so that the loader may answer with it. */
static void *open_one(const char *path)
{
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL | RTLD_DEEPBIND);
    const char *error = library ? "it is Alnico's own" : dlerror();
    if (library && !dlsym(library, "alnico_nccl_dropin"))
        return library;
    if (library)
        dlclose(library);
    if (!real.reason[0])
        snprintf(real.reason, sizeof real.reason, "%s: %s", path, error ? error : "not found");
    return NULL;
}

static void *open_any(void)
{
    static const char *const paths[] = {"libnccl.so.2",
                                        "/usr/local/cuda/lib64/libnccl.so.2",
                                        "/usr/local/cuda/lib/libnccl.so.2",
                                        "/usr/lib/x86_64-linux-gnu/libnccl.so.2",
                                        "/usr/lib/aarch64-linux-gnu/libnccl.so.2",
                                        ALNICO_NCCL_SEEN};
    const char *named = getenv("ALNICO_NCCL_LIBRARY");
    if (named && *named)
        return open_one(named);
    void *library = NULL;
    for (size_t i = 0; !library && i < sizeof paths / sizeof *paths; i++)
        library = open_one(paths[i]);
    return library;
}

static void find_member(void *library, const char *name, size_t offset)
{
    void *function = dlsym(library, name);
    if (!function)
        function = dlsym(library, name + 1);
    if (function)
        memcpy((char *)&real.entries + offset, &function, sizeof function);
}

/* The library stays loaded for the process's life. */
static void find_all(void)
{
    void *library = open_any();
    for (size_t i = 0; library && i < sizeof members / sizeof *members; i++)
        find_member(library, members[i].name, members[i].offset);
    real.complete = library && real.entries.GetErrorString && real.entries.GetLastError;
    if (library && !real.complete)
        snprintf(real.reason, sizeof real.reason, "what was loaded is not NCCL");
}

const struct entries *entries_real(const char **reason)
{
    pthread_once(&real.once, find_all);
    *reason = real.reason;
    return real.complete ? &real.entries : NULL;
}
