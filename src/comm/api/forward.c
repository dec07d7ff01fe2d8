/* In libalnico-mpi alone: the library's functions that its files call, by the library's table. */
#include "comm/api/library.h"

#include "base/status.h"
#include "comm/api/create.h"

#include <stdarg.h>
#include <stdio.h>

static const struct library *library;

/* At the load, and again for the error of a library that it did not fit. */
static alnico_status_t join(const struct mpi_part *part)
{
    return library ? ALNICO_SUCCESS : alnico_library_attach(LIBRARY_VERSION, part, &library);
}

void transport_mpi_attach(const struct mpi_part *part)
{
    join(part);
}

alnico_status_t error_set(alnico_status_t status, const char *format, ...)
{
    char text[512];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    return library->error_set(status, "%s", text);
}

alnico_status_t error_of(const char *who, alnico_status_t status)
{
    return library->error_of(who, status);
}

alnico_status_t agree_on_status(struct rendezvous *r, struct step_result *all, void *address,
                                alnico_status_t status)
{
    return library->agree_on_status(r, all, address, status);
}

double settings_own_timeout(void)
{
    return library->settings_own_timeout();
}

/* The first that is called. */
alnico_status_t comm_check_create(alnico_device_t device, void *stream, alnico_comm_t *out,
                                  const char *who, const struct device_ops **ops)
{
    TRY(join(&transport_mpi_part));
    return library->comm_check_create(device, stream, out, who, ops);
}

alnico_status_t comm_build_over(struct transport *transport, const struct device_ops *device,
                                void *stream, const char *who, alnico_comm_t *out)
{
    return library->comm_build_over(transport, device, stream, who, out);
}
