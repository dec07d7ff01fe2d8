/* A run on a GPU that goes on from a checkpoint ends where the run that never stopped ends, to the
 * bit, in every precision, by replays of a graph and launch by launch, with every optimizer. Prints
 * every difference and goes on. */
#include "tests/gpu/train/check.h"

#include "train/trainer/trainer.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { STEPS = 24, EVERY = 8 };

static void *stream;
static char saved[64], kept[96], cache[96];

static void copy_file(const char *from, const char *to)
{
    static char bytes[1 << 20];
    FILE *in = fopen(from, "rb"), *out = fopen(to, "wb");
    size_t count;
    while (in && out && (count = fread(bytes, 1, sizeof bytes, in)) > 0)
        fwrite(bytes, 1, count, out);
    if (!in || !out)
        check_fail("copying %s to %s", from, to);
    if (in)
        fclose(in);
    if (out)
        fclose(out);
}

/* What was saved at step 8 stands until step 16 was told and saved. */
static void keep_first(void *context, const struct trainer_progress *progress)
{
    (void)context;
    if (progress->step == 2 * EVERY && !progress->tested && access(saved, R_OK) == 0)
        copy_file(saved, kept);
}

static bool train(struct trainer_options options, uint64_t *hash)
{
    const struct trainer_place place = {.stream = stream};
    struct trainer_report report;
    check_count++;
    if (trainer_run(&options, &place, &report) != ALNICO_SUCCESS) {
        check_fail("%s, %s: %s", precision_name(options.compute.precision),
                   options.no_graph ? "launches" : "graph", alnico_error_detail());
        return false;
    }
    *hash = report.hash;
    return true;
}

static void check_resume(enum precision precision, bool no_graph, enum optimizer_kind kind)
{
    static const alnico_datatype_t wires[] = {ALNICO_FLOAT32, ALNICO_BFLOAT16, ALNICO_FLOAT16};
    struct trainer_options options = {
        .model = "resnet18",
        .data = "synthetic:32x32x3",
        .kernels = "cudnn",
        .strategy = "allreduce",
        .batch = 16,
        .steps = STEPS,
        .seed = 5,
        .compute = {.precision = precision, .deterministic = true, .cache = cache},
        .optimizer = optimizer_defaults(kind, 16),
        .wire = wires[precision],
        .rule = BUCKETS_OF_COUNT,
        .buckets = 3,
        .no_graph = no_graph};
    uint64_t whole = 0, saving = 0, resumed = 0;
    options.optimizer.clip = kind == OPTIMIZER_SGD ? 0 : 1;
    remove(kept);
    if (!train(options, &whole))
        return;
    options.save = saved;
    options.save_every = EVERY;
    options.progress = keep_first;
    if (!train(options, &saving))
        return;
    options.save = NULL;
    options.save_every = 0;
    options.progress = NULL;
    options.load = kept;
    if (!train(options, &resumed))
        return;
    check_count += 2;
    printf("     %s, %s, %s: parameters %016llx\n", precision_name(precision),
           no_graph ? "launches" : "graph", optimizers_all[kind]->name, (unsigned long long)whole);
    if (saving != whole)
        check_fail("%s: saving changes the parameters: %016llx", precision_name(precision),
                   (unsigned long long)saving);
    if (resumed != whole)
        check_fail("%s: resuming ends with other parameters: %016llx", precision_name(precision),
                   (unsigned long long)resumed);
}

int main(void)
{
    gpu_require(1);
    snprintf(saved, sizeof saved, "/tmp/alnico-resume-%d", (int)getpid());
    snprintf(kept, sizeof kept, "%s-kept", saved);
    snprintf(cache, sizeof cache, "%s-plans", saved);
    if (device_cuda.stream_create(&stream))
        check_fail("making a stream: %s", alnico_error_detail());
    for (int p = 0; p < PRECISIONS; p++) {
        check_resume((enum precision)p, false, OPTIMIZER_SGD);
        check_resume((enum precision)p, true, OPTIMIZER_SGD);
    }
    for (int kind = OPTIMIZER_NAG; kind < OPTIMIZERS; kind++)
        check_resume(PRECISION_FP16, false, (enum optimizer_kind)kind);
    device_cuda.stream_destroy(stream);
    remove(saved);
    remove(kept);
    remove(cache);
    return check_result("resuming");
}
