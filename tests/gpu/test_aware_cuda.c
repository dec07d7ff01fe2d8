/* Messages of GPUs' memory, over a made-up CUDA-aware MPI: the real one behind calls that copy what
 * they send to the host and what has come back from it, and say that they take the memory of GPUs.
 * With TEST_CUDA_AWARE=1 the real one is to be aware itself, and gets the pointers.
 *
 *     mpirun -n 2 gpu_aware_cuda      a process a GPU; ranks as threads, which have no MPI, are skipped
 */
#include "tests/gpu/support/site.h"

#include <mpi.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

enum { ROOM = 64 << 20, HELD = 4096 };

#define LENGTH(array) ((int)(sizeof(array) / sizeof *(array)))

/* ---- The made-up MPI ---- */

/* A message on its way through the host's memory; `device` NULL: it is sent. */
struct held {
    bool used;
    MPI_Request request;
    char *device, *host;
    size_t bytes;
};

static struct held held[HELD];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static int seen; /* buffers of a GPU that MPI got */

static bool is_real(void)
{
    return getenv("TEST_CUDA_AWARE") != NULL;
}

int MPIX_Query_cuda_support(void);

int MPIX_Query_cuda_support(void)
{
    return 1;
}

static bool is_on_gpu(const void *memory)
{
    struct cudaPointerAttributes attributes;
    if (cudaPointerGetAttributes(&attributes, memory) != cudaSuccess ||
        attributes.type != cudaMemoryTypeDevice)
        return false;
    __atomic_fetch_add(&seen, 1, __ATOMIC_RELAXED);
    return true;
}

/* Waits for no other, and is kept. Made before anything waits on the GPU, as a driver makes no stream
 * while a copy of another thread does. */
static cudaStream_t stream;

static void move(void *to, const void *from, size_t bytes)
{
    CUDA(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, stream));
    CUDA(cudaStreamSynchronize(stream));
}

static void hold(const struct held *one)
{
    int i = 0;
    pthread_mutex_lock(&lock);
    while (i < HELD && held[i].used)
        i++;
    REQUIRE(i < HELD);
    held[i] = *one;
    pthread_mutex_unlock(&lock);
}

/* Of several sends that share a request all have ended. */
static void let_go(MPI_Request request)
{
    struct held one = {.used = false};
    pthread_mutex_lock(&lock);
    for (int i = 0; i < HELD && !one.used; i++)
        if (held[i].used && held[i].request == request) {
            one = held[i];
            held[i].used = false;
        }
    pthread_mutex_unlock(&lock);
    if (one.used && one.device)
        move(one.device, one.host, one.bytes);
    if (one.used)
        free(one.host);
}

int MPI_Isend(const void *buffer, int count, MPI_Datatype type, int to, int tag, MPI_Comm comm,
              MPI_Request *request)
{
    if (!is_on_gpu(buffer) || is_real())
        return PMPI_Isend(buffer, count, type, to, tag, comm, request);
    struct held one = {.used = true, .host = malloc((size_t)count + 1)};
    REQUIRE(type == MPI_BYTE && one.host != NULL);
    move(one.host, buffer, (size_t)count);
    int code = PMPI_Isend(one.host, count, type, to, tag, comm, request);
    one.request = *request;
    hold(&one);
    return code;
}

int MPI_Irecv(void *buffer, int count, MPI_Datatype type, int from, int tag, MPI_Comm comm,
              MPI_Request *request)
{
    if (!is_on_gpu(buffer) || is_real())
        return PMPI_Irecv(buffer, count, type, from, tag, comm, request);
    struct held one = {
        .used = true, .device = buffer, .host = malloc((size_t)count + 1), .bytes = (size_t)count};
    REQUIRE(type == MPI_BYTE && one.host != NULL);
    int code = PMPI_Irecv(one.host, count, type, from, tag, comm, request);
    one.request = *request;
    hold(&one);
    return code;
}

int MPI_Test(MPI_Request *request, int *done, MPI_Status *status)
{
    MPI_Request asked = *request;
    int code = PMPI_Test(request, done, status);
    if (*done && asked != MPI_REQUEST_NULL)
        let_go(asked);
    return code;
}

/* ---- Calls ---- */

/* Otherwise there is nothing to test. */
static bool is_over_mpi(struct gpu_rank *rank)
{
    if (!rank->mpi)
        gpu_note(rank, "skipped: needs mpirun");
    else if (!stream)
        CUDA(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    return rank->mpi;
}

static void every_way_is_right(struct gpu_rank *rank)
{
    static const size_t counts[] = {1, 1000, 70001, 3000001};
    struct gpu_site site;
    struct gpu_way way;
    if (!is_over_mpi(rank))
        return;
    gpu_site_open(&site, rank, ROOM);
    for (int i = 0; gpu_way_at(i, &way); i++) {
        if (!gpu_way_is(&way, "aware"))
            continue;
        const int before = __atomic_load_n(&seen, __ATOMIC_RELAXED);
        REQUIRE(gpu_force(&site, &way));
        for (int k = 0; k < 4 * LENGTH(counts); k++) {
            struct gpu_vector v = {.count = counts[k / 4],
                                   .type = k % 2 ? ALNICO_FLOAT32 : ALNICO_INT32,
                                   .op = k % 4 < 2 ? ALNICO_SUM : ALNICO_AVERAGE,
                                   .seed = rank->seed + (uint64_t)(100 * i + k)};
            void *x = gpu_arena_take(&site.plain, gpu_vector_bytes(&v));
            gpu_fill(&site, x, &v);
            REQUIRE_STATUS(alnico_allreduce(ALNICO_IN_PLACE, x, v.count, v.type, v.op, site.comm),
                           ALNICO_SUCCESS);
            /* The driver makes one copy to memory that is not pinned at a time, and MPI's are such. */
            REQUIRE_STATUS(alnico_synchronize(site.comm), ALNICO_SUCCESS);
            uint64_t hash = gpu_verify(&site, x, &v, gpu_way_name(&way));
            REQUIRE(gpu_same(&site, hash));
            gpu_arena_give(&site.plain);
        }
        REQUIRE(__atomic_load_n(&seen, __ATOMIC_RELAXED) > before);
    }
    gpu_site_close(&site);
}

/* Sums behind each other on the stream, each of the last one's result, and nobody waits between. */
static void calls_follow_the_stream(struct gpu_rank *rank)
{
    enum { COUNT = 300000, CALLS = 12 };
    struct gpu_site site;
    if (!is_over_mpi(rank))
        return;
    gpu_site_open(&site, rank, ROOM);
    struct gpu_way way = gpu_way_named("aware_rabenseifner");
    REQUIRE(gpu_force(&site, &way));
    uint32_t *x = gpu_arena_take(&site.plain, COUNT * sizeof *x), expected = 1;
    uint32_t *host = malloc(COUNT * sizeof *host);
    REQUIRE(host != NULL);
    for (int i = 0; i < COUNT; i++)
        host[i] = 1;
    move(x, host, COUNT * sizeof *x);
    for (int call = 0; call < CALLS; call++, expected *= (uint32_t)rank->size)
        REQUIRE_STATUS(
            alnico_allreduce(ALNICO_IN_PLACE, x, COUNT, ALNICO_UINT32, ALNICO_SUM, site.comm),
            ALNICO_SUCCESS);
    REQUIRE_STATUS(alnico_synchronize(site.comm), ALNICO_SUCCESS);
    CUDA(cudaMemcpyAsync(host, x, COUNT * sizeof *x, cudaMemcpyDefault, site.stream));
    CUDA(cudaStreamSynchronize(site.stream));
    for (int i = 0; i < COUNT; i++)
        REQUIRE(host[i] == expected);
    free(host);
    gpu_arena_give(&site.plain);
    gpu_site_close(&site);
}

/* Around a ring, and each rank's block to each. */
static void messages_and_blocks_arrive(struct gpu_rank *rank)
{
    enum { COUNT = 20011 };
    const int size = rank->size, next = (rank->rank + 1) % size,
              last = (rank->rank + size - 1) % size;
    const size_t bytes = (size_t)size * COUNT * sizeof(int32_t);
    struct gpu_site site;
    if (!is_over_mpi(rank))
        return;
    gpu_site_open(&site, rank, ROOM);
    REQUIRE_STATUS(alnico_comm_set_algorithm(site.comm, ALNICO_SENDRECV, "aware_direct"),
                   ALNICO_SUCCESS);
    REQUIRE_STATUS(alnico_comm_set_algorithm(site.comm, ALNICO_ALLTOALL, "aware_pairwise"),
                   ALNICO_SUCCESS);
    int32_t *from = gpu_arena_take(&site.plain, bytes), *to = gpu_arena_take(&site.plain, bytes);
    int32_t *host = malloc(bytes);
    REQUIRE(host != NULL);
    for (int i = 0; i < size * COUNT; i++)
        host[i] = 1000 * rank->rank + i / COUNT;
    move(from, host, bytes);
    REQUIRE_STATUS(alnico_alltoall(from, to, COUNT, ALNICO_INT32, site.comm), ALNICO_SUCCESS);
    REQUIRE_STATUS(alnico_sendrecv(to, COUNT, next, from, COUNT, last, ALNICO_INT32, site.comm),
                   ALNICO_SUCCESS);
    CUDA(cudaStreamSynchronize(site.stream));
    REQUIRE_STATUS(alnico_synchronize(site.comm), ALNICO_SUCCESS);
    move(host, to, bytes);
    for (int i = 0; i < size * COUNT; i++)
        REQUIRE(host[i] == 1000 * (i / COUNT) + rank->rank);
    move(host, from, COUNT * sizeof *host);
    for (int i = 0; i < COUNT; i++)
        REQUIRE(host[i] == last); /* rank 0's block for it */
    free(host);
    gpu_arena_give(&site.plain);
    gpu_arena_give(&site.plain);
    gpu_site_close(&site);
}

int main(void)
{
    static const struct gpu_test tests[] = {
        GPU_TEST(every_way_is_right, 2),
        GPU_TEST(calls_follow_the_stream, 2),
        GPU_TEST(messages_and_blocks_arrive, 2),
    };
    setenv("ALNICO_TIMEOUT", "20", 1);
    return gpu_world_run(tests, LENGTH(tests));
}
