/* The ranks' processes and GPUs, whether the GPUs reach each other. */
#include "comm/communicator/out_of_band.h"
#include "comm/gpumem/map.h"

#include "base/log.h"
#include "base/status.h"
#include "device/cuda/driver.h"

#include <string.h>

bool peer_map_is_near(const struct peer_map *map, int rank)
{
    return process_same(&map->places[rank].process, &map->places[map->comm->rank].process);
}

static void find_place(const struct alnico_comm *comm, struct peer_place *out)
{
    memset(out, 0, sizeof *out);
    process_identify(&out->process);
    out->host_id = comm->family->topology.host_id;
    out->device = comm->device_index;
    out->ok = cuda_driver() != NULL &&
              cudaDeviceGetPCIBusId(out->gpu, sizeof out->gpu, comm->device_index) == cudaSuccess;
    out->handles = peer_memory_can_share(out->device);
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

/* A GPU that this process does not see may be reached all the same: then mapping its memory
 * tells. */
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

/* Atomics on another GPU's memory are native over NVLink and not over PCIe. Of a GPU that this
 * process does not see nothing is known. */
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
    int32_t mine = true, all[PEER_GPUS];
    for (int i = 0; i < map->comm->size; i++)
        mine &= i == map->comm->rank || is_ordered(map, i);
    TRY(comm_allgather(map->comm, who, &mine, all, sizeof mine));
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
    if (comm->hosts > 1 || comm->size < 2 || comm->size > PEER_GPUS)
        return ALNICO_SUCCESS;
    find_place(comm, &mine);
    TRY(comm_allgather(comm, who, &mine, out->places, sizeof mine));
    const char *obstacle = find_obstacle(out);
    if (obstacle) {
        log_write(LOG_INFO, "%s: no peer backend: %s", who, obstacle);
        return ALNICO_SUCCESS;
    }
    alnico_status_t status = comm_agree_status(comm, who, reach_all(out));
    *works = status == ALNICO_SUCCESS;
    if (*works)
        return agree_on_order(out, who);
    if (status != ALNICO_ERROR_UNSUPPORTED && status != ALNICO_ERROR_SYSTEM)
        return status;
    log_write(LOG_INFO, "no peer backend: %s", alnico_error_detail());
    return ALNICO_SUCCESS;
}
