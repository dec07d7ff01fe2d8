/* Training on a GPU by the trainer itself: learning a little, the same parameters launch by launch and by replays of a
 * graph, and in every precision. Prints every difference and goes on. */
#include "train_check.h"

#include "train/trainer.h"

#include <string.h>

static void *stream;

static bool train(const char *model, enum precision precision, bool no_graph, size_t steps,
                  struct trainer_report *report)
{
    static const alnico_datatype_t wires[] = {ALNICO_FLOAT32, ALNICO_BFLOAT16, ALNICO_FLOAT16};
    const struct trainer_options options = {
        .model = model,
        .data = "synthetic:32x32x3",
        .kernels = "cudnn",
        .strategy = "allreduce",
        .batch = 32,
        .steps = steps,
        .seed = 5,
        .compute = {.precision = precision, .deterministic = true},
        .optimizer = optimizer_defaults(32),
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

static void check_graph(const char *model, enum precision precision)
{
    struct trainer_report launched, replayed;
    if (!train(model, precision, true, 40, &launched) ||
        !train(model, precision, false, 40, &replayed))
        return;
    printf("     %s, %s: loss %.5f and %.5f, step %.0f us and %.0f us\n", model,
           precision_name(precision), launched.train.loss, replayed.train.loss,
           1e6 * launched.step_seconds, 1e6 * replayed.step_seconds);
    check_count += 3;
    if (launched.graph || !replayed.graph)
        check_fail("%s: graph %d without and %d with it", model, launched.graph, replayed.graph);
    if (launched.hash != replayed.hash)
        check_fail("%s, %s: parameters differ: %016llx launch by launch, %016llx by replays", model,
                   precision_name(precision), (unsigned long long)launched.hash,
                   (unsigned long long)replayed.hash);
    if (!(launched.train.loss > 0 && launched.train.loss < 20))
        check_fail("%s, %s: loss %g", model, precision_name(precision), launched.train.loss);
}

int main(void)
{
    gpu_require(1);
    if (device_cuda.stream_create(&stream))
        check_fail("making a stream: %s", alnico_error_detail());
    for (int p = 0; p < PRECISIONS; p++)
        check_graph("resnet20", (enum precision)p);
    check_graph("cnn", PRECISION_FP32);
    return check_result("training by graphs");
}
