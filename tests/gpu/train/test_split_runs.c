/*
 * Runs whose network is split over ranks, by the trainer on cuDNN: they learn as one rank with all images
 * does. Ranks are threads that share one GPU: here it has no name by which communicators would know that
 * (device.h), and messages and sums go through the host, so that no kernel waits for another rank's.
 */
#include "tests/gpu/train/check.h"

#include "tests/support/ranks.h"
#include "train/trainer/trainer.h"

#include <math.h>
#include <string.h>
#include <unistd.h>

enum { MOST_TESTS = 16, SECONDS_MOST = 200 };

static struct device_ops nameless;

const struct device_ops *__real_device_find(alnico_device_t device);
const struct device_ops *__wrap_device_find(alnico_device_t device);

const struct device_ops *__wrap_device_find(alnico_device_t device)
{
    return device == ALNICO_DEVICE_CUDA && nameless.name ? &nameless : __real_device_find(device);
}

struct job {
    struct trainer_options options;
    struct trainer_report report;
    double losses[MOST_TESTS];
    size_t tests;
};

static void tested(void *context, const struct trainer_progress *progress)
{
    struct job *job = context;
    if (progress->tested && job->tests < MOST_TESTS)
        job->losses[job->tests++] = progress->test.loss;
}

static void rank_run(struct rank *rank)
{
    struct job *job = rank->argument;
    struct trainer_options options = job->options;
    struct trainer_place place = {.host = NULL};
    struct trainer_report report;
    GPU(cudaSetDevice(0));
    REQUIRE_STATUS(device_cuda.work_stream_create(&place.stream), ALNICO_SUCCESS);
    place.host = ranks_comm(rank, NULL);
    REQUIRE_STATUS(
        alnico_comm_create(&rank->bootstrap, ALNICO_DEVICE_CUDA, place.stream, &place.device),
        ALNICO_SUCCESS);
    options.progress = tested;
    options.context = job;
    if (rank->rank)
        options.progress = NULL;
    REQUIRE_STATUS(trainer_run(&options, &place, &report), ALNICO_SUCCESS);
    if (rank->rank == 0)
        job->report = report;
    ranks_barrier(rank); /* destroying one waits for the GPU */
    alnico_comm_destroy(place.device);
    alnico_comm_destroy(place.host);
    device_cuda.stream_destroy(place.stream);
}

static const struct {
    const char *model, *data, *split;
    size_t batch, parts, steps;
    int ranks;
    enum norm_group norm;
} runs[] = {
    {"resnet20", "synthetic:16x16x3", "rows=2", 8, 1, 50, 2, NORM_SAMPLE},
    {"resnet20", "synthetic:16x16x3", "images=2,rows=2", 8, 2, 15, 4, NORM_ALL},
    {"resnet20", "synthetic:16x16x3", NULL, 8, 2, 15, 2, NORM_ALL},
    {"mesh:64", "mesh:64", "rows=2", 1, 1, 50, 2, NORM_SAMPLE},
    {"mnist", "synthetic:28x28x1", "columns=2", 4, 1, 15, 2, NORM_SAMPLE},
    {"cnn", "synthetic:16x16x3", "rows=2;conv2..dense1:channels=2", 4, 1, 15, 2, NORM_SAMPLE},
};

static struct job job_make(size_t i, bool split, const char *cache)
{
    const size_t batch = runs[i].batch;
    struct job job = {.options = {.model = runs[i].model,
                                  .data = runs[i].data,
                                  .kernels = "cudnn",
                                  .strategy = "allreduce",
                                  .batch = split ? batch / runs[i].parts : batch,
                                  .split = split ? runs[i].split : NULL,
                                  .norm = split ? runs[i].norm : NORM_LOCAL,
                                  .steps = runs[i].steps,
                                  .seed = 3,
                                  .tests = 8,
                                  .validate_every = 5,
                                  .rule = BUCKETS_OF_COUNT,
                                  .buckets = 3,
                                  .no_graph = true,
                                  .compute = {.full_float = true, .cache = cache},
                                  .wire = ALNICO_FLOAT32,
                                  .optimizer = optimizer_defaults(OPTIMIZER_SGD, batch)}};
    job.options.optimizer.rate = 1e-4;
    return job;
}

static void check_run(size_t i, const char *cache)
{
    struct job one = job_make(i, false, cache), split = job_make(i, true, cache);
    const char *way = runs[i].split ? runs[i].split : "images";
    ranks_run(1, rank_run, &one);
    ranks_run(runs[i].ranks, rank_run, &split);
    double far = fabs(one.report.train.loss - split.report.train.loss);
    for (size_t t = 0; t < one.tests && t < split.tests; t++)
        far = fmax(far, fabs(one.losses[t] - split.losses[t]) / fmax(1, one.losses[t]));
    printf("     %s by %s: losses at most %.2g apart\n", runs[i].model, way, far);
    fflush(stdout);
    check_count += 3;
    if (!(far < 1e-3))
        check_fail("%s by %s: losses are %g apart", runs[i].model, way, far);
    if (one.tests != split.tests || one.tests < runs[i].steps / 5)
        check_fail("%s by %s: %zu tests, and %zu", runs[i].model, way, one.tests, split.tests);
    if (one.report.train.images != split.report.train.images ||
        one.report.test.images != split.report.test.images)
        check_fail("%s by %s: not the same images", runs[i].model, way);
}

int main(void)
{
    char cache[64];
    setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", 0); /* no two ranks' streams in one queue */
    setenv("ALNICO_ALLREDUCE", "recursive_doubling", 1);
    setenv("ALNICO_SENDRECV", "direct", 1);
    setenv("ALNICO_TIMEOUT", "20", 0);
    gpu_require(1);
    nameless = device_cuda;
    nameless.identify = NULL;
    alarm(SECONDS_MOST);
    snprintf(cache, sizeof cache, "/tmp/alnico-split-runs-%d-plans", (int)getpid());
    for (size_t i = 0; i < sizeof runs / sizeof *runs; i++)
        check_run(i, cache);
    remove(cache);
    return check_result("runs of split networks on cuDNN");
}
