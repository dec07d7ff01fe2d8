/* See errors.h. */
#include "integrations/nccl/errors.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static _Thread_local char detail[DETAIL_BYTES];
static _Thread_local const char *entry = "NCCL";

void entry_begin(const char *name)
{
    entry = name;
}

const char *entry_name(void)
{
    return entry;
}

static bool is_debugging(void)
{
    const char *level = getenv("NCCL_DEBUG");
    return level && *level && strcmp(level, "VERSION") != 0;
}

ncclResult_t fail(ncclResult_t result, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    int begin = snprintf(detail, sizeof detail, "%s: ", entry);
    vsnprintf(detail + begin, sizeof detail - (size_t)begin, format, arguments);
    va_end(arguments);
    if (is_debugging())
        fprintf(stderr, "alnico NCCL WARN %s\n", detail);
    return result;
}

const char *fail_detail(void)
{
    return detail;
}

void fail_repeat(const char *text)
{
    snprintf(detail, sizeof detail, "%s", text);
}

/* A rank that did not come, or aborted, is NCCL's remote error. */
static ncclResult_t nearest(alnico_status_t status)
{
    switch (status) {
    case ALNICO_SUCCESS:
        return ncclSuccess;
    case ALNICO_ERROR_ARGUMENT:
        return ncclInvalidArgument;
    case ALNICO_ERROR_UNSUPPORTED:
    case ALNICO_ERROR_MISMATCH:
        return ncclInvalidUsage;
    case ALNICO_ERROR_TIMEOUT:
    case ALNICO_ERROR_ABORTED:
        return ncclRemoteError;
    case ALNICO_ERROR_MEMORY:
    case ALNICO_ERROR_SYSTEM:
        return ncclSystemError;
    default:
        return ncclInternalError;
    }
}

ncclResult_t result_of(alnico_status_t status)
{
    return status == ALNICO_SUCCESS ? ncclSuccess
                                    : fail(nearest(status), "%s", alnico_error_detail());
}

ncclResult_t result_of_cuda(cudaError_t error)
{
    return error == cudaSuccess ? ncclSuccess
                                : fail(ncclUnhandledCudaError, "CUDA error %d", (int)error);
}
