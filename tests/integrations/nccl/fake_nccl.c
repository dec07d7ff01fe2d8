/* A real NCCL that does nothing. Every name is there with a p, too, and only those with it succeed: the others may be
 * ours in a real program. */
#include "integrations/nccl/entries.h"

#pragma GCC diagnostic ignored "-Wunused-parameter"

#define SEEN __attribute__((visibility("default")))

#define ENTRY(name, parameters, arguments)                                                         \
    SEEN ncclResult_t fake_##name parameters __asm__("pnccl" #name);                               \
    ncclResult_t fake_##name parameters                                                            \
    {                                                                                              \
        return ncclSuccess;                                                                        \
    }                                                                                              \
    SEEN ncclResult_t fake_plain_##name parameters __asm__("nccl" #name);                          \
    ncclResult_t fake_plain_##name parameters                                                      \
    {                                                                                              \
        return ncclInternalError;                                                                  \
    }
#define WORD_ENTRY(name) ENTRY(name, WORDS, )
ENTRIES(ENTRY)
WORD_ENTRIES(WORD_ENTRY)

SEEN const char *fake_error_string(ncclResult_t result) __asm__("pncclGetErrorString");
const char *fake_error_string(ncclResult_t result)
{
    return "an error of the fake";
}

SEEN const char *fake_last_error(ncclComm_t comm) __asm__("pncclGetLastError");
const char *fake_last_error(ncclComm_t comm)
{
    return "a detail of the fake";
}
