/* The table for libalnico-mpi. */
#include "comm/api/library.h"

#include "base/status.h"
#include "comm/api/create.h"

alnico_status_t alnico_library_attach(int version, const struct mpi_part *part,
                                      const struct library **out)
{
    static const struct library library = {.error_set = error_set,
                                           .error_of = error_of,
                                           .agree_on_status = agree_on_status,
                                           .settings_own_timeout = settings_own_timeout,
                                           .comm_check_create = comm_check_create,
                                           .comm_build_over = comm_build_over};
    if (version != LIBRARY_VERSION)
        return error_set(ALNICO_ERROR_UNSUPPORTED,
                         "libalnico-mpi is of version %d.%d.%d, and libalnico of %s",
                         version / 10000, version / 100 % 100, version % 100, alnico_version());
    transport_mpi_attach(part);
    *out = &library;
    return ALNICO_SUCCESS;
}
