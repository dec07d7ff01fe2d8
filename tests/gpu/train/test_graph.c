/* Training on a GPU by the trainer itself, launch by launch and by replays of a graph, in every
 * precision. With deterministic engines, the same in both, the parameters are the same to the bit.
 * Engines that are measured anew for each run, and may add in any order, round differently: there
 * the losses agree. Prints every difference and goes on. */
#include "tests/gpu/train/check.h"

#include "train/kernels/methods.h"
#include "train/trainer/trainer.h"

#include <math.h>
#include <string.h>
#include <unistd.h>

/* How far two mean losses of 40 steps may be apart by rounding, as a share; in fp16 0.2 % was seen.
 * A graph that computes with an earlier batch or an earlier rate is much further away. */
#define LOSS_APART 0.05

static void *stream;
static char cache[64];

static bool train(const char *model, enum precision precision, bool deterministic, bool no_graph,
                  struct trainer_report *report)
{
    static const alnico_datatype_t wires[] = {ALNICO_FLOAT32, ALNICO_BFLOAT16, ALNICO_FLOAT16};
    const struct trainer_options options = {.model = model,
                                            .data = "synthetic:32x32x3",
                                            .kernels = "cudnn",
                                            .strategy = "allreduce",
                                            .batch = 32,
                                            .steps = 40,
                                            .seed = 5,
                                            .compute = {.precision = precision,
                                                        .deterministic = deterministic,
                                                        .cache = deterministic ? cache : NULL},
                                            .optimizer = optimizer_defaults(OPTIMIZER_SGD, 32),
                                            .wire = wires[precision],
                                            .rule = BUCKETS_OF_COUNT,
                                            .buckets = 3,
                                            .no_graph = no_graph};
    const struct trainer_place place = {.stream = stream};
    check_count++;
    if (trainer_run(&options, &place, report) == ALNICO_SUCCESS)
        return true;
    check_fail("%s, %s, %s: %s", model, precision_name(precision), no_graph ? "launches" : "graph",
               alnico_error_detail());
    return false;
}

static void check_same(const char *model, enum precision precision, bool deterministic,
                       const struct trainer_report *launched, const struct trainer_report *replayed)
{
    const double apart = fabs(launched->train.loss - replayed->train.loss);
    if (deterministic && launched->hash != replayed->hash)
        check_fail("%s, %s: parameters differ: %016llx launch by launch, %016llx by replays", model,
                   precision_name(precision), (unsigned long long)launched->hash,
                   (unsigned long long)replayed->hash);
    if (!(apart <= LOSS_APART * launched->train.loss))
        check_fail("%s, %s: losses differ: %g launch by launch, %g by replays", model,
                   precision_name(precision), launched->train.loss, replayed->train.loss);
}

static void check_graph(const char *model, enum precision precision, bool deterministic)
{
    struct trainer_report launched, replayed;
    if (!train(model, precision, deterministic, true, &launched) ||
        !train(model, precision, deterministic, false, &replayed))
        return;
    printf("     %s, %s%s: loss %.5f and %.5f, step %.0f us and %.0f us\n", model,
           precision_name(precision), deterministic ? ", deterministic" : "", launched.train.loss,
           replayed.train.loss, 1e6 * launched.step_seconds, 1e6 * replayed.step_seconds);
    check_count += 3;
    if (launched.graph || !replayed.graph)
        check_fail("%s: graph %d without and %d with it", model, launched.graph, replayed.graph);
    check_same(model, precision, deterministic, &launched, &replayed);
    if (!(launched.train.loss > 0 && launched.train.loss < 20))
        check_fail("%s, %s: loss %g", model, precision_name(precision), launched.train.loss);
}

int main(int count, char **arguments)
{
    check_ways(count, arguments);
    gpu_require(1);
    snprintf(cache, sizeof cache, "/tmp/alnico-graph-%d-plans", (int)getpid());
    if (device_cuda.stream_create(&stream))
        check_fail("making a stream: %s", alnico_error_detail());
    for (int p = 0; p < PRECISIONS; p++)
        check_graph("resnet20", (enum precision)p, true);
    check_graph("cnn", PRECISION_FP32, true);
    check_graph("mnist", PRECISION_FP32, true); /* dropout goes on by the step */
    if (method_taken(METHOD_IM2COL)) /* of these networks only this one folds its images */
        check_graph("resnet18", PRECISION_BF16, true);
    check_graph("resnet20", PRECISION_BF16, false);
    remove(cache);
    return check_result("training by graphs");
}
