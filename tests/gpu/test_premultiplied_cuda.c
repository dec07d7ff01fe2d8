/*
 * Premultiplied sums on GPUs: the factor of the host, and that of the GPU, which a captured call reads
 * anew in each replay; in `recv` and in memory that the call takes.
 *
 *     gpu_premultiplied_cuda                  ranks as threads, on 1 to 4 GPUs one after the other
 *     mpirun -n 4 gpu_premultiplied_cuda      a process a GPU
 */
#include "tests/gpu/support/graph.h"

#include <stdlib.h>

enum { PRODUCTS = 5000, MEGABYTE = 1 << 20 };

struct products {
    struct gpu_site *site;
    float *in, *out, *factor; /* on the GPU */
    float *host;
    int rank, size;
    alnico_op_t by_host, by_gpu;
};

static void set_all(struct products *p, float *to, size_t count, float value)
{
    for (size_t i = 0; i < count; i++)
        p->host[i] = value;
    CUDA(cudaMemcpyAsync(to, p->host, count * sizeof *to, cudaMemcpyHostToDevice, p->site->stream));
    CUDA(cudaStreamSynchronize(p->site->stream));
}

static void require_all(struct products *p, float value)
{
    CUDA(cudaMemcpyAsync(p->host, p->out, PRODUCTS * sizeof *p->out, cudaMemcpyDeviceToHost,
                         p->site->stream));
    CUDA(cudaStreamSynchronize(p->site->stream));
    for (int i = 0; i < PRODUCTS; i++)
        REQUIRE(p->host[i] == value);
}

static void open_products(struct products *p, struct gpu_site *site)
{
    *p = (struct products){
        .site = site, .rank = alnico_comm_rank(site->comm), .size = alnico_comm_size(site->comm)};
    size_t all = (size_t)p->size * PRODUCTS * sizeof(float);
    float factor = (float)(p->rank + 1);
    p->in = gpu_arena_take(&site->plain, all);
    p->out = gpu_arena_take(&site->plain, all);
    p->factor = gpu_arena_take(&site->plain, sizeof factor);
    p->host = malloc(all);
    REQUIRE(p->host);
    set_all(p, p->in, (size_t)p->size * PRODUCTS, 1);
    set_all(p, p->factor, 1, 10 * factor);
    REQUIRE_STATUS(alnico_op_create_premultiplied_sum(site->comm, &factor, ALNICO_FLOAT32,
                                                      ALNICO_DEVICE_CPU, &p->by_host),
                   ALNICO_SUCCESS);
    REQUIRE_STATUS(alnico_op_create_premultiplied_sum(site->comm, p->factor, ALNICO_FLOAT32,
                                                      ALNICO_DEVICE_CUDA, &p->by_gpu),
                   ALNICO_SUCCESS);
}

static void eager_products(struct products *p, float sum)
{
    alnico_comm_t comm = p->site->comm;
    alnico_request_t request;
    REQUIRE_STATUS(alnico_allreduce(p->in, p->out, PRODUCTS, ALNICO_FLOAT32, p->by_host, comm),
                   ALNICO_SUCCESS);
    require_all(p, sum);
    REQUIRE_STATUS(
        alnico_ireduce_scatter(p->in, p->out, PRODUCTS, ALNICO_FLOAT32, p->by_gpu, comm, &request),
        ALNICO_SUCCESS);
    REQUIRE_STATUS(alnico_wait(&request), ALNICO_SUCCESS);
    require_all(p, 10 * sum);
    for (int root = 0; root < p->size; root++) {
        REQUIRE_STATUS(
            alnico_reduce(p->in, p->out, PRODUCTS, ALNICO_FLOAT32, p->by_gpu, root, comm),
            ALNICO_SUCCESS);
        require_all(p, 10 * sum);
    }
}

/* A graph reads the factor anew in each replay. */
static void captured_products(struct products *p, float sum)
{
    gpu_capture_begin(p->site);
    REQUIRE_STATUS(
        alnico_allreduce(p->in, p->out, PRODUCTS, ALNICO_FLOAT32, p->by_gpu, p->site->comm),
        ALNICO_SUCCESS);
    cudaGraphExec_t graph = gpu_capture_end(p->site);
    for (int again = 1; again < 4; again++) {
        set_all(p, p->factor, 1, (float)(again * (p->rank + 1)));
        gpu_replay(p->site, graph);
        require_all(p, (float)again * sum);
    }
    CUDA(cudaGraphExecDestroy(graph));
}

static void premultiplied_sums(struct gpu_rank *rank)
{
    struct gpu_site site;
    struct products p;
    gpu_site_open(&site, rank, MEGABYTE);
    open_products(&p, &site);
    float sum = (float)(p.size * (p.size + 1) / 2);
    eager_products(&p, sum);
    if (gpu_can_capture(&site))
        captured_products(&p, sum);
    for (int taken = 0; taken < 3; taken++)
        gpu_arena_give(&site.plain);
    free(p.host);
    gpu_site_close(&site);
}

int main(void)
{
    static const struct gpu_test tests[] = {
        GPU_TEST(premultiplied_sums, 1),
    };
    return gpu_world_run(tests, (int)(sizeof tests / sizeof *tests));
}
