/* Linked into the tests' libnccl.so.2 with --wrap: its communicators of GPUs become ones of the CPU, on the made-up CUDA's
 * streams. Rank r has GPU r. */
#include "tests/integrations/nccl/made_up_cuda.h"

#pragma GCC diagnostic ignored "-Wmissing-prototypes"
#pragma GCC diagnostic ignored "-Wunused-parameter"

alnico_status_t __real_alnico_comm_create_id(const alnico_id_t *, int, int, alnico_device_t, void *,
                                             alnico_comm_t *);
alnico_status_t __real_alnico_comm_set_stream(alnico_comm_t, void *);
alnico_status_t __real_alnico_op_create_premultiplied_sum(alnico_comm_t, const void *,
                                                          alnico_datatype_t, alnico_device_t,
                                                          alnico_op_t *);
alnico_status_t __real_alnico_memory_allocate(alnico_device_t, size_t, void **);
alnico_status_t __real_alnico_memory_free(alnico_device_t, void *);

alnico_status_t __wrap_alnico_comm_create_id(const alnico_id_t *id, int rank, int size,
                                             alnico_device_t device, void *stream,
                                             alnico_comm_t *out)
{
    return __real_alnico_comm_create_id(id, rank, size, ALNICO_DEVICE_CPU, stream, out);
}

alnico_status_t __wrap_alnico_comm_set_stream(alnico_comm_t comm, void *stream)
{
    int rank = alnico_comm_rank(comm);
    if (rank >= 0)
        made_up_current[rank] = stream;
    return __real_alnico_comm_set_stream(comm, made_up_stream(stream, rank));
}

alnico_status_t __wrap_alnico_op_create_premultiplied_sum(alnico_comm_t comm, const void *factor,
                                                          alnico_datatype_t type,
                                                          alnico_device_t device, alnico_op_t *out)
{
    made_up_factors += device == ALNICO_DEVICE_CUDA;
    return __real_alnico_op_create_premultiplied_sum(comm, factor, type, ALNICO_DEVICE_CPU, out);
}

alnico_status_t __wrap_alnico_memory_allocate(alnico_device_t device, size_t bytes, void **out)
{
    return __real_alnico_memory_allocate(ALNICO_DEVICE_CPU, bytes, out);
}

alnico_status_t __wrap_alnico_memory_free(alnico_device_t device, void *memory)
{
    return __real_alnico_memory_free(ALNICO_DEVICE_CPU, memory);
}
