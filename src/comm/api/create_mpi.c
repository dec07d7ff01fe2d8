/* Communicators from an MPI_Comm: the door of the library part that knows MPI, libalnico-mpi, which
 * makes itself known to the library when it is loaded. On the caller's thread. */
#include "comm/api/create.h"

#include "base/status.h"

#include <alnico/mpi.h>

__attribute__((constructor)) static void attach(void)
{
    transport_mpi_attach(&transport_mpi_part);
}

static alnico_status_t check_mpi(MPI_Comm comm, const char *who)
{
    int initialized = 0, finalized = 0, inter = 0;
    MPI_Initialized(&initialized);
    MPI_Finalized(&finalized);
    if (!initialized || finalized)
        return error_set(ALNICO_ERROR_ARGUMENT, "%s: MPI is %s", who,
                         finalized ? "already finalised" : "not initialised");
    if (comm == MPI_COMM_NULL)
        return error_set(ALNICO_ERROR_ARGUMENT, "%s: mpi_comm is MPI_COMM_NULL", who);
    MPI_Comm_test_inter(comm, &inter);
    if (inter)
        return error_set(ALNICO_ERROR_ARGUMENT, "%s: mpi_comm is an intercommunicator", who);
    return ALNICO_SUCCESS;
}

alnico_status_t alnico_comm_create_mpi(MPI_Comm mpi_comm, alnico_device_t device, void *stream,
                                       alnico_comm_t *out)
{
    const char *who = "alnico_comm_create_mpi";
    const struct device_ops *ops = NULL;
    TRY(comm_check_create(device, stream, out, who, &ops));
    TRY(check_mpi(mpi_comm, who));
    struct transport *transport;
    TRY(error_of(who, transport_mpi_create(&mpi_comm, settings_own_timeout(), &transport)));
    return comm_build_over(transport, ops, stream, who, out);
}
