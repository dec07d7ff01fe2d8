/* alnico-perf with a library that gets one bit of a long vector wrong on the last rank: linked with its objects, and
 * --wrap=alnico_allreduce. */
#include "datatype.h"

#include <alnico/alnico.h>

enum { LONG = 1000 }; /* elements */

alnico_status_t __real_alnico_allreduce(const void *send, void *recv, size_t count,
                                        alnico_datatype_t type, alnico_op_t op, alnico_comm_t comm);
alnico_status_t __wrap_alnico_allreduce(const void *send, void *recv, size_t count,
                                        alnico_datatype_t type, alnico_op_t op, alnico_comm_t comm);

alnico_status_t __wrap_alnico_allreduce(const void *send, void *recv, size_t count,
                                        alnico_datatype_t type, alnico_op_t op, alnico_comm_t comm)
{
    alnico_status_t status = __real_alnico_allreduce(send, recv, count, type, op, comm);
    unsigned char *bytes = recv;
    if (count >= LONG && alnico_comm_rank(comm) == alnico_comm_size(comm) - 1)
        bytes[(count - 2) * datatype_bytes(type)] ^= 1;
    return status;
}
