/* Communicators: made of an id, of GPUs of this process, of a part of another one's ranks. */
#include "integrations/nccl/cliques.h"
#include "integrations/nccl/group.h"
#include "integrations/nccl/notes.h"
#include "integrations/nccl/ours.h"

#include <stdlib.h>
#include <string.h>

/* ---- Arguments ---- */

static ncclResult_t check_flag(int value, const char *name)
{
    return value == NCCL_CONFIG_UNDEF_INT || value == 0 || value == 1
               ? ncclSuccess
               : fail(ncclInvalidArgument, "config.%s is %d; it is 0 or 1", name, value);
}

/* A configuration sets nothing of Alnico's: it has to be right only. A nonblocking communicator is there
 * when the call returns, which NCCL allows. */
static ncclResult_t check_config(const ncclConfig_t *config)
{
    if (!config)
        return ncclSuccess;
    if (config->magic != 0xcafebeef || config->size < offsetof(ncclConfig_t, minCTAs))
        return fail(ncclInvalidArgument,
                    "the configuration was not made by NCCL_CONFIG_INITIALIZER");
    ncclResult_t result = check_flag(config->blocking, "blocking");
    if (result == ncclSuccess && config->size >= offsetof(ncclConfig_t, trafficClass))
        result = check_flag(config->splitShare, "splitShare");
    if (result != ncclSuccess || config->size < offsetof(ncclConfig_t, netName))
        return result;
    int least = config->minCTAs, most = config->maxCTAs, undefined = NCCL_CONFIG_UNDEF_INT;
    if ((least != undefined && least <= 0) || (most != undefined && most <= 0) ||
        (least != undefined && most != undefined && least > most))
        return fail(ncclInvalidArgument, "config.minCTAs %d and maxCTAs %d", least, most);
    return ncclSuccess;
}

static ncclResult_t check_init(ncclComm_t *out, int size, int rank, const ncclConfig_t *config)
{
    if (!out)
        return fail(ncclInvalidArgument, "comm is NULL");
    *out = NULL;
    if (size < 1)
        return fail(ncclInvalidArgument, "the number of ranks is %d", size);
    if (rank < 0 || rank >= size)
        return fail(ncclInvalidArgument, "rank %d is not in 0 to %d", rank, size - 1);
    return check_config(config);
}

/* ---- What all have in common ---- */

static ncclResult_t make_stream(cudaStream_t *home)
{
    return result_of_cuda(cudaStreamCreateWithFlags(home, cudaStreamNonBlocking));
}

/* The handle of a new communicator, in its clique. */
static ncclResult_t open_comm(alnico_comm_t alnico, int device, cudaStream_t home,
                              const struct clique_key *key, ncclComm_t *out)
{
    ncclComm_t comm;
    ncclResult_t result = comm_adopt(alnico, device, home, &comm);
    if (result == ncclSuccess)
        result = clique_join(comm, key);
    if (result == ncclSuccess)
        *out = comm;
    return result;
}

/* A thread that is several ranks must not wait in one rank's call for the others. Alnico waits where it makes
 * an NCCL communicator, when that is first wanted, so all ranks make it now if one has such a thread;
 * if it cannot be made, it will not be wanted. */
static void make_ready(alnico_comm_t alnico, bool crowded)
{
    static const struct {
        alnico_collective_t collective;
        const char *algorithm;
    } first[] = {{ALNICO_BARRIER, "nccl"}, {ALNICO_SCATTERV, "nccl_messages"}};
    const char *wanted = crowded ? first[0].algorithm : NULL;
    alnico_status_t status = alnico_comm_set_algorithm(alnico, first[0].collective, wanted);
    if (status == ALNICO_SUCCESS && !crowded)
        return;
    for (size_t i = 0; i < sizeof first / sizeof *first; i++) {
        status = alnico_comm_set_algorithm(alnico, first[i].collective, first[i].algorithm);
        if (status == ALNICO_SUCCESS)
            alnico_comm_set_algorithm(alnico, first[i].collective, NULL);
    }
}

/* ---- By an id ---- */

static ncclResult_t init(const struct job *job)
{
    cudaStream_t home;
    alnico_comm_t alnico = NULL;
    alnico_id_t id;
    const struct clique_key key = {.id = job->id};
    ncclResult_t result = make_stream(&home);
    if (result != ncclSuccess)
        return result;
    memcpy(&id, &job->id, sizeof id);
    result = result_of(
        alnico_comm_create_id(&id, job->rank, job->size, ALNICO_DEVICE_CUDA, home, &alnico));
    if (result != ncclSuccess) {
        cudaStreamDestroy(home);
        return result;
    }
    make_ready(alnico, job->crowded);
    return open_comm(alnico, job->device, home, &key, job->out);
}

static ncclResult_t init_by_id(ncclComm_t *out, int size, int rank, const ncclUniqueId *id,
                               const ncclConfig_t *config)
{
    ncclResult_t result = check_init(out, size, rank, config);
    if (result != ncclSuccess)
        return group_result(result);
    struct job job = {.run = init, .out = out, .id = *id, .size = size, .rank = rank};
    return group_result(group_job(&job));
}

ncclResult_t ours_CommInitRank(ncclComm_t *out, int size, ncclUniqueId id, int rank)
{
    return init_by_id(out, size, rank, &id, NULL);
}

ncclResult_t ours_CommInitRankConfig(ncclComm_t *out, int size, ncclUniqueId id, int rank,
                                     ncclConfig_t *config)
{
    return init_by_id(out, size, rank, &id, config);
}

/* One id is enough: the ranks form a tree of it. The others' listeners end by themselves. */
ncclResult_t ours_CommInitRankScalable(ncclComm_t *out, int size, int rank, int count,
                                       ncclUniqueId *ids, ncclConfig_t *config)
{
    if (!ids || count < 1 || count > size)
        return group_result(fail(ncclInvalidArgument,
                                 "%d ids at %p; there are from 1 to as many as ranks, %d", count,
                                 (void *)ids, size));
    return init_by_id(out, size, rank, &ids[0], config);
}

/* ---- Of this process's GPUs ---- */

static ncclResult_t check_devices(ncclComm_t *out, int count, const int *devices)
{
    int there = 0;
    if (!out || count < 1)
        return fail(ncclInvalidArgument, "%d communicators at %p", count, (void *)out);
    ncclResult_t result = result_of_cuda(cudaGetDeviceCount(&there));
    for (int i = 0; i < count && result == ncclSuccess; i++) {
        int device = devices ? devices[i] : i;
        out[i] = NULL;
        if (device < 0 || device >= there)
            result = fail(ncclUnhandledCudaError, "GPU %d is not in 0 to %d", device, there - 1);
        for (int j = 0; devices && j < i; j++)
            if (devices[j] == device)
                result = fail(ncclInvalidUsage, "GPU %d is there twice", device);
    }
    return result;
}

static ncclResult_t init_all(ncclComm_t *out, int count, const int *devices, struct job *jobs)
{
    ncclUniqueId id;
    ncclResult_t result = ours_GetUniqueId(&id);
    for (int i = 0; i < count; i++)
        jobs[i] = (struct job){.run = init,
                               .who = entry_name(),
                               .device = devices ? devices[i] : i,
                               .crowded = count > 1,
                               .out = &out[i],
                               .id = id,
                               .size = count,
                               .rank = i};
    if (result == ncclSuccess)
        result = jobs_run(jobs, (size_t)count);
    for (int i = 0; i < count && result != ncclSuccess; i++) {
        ours_CommAbort(out[i]);
        out[i] = NULL;
    }
    return result;
}

ncclResult_t ours_CommInitAll(ncclComm_t *out, int count, const int *devices)
{
    ncclResult_t result = check_devices(out, count, devices);
    struct job *jobs = result == ncclSuccess ? calloc((size_t)count, sizeof *jobs) : NULL;
    if (jobs)
        result = init_all(out, count, devices, jobs);
    else if (result == ncclSuccess)
        result = fail(ncclSystemError, "no memory");
    free(jobs);
    return group_result(result);
}

/* ---- Of another one's ranks ---- */

/* `alnico` is NULL for a rank that has no color. */
static ncclResult_t open_child(const struct job *job, alnico_comm_t alnico, cudaStream_t home,
                               int color)
{
    ncclComm_t parent = job->comm;
    const struct clique_key key = {
        .parent = clique_number(parent), .split = parent->splits++, .color = color};
    if (!alnico) {
        cudaStreamDestroy(home);
        return ncclSuccess;
    }
    make_ready(alnico, job->crowded);
    return open_comm(alnico, parent->device, home, &key, job->out);
}

/* From one that has failed: those that live are `count`, or it is an error. */
static ncclResult_t shrink_broken(const struct job *job, int count, cudaStream_t home,
                                  alnico_comm_t *alnico)
{
    alnico_comm_abort(job->comm->alnico);
    ncclResult_t result = result_of(alnico_comm_shrink(job->comm->alnico, home, alnico));
    if (result != ncclSuccess || alnico_comm_size(*alnico) == count)
        return result;
    result = fail(ncclRemoteError, "%d ranks live, not %d", alnico_comm_size(*alnico), count);
    alnico_comm_abort(*alnico);
    alnico_comm_destroy(*alnico);
    return result;
}

/* A revoked communicator is replaced by a new one of its ranks first. */
static ncclResult_t split_to(const struct job *job, cudaStream_t home, alnico_comm_t *alnico)
{
    ncclComm_t comm = job->comm;
    alnico_comm_t whole = comm->alnico;
    ncclResult_t result = ncclSuccess;
    if (comm->revoked)
        result = shrink_broken(job, comm->size, home, &whole);
    if (result != ncclSuccess)
        return result;
    result = result_of(alnico_comm_split(whole, job->size, job->rank, home, alnico));
    if (comm->revoked)
        alnico_comm_destroy(whole);
    return result;
}

static ncclResult_t split(const struct job *job)
{
    cudaStream_t home;
    alnico_comm_t alnico = NULL;
    ncclResult_t result = make_stream(&home);
    if (result != ncclSuccess)
        return result;
    result = split_to(job, home, &alnico);
    if (result == ncclSuccess)
        return open_child(job, alnico, home, job->size);
    cudaStreamDestroy(home);
    return result;
}

static ncclResult_t give_job(struct job *job, const ncclConfig_t *config)
{
    ncclResult_t result =
        job->out ? check_config(config) : fail(ncclInvalidArgument, "newcomm is NULL");
    if (result != ncclSuccess)
        return result;
    *job->out = NULL;
    return group_job(job);
}

ncclResult_t ours_CommSplit(ncclComm_t comm, int color, int key, ncclComm_t *out,
                            ncclConfig_t *config)
{
    struct job job = {.run = split, .comm = comm, .out = out, .size = color, .rank = key};
    if (color < 0 && color != NCCL_SPLIT_NOCOLOR)
        return fail(ncclInvalidArgument, "color %d is neither NCCL_SPLIT_NOCOLOR nor positive",
                    color);
    return give_job(&job, config);
}

static bool is_excluded(const int *excluded, int count, int rank)
{
    for (int i = 0; i < count; i++)
        if (excluded[i] == rank)
            return true;
    return false;
}

/* The ranks that stay, and this one's place among them. */
static int list_members(const struct job *job, int *members, int *place)
{
    int count = 0;
    for (int rank = 0; rank < job->comm->size; rank++) {
        if (is_excluded(job->excluded, job->size, rank))
            continue;
        if (rank == job->comm->rank)
            *place = count;
        members[count++] = rank;
    }
    return count;
}

/* From a communicator that works: its first rank that stays makes an id. */
static ncclResult_t shrink_sound(const struct job *job, const int *members, int count, int place,
                                 cudaStream_t home, alnico_comm_t *alnico)
{
    ncclUniqueId id;
    alnico_id_t own;
    ncclResult_t result = notes_share_id(job->comm, members, count, &id);
    if (result != ncclSuccess)
        return result;
    memcpy(&own, &id, sizeof own);
    return result_of(alnico_comm_create_id(&own, place, count, ALNICO_DEVICE_CUDA, home, alnico));
}

static ncclResult_t shrink_to(const struct job *job, const int *members, int count, int place)
{
    cudaStream_t home;
    alnico_comm_t alnico = NULL;
    ncclResult_t result = make_stream(&home);
    if (result != ncclSuccess)
        return result;
    bool broken = alnico_comm_status(job->comm->alnico) != ALNICO_SUCCESS;
    result = broken || job->rank & NCCL_SHRINK_ABORT
                 ? shrink_broken(job, count, home, &alnico)
                 : shrink_sound(job, members, count, place, home, &alnico);
    if (result == ncclSuccess)
        return open_child(job, alnico, home, 0);
    cudaStreamDestroy(home);
    return result;
}

static ncclResult_t shrink(const struct job *job)
{
    int place = -1;
    int *members = calloc((size_t)job->comm->size, sizeof *members);
    if (!members)
        return fail(ncclSystemError, "no memory");
    int count = list_members(job, members, &place);
    ncclResult_t result = shrink_to(job, members, count, place);
    free(members);
    return result;
}

static ncclResult_t check_excluded(ncclComm_t comm, const int *excluded, int count, int flags)
{
    if (count < 1 || !excluded)
        return fail(ncclInvalidArgument, "%d excluded ranks at %p", count, (const void *)excluded);
    if (flags & ~NCCL_SHRINK_ABORT)
        return fail(ncclInvalidArgument, "unknown flags %#x", (unsigned)flags);
    for (int i = 0; i < count; i++)
        if (excluded[i] < 0 || excluded[i] >= comm->size)
            return fail(ncclInvalidArgument, "excluded rank %d is not in 0 to %d", excluded[i],
                        comm->size - 1);
    return is_excluded(excluded, count, comm->rank)
               ? fail(ncclInvalidArgument, "this rank, %d, is excluded", comm->rank)
               : ncclSuccess;
}

ncclResult_t ours_CommShrink(ncclComm_t comm, int *excluded, int count, ncclComm_t *out,
                             ncclConfig_t *config, int flags)
{
    ncclResult_t result = check_excluded(comm, excluded, count, flags);
    struct job job = {.run = shrink,
                      .comm = comm,
                      .out = out,
                      .size = count,
                      .rank = flags,
                      .excluded = excluded};
    return result == ncclSuccess ? give_job(&job, config) : result;
}
