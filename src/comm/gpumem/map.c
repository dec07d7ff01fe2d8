/* Sharing memory: description, exchange, descriptors, mapping. A rank that fails at one step still
 * takes part in the exchanges that follow, so that nobody waits for it. */
#include "comm/gpumem/map.h"

#include "base/status.h"
#include "comm/communicator/out_of_band.h"
#include "comm/hostmem/descriptor_passing.h"
#include "device/backoff.h"
#include "device/cuda/driver.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum handle_kind { KIND_DRIVER, KIND_INTERPROCESS };

/* One rank's memory, as plain bytes for the others. */
struct description {
    uint64_t base, bytes; /* the allocation that it lies in */
    uint64_t offset;      /* in there */
    uint64_t handle;      /* the driver's, for ranks of the same process */
    uint64_t keeper;      /* for those, too; 0: none */
    cudaIpcMemHandle_t interprocess;
    int32_t kind;
    struct descriptor_address sender;              /* its socket to send from */
    struct descriptor_address receiver[PEER_GPUS]; /* and those to receive from each rank at */
};

/* While memory is shared. */
struct sharing {
    const struct peer_map *map;
    struct description mine, descriptions[PEER_GPUS];
    CUmemGenericAllocationHandle handle;
    bool have_handle;
    int descriptor, sender;   /* or -1 */
    int receivers[PEER_GPUS]; /* or -1 */
    int64_t end_ns;
};

static alnico_status_t find_allocation(const void *memory, size_t bytes, struct description *out)
{
    const struct cuda_driver *driver = cuda_driver();
    CUdeviceptr base, at = (CUdeviceptr)(uintptr_t)memory;
    size_t size;
    TRY(cuda_driver_status(driver->cuMemGetAddressRange(&base, &size, at),
                           "cuMemGetAddressRange of the memory"));
    out->base = base;
    out->bytes = size;
    out->offset = at - base;
    if (bytes > size - out->offset)
        return error_set(ALNICO_ERROR_UNSUPPORTED,
                         "%zu bytes at %p cannot be shared: they reach over the end of their "
                         "allocation of %zu bytes",
                         bytes, memory, size);
    return ALNICO_SUCCESS;
}

static alnico_status_t export_handle(struct sharing *s)
{
    const struct cuda_driver *driver = cuda_driver();
    CUmemAllocationProp properties;
    TRY(cuda_driver_status(driver->cuMemGetAllocationPropertiesFromHandle(&properties, s->handle),
                           "cuMemGetAllocationPropertiesFromHandle"));
    if (!(properties.requestedHandleTypes & CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR))
        return error_set(ALNICO_ERROR_UNSUPPORTED,
                         "memory at %p cannot be shared: it was created without "
                         "CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR",
                         (void *)(uintptr_t)s->mine.base);
    return cuda_driver_status(
        driver->cuMemExportToShareableHandle(&s->descriptor, s->handle,
                                             CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0),
        "cuMemExportToShareableHandle");
}

static alnico_status_t describe_interprocess(struct sharing *s)
{
    void *base = (void *)(uintptr_t)s->mine.base;
    cudaError_t error = cudaIpcGetMemHandle(&s->mine.interprocess, base);
    s->mine.kind = KIND_INTERPROCESS;
    if (error == cudaSuccess)
        return ALNICO_SUCCESS;
    cudaGetLastError();
    return error_set(ALNICO_ERROR_UNSUPPORTED,
                     "memory at %p cannot be shared: it is neither cudaMalloc's nor made by "
                     "cuMemCreate (cudaIpcGetMemHandle: %s)",
                     base, cudaGetErrorString(error));
}

static alnico_status_t describe(struct sharing *s, void *memory, size_t bytes)
{
    const struct cuda_driver *driver = cuda_driver();
    TRY(find_allocation(memory, bytes, &s->mine));
    if (s->map->keeper && s->map->keeper->memory == memory)
        s->mine.keeper = (uintptr_t)s->map->keeper;
    CUresult result = driver->cuMemRetainAllocationHandle(&s->handle, memory);
    s->have_handle = result == CUDA_SUCCESS;
    if (!s->have_handle)
        return describe_interprocess(s);
    s->mine.kind = KIND_DRIVER;
    s->mine.handle = s->handle;
    for (int i = 0; i < s->map->comm->size; i++)
        if (!peer_map_is_near(s->map, i))
            return export_handle(s);
    return ALNICO_SUCCESS;
}

static bool sends_descriptor(const struct sharing *s, int rank)
{
    return !peer_map_is_near(s->map, rank) && s->descriptions[rank].kind == KIND_DRIVER;
}

static struct descriptor_peer peer_of(const struct sharing *s, int rank,
                                      const struct descriptor_address *address)
{
    return (struct descriptor_peer){address, &s->map->places[rank].process, rank};
}

static alnico_status_t open_all(struct sharing *s)
{
    TRY(descriptor_open(&s->sender, &s->mine.sender));
    for (int i = 0; i < s->map->comm->size; i++)
        if (!peer_map_is_near(s->map, i))
            TRY(descriptor_open(&s->receivers[i], &s->mine.receiver[i]));
    return ALNICO_SUCCESS;
}

/* Before anybody sends a descriptor. */
static alnico_status_t expect_all(const struct sharing *s)
{
    for (int i = 0; i < s->map->comm->size; i++) {
        struct descriptor_peer from = peer_of(s, i, &s->descriptions[i].sender);
        if (sends_descriptor(s, i))
            TRY(descriptor_expect(s->receivers[i], &from));
    }
    return ALNICO_SUCCESS;
}

static alnico_status_t send_all(const struct sharing *s)
{
    int own = s->map->comm->rank;
    for (int i = 0; s->descriptor >= 0 && i < s->map->comm->size; i++) {
        struct descriptor_peer to = peer_of(s, i, &s->descriptions[i].receiver[own]);
        if (!peer_map_is_near(s->map, i))
            TRY(descriptor_send(s->sender, &s->mine.sender, &to, s->descriptor));
    }
    return ALNICO_SUCCESS;
}

static alnico_status_t receive_all(const struct sharing *s, int *descriptors)
{
    for (int i = 0; i < s->map->comm->size; i++) {
        struct descriptor_peer from = peer_of(s, i, &s->descriptions[i].sender);
        if (sends_descriptor(s, i))
            TRY(descriptor_receive(s->receivers[i], &from, s->end_ns, &descriptors[i]));
    }
    return ALNICO_SUCCESS;
}

static alnico_status_t map_memory(const struct sharing *s, int rank, int descriptor,
                                  struct peer_memory *out)
{
    const struct description *d = &s->descriptions[rank];
    int device = s->map->comm->device_index;
    char *base = (char *)(uintptr_t)d->base;
    out->bytes = d->bytes;
    if (rank == s->map->comm->rank ||
        (d->kind == KIND_INTERPROCESS && peer_map_is_near(s->map, rank))) {
        out->at = base + d->offset;
        out->keeper = rank == s->map->comm->rank ? NULL : peer_memory_hold(d->keeper);
        return ALNICO_SUCCESS;
    }
    if (d->kind == KIND_INTERPROCESS) {
        out->interprocess = true;
        TRY(cuda_status(cudaIpcOpenMemHandle((void **)&out->mapping, d->interprocess,
                                             cudaIpcMemLazyEnablePeerAccess),
                        "cudaIpcOpenMemHandle"));
    } else if (peer_map_is_near(s->map, rank)) {
        TRY(peer_memory_map(d->handle, d->bytes, device, &out->mapping));
    } else {
        TRY(peer_memory_map_descriptor(descriptor, d->bytes, device, &out->mapping));
    }
    out->at = out->mapping + d->offset;
    return ALNICO_SUCCESS;
}

static alnico_status_t map_all(const struct sharing *s, const int *descriptors,
                               struct peer_share *out)
{
    for (int i = 0; i < s->map->comm->size; i++) {
        alnico_status_t status = map_memory(s, i, descriptors[i], &out->memory[i]);
        if (status != ALNICO_SUCCESS) {
            char detail[200];
            snprintf(detail, sizeof detail, "%s", alnico_error_detail());
            return error_set(status, "memory of rank %d: %s", i, detail);
        }
    }
    return ALNICO_SUCCESS;
}

static alnico_status_t prepare(struct sharing *s, void *memory, size_t bytes)
{
    TRY(describe(s, memory, bytes));
    return open_all(s);
}

static alnico_status_t hand_over(const struct sharing *s, struct peer_share *out)
{
    int descriptors[PEER_GPUS];
    for (int i = 0; i < PEER_GPUS; i++)
        descriptors[i] = -1;
    alnico_status_t status = send_all(s);
    if (status == ALNICO_SUCCESS)
        status = receive_all(s, descriptors);
    if (status == ALNICO_SUCCESS)
        status = map_all(s, descriptors, out);
    for (int i = 0; i < PEER_GPUS; i++)
        if (descriptors[i] >= 0)
            close(descriptors[i]);
    return status;
}

static void sharing_finish(struct sharing *s)
{
    for (int i = 0; i < PEER_GPUS; i++)
        if (s->receivers[i] >= 0)
            close(s->receivers[i]);
    if (s->have_handle)
        peer_memory_release(s->handle);
    if (s->descriptor >= 0)
        close(s->descriptor);
    if (s->sender >= 0)
        close(s->sender);
}

alnico_status_t peer_map_share(const struct peer_map *map, const char *who, void *memory,
                               size_t bytes, struct peer_share *out)
{
    struct sharing s = {.map = map,
                        .descriptor = -1,
                        .sender = -1,
                        .end_ns = deadline_ns(map->comm->family->settings.timeout)};
    for (int i = 0; i < PEER_GPUS; i++)
        s.receivers[i] = -1;
    memset(out, 0, sizeof *out);
    alnico_status_t status = comm_agree_status(map->comm, who, prepare(&s, memory, bytes));
    if (status == ALNICO_SUCCESS)
        status = comm_allgather(map->comm, who, &s.mine, s.descriptions, sizeof s.mine);
    if (status == ALNICO_SUCCESS)
        status = comm_agree_status(map->comm, who, expect_all(&s));
    if (status == ALNICO_SUCCESS)
        status = comm_agree_status(map->comm, who, hand_over(&s, out));
    if (status != ALNICO_SUCCESS)
        peer_map_unshare(map, out);
    sharing_finish(&s);
    return status;
}

void peer_map_unshare(const struct peer_map *map, struct peer_share *share)
{
    for (int i = 0; i < map->comm->size; i++)
        peer_memory_unmap(&share->memory[i]);
}

static bool all_have_handles(const struct peer_map *map)
{
    for (int i = 0; i < map->comm->size; i++)
        if (!map->places[i].handles)
            return false;
    return true;
}

alnico_status_t peer_map_alloc(struct peer_map *map, size_t bytes, struct peer_memory *out)
{
    *out = (struct peer_memory){0};
    if (all_have_handles(map))
        return peer_memory_create(map->comm->device_index, bytes, out);
    alnico_status_t status = peer_memory_keep(bytes, out);
    map->keeper = out->keeper;
    return status;
}

void peer_map_free(struct peer_memory *memory)
{
    peer_memory_unmap(memory);
    *memory = (struct peer_memory){0};
}
