/* The library's side of MPI: nothing, until the part that knows MPI is loaded. Any thread. */
#include "comm/transports/transport.h"

#include "base/status.h"

#include <stdatomic.h>

static _Atomic(const struct mpi_part *) attached;

void transport_mpi_attach(const struct mpi_part *part)
{
    atomic_store(&attached, part);
}

alnico_status_t transport_mpi_meet(struct rendezvous *r, const int *world, struct transport **out)
{
    const struct mpi_part *part = atomic_load(&attached);
    return part ? part->meet(r, world, out)
                : error_set(ALNICO_ERROR_UNSUPPORTED, "libalnico-mpi is not loaded");
}

int transport_mpi_world_rank(void)
{
    const struct mpi_part *part = atomic_load(&attached);
    return part ? part->world_rank() : -1;
}
