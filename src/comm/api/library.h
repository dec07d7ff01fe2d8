/* What libalnico-mpi uses of the library, whose names are hidden: one table, of one version. */
#ifndef ALNICO_COMM_API_LIBRARY_H
#define ALNICO_COMM_API_LIBRARY_H

#include "comm/transports/transport.h"

struct device_ops;

struct library {
    alnico_status_t (*error_set)(alnico_status_t status, const char *format, ...)
        __attribute__((format(printf, 2, 3)));
    alnico_status_t (*error_of)(const char *who, alnico_status_t status);
    alnico_status_t (*agree_on_status)(struct rendezvous *r, struct step_result *all, void *address,
                                       alnico_status_t status);
    double (*settings_own_timeout)(void);
    alnico_status_t (*comm_check_create)(alnico_device_t device, void *stream, alnico_comm_t *out,
                                         const char *who, const struct device_ops **ops);
    alnico_status_t (*comm_build_over)(struct transport *transport, const struct device_ops *device,
                                       void *stream, const char *who, alnico_comm_t *out);
};

enum {
    LIBRARY_VERSION =
        10000 * ALNICO_VERSION_MAJOR + 100 * ALNICO_VERSION_MINOR + ALNICO_VERSION_PATCH
};

/* Attaches the part that knows MPI; *out is the table. The only name of the library that is visible and
 * no user's. Errors: UNSUPPORTED, if the part is of another version of the library. */
ALNICO_API alnico_status_t alnico_library_attach(int version, const struct mpi_part *part,
                                                 const struct library **out);

#endif
