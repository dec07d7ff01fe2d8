/* What libnccl.so.2 exports: every entry point by its name and by the one with a p, which profilers call.
 * See entries.h. */
#include "integrations/nccl/entries.h"
#include "integrations/nccl/errors.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define EXPORTED __attribute__((visibility("default")))

static const struct entries *choose(void)
{
    const char *value = getenv("ALNICO_NCCL");
    if (!value || strcmp(value, "off") != 0)
        return &entries_ours;
    const char *reason;
    const struct entries *real = entries_real(&reason);
    if (!real)
        fprintf(
            stderr,
            "alnico: ALNICO_NCCL=off: the real NCCL is not there: %s; ALNICO_NCCL_LIBRARY may name "
            "it; Alnico goes on\n",
            reason);
    return real ? real : &entries_ours;
}

/* Threads that come at the same time choose alike. */
static const struct entries *entries(void)
{
    static const struct entries *_Atomic chosen;
    const struct entries *table = atomic_load_explicit(&chosen, memory_order_acquire);
    if (__builtin_expect(!table, 0)) {
        table = choose();
        atomic_store_explicit(&chosen, table, memory_order_release);
    }
    return table;
}

/* Tells Alnico, which may look for the real NCCL by this library's name, that this is not it. */
EXPORTED extern const char alnico_nccl_dropin[];
const char alnico_nccl_dropin[] = "libnccl.so.2 over Alnico";

/* The header declares two of them without their parameters. */
#define EXPORT(name, parameters, arguments)                                                        \
    EXPORTED ncclResult_t nccl##name parameters;                                                   \
    ncclResult_t nccl##name parameters                                                             \
    {                                                                                              \
        entry_begin("nccl" #name);                                                                 \
        return entries()->name arguments;                                                          \
    }                                                                                              \
    EXPORTED __typeof__(nccl##name) pnccl##name __attribute__((alias("nccl" #name)));

/* Names of their own in C: a header may have other types for them. */
#define EXPORT_WORDS(name)                                                                         \
    EXPORTED ncclResult_t words_##name WORDS __asm__("nccl" #name);                                \
    ncclResult_t words_##name WORDS                                                                \
    {                                                                                              \
        entry_begin("nccl" #name);                                                                 \
        return entries()->name WORDS_PASSED;                                                       \
    }                                                                                              \
    EXPORTED __typeof__(words_##name) words_p##name __asm__("pnccl" #name)                         \
        __attribute__((alias("nccl" #name)));

ENTRIES(EXPORT)
WORD_ENTRIES(EXPORT_WORDS)

EXPORTED const char *ncclGetErrorString(ncclResult_t result)
{
    return entries()->GetErrorString(result);
}
EXPORTED const char *pncclGetErrorString(ncclResult_t result)
    __attribute__((alias("ncclGetErrorString")));

EXPORTED const char *ncclGetLastError(ncclComm_t comm)
{
    return entries()->GetLastError(comm);
}
EXPORTED const char *pncclGetLastError(ncclComm_t comm) __attribute__((alias("ncclGetLastError")));
