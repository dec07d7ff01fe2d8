/* Statuses inside the library: how a function fails with a detail, and returns early. Any
 * thread. */
#ifndef ALNICO_BASE_STATUS_H
#define ALNICO_BASE_STATUS_H

#include <alnico/alnico.h>

/* Records the calling thread's error detail (printf-like) and returns `status`, so that a function
 * can write `return error_set(ALNICO_ERROR_ARGUMENT, "%s: ...", ...)`. */
alnico_status_t error_set(alnico_status_t status, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* The status of a public call `who`, whose name the detail of an error then begins with. */
alnico_status_t error_of(const char *who, alnico_status_t status);

/* The thread's detail without the name of the public call that it may begin with. */
const char *error_text(const char *who);

/* Returns from the calling function when `expr` is not ALNICO_SUCCESS. */
#define TRY(expr)                                                                                  \
    do {                                                                                           \
        alnico_status_t try_status_ = (expr);                                                      \
        if (try_status_ != ALNICO_SUCCESS)                                                         \
            return try_status_;                                                                    \
    } while (0)

#endif
