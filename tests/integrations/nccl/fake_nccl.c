/* A real NCCL that does nothing but count its calls, by name. */
#include "integrations/nccl/entries.h"

#include <pthread.h>
#include <string.h>

#pragma GCC diagnostic ignored "-Wunused-parameter"

#define SEEN __attribute__((visibility("default")))

static struct {
    const char *name;
    int calls;
} counts[128];

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

ncclResult_t fake_nccl_note(const char *name);
ncclResult_t fake_nccl_note(const char *name)
{
    int i = 0;
    pthread_mutex_lock(&lock);
    while (counts[i].name && strcmp(counts[i].name, name) != 0)
        i++;
    counts[i].name = name;
    counts[i].calls++;
    pthread_mutex_unlock(&lock);
    return ncclSuccess;
}

/* How often the entry point was called, without "nccl". */
SEEN int fake_nccl_calls(const char *name);
int fake_nccl_calls(const char *name)
{
    int calls = 0;
    pthread_mutex_lock(&lock);
    for (int i = 0; counts[i].name; i++)
        if (strcmp(counts[i].name, name) == 0)
            calls = counts[i].calls;
    pthread_mutex_unlock(&lock);
    return calls;
}

/* Under both names, as in the real one. Only those with a p are to be called. Weak: fake_nccl_init.c has one
 * that does more. */
#define ENTRY(name, parameters, arguments)                                                         \
    SEEN __attribute__((weak)) ncclResult_t fake_##name parameters __asm__("pnccl" #name);         \
    ncclResult_t fake_##name parameters                                                            \
    {                                                                                              \
        return fake_nccl_note(#name);                                                              \
    }                                                                                              \
    SEEN ncclResult_t fake_plain_##name parameters __asm__("nccl" #name);                          \
    ncclResult_t fake_plain_##name parameters                                                      \
    {                                                                                              \
        return fake_nccl_note("without p");                                                        \
    }
#define WORD_ENTRY(name) ENTRY(name, WORDS, )
ENTRIES(ENTRY)
WORD_ENTRIES(WORD_ENTRY)

SEEN const char *fake_error_string(ncclResult_t result) __asm__("pncclGetErrorString");
const char *fake_error_string(ncclResult_t result)
{
    fake_nccl_note("GetErrorString");
    return "an error of the fake";
}

SEEN const char *fake_last_error(ncclComm_t comm) __asm__("pncclGetLastError");
const char *fake_last_error(ncclComm_t comm)
{
    return "a detail of the fake";
}
