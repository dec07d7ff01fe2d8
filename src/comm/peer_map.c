/* How memory is described, handed over and mapped. Whoever fails at one step still takes part in the exchanges that
 * follow, so that nobody waits for it. */
#include "comm/peer_map.h"

#include "comm/handover.h"
#include "device/backoff.h"
#include "device/cuda_driver.h"
#include "log.h"
#include "status.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Driver 580 was seen to free its own records twice where several threads of a process map and unmap the same memory at
 * once. Held for one call of the driver, never across an exchange. */
static pthread_mutex_t mapping_lock = PTHREAD_MUTEX_INITIALIZER;

static alnico_status_t exchange(alnico_comm_t comm, const char *who, const void *mine, void *all,
                                size_t bytes)
{
    return comm_exchange(comm->transport, comm->family->engine, comm->family->settings.timeout, who,
                         mine, all, bytes);
}

static int64_t deadline(const struct alnico_comm *comm)
{
    double timeout = comm->family->settings.timeout;
    return backoff_now_ns() + (int64_t)((timeout < 1e9 ? timeout : 1e9) * 1e9);
}

/* ---- Agreement ---- */

struct outcome {
    int32_t status;
    char detail[252];
};

alnico_status_t peer_map_agree(alnico_comm_t comm, const char *who, alnico_status_t mine)
{
    struct outcome own = {.status = mine}, all[PEER_CUDA_RANKS];
    if (mine != ALNICO_SUCCESS)
        snprintf(own.detail, sizeof own.detail, "%s", alnico_error_detail());
    TRY(exchange(comm, who, &own, all, sizeof own));
    for (int i = 0; i < comm->size; i++)
        if (all[i].status != ALNICO_SUCCESS)
            return error_set((alnico_status_t)all[i].status, "%s: rank %d: %.*s", who, i,
                             (int)sizeof all[i].detail - 1, all[i].detail);
    return ALNICO_SUCCESS;
}

/* ---- Places ---- */

static bool is_near(const struct peer_map *map, int rank)
{
    return process_same(&map->places[rank].process, &map->places[map->comm->rank].process);
}

static bool have_attribute(CUdevice_attribute attribute, int device)
{
    const struct cuda_driver *driver = cuda_driver();
    int value = 0;
    return driver && driver->cuDeviceGetAttribute(&value, attribute, device) == CUDA_SUCCESS &&
           value;
}

static void find_place(const struct alnico_comm *comm, struct peer_place *out)
{
    memset(out, 0, sizeof *out);
    process_identify(&out->process);
    out->host_id = comm->family->topology.host_id;
    out->device = comm->device_index;
    out->ok = cuda_driver() != NULL &&
              cudaDeviceGetPCIBusId(out->gpu, sizeof out->gpu, comm->device_index) == cudaSuccess;
    out->handles =
        have_attribute(CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED, out->device) &&
        have_attribute(CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED,
                       out->device);
}

/* Why the backend cannot work, from what all ranks know alike; NULL if it can. */
static const char *find_obstacle(const struct peer_map *map)
{
    for (int i = 0; i < map->comm->size; i++) {
        if (!map->places[i].ok)
            return "a rank has no GPU that the driver names";
        if (map->places[i].host_id != map->places[0].host_id)
            return "the ranks are on several hosts";
    }
    return NULL;
}

/* A GPU that this process does not see may be reached all the same: then mapping its memory tells. */
static alnico_status_t reach(const struct peer_map *map, int rank)
{
    int device, can = 0, own = map->comm->device_index;
    const char *gpu = map->places[rank].gpu;
    if (cudaDeviceGetByPCIBusId(&device, gpu) != cudaSuccess) {
        cudaGetLastError();
        return ALNICO_SUCCESS;
    }
    TRY(cuda_status(cudaDeviceCanAccessPeer(&can, own, device), "cudaDeviceCanAccessPeer"));
    if (!can)
        return error_set(ALNICO_ERROR_UNSUPPORTED, "GPU %s does not reach GPU %s",
                         map->places[map->comm->rank].gpu, gpu);
    cudaError_t error = cudaDeviceEnablePeerAccess(device, 0);
    if (error == cudaErrorPeerAccessAlreadyEnabled) {
        cudaGetLastError();
        return ALNICO_SUCCESS;
    }
    return cuda_status(error, "cudaDeviceEnablePeerAccess");
}

static alnico_status_t reach_all(const struct peer_map *map)
{
    for (int i = 0; i < map->comm->size; i++)
        if (i != map->comm->rank)
            TRY(reach(map, i));
    return ALNICO_SUCCESS;
}

/* Atomics on another GPU's memory are native over NVLink and not over PCIe. Of a GPU that this process does not see nothing
 * is known. */
static bool is_ordered(const struct peer_map *map, int rank)
{
    int device, native = 0;
    cudaError_t error = cudaDeviceGetByPCIBusId(&device, map->places[rank].gpu);
    if (error == cudaSuccess)
        error = cudaDeviceGetP2PAttribute(&native, cudaDevP2PAttrNativeAtomicSupported,
                                          map->comm->device_index, device);
    if (error != cudaSuccess)
        cudaGetLastError();
    return error == cudaSuccess && native;
}

static alnico_status_t agree_on_order(struct peer_map *map, const char *who)
{
    int32_t mine = true, all[PEER_CUDA_RANKS];
    for (int i = 0; i < map->comm->size; i++)
        mine &= i == map->comm->rank || is_ordered(map, i);
    TRY(exchange(map->comm, who, &mine, all, sizeof mine));
    map->ordered = true;
    for (int i = 0; i < map->comm->size; i++)
        map->ordered &= all[i] != 0;
    if (!map->ordered && map->comm->rank == 0)
        log_write(LOG_INFO,
                  "%s: no kernels of the peer backend in lines of 128 bytes: not all pairs of GPUs "
                  "are known to be joined by NVLink",
                  who);
    return ALNICO_SUCCESS;
}

alnico_status_t peer_map_init(struct peer_map *out, alnico_comm_t comm, const char *who,
                              bool *works)
{
    struct peer_place mine;
    *works = false;
    *out = (struct peer_map){.comm = comm};
    if (comm->hosts > 1 || comm->size < 2 || comm->size > PEER_CUDA_RANKS)
        return ALNICO_SUCCESS;
    find_place(comm, &mine);
    TRY(exchange(comm, who, &mine, out->places, sizeof mine));
    const char *obstacle = find_obstacle(out);
    if (obstacle) {
        log_write(LOG_INFO, "%s: no peer backend: %s", who, obstacle);
        return ALNICO_SUCCESS;
    }
    alnico_status_t status = peer_map_agree(comm, who, reach_all(out));
    *works = status == ALNICO_SUCCESS;
    if (*works)
        return agree_on_order(out, who);
    if (status != ALNICO_ERROR_UNSUPPORTED && status != ALNICO_ERROR_SYSTEM)
        return status;
    log_write(LOG_INFO, "no peer backend: %s", alnico_error_detail());
    return ALNICO_SUCCESS;
}

/* ---- Descriptions ---- */

enum manner { MANNER_HANDLE, MANNER_INTERPROCESS };

/* Of one rank's memory: plain bytes for the others. */
struct card {
    uint64_t base, bytes; /* the allocation that it lies in */
    uint64_t offset;      /* in there */
    uint64_t handle;      /* the driver's, for ranks of the same process */
    uint64_t keeper;      /* for those, too; 0: none */
    cudaIpcMemHandle_t interprocess;
    int32_t manner;
    struct handover_card listener;
};

/* While memory is shared. */
struct sharing {
    const struct peer_map *map;
    struct card mine, cards[PEER_CUDA_RANKS];
    CUmemGenericAllocationHandle handle;
    bool have_handle;
    int descriptor, listener; /* or -1 */
    int64_t end_ns;
};

static alnico_status_t find_allocation(const void *memory, size_t bytes, struct card *out)
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
    s->mine.manner = MANNER_INTERPROCESS;
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
    s->mine.manner = MANNER_HANDLE;
    s->mine.handle = s->handle;
    for (int i = 0; i < s->map->comm->size; i++)
        if (!is_near(s->map, i))
            return export_handle(s);
    return ALNICO_SUCCESS;
}

/* ---- Descriptors between processes ---- */

static bool sends_descriptor(const struct sharing *s, int rank)
{
    return !is_near(s->map, rank) && s->cards[rank].manner == MANNER_HANDLE;
}

static alnico_status_t send_all(const struct sharing *s)
{
    int own = s->map->comm->rank;
    for (int i = 0; s->descriptor >= 0 && i < s->map->comm->size; i++) {
        int connection;
        if (is_near(s->map, i))
            continue;
        TRY(handover_connect(&s->cards[i].listener, i, own, s->end_ns, &connection));
        bool sent = handover_send(connection, s->descriptor);
        close(connection);
        if (!sent)
            return error_set(ALNICO_ERROR_SYSTEM, "rank %d does not take a descriptor", i);
    }
    return ALNICO_SUCCESS;
}

static alnico_status_t receive_all(const struct sharing *s, int *descriptors)
{
    int missing = 0, size = s->map->comm->size;
    for (int i = 0; i < size; i++)
        missing += sends_descriptor(s, i);
    while (missing > 0) {
        int rank, connection = handover_accept(s->listener, &s->mine.listener, s->end_ns, &rank);
        if (connection < 0)
            return error_set(ALNICO_ERROR_TIMEOUT, "%d ranks sent no descriptor", missing);
        bool known = rank >= 0 && rank < size && sends_descriptor(s, rank) && descriptors[rank] < 0;
        missing -= known && handover_receive(connection, s->end_ns, &descriptors[rank]);
        close(connection);
    }
    return ALNICO_SUCCESS;
}

/* ---- Mapping ---- */

/* While its owner cannot have let go: it takes part in the exchange that follows. */
static struct peer_keeper *hold(uint64_t card)
{
    struct peer_keeper *keeper = (struct peer_keeper *)(uintptr_t)card;
    if (keeper)
        atomic_fetch_add(&keeper->holders, 1);
    return keeper;
}

/* The last one frees. */
static void let_go(struct peer_keeper *keeper)
{
    if (!keeper || atomic_fetch_sub(&keeper->holders, 1) != 1)
        return;
    cudaFree(keeper->memory);
    free(keeper);
}

/* Maps a handle for the current device, with the lock held. The mapping keeps the memory. */
static alnico_status_t map_locked(CUmemGenericAllocationHandle handle, size_t bytes, int device,
                                  char **out)
{
    const struct cuda_driver *driver = cuda_driver();
    CUmemAccessDesc access = {.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = device},
                              .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    CUdeviceptr at;
    TRY(cuda_driver_status(driver->cuMemAddressReserve(&at, bytes, 0, 0, 0),
                           "cuMemAddressReserve"));
    alnico_status_t status =
        cuda_driver_status(driver->cuMemMap(at, bytes, 0, handle, 0), "cuMemMap");
    if (status != ALNICO_SUCCESS)
        goto free_address;
    status = cuda_driver_status(driver->cuMemSetAccess(at, bytes, &access, 1), "cuMemSetAccess");
    if (status != ALNICO_SUCCESS)
        goto unmap;
    *out = (char *)(uintptr_t)at;
    return ALNICO_SUCCESS;
unmap:
    driver->cuMemUnmap(at, bytes);
free_address:
    driver->cuMemAddressFree(at, bytes);
    return status;
}

static alnico_status_t map_handle(CUmemGenericAllocationHandle handle, size_t bytes, int device,
                                  char **out)
{
    pthread_mutex_lock(&mapping_lock);
    alnico_status_t status = map_locked(handle, bytes, device, out);
    pthread_mutex_unlock(&mapping_lock);
    return status;
}

static void release_handle(CUmemGenericAllocationHandle handle)
{
    pthread_mutex_lock(&mapping_lock);
    cuda_driver()->cuMemRelease(handle);
    pthread_mutex_unlock(&mapping_lock);
}

static alnico_status_t map_descriptor(int descriptor, const struct card *card, int device,
                                      char **out)
{
    const struct cuda_driver *driver = cuda_driver();
    CUmemGenericAllocationHandle handle;
    TRY(cuda_driver_status(
        driver->cuMemImportFromShareableHandle(&handle, (void *)(intptr_t)descriptor,
                                               CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR),
        "cuMemImportFromShareableHandle"));
    alnico_status_t status = map_handle(handle, card->bytes, device, out);
    release_handle(handle);
    return status;
}

static alnico_status_t map_piece(const struct sharing *s, int rank, int descriptor,
                                 struct peer_piece *out)
{
    const struct card *card = &s->cards[rank];
    int device = s->map->comm->device_index;
    char *base = (char *)(uintptr_t)card->base;
    out->bytes = card->bytes;
    if (rank == s->map->comm->rank ||
        (card->manner == MANNER_INTERPROCESS && is_near(s->map, rank))) {
        out->at = base + card->offset;
        out->keeper = rank == s->map->comm->rank ? NULL : hold(card->keeper);
        return ALNICO_SUCCESS;
    }
    if (card->manner == MANNER_INTERPROCESS) {
        out->interprocess = true;
        TRY(cuda_status(cudaIpcOpenMemHandle((void **)&out->mapping, card->interprocess,
                                             cudaIpcMemLazyEnablePeerAccess),
                        "cudaIpcOpenMemHandle"));
    } else if (is_near(s->map, rank)) {
        TRY(map_handle(card->handle, card->bytes, device, &out->mapping));
    } else {
        TRY(map_descriptor(descriptor, card, device, &out->mapping));
    }
    out->at = out->mapping + card->offset;
    return ALNICO_SUCCESS;
}

static void unmap_piece(struct peer_piece *piece)
{
    const struct cuda_driver *driver = cuda_driver();
    let_go(piece->keeper);
    piece->keeper = NULL;
    if (!piece->mapping)
        return;
    if (piece->interprocess) {
        cudaIpcCloseMemHandle(piece->mapping);
    } else {
        CUdeviceptr at = (CUdeviceptr)(uintptr_t)piece->mapping;
        pthread_mutex_lock(&mapping_lock);
        driver->cuMemUnmap(at, piece->bytes);
        driver->cuMemAddressFree(at, piece->bytes);
        pthread_mutex_unlock(&mapping_lock);
    }
    *piece = (struct peer_piece){0};
}

static alnico_status_t map_all(const struct sharing *s, const int *descriptors,
                               struct peer_share *out)
{
    for (int i = 0; i < s->map->comm->size; i++) {
        alnico_status_t status = map_piece(s, i, descriptors[i], &out->pieces[i]);
        if (status != ALNICO_SUCCESS) {
            char detail[200];
            snprintf(detail, sizeof detail, "%s", alnico_error_detail());
            return error_set(status, "memory of rank %d: %s", i, detail);
        }
    }
    return ALNICO_SUCCESS;
}

/* ---- Together ---- */

static alnico_status_t prepare(struct sharing *s, void *memory, size_t bytes)
{
    TRY(describe(s, memory, bytes));
    return handover_listen(s->map->comm->size, &s->listener, &s->mine.listener);
}

static alnico_status_t hand_over(const struct sharing *s, struct peer_share *out)
{
    int descriptors[PEER_CUDA_RANKS];
    for (int i = 0; i < PEER_CUDA_RANKS; i++)
        descriptors[i] = -1;
    alnico_status_t status = send_all(s);
    if (status == ALNICO_SUCCESS)
        status = receive_all(s, descriptors);
    if (status == ALNICO_SUCCESS)
        status = map_all(s, descriptors, out);
    for (int i = 0; i < PEER_CUDA_RANKS; i++)
        if (descriptors[i] >= 0)
            close(descriptors[i]);
    return status;
}

static void sharing_finish(struct sharing *s)
{
    if (s->have_handle)
        release_handle(s->handle);
    if (s->descriptor >= 0)
        close(s->descriptor);
    if (s->listener >= 0)
        close(s->listener);
}

alnico_status_t peer_map_share(const struct peer_map *map, const char *who, void *memory,
                               size_t bytes, struct peer_share *out)
{
    struct sharing s = {
        .map = map, .descriptor = -1, .listener = -1, .end_ns = deadline(map->comm)};
    memset(out, 0, sizeof *out);
    alnico_status_t status = peer_map_agree(map->comm, who, prepare(&s, memory, bytes));
    if (status == ALNICO_SUCCESS)
        status = exchange(map->comm, who, &s.mine, s.cards, sizeof s.mine);
    if (status == ALNICO_SUCCESS)
        status = peer_map_agree(map->comm, who, hand_over(&s, out));
    if (status != ALNICO_SUCCESS)
        peer_map_unshare(map, out);
    sharing_finish(&s);
    return status;
}

void peer_map_unshare(const struct peer_map *map, struct peer_share *share)
{
    for (int i = 0; i < map->comm->size; i++)
        unmap_piece(&share->pieces[i]);
}

/* ---- Memory of our own ---- */

static bool all_have_handles(const struct peer_map *map)
{
    for (int i = 0; i < map->comm->size; i++)
        if (!map->places[i].handles)
            return false;
    return true;
}

static alnico_status_t alloc_handle(int device, size_t bytes, struct peer_piece *out)
{
    const struct cuda_driver *driver = cuda_driver();
    CUmemAllocationProp properties = {
        .type = CU_MEM_ALLOCATION_TYPE_PINNED,
        .requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
        .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = device}};
    size_t unit;
    CUmemGenericAllocationHandle handle;
    TRY(cuda_driver_status(
        driver->cuMemGetAllocationGranularity(&unit, &properties, CU_MEM_ALLOC_GRANULARITY_MINIMUM),
        "cuMemGetAllocationGranularity"));
    bytes = (bytes + unit - 1) / unit * unit;
    TRY(cuda_driver_status(driver->cuMemCreate(&handle, bytes, &properties, 0), "cuMemCreate"));
    alnico_status_t status = map_handle(handle, bytes, device, &out->mapping);
    release_handle(handle);
    if (status != ALNICO_SUCCESS)
        return status;
    out->at = out->mapping;
    out->bytes = bytes;
    return ALNICO_SUCCESS;
}

static alnico_status_t alloc_kept(struct peer_map *map, size_t bytes, struct peer_piece *out)
{
    struct peer_keeper *keeper = calloc(1, sizeof *keeper);
    if (!keeper)
        return error_set(ALNICO_ERROR_MEMORY, "no memory for scratch");
    atomic_init(&keeper->holders, 1);
    alnico_status_t status =
        cuda_status(cudaMalloc(&keeper->memory, bytes), "cudaMalloc of scratch");
    if (status != ALNICO_SUCCESS) {
        free(keeper);
        return status;
    }
    out->at = keeper->memory;
    out->keeper = map->keeper = keeper;
    return ALNICO_SUCCESS;
}

alnico_status_t peer_map_alloc(struct peer_map *map, size_t bytes, struct peer_piece *out)
{
    *out = (struct peer_piece){.bytes = bytes};
    return all_have_handles(map) ? alloc_handle(map->comm->device_index, bytes, out)
                                 : alloc_kept(map, bytes, out);
}

void peer_map_free(struct peer_piece *piece)
{
    unmap_piece(piece);
    *piece = (struct peer_piece){0};
}
