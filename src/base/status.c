/* Status strings, the version, and the error detail that each thread keeps. */
#include "base/status.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

enum { DETAIL_BYTES = 512 };

static _Thread_local char detail[DETAIL_BYTES];

alnico_status_t error_set(alnico_status_t status, const char *format, ...)
{
    char text[DETAIL_BYTES]; /* the arguments may point into `detail` itself */
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    snprintf(detail, sizeof detail, "%s", text);
    return status;
}

alnico_status_t error_of(const char *who, alnico_status_t status)
{
    if (status == ALNICO_SUCCESS || strncmp(detail, "alnico_", 7) == 0)
        return status;
    return error_set(status, "%s: %s", who, detail);
}

const char *error_text(const char *who)
{
    size_t length = strlen(who);
    return strncmp(detail, who, length) == 0 && detail[length] == ':' ? detail + length + 2
                                                                      : detail;
}

const char *alnico_error_detail(void)
{
    return detail;
}

const char *alnico_status_string(alnico_status_t status)
{
    switch (status) {
    case ALNICO_SUCCESS:
        return "success";
    case ALNICO_PENDING:
        return "pending";
    case ALNICO_ERROR_ARGUMENT:
        return "invalid argument";
    case ALNICO_ERROR_MEMORY:
        return "out of memory";
    case ALNICO_ERROR_UNSUPPORTED:
        return "not supported";
    case ALNICO_ERROR_TIMEOUT:
        return "deadline passed";
    case ALNICO_ERROR_ABORTED:
        return "aborted";
    case ALNICO_ERROR_MISMATCH:
        return "ranks disagree";
    case ALNICO_ERROR_MPI:
        return "MPI error";
    case ALNICO_ERROR_SYSTEM:
        return "system error";
    }
    return "unknown status";
}

#define TEXT_(x) #x
#define TEXT(x) TEXT_(x)

const char *alnico_version(void)
{
    return TEXT(ALNICO_VERSION_MAJOR) "." TEXT(ALNICO_VERSION_MINOR) "." TEXT(ALNICO_VERSION_PATCH);
}
