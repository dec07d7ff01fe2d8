/*
 * Bad input on GPUs: memory of the wrong side, of another GPU, that cannot be registered; streams
 * of another GPU; ranks on one GPU; and the ordinary ones with device pointers. Each is refused
 * with an error that names the argument, and the communicator works on.
 *
 *     gpu_cuda_arguments                  ranks as threads, on 1 to 4 GPUs one after the other
 *     mpirun -n 4 gpu_cuda_arguments      a process a GPU
 *
 * What needs a second GPU, which may be nobody's, says so in its line where there is none.
 */
#include "tests/gpu/support/site.h"

#include <alnico/mpi.h>

#include <stdlib.h>
#include <string.h>

enum { MEGABYTE = 1 << 20, COUNT = 1000 };

#define LENGTH(array) ((int)(sizeof(array) / sizeof *(array)))

/* An allreduce that is refused, blocking and not, and names this. */
static void refuse(struct gpu_site *site, const void *send, void *recv, const char *name)
{
    alnico_request_t request = NULL;
    REQUIRE_STATUS(alnico_allreduce(send, recv, COUNT, ALNICO_FLOAT32, ALNICO_SUM, site->comm),
                   ALNICO_ERROR_ARGUMENT);
    ranks_require_detail("alnico_allreduce");
    ranks_require_detail(name);
    REQUIRE_STATUS(
        alnico_iallreduce(send, recv, COUNT, ALNICO_FLOAT32, ALNICO_SUM, site->comm, &request),
        ALNICO_ERROR_ARGUMENT);
    ranks_require_detail("alnico_iallreduce");
    ranks_require_detail(name);
    REQUIRE(request == NULL);
    REQUIRE_STATUS(alnico_comm_status(site->comm), ALNICO_SUCCESS);
}

/* ---- Memory of the wrong side ---- */

static void host_memory_on_a_gpu(struct gpu_rank *rank)
{
    struct gpu_site site;
    gpu_site_open(&site, rank, MEGABYTE);
    float *host = malloc(2 * COUNT * sizeof *host), on_stack[COUNT];
    float *here = gpu_arena_take(&site.plain, 2 * COUNT * sizeof *here);
    refuse(&site, host, here, "send");
    refuse(&site, here, host, "recv");
    refuse(&site, here, on_stack, "recv");
    refuse(&site, host, host + COUNT, "send");
    refuse(&site, ALNICO_IN_PLACE, host, "host memory");
    gpu_try(&site, COUNT, "after host memory");
    free(host);
    gpu_arena_give(&site.plain);
    gpu_site_close(&site);
}

/* The last, where it ends the program by a segmentation fault if nobody checks. */
static void device_memory_on_the_cpu(struct gpu_rank *rank)
{
    struct gpu_site site;
    int gpus = gpu_count();
    if (!rank->mpi && rank->size < (gpus < GPU_RANKS ? gpus : GPU_RANKS))
        return;
    gpu_site_open(&site, rank, MEGABYTE);
    float *host = malloc(COUNT * sizeof *host);
    float *here = gpu_arena_take(&site.plain, COUNT * sizeof *here);
    REQUIRE_STATUS(alnico_allreduce(here, host, COUNT, ALNICO_FLOAT32, ALNICO_SUM, site.twin),
                   ALNICO_ERROR_ARGUMENT);
    ranks_require_detail("send");
    REQUIRE_STATUS(alnico_allreduce(host, here, COUNT, ALNICO_FLOAT32, ALNICO_SUM, site.twin),
                   ALNICO_ERROR_ARGUMENT);
    ranks_require_detail("recv");
    REQUIRE_STATUS(alnico_comm_status(site.twin), ALNICO_SUCCESS);
    REQUIRE(gpu_same(&site, 1));
    free(host);
    gpu_arena_give(&site.plain);
    gpu_site_close(&site);
}

static void null_misaligned_and_overlapping(struct gpu_rank *rank)
{
    struct gpu_site site;
    gpu_site_open(&site, rank, MEGABYTE);
    char *here = gpu_arena_take(&site.plain, 4 * COUNT * sizeof(float));
    refuse(&site, NULL, here, "send is NULL");
    refuse(&site, here, NULL, "recv is NULL");
    refuse(&site, here + 2, here + 8192, "is not aligned");
    refuse(&site, here, here + 4, "overlap");
    REQUIRE_STATUS(alnico_allreduce(NULL, NULL, 0, ALNICO_FLOAT32, ALNICO_SUM, site.comm),
                   ALNICO_SUCCESS);
    REQUIRE_STATUS(alnico_comm_set_algorithm(site.comm, ALNICO_ALLREDUCE, "bogus"),
                   ALNICO_ERROR_ARGUMENT);
    ranks_require_detail("bogus");
    REQUIRE_STATUS(alnico_comm_set_algorithm(site.comm, ALNICO_ALLREDUCE, "two_shot"),
                   ALNICO_ERROR_ARGUMENT); /* the CPU's only */
    gpu_try(&site, COUNT, "after bad arguments");
    gpu_arena_give(&site.plain);
    gpu_site_close(&site);
}

/* ---- Another GPU ---- */

/* The next GPU, whoever has it; -1 with a note if there is one only. */
static int other_device(struct gpu_rank *rank)
{
    int gpus = gpu_count();
    if (gpus < 2)
        gpu_note(rank, "skipped: needs 2 GPUs");
    return gpus < 2 ? -1 : (rank->device + 1) % gpus;
}

static void memory_of_another_gpu(struct gpu_rank *rank)
{
    struct gpu_site site;
    alnico_registration_t registration;
    void *there;
    int other = other_device(rank);
    if (other < 0)
        return;
    gpu_site_open(&site, rank, MEGABYTE);
    void *here = gpu_arena_take(&site.plain, COUNT * sizeof(float));
    CUDA(cudaSetDevice(other));
    CUDA(cudaMalloc(&there, COUNT * sizeof(float)));
    CUDA(cudaSetDevice(rank->device));
    refuse(&site, there, here, "send");
    refuse(&site, here, there, "recv");
    REQUIRE_STATUS(alnico_comm_register(site.comm, there, COUNT * sizeof(float), &registration),
                   ALNICO_ERROR_ARGUMENT);
    ranks_require_detail("memory");
    REQUIRE(registration == NULL);
    gpu_try(&site, COUNT, "after memory of another GPU");
    CUDA(cudaFree(there));
    gpu_arena_give(&site.plain);
    gpu_site_close(&site);
}

static void stream_of_another_gpu(struct gpu_rank *rank)
{
    struct gpu_site site;
    alnico_comm_t comm;
    cudaStream_t there;
    int other = other_device(rank);
    if (other < 0)
        return;
    gpu_site_open(&site, rank, MEGABYTE);
    CUDA(cudaSetDevice(other));
    CUDA(cudaStreamCreateWithFlags(&there, cudaStreamNonBlocking));
    CUDA(cudaSetDevice(rank->device));
    REQUIRE_STATUS(alnico_comm_create(&rank->bootstrap, ALNICO_DEVICE_CUDA, there, &comm),
                   ALNICO_ERROR_ARGUMENT);
    ranks_require_detail("stream");
    REQUIRE(comm == NULL);
    REQUIRE_STATUS(alnico_comm_duplicate(site.comm, there, &comm), ALNICO_ERROR_ARGUMENT);
    ranks_require_detail("stream");
    REQUIRE(comm == NULL);
    REQUIRE_STATUS(alnico_comm_split(site.comm, 0, 0, there, &comm), ALNICO_ERROR_ARGUMENT);
    ranks_require_detail("stream");
    REQUIRE(comm == NULL);
    gpu_try(&site, COUNT, "after a stream of another GPU");
    CUDA(cudaStreamDestroy(there));
    gpu_site_close(&site);
}

/* A caller that has made another GPU current meanwhile: it works, and stays current. */
static void another_gpu_is_current(struct gpu_rank *rank)
{
    struct gpu_site site;
    int other = other_device(rank), current = -1;
    if (other < 0)
        return;
    gpu_site_open(&site, rank, MEGABYTE);
    struct gpu_vector v = {COUNT, ALNICO_FLOAT32, ALNICO_SUM, rank->seed};
    void *here = gpu_arena_take(&site.plain, gpu_vector_bytes(&v));
    for (int i = 0; i < 4; i++) {
        alnico_request_t request;
        gpu_fill(&site, here, &v);
        CUDA(cudaSetDevice(other));
        if (i % 2) {
            REQUIRE_STATUS(
                alnico_iallreduce(ALNICO_IN_PLACE, here, COUNT, v.type, v.op, site.comm, &request),
                ALNICO_SUCCESS);
            REQUIRE_STATUS(alnico_wait(&request), ALNICO_SUCCESS);
        } else {
            REQUIRE_STATUS(alnico_allreduce(ALNICO_IN_PLACE, here, COUNT, v.type, v.op, site.comm),
                           ALNICO_SUCCESS);
        }
        REQUIRE_STATUS(alnico_synchronize(site.comm), ALNICO_SUCCESS);
        CUDA(cudaGetDevice(&current));
        REQUIRE(current == other);
        CUDA(cudaSetDevice(rank->device));
        gpu_verify(&site, here, &v, "another GPU was current");
    }
    gpu_arena_give(&site.plain);
    gpu_site_close(&site);
}

/* ---- Ranks on one GPU ---- */

static void ranks_on_one_gpu(struct gpu_rank *rank)
{
    struct gpu_site site;
    alnico_comm_t comm;
    CUDA(cudaSetDevice(0));
    alnico_status_t status = alnico_comm_create(&rank->bootstrap, ALNICO_DEVICE_CUDA, NULL, &comm);
    if (status != ALNICO_ERROR_UNSUPPORTED)
        REQUIRE_STATUS(status, ALNICO_ERROR_ARGUMENT);
    ranks_require_detail("GPU");
    ranks_require_detail("rank");
    REQUIRE(comm == NULL);
    if (rank->mpi) {
        status = alnico_comm_create_mpi(MPI_COMM_WORLD, ALNICO_DEVICE_CUDA, NULL, &comm);
        REQUIRE(status == ALNICO_ERROR_UNSUPPORTED || status == ALNICO_ERROR_ARGUMENT);
        REQUIRE(comm == NULL);
    }
    CUDA(cudaSetDevice(rank->device));
    gpu_site_open(&site, rank, MEGABYTE);
    gpu_try(&site, COUNT, "after ranks on one GPU");
    gpu_site_close(&site);
}

/* ---- Registering ---- */

/* By every rank, or by rank 0 only while the others pass what is good. UNSUPPORTED is for what some
 * ranks can share and others not, as the reason says. */
static void refuse_registration(struct gpu_site *site, void *memory, size_t bytes,
                                alnico_status_t expected, const char *reason)
{
    void *good = gpu_arena_take(&site->plain, 4096);
    for (int alone = 0; alone < 2; alone++) {
        alnico_registration_t registration;
        bool bad = !alone || site->rank->rank == 0;
        alnico_status_t status =
            alnico_comm_register(site->comm, bad ? memory : good, bytes, &registration);
        if (status != expected)
            fprintf(stderr, "registering what gives '%s'%s:\n", reason,
                    alone ? " on rank 0 only" : "");
        REQUIRE_STATUS(status, expected);
        ranks_require_detail("alnico_comm_register");
        ranks_require_detail(bad ? reason : "rank 0");
        REQUIRE(registration == NULL);
        REQUIRE_STATUS(alnico_comm_status(site->comm), ALNICO_SUCCESS);
    }
    gpu_arena_give(&site->plain);
    gpu_try(site, COUNT, "after a refused registration");
}

static void memory_that_cannot_be_registered(struct gpu_rank *rank)
{
    enum { BYTES = 4096 };
    struct gpu_site site;
    void *pinned, *managed, *pooled;
    gpu_site_open(&site, rank, MEGABYTE);
    void *host = malloc(BYTES);
    CUDA(cudaMallocHost(&pinned, BYTES));
    CUDA(cudaMallocManaged(&managed, BYTES, cudaMemAttachGlobal));
    CUDA(cudaMallocAsync(&pooled, BYTES, site.stream));
    CUDA(cudaStreamSynchronize(site.stream));
    refuse_registration(&site, host, BYTES, ALNICO_ERROR_ARGUMENT, "host memory");
    refuse_registration(&site, pinned, BYTES, ALNICO_ERROR_ARGUMENT, "host memory");
    refuse_registration(&site, NULL, BYTES, ALNICO_ERROR_ARGUMENT, "memory is NULL");
    if (rank->size > 1) { /* one rank shares nothing */
        refuse_registration(&site, managed, BYTES, ALNICO_ERROR_UNSUPPORTED, "cannot be shared");
        refuse_registration(&site, pooled, BYTES, ALNICO_ERROR_UNSUPPORTED, "cannot be shared");
        refuse_registration(&site, site.shared.base, (size_t)1 << 40, ALNICO_ERROR_UNSUPPORTED,
                            "over the end");
    }
    free(host);
    CUDA(cudaFreeHost(pinned));
    CUDA(cudaFree(managed));
    CUDA(cudaFreeAsync(pooled, site.stream));
    CUDA(cudaStreamSynchronize(site.stream));
    gpu_site_close(&site);
}

/* Memory that cannot be registered can be used: of a stream-ordered pool, as any other. */
static void memory_of_a_pool_works(struct gpu_rank *rank)
{
    struct gpu_site site;
    struct gpu_vector v = {30000, ALNICO_BFLOAT16, ALNICO_SUM, rank->seed};
    void *memory;
    gpu_site_open(&site, rank, MEGABYTE);
    CUDA(cudaMallocAsync(&memory, gpu_vector_bytes(&v), site.stream));
    gpu_fill(&site, memory, &v);
    REQUIRE_STATUS(alnico_allreduce(ALNICO_IN_PLACE, memory, v.count, v.type, v.op, site.comm),
                   ALNICO_SUCCESS);
    gpu_verify(&site, memory, &v, "memory of a pool");
    CUDA(cudaFreeAsync(memory, site.stream));
    REQUIRE_STATUS(alnico_synchronize(site.comm), ALNICO_SUCCESS);
    gpu_site_close(&site);
}

/* Registered, used, forgotten, used again; several over the same memory; one that is forgotten
 * twice; one that is left. */
static void registrations_come_and_go(struct gpu_rank *rank)
{
    struct gpu_site site;
    alnico_registration_t part, whole;
    gpu_site_open(&site, rank, MEGABYTE);
    for (int again = 0; again < 10; again++) {
        REQUIRE_STATUS(alnico_comm_register(site.comm, site.plain.base, MEGABYTE, &whole),
                       ALNICO_SUCCESS);
        gpu_try(&site, 20000, "a registered vector");
        REQUIRE_STATUS(alnico_comm_register(site.comm, site.plain.base + 4096, 8192, &part),
                       ALNICO_SUCCESS);
        gpu_try(&site, 500, "memory that is registered twice");
        REQUIRE_STATUS(alnico_comm_deregister(site.comm, again % 2 ? part : whole), ALNICO_SUCCESS);
        gpu_try(&site, 1000, "one registration less");
        REQUIRE_STATUS(alnico_comm_deregister(site.comm, again % 2 ? whole : part), ALNICO_SUCCESS);
        gpu_try(&site, 20000, "a vector that is not registered any more");
    }
    REQUIRE_STATUS(alnico_comm_deregister(site.comm, whole), ALNICO_ERROR_ARGUMENT);
    ranks_require_detail("registration");
    REQUIRE_STATUS(alnico_comm_register(site.comm, site.plain.base, MEGABYTE, &whole),
                   ALNICO_SUCCESS);
    gpu_try(&site, COUNT, "a registration that is left");
    gpu_site_close(&site);
}

/* ---- Memory of the library's ---- */

static void memory_that_is_allocated_for_sharing(struct gpu_rank *rank)
{
    enum { BYTES = 3 * MEGABYTE + 100 };
    struct gpu_site site;
    void *memory = NULL, *none = &site;
    alnico_registration_t registration;
    gpu_site_open(&site, rank, MEGABYTE);
    for (int again = 0; again < 20; again++) {
        REQUIRE_STATUS(alnico_memory_allocate(ALNICO_DEVICE_CUDA, BYTES, &memory), ALNICO_SUCCESS);
        REQUIRE((uintptr_t)memory % 64 == 0);
        CUDA(cudaMemset(memory, 0, BYTES));
        CUDA(cudaDeviceSynchronize());
        REQUIRE_STATUS(alnico_comm_register(site.comm, memory, BYTES, &registration),
                       ALNICO_SUCCESS);
        REQUIRE_STATUS(alnico_allreduce(ALNICO_IN_PLACE, memory, BYTES / 4, ALNICO_FLOAT32,
                                        ALNICO_SUM, site.comm),
                       ALNICO_SUCCESS);
        REQUIRE_STATUS(alnico_synchronize(site.comm), ALNICO_SUCCESS);
        REQUIRE_STATUS(alnico_comm_deregister(site.comm, registration), ALNICO_SUCCESS);
        REQUIRE_STATUS(alnico_memory_free(ALNICO_DEVICE_CUDA, memory), ALNICO_SUCCESS);
    }
    REQUIRE_STATUS(alnico_memory_allocate(ALNICO_DEVICE_CUDA, (size_t)1 << 50, &none),
                   ALNICO_ERROR_MEMORY);
    REQUIRE(none == NULL);
    gpu_try(&site, COUNT, "after memory that is shared");
    gpu_site_close(&site);
}

int main(void)
{
    static const struct gpu_test tests[] = {
        GPU_TEST(memory_that_is_allocated_for_sharing, 1),
        GPU_TEST(host_memory_on_a_gpu, 1),
        GPU_TEST(null_misaligned_and_overlapping, 1),
        GPU_TEST(memory_of_another_gpu, 1),
        GPU_TEST(stream_of_another_gpu, 1),
        GPU_TEST(another_gpu_is_current, 1),
        GPU_TEST(ranks_on_one_gpu, 2),
        GPU_TEST(registrations_come_and_go, 1),
        GPU_TEST(memory_that_cannot_be_registered, 1),
        GPU_TEST(memory_of_a_pool_works, 1),
        GPU_TEST(device_memory_on_the_cpu, 1),
    };
    return gpu_world_run(tests, LENGTH(tests));
}
