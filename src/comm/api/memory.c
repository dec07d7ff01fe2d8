/* Memory that ranks can share: the public calls. */
#include "comm/api/create.h"
#include "comm/communicator/shareable.h"
#ifdef ALNICO_HAVE_CUDA
#include "comm/gpumem/memory.h"
#endif

#include "base/status.h"

#include <stdint.h>

#ifdef ALNICO_HAVE_CUDA
/* Of the calling thread's GPU. */
static alnico_status_t allocate_gpu(const struct device_ops *ops, size_t bytes, void **out)
{
    int device = ops->current();
    struct peer_memory memory = {0};
    if (bytes == 0 || !peer_memory_can_share(device))
        return ops->alloc(bytes, out);
    TRY(peer_memory_create(device, bytes, &memory));
    *out = memory.at;
    return ALNICO_SUCCESS;
}

static alnico_status_t free_gpu(const struct device_ops *ops, void *at)
{
    struct peer_memory memory = {0};
    if (!peer_memory_find(at, &memory)) {
        ops->free(at);
        return ALNICO_SUCCESS;
    }
    if (memory.at != at)
        return error_set(ALNICO_ERROR_ARGUMENT,
                         "alnico_memory_free: memory %p is inside of memory that begins at %p", at,
                         (void *)memory.at);
    peer_memory_unmap(&memory);
    return ALNICO_SUCCESS;
}
#else
static alnico_status_t allocate_gpu(const struct device_ops *ops, size_t bytes, void **out)
{
    return ops->alloc(bytes, out);
}

static alnico_status_t free_gpu(const struct device_ops *ops, void *at)
{
    (ops->free)(at);
    return ALNICO_SUCCESS;
}
#endif

static alnico_status_t give_back(const struct device_ops *ops, void *memory)
{
    if (!ops->host_accessible)
        return free_gpu(ops, memory);
    (ops->free)(memory); /* SimGrid makes free( a macro */
    return ALNICO_SUCCESS;
}

/* Communicators of the device may share it from now on. */
static alnico_status_t offer(const struct device_ops *ops, void *memory, size_t bytes)
{
    struct shareable *added;
    const struct shareable own = {.device = ops->kind, .base = memory, .bytes = bytes};
    return bytes ? shareable_add(&own, &added) : ALNICO_SUCCESS;
}

alnico_status_t alnico_memory_allocate(alnico_device_t device, size_t bytes, void **out)
{
    const char *who = "alnico_memory_allocate";
    const struct device_ops *ops;
    if (!out)
        return error_set(ALNICO_ERROR_ARGUMENT, "%s: out is NULL", who);
    *out = NULL;
    TRY(comm_find_device(device, who, &ops));
    if (bytes > PTRDIFF_MAX)
        return error_set(ALNICO_ERROR_ARGUMENT, "%s: %zu bytes are more than there are addresses",
                         who, bytes);
    alnico_status_t status =
        ops->host_accessible ? ops->alloc(bytes, out) : allocate_gpu(ops, bytes, out);
    if (status == ALNICO_SUCCESS && *out)
        status = offer(ops, *out, bytes);
    if (status != ALNICO_SUCCESS && *out) {
        (void)give_back(ops, *out);
        *out = NULL;
    }
    return error_of(who, status);
}

alnico_status_t alnico_memory_free(alnico_device_t device, void *memory)
{
    const struct device_ops *ops;
    if (!memory)
        return ALNICO_SUCCESS;
    TRY(comm_find_device(device, "alnico_memory_free", &ops));
    shareable_remove_at(device, memory);
    return give_back(ops, memory);
}
