/* End-to-end runs of alnico-train: exit statuses, what it says about bad options and missing files,
 * its JSON report, one rank and two. Arguments: the program, mpiexec, its option for the number of
 * ranks. */
#include "tests/train/program/program.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

static void help_is_complete(void **unused)
{
    (void)unused;
    const char *options[] = {
        "model",       "data",      "batch",           "epochs",       "steps",
        "lr",          "momentum",  "seconds",         "weight-decay", "warmup",
        "drops",       "precision", "device",          "kernels",      "threads",
        "seed",        "strategy",  "buckets",         "json",         "wire",
        "schedule",    "lars",      "label-smoothing", "memory-limit", "loss-scale",
        "plan-cache",  "save",      "save-every",      "load",         "classes",
        "test-images", "log",       "validate-every",  "optimizer",    "beta1",
        "beta2",       "epsilon",   "clip-norm",       "compress",     "loaders",
        "prefetch"};
    expect(0, "--help", 0, "Usage: ");
    for (size_t i = 0; i < sizeof options / sizeof *options; i++) {
        char text[32];
        snprintf(text, sizeof text, "--%s=", options[i]);
        if (!strstr(output, text))
            fail_msg("--help does not list %s", text);
    }
}

static void usage_errors_exit_with_2(void **unused)
{
    (void)unused;
    const char *rows[][2] = {
        {"--model vgg", "--model vgg: expected resnet20, cnn, resnet18, "},
        {"--data imagenet", "--data imagenet"},
        {"--data idx:", "--data idx:: expected"},
        {"--data synthetic:8x8", "--data synthetic:8x8: expected"},
        {"--data synthetic:0x0x0", "--data synthetic:0x0x0: expected"},
        {"--batch 0", "--batch 0"},
        {"--batch many", "--batch many"},
        {"--batch -3", "--batch -3"},
        {"--batch linpack:0", "--batch linpack:NB 0"},
        {"--batch linpack", "--batch linpack"},
        {"--model neuron --batch linpack:4096", "a batch of 33554432, expected at most 1048576"},
        {"--steps 0", "--steps 0"},
        {"--steps 5 --epochs 2", "only one of"},
        {"--seconds 5 --epochs 2", "only one of"},
        {"--epochs 99999999999999999999999", "--epochs 9999"},
        {"--seconds nan", "--seconds nan"},
        {"--lr -1", "--lr -1"},
        {"--lr nan", "--lr nan"},
        {"--momentum 1", "--momentum 1"},
        {"--warmup 2", "--warmup 2"},
        {"--drops 0.1,0.2,0.3,0.4", "at most 3"},
        {"--drops=", "--drops"},
        {"--precision bf16", "--precision bf16: the onednn kernels do not have it"},
        {"--precision fp8", "--precision fp8: expected fp32, bf16 or fp16"},
        {"--device tpu", "--device tpu: expected cpu or cuda"},
        {"--device cuda --kernels naive", "--kernels naive: they do not run on --device cuda"},
        {"--kernels abacus", "--kernels abacus: expected onednn"},
        {"--wire fp64", "--wire fp64: expected fp32, bf16 or fp16"},
        {"--compress int4", "--compress int4: codec 'int4' is not known"},
        {"--compress topk", "expected a share above 0 and up to 1, as in topk:0.01"},
        {"--compress topk:0", "'topk:0': expected a share above 0"},
        {"--compress topk:1.5", "'topk:1.5': expected a share above 0"},
        {"--compress int8:0.5", "int8 takes no share"},
        {"--compress int8 --predict 2", "--predict: --compress int8 does not go with it"},
        {"--compress int8 --wire fp32", "expected only one of --compress and --wire"},
        {"--schedule steps", "--schedule steps: expected drops, cosine or polynomial"},
        {"--label-smoothing 1", "--label-smoothing 1"},
        {"--memory-limit 0", "--memory-limit 0"},
        {"--strategy gossip", "--strategy gossip: expected allreduce"},
        {"--staleness 2", "--staleness: strategy allreduce"},
        {"--split rows", "--split rows: split 'rows', expected parts of images, rows and columns"},
        {"--split rows=2 --strategy weights", "--split: strategy weights has no use for it"},
        {"--split rows=2 --describe", "--split: neither --describe nor --profile"},
        {"--norm sample", "--norm sample: without --split each rank has its own images"},
        {"--norm all --freeze-norm", "--norm: with --freeze-norm there are no means"},
        {"--norm few", "--norm few: expected local, sample or all"},
        {"--strategy async --staleness -1", "--staleness -1"},
        {"--strategy server --record a", "--record: strategy server"},
        {"--replay a", "--replay: strategy allreduce"},
        {"--strategy async --wire bf16", "--wire bf16: strategy async"},
        {"--strategy async --buckets 2", "--buckets: strategy async"},
        {"--strategy async --no-overlap", "--no-overlap: strategy async"},
        {"--strategy async --seconds 1", "--seconds: strategy async"},
        {"--strategy async --lars 0.1", "--lars: strategy async"},
        {"--strategy async --clip-norm 1", "--clip-norm: strategy async"},
        {"--strategy async --deterministic", "--deterministic without --record or --replay"},
        {"--strategy async --compress int8", "--compress: strategy async"},
        {"--strategy server --every 2", "--every: strategy server"},
        {"--every 2", "--every: strategy allreduce"},
        {"--own-seeds", "--own-seeds: strategy allreduce"},
        {"--average-state", "--average-state: strategy allreduce"},
        {"--strategy weights --every 0", "--every 0"},
        {"--strategy weights --every -2", "--every -2"},
        {"--strategy weights --wire fp32", "--wire fp32: strategy weights"},
        {"--strategy weights --no-overlap", "--no-overlap: strategy weights"},
        {"--strategy weights --buckets 4", "--buckets: strategy weights"},
        {"--strategy weights --buckets planned", "--buckets: strategy weights"},
        {"--buckets 0", "--buckets 0"},
        {"--buckets 4Q", "--buckets 4Q"},
        {"--threads 0", "--threads 0"},
        {"--seed -1", "--seed -1"},
        {"--save-every 3", "--save-every: expected --save FILE, too"},
        {"--accumulate 0", "--accumulate 0: expected a whole number from 1 to 256"},
        {"--accumulate 2 --profile", "--accumulate: --profile is of one batch"},
        {"--accumulate 2 --predict 4", "--predict: --accumulate does not go with it"},
        {"--loss-scale 128", "--loss-scale: on --precision fp32 there is none"},
        {"--no-tf32 --precision bf16", "--no-tf32: on --precision bf16 there is none"},
        {"--schedule cosine --drops 0.5", "--drops: on --schedule cosine there are none"},
        {"--plan-cache plans.json", "--plan-cache: on --device cpu there are no plans"},
        {"--no-graph", "--no-graph: on --device cpu there is none"},
        {"--on-failure shrink --strategy async", "--on-failure shrink: strategy async has no use"},
        {"--on-failure shrink --strategy server",
         "--on-failure shrink: strategy server has no use"},
        {"--on-failure shrink --memory", "--on-failure: neither --describe, --memory"},
        {"--on-failure shrink --split rows=2", "--on-failure shrink: --split needs all ranks"},
        {"--on-failure restart", "restart"},
        {"--loaders 257", "--loaders 257: expected a whole number from 0 to 256"},
        {"--prefetch 0", "--prefetch 0: expected a whole number from 1 to 64"},
        {"--loaders 0 --prefetch 1", "--prefetch: with --loaders 0 there are none"},
        {"--pageable", "--pageable: on --device cpu all memory is"},
        {"--preset torch",
         "--preset torch: expected cntk, mxnet, caffe-mpi, tf-ps or tf-allreduce"},
        {"--optimizer lion", "--optimizer lion: expected sgd, nag, adagrad, adadelta, rmsprop or"},
        {"--optimizer adam --beta1 1", "--beta1 1: expected"},
        {"--optimizer adam --beta2 -1", "--beta2 -1: expected"},
        {"--optimizer adam --beta2 nan", "--beta2 nan: expected"},
        {"--optimizer adam --epsilon 0", "--epsilon 0: expected"},
        {"--clip-norm 0", "--clip-norm 0: expected"},
        {"--clip-norm -1", "--clip-norm -1: expected"},
        {"--clip-norm inf", "--clip-norm inf: expected"},
        {"--nonsense", "--nonsense"},
        {"now", "'now'"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        expect(0, rows[i][0], 2, rows[i][1]);
}

/* Each optimizer takes its own options, also where they are 0, and refuses the others by name. */
static void optimizers_take_their_own_options(void **unused)
{
    (void)unused;
    static const char *const options[] = {"momentum", "beta1", "beta2", "epsilon", "lars"};
    static const struct {
        const char *name, *takes; /* of the options above */
    } rows[] = {{"sgd", "10001"},      {"nag", "10000"},     {"adagrad", "00010"},
                {"adadelta", "00110"}, {"rmsprop", "00110"}, {"adam", "01110"}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        for (size_t k = 0; k < sizeof options / sizeof *options; k++) {
            char arguments[160], text[80];
            const bool takes = rows[i].takes[k] == '1';
            snprintf(arguments, sizeof arguments,
                     "--memory --model cnn --data synthetic:8x8x1 --optimizer %s --%s %s",
                     rows[i].name, options[k], k == 3 ? "1e-3" : "0");
            snprintf(text, sizeof text, "--%s: on --optimizer %s there is none", options[k],
                     rows[i].name);
            expect(0, arguments, takes ? 0 : 2, takes ? "total" : text);
        }
}

static void failures_exit_with_1(void **unused)
{
    (void)unused;
    expect(0, "--data idx:/nonexistent", 1, "/nonexistent");
    expect(0, "--data synthetic:8x8x1 --batch 70000", 1, "70000");
    expect(0, "--data synthetic:8x8x1 --model cnn --steps 1 --json /nonexistent/file", 1,
           "/nonexistent/file");
    expect(0, "--data synthetic:2x2x1 --model cnn --steps 1", 1, "pool2");
    expect(0, "--data synthetic:8x8x1 --model cnn --steps 1 --load /nonexistent", 1,
           "/nonexistent: cannot be opened");
    expect(0, "--data synthetic:8x8x1 --model cnn --steps 1 --test-images 0 --save /nonexistent/a",
           1, "/nonexistent/a");
    expect(0, "--data synthetic:8x8x1 --model cnn --steps 1 --deterministic --buckets planned", 1,
           "planned buckets");
    expect(0, "--data synthetic:64x64x3 --model resnet18 --batch 512 --memory-limit 300M --steps 1",
           1, "the largest batch that fits is ");
}

/* A row for each ten steps and one for the rest, whose mean on one rank is the loss of the only
 * epoch. */
static void losses_check(const cJSON *report, int steps)
{
    const cJSON *rows = cJSON_GetObjectItemCaseSensitive(report, "losses");
    const int count = (steps + 9) / 10;
    double sum = 0;
    assert_int_equal(cJSON_GetArraySize(rows), count);
    for (int i = 0; i < count; i++) {
        const cJSON *row = cJSON_GetArrayItem(rows, i);
        const int end = i + 1 < count ? 10 * (i + 1) : steps;
        assert_true(number(row, "step") == end);
        sum += number(row, "loss") * (end - 10 * i);
    }
    if (number(report, "ranks") == 1)
        assert_true(fabs(sum / steps - number(object(report, "train"), "loss")) < 1e-6);
}

static void report_check(const cJSON *report, int ranks, int steps, int batch)
{
    const cJSON *seconds = object(report, "seconds"), *options = object(report, "options");
    const double total = number(seconds, "total");
    const double sum = number(seconds, "io") + number(seconds, "h2d") + number(seconds, "forward") +
                       number(seconds, "backward") + number(seconds, "exposed_communication") +
                       number(seconds, "update");
    assert_true(number(report, "ranks") == ranks);
    assert_true(number(report, "steps") == steps);
    assert_true(number(options, "batch") == batch);
    assert_true(total > 0 && sum > 0.5 * total && sum <= 1.001 * total);
    assert_true(ranks > 1 ? number(seconds, "communication_in_all") > 0
                          : number(seconds, "communication_in_all") == 0);
    assert_true(number(seconds, "io") > 0 && number(seconds, "h2d") > 0);
    const double speed = number(report, "images_per_second");
    assert_true(fabs(speed * total / (steps * batch * ranks) - 1) < 1e-3);
    assert_true(fabs(number(report, "images_per_second_per_rank") * ranks / speed - 1) < 1e-6);
    assert_true(number(report, "share_outside_library") >= 0);
    assert_true(number(report, "share_outside_library") <= 1);
    assert_true(number(object(report, "train"), "loss") > 0);
    assert_true(number(object(report, "train"), "images") == steps * batch * ranks);
    assert_true(number(object(report, "test"), "accuracy") >= 0);
    assert_true(number(object(report, "test"), "accuracy") <= 1);
    assert_true(number(object(report, "test"), "images") == 10000);
    assert_int_equal(cJSON_GetArraySize(cJSON_GetObjectItemCaseSensitive(report, "history")), 1);
    losses_check(report, steps);
    const cJSON *hash = cJSON_GetObjectItemCaseSensitive(report, "parameter_hash");
    assert_true(cJSON_IsString(hash) && strlen(hash->valuestring) == 16);
}

static void one_rank_writes_its_report(void **unused)
{
    (void)unused;
    char arguments[256];
    snprintf(arguments, sizeof arguments,
             "--model cnn --data synthetic:8x8x1 --steps 26 --batch 16 --json %s", json_path);
    for (int i = 0; i < 2; i++) {
        if (i)
            strcat(arguments, " --stream");
        expect(0, arguments, 0, "images/s");
        cJSON *report = report_read();
        report_check(report, 1, 26, 16);
        cJSON_Delete(report);
    }
}

static void option_is(const cJSON *options, const char *name, const char *expected)
{
    char *text = cJSON_PrintUnformatted(cJSON_GetObjectItemCaseSensitive(options, name));
    if (strcmp(text ? text : "none", expected) != 0)
        fail_msg("the report's option '%s' is %s, expected %s", name, text ? text : "none",
                 expected);
    cJSON_free(text);
}

/* Every option that changes what is learned, or how fast, is in the report. */
static void the_report_has_the_options(void **unused)
{
    (void)unused;
    const char *rows[][10] = {
        {"", "\"drops\"", "[0.6,0.85,1]", "0", "false", "\"sgd\"", "0.0125", "none", "none", "0"},
        {"--schedule cosine --lars 0.01 --freeze-norm", "\"cosine\"", "none", "0.01", "true",
         "\"sgd\"", "0.0125", "none", "none", "0"},
        {"--optimizer adam --beta2 0.98 --clip-norm 2", "\"drops\"", "[0.6,0.85,1]", "0", "false",
         "\"adam\"", "0.001", "0.98", "1e-08", "2"},
        {"--model googlenet --data synthetic:47x47x3", "\"drops\"", "[0.6,0.85,1]", "0", "false",
         "\"sgd\"", "0.00125", "none", "none", "0"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char arguments[256];
        snprintf(arguments, sizeof arguments,
                 "--model cnn --data synthetic:8x8x1 --steps 1 --batch 16 --test-images 32 %s "
                 "--json %s",
                 rows[i][0], json_path);
        expect(0, arguments, 0, "images/s");
        cJSON *report = report_read();
        const cJSON *options = object(report, "options");
        option_is(options, "schedule", rows[i][1]);
        option_is(options, "drops", rows[i][2]);
        option_is(options, "lars", rows[i][3]);
        option_is(options, "freeze_norm", rows[i][4]);
        option_is(options, "optimizer", rows[i][5]);
        option_is(options, "learning_rate", rows[i][6]);
        option_is(options, "beta2", rows[i][7]);
        option_is(options, "epsilon", rows[i][8]);
        option_is(options, "clip_norm", rows[i][9]);
        option_is(options, "test_images", "32");
        option_is(options, "tf32", "false");
        option_is(options, "graph", "false");
        option_is(options, "loss_scale", "none");
        cJSON_Delete(report);
    }
}

/* A preset sets the switches that are left open. */
static void presets_are_switches(void **unused)
{
    (void)unused;
    const char *rows[][5] = {{"", "none", "\"allreduce\"", "true"},
                             {"--preset cntk", "\"cntk\"", "\"allreduce\"", "false"},
                             {"--preset mxnet", "\"mxnet\"", "\"allreduce\"", "true"},
                             {"--preset caffe-mpi", "\"caffe-mpi\"", "\"allreduce\"", "true"},
                             {"--preset tf-ps", "\"tf-ps\"", "\"server\"", "true"},
                             {"--preset tf-allreduce", "\"tf-allreduce\"", "\"allreduce\"", "true"},
                             {"--preset cntk --strategy server", "\"cntk\"", "\"server\"", "false"},
                             {"--strategy allreduce --preset tf-ps --no-overlap", "\"tf-ps\"",
                              "\"allreduce\"", "false"}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char arguments[256];
        snprintf(arguments, sizeof arguments,
                 "--model cnn --data synthetic:8x8x1 --steps 1 --test-images 0 %s --json %s",
                 rows[i][0], json_path);
        expect(i % 2 ? 2 : 0, arguments, 0, "images/s");
        cJSON *report = report_read();
        const cJSON *options = object(report, "options");
        option_is(options, "preset", rows[i][1]);
        option_is(options, "strategy", rows[i][2]);
        option_is(options, "overlap", rows[i][3]);
        option_is(options, "pageable", "false");
        cJSON_Delete(report);
    }
    expect(0, "--help", 0, "cntk          --strategy allreduce --no-overlap\n");
    assert_non_null(strstr(output, "tf-ps         --strategy server and on GPUs --pageable\n"));
}

static void two_ranks_end_equal(void **unused)
{
    (void)unused;
    char arguments[256], first[32] = "";
    snprintf(arguments, sizeof arguments,
             "--model resnet20 --data synthetic:8x8x3 --steps 6 --batch 8 --json %s", json_path);
    for (int i = 0; i < 2; i++) {
        expect(2, arguments, 0, "equal on all ranks");
        cJSON *report = report_read();
        report_check(report, 2, 6, 8);
        const char *hash = cJSON_GetObjectItemCaseSensitive(report, "parameter_hash")->valuestring;
        if (i)
            assert_string_equal(hash, first);
        snprintf(first, sizeof first, "%s", hash);
        cJSON_Delete(report);
    }
}

static void two_ranks_stop_in_time(void **unused)
{
    (void)unused;
    char arguments[256];
    snprintf(
        arguments, sizeof arguments,
        "--model cnn --kernels onednn --data synthetic:8x8x1 --seconds 0.5 --batch 16 --json %s",
        json_path);
    expect(2, arguments, 0, "equal on all ranks");
    cJSON *report = report_read();
    const double total = number(object(report, "seconds"), "total");
    assert_true(total > 0.4 && total < 5);
    cJSON_Delete(report);
}

/* Large images, slowly. */
static void resnet50_trains_on_two_ranks(void **unused)
{
    (void)unused;
    expect(2,
           "--model resnet50 --data synthetic:224x224x3 --classes 1000 --batch 1 --steps 2 "
           "--test-images 0",
           0, "equal on all ranks");
    assert_non_null(strstr(output, "25557032 parameters, 2 steps"));
}

/* Whether on all ranks or on one, one line says what. */
static void checkpoints_of_two_ranks(void **unused)
{
    (void)unused;
    char path[96], arguments[512];
    snprintf(path, sizeof path, "%s.checkpoint", json_path);
    const char *common = "--model cnn --data synthetic:8x8x1 --test-images 0 --batch 8";
    snprintf(arguments, sizeof arguments, "%s --steps 3 --save %s", common, path);
    expect(2, arguments, 0, "equal on all ranks");
    snprintf(arguments, sizeof arguments, "%s --steps 5 --load %s", common, path);
    expect(2, arguments, 0, "equal on all ranks");
    expect(1, arguments, 1, "invalid argument: checkpoint ");
    assert_non_null(strstr(output, "it is of number of ranks 2, not 1"));
    snprintf(arguments, sizeof arguments, "%s --model resnet20 --steps 5 --load %s", common, path);
    assert_int_not_equal(run(2, arguments), 0);
    const char *line = strstr(output, "it is of model cnn, not resnet20");
    assert_true(line && !strstr(line + 1, "it is of model"));
    assert_int_equal(truncate(path, 1000), 0);
    snprintf(arguments, sizeof arguments, "%s --steps 5 --load %s", common, path);
    assert_int_not_equal(run(2, arguments), 0);
    line = strstr(output, "truncated");
    assert_true(line && !strstr(line + 1, "truncated"));
    remove(path);
}

/* What a rank's largest batch was found for, if nothing says how much there is. */
static double memory_of(int ranks)
{
    double mebibytes = 0;
    expect(ranks, "--memory --model cnn --data synthetic:32x32x1", 0, "largest batch for ");
    sscanf(strstr(output, "largest batch for "), "largest batch for %lf MiB", &mebibytes);
    return mebibytes;
}

static void ranks_of_a_host_share_its_memory(void **unused)
{
    (void)unused;
    const double alone = memory_of(0), together = memory_of(2);
    if (!(together > 0.3 * alone && together < 0.7 * alone))
        fail_msg("alone %.0f MiB, each of two ranks %.0f MiB", alone, together);
}

static void memory_is_printed(void **unused)
{
    (void)unused;
    expect(0,
           "--memory --model resnet50 --data synthetic:224x224x3 --classes 1000 --batch 32 "
           "--memory-limit 2G",
           0, "largest batch for 2048.00 MiB: ");
    assert_non_null(strstr(output, "\nparameters                97.49 MiB\n"));
    assert_non_null(strstr(output, "\n4.3.relu3 "));
    expect(0, "--memory --model cnn --data synthetic:1x1x1", 1, "pool");
    /* 256 images of 4 KiB and their labels: 9 batches or, without a test, 5 */
    const char *small = "--memory --model cnn --data synthetic:32x32x1 --batch 256";
    char arguments[256];
    expect(0, small, 0, "\nimages and labels          9.01 MiB\n");
    expect(0, "--memory --model resnet18 --data synthetic:32x32x3 --accumulate 2", 0,
           "\ngradients                 85.31 MiB\n");
    snprintf(arguments, sizeof arguments, "%s --test-images 0 --wire bf16", small);
    expect(0, arguments, 0, "\nimages and labels          5.00 MiB\n");
}

/* By hand: products count 2, the first layer's images have no gradient. */
static void descriptions_are_right(void **unused)
{
    (void)unused;
    char arguments[128];
    snprintf(arguments, sizeof arguments, "--describe --model cnn --batch 1 --json %s", json_path);
    expect(0, arguments, 0, "cnn: images of 28x28x1, batch 1, fp32\n");
    const double dense = 2 * 7 * 7 * 32 * 64 + 2 * 64 * 10, first = 2 * 28 * 28 * 16 * 9,
                 second = 2 * 14 * 14 * 32 * 144;
    cJSON *report = report_read();
    const cJSON *network = object(report, "network"),
                *layers = cJSON_GetObjectItemCaseSensitive(network, "layers"),
                *layer = cJSON_GetArrayItem(layers, 0);
    assert_int_equal(cJSON_GetArraySize(layers), 10);
    assert_true(number(network, "parameters") == 16 * 10 + 32 * 145 + 64 * 1569 + 10 * 65);
    assert_true(number(object(network, "forward"), "flop") == first + second + dense);
    assert_true(number(object(network, "backward"), "flop") == first + 2 * (second + dense));
    assert_string_equal(cJSON_GetObjectItem(layer, "operation")->valuestring, "convolution");
    assert_string_equal(cJSON_GetArrayItem(cJSON_GetObjectItem(layer, "reads"), 0)->valuestring,
                        "input");
    assert_true(cJSON_GetArrayItem(cJSON_GetObjectItem(layer, "output"), 2)->valuedouble == 16);
    assert_true(number(layer, "parameters") == 160);
    assert_true(number(object(layer, "forward"), "bytes") == 4 * (28 * 28 * 17 + 144));
    cJSON_Delete(report);
    expect(0, "--describe --model mnist --batch linpack:160", 0, "batch 64");
    expect(0, "--describe --model mnist --batch linpack:1", 0, "batch 1,");
    expect(0, "--describe --model resnet50 --batch 3", 0,
           "\n25557032 parameters; an image: 8.178 GFLOP forward, 16.12 backward\n");
    expect(0, "--describe --model mesh1k --batch 1", 0,
           "\n6700930 parameters; an image: 315.1 GFLOP forward, 600.1 backward\n");
    expect(0, "--describe --model neuron --batch 1", 0, "\n2 parameters;");
    expect(0, "--describe --data synthetic:40x40x2", 0, "resnet20: images of 40x40x2, batch 64");
    expect(0, "--describe --data idx:/nonexistent", 1, "/nonexistent");
    expect(0, "--describe --memory", 2, "--describe: neither --memory");
    expect(2, "--describe --model cnn", 0, "\n105866 parameters;");
    assert_null(strstr(strstr(output, " parameters;") + 1, " parameters;"));
}

/* Each step of the plan has its line and its row; times are those of something, and rates follow
 * from them. */
/* A choice of options, some with values that make no sense, in `out`. */
static void random_options(unsigned *state, char *out, size_t bytes)
{
    static const char *const words[] = {"--strategy server",  "--strategy weights",
                                        "--strategy async",   "--strategy gossip",
                                        "--every 2",          "--every 0",
                                        "--average-state",    "--own-seeds",
                                        "--staleness 1",      "--staleness -1",
                                        "--compress int8",    "--compress topk:0.1",
                                        "--compress topk:0",  "--compress bf16",
                                        "--wire fp16",        "--optimizer adam",
                                        "--optimizer nag",    "--optimizer rmsprop",
                                        "--momentum 0.5",     "--beta1 0.8",
                                        "--beta2 1.5",        "--epsilon 1e-5",
                                        "--clip-norm 1",      "--clip-norm nan",
                                        "--lars 0.02",        "--accumulate 2",
                                        "--accumulate 0",     "--no-overlap",
                                        "--buckets planned",  "--buckets 3",
                                        "--deterministic",    "--stream",
                                        "--preset tf-ps",     "--preset cntk",
                                        "--pageable",         "--validate-every 1",
                                        "--log /tmp/x.txt",   "--schedule cosine",
                                        "--warmup 2",         "--label-smoothing 0.1",
                                        "--freeze-norm",      "--seed 7",
                                        "--no-graph",         "--predict 1",
                                        "--memory",           "--kernels naive",
                                        "--precision bf16",   "--loaders 0",
                                        "--loaders 3",        "--prefetch 4",
                                        "--on-failure shrink"};
    const size_t count = 1 + (size_t)rand_r(state) % 5;
    snprintf(out, bytes, "--model cnn --data synthetic:8x8x1 --steps 2 --batch 8 --test-images 8");
    for (size_t i = 0; i < count; i++) {
        const size_t length = strlen(out);
        snprintf(out + length, bytes - length, " %s",
                 words[(size_t)rand_r(state) % (sizeof words / sizeof *words)]);
    }
}

/* Whatever is asked for is done, or refused with a reason. */
static void random_options_are_taken_or_refused(void **unused)
{
    (void)unused;
    enum { RUNS = 100 };
    const char *given = getenv("ALNICO_TEST_SEED");
    unsigned state = given ? (unsigned)strtoul(given, NULL, 0) : (unsigned)time(NULL);
    print_message("ALNICO_TEST_SEED=%u\n", state);
    int taken = 0, refused = 0;
    for (int i = 0; i < RUNS; i++) {
        char arguments[512];
        random_options(&state, arguments, sizeof arguments);
        const int status = run(i % 10 == 0 ? 2 : 0, arguments);
        taken += status == 0;
        refused += status == 2;
        if (status < 0 || status > 2 || (status == 2 && !strstr(output, "--")) ||
            (status == 1 && !strstr(output, "trainer: ") && !strstr(output, "strategy")) ||
            strlen(output) == 0)
            fail_msg("alnico-train %s: exit status %d, printed:\n%s", arguments, status, output);
    }
    print_message("%d runs, %d refused, of %d\n", taken, refused, RUNS);
    assert_true(taken > 0 && refused > 0);
}

/* A prediction for the ranks at hand stands beside what was measured; more ranks have longer steps
 * and more images. */
static void predictions_are_complete(void **unused)
{
    (void)unused;
    char arguments[256];
    snprintf(arguments, sizeof arguments,
             "--predict 1,2,64 --steps 12 --model cnn --data synthetic:8x8x1 --batch 8 --json %s",
             json_path);
    expect(0, strstr(arguments, "--steps"), 0, "parameters");
    cJSON *report = report_read();
    const double parameters = number(report, "parameters");
    cJSON_Delete(report);
    expect(2, arguments, 0, "predicted / measured");
    report = report_read();
    const cJSON *prediction = object(report, "prediction"), *row;
    const cJSON *buckets = cJSON_GetObjectItemCaseSensitive(object(prediction, "parts"), "buckets");
    const int count = cJSON_GetArraySize(buckets);
    const bool gains = number(object(prediction, "parts"), "hidden") >= 0;
    double before = 0, bytes = 0;
    int rows = 0;
    cJSON_ArrayForEach(row, buckets)
    {
        assert_true(number(row, "backward") >= 0);
        bytes += number(row, "bytes");
    }
    assert_true(count > 0 && bytes == 4 * parameters);
    assert_int_equal(
        cJSON_GetArraySize(cJSON_GetObjectItemCaseSensitive(prediction, "communication")), count);
    cJSON_ArrayForEach(row, cJSON_GetObjectItemCaseSensitive(prediction, "predicted"))
    {
        const double together = number(object(row, "overlapped"), "step"),
                     apart = number(object(row, "not_overlapped"), "step");
        assert_true(together > before);
        assert_true(gains ? together <= apart * (1 + 1e-9) : together >= apart * (1 - 1e-9));
        assert_true((cJSON_GetObjectItem(object(row, "overlapped"), "measured") != NULL) ==
                    (number(row, "ranks") == 2));
        before = together;
        rows++;
    }
    assert_int_equal(rows, 3);
    cJSON_Delete(report);
    snprintf(arguments, sizeof arguments,
             "--predict 2,4 --split rows=2 --steps 12 --model cnn --data synthetic:8x8x1 --batch 8 "
             "--json %s",
             json_path);
    expect(2, arguments, 0, "4 moves and sums: ");
    report = report_read();
    const cJSON *parts = object(object(report, "prediction"), "parts");
    assert_int_equal(cJSON_GetArraySize(cJSON_GetObjectItemCaseSensitive(parts, "moves")), 4);
    assert_true(number(parts, "images") == 4 && number(parts, "alpha") >= 0);
    cJSON_Delete(report);
    expect(2, "--predict 3 --split rows=2 --steps 2 --model cnn --data synthetic:8x8x1", 1,
           "--predict 3: expected a multiple of the 2 ranks");
    expect(2, "--predict 4 --split dense1:channels=2 --steps 2 --model cnn --data synthetic:8x8x1",
           1, "--predict 4: expected the 2 ranks at hand, over which channels are split");
    expect(1, "--predict 4 --steps 2 --model cnn --data synthetic:8x8x1", 1,
           "one rank measures no communicator");
    expect(0, "--predict 4,", 2, "--predict : expected");
    expect(0, "--predict 0", 2, "--predict 0: expected");
    expect(0, "--predict 2 --epochs 1", 2, "--predict: it goes by --steps");
    expect(0, "--predict 2 --save a", 2, "--predict: neither --save");
    expect(0, "--predict 2 --no-overlap", 2, "--predict: --no-overlap");
    expect(0, "--predict 2 --memory", 2, "--predict: neither --memory");
}

static void profiles_are_complete(void **unused)
{
    (void)unused;
    char arguments[256];
    snprintf(arguments, sizeof arguments,
             "--profile --model resnet20 --data synthetic:8x8x3 --batch 4 --json %s", json_path);
    expect(2, arguments, 0, "\n# all, as one step ");
    assert_non_null(strstr(output, "\n3.3.conv2          convolution      x1   2x2      64 "));
    cJSON *report = report_read();
    const cJSON *profile = object(report, "profile"), *step;
    const cJSON *steps = cJSON_GetObjectItemCaseSensitive(profile, "steps");
    assert_true(cJSON_GetArraySize(steps) > 40);
    assert_true(number(profile, "copy_gbytes_per_second") > 0);
    assert_true(number(profile, "product_tflops") > 0);
    assert_true(number(profile, "step_us") > number(object(profile, "update"), "us"));
    cJSON_ArrayForEach(step, steps)
    {
        const cJSON *forward = object(step, "forward"), *backward = object(step, "backward");
        const char *kind = cJSON_GetObjectItemCaseSensitive(step, "operation")->valuestring;
        const double products = number(forward, "us") * number(forward, "tflops") * 1e6;
        assert_true(number(forward, "us") > 0 && number(backward, "us") > 0);
        assert_true(number(forward, "gbytes_per_second") > 0);
        assert_true(number(backward, "share_of_least") > 0);
        assert_true(strcmp(kind, "convolution") == 0 || strcmp(kind, "dense") == 0
                        ? products > 0
                        : number(forward, "tflops") == 0);
        /* 4 images, 8 x 8 pixels, 16 filters of 3 x 3 x 3; a multiplication and an addition */
        if (strcmp(cJSON_GetObjectItemCaseSensitive(step, "step")->valuestring, "stem.conv1") == 0)
            assert_true(fabs(products - 2.0 * 4 * 64 * 16 * 27) < 1);
    }
    cJSON_Delete(report);
    expect(0, "--profile --memory", 2, "--profile: neither --memory");
    expect(0, "--profile --data synthetic:2x2x1 --model cnn", 1, "pool2");
}

/* What goes wrong on the ranks ends the job. */
static void two_ranks_fail_together(void **unused)
{
    (void)unused;
    const char *first;
    const char *const rows[][2] = {
        {"--data idx:/nonexistent", "/nonexistent/train-images-idx3-ubyte"},
        {"--model cnn --data synthetic:8x8x1 --steps 50 --lr 1e6", "not a number"},
        {"--model cnn --data synthetic:2x2x1 --steps 1",
         "'pool2' has window 2, which does not fit"},
        {"--data synthetic:8x8x1 --batch 70000", "batch 70000 on each of 2 ranks"},
        {"--model resnet18 --data synthetic:64x64x3 --batch 512 --memory-limit 300M --steps 1",
         "the largest batch that fits is "},
        {"--model cnn --data synthetic:8x8x1 --steps 1 --load /nonexistent",
         "/nonexistent: cannot be opened"}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        assert_int_not_equal(run(2, rows[i][0]), 0);
        if (!(first = strstr(output, rows[i][1])) || strstr(first + 1, rows[i][1]))
            fail_msg("expected '%s' once, printed:\n%s", rows[i][1], output);
    }
}

/* The job ends, and one line says why. */
static void ranks_that_were_told_different_things_end(void **unused)
{
    (void)unused;
    char mixed[1024];
    const char *const pairs[][3] = {
        {"--batch 8", "--batch 16", "disagree on: batch"},
        {"--steps 8", "--steps 9", "disagree on: steps"},
        {"--wire bf16", "--wire fp16", "disagree on: wire type"},
        {"--compress int8", "", "disagree on: codec"},
        {"--compress topk:0.1", "--compress topk:0.2", "disagree on: share of the codec"},
        {"--freeze-norm", "", "disagree on: frozen norms"},
        {"--warmup 0.2", "", "disagree on: warm-up"},
        {"--accumulate 2", "", "disagree on: batches a step"},
        {"--optimizer nag", "", "disagree on: optimizer"},
        {"--optimizer adam --beta1 0.8", "--optimizer adam", "disagree on: beta1"},
        {"--optimizer adam --beta2 0.8", "--optimizer adam", "disagree on: beta2"},
        {"--optimizer adam --epsilon 0.8", "--optimizer adam", "disagree on: epsilon"},
        {"--clip-norm 3", "", "disagree on: clip norm"},
        {"--optimizer adam --momentum 0.9", "", "--momentum: on --optimizer adam there is none"},
        {"--stream", "", "disagree on: --stream"},
        {"", "--stream", "disagree on: --stream"},
        {"--memory", "", "disagree on: --memory"},
        {"", "--profile", "disagree on: --profile"},
        {"--batch 0", "", "--batch 0: expected"},
        {"", "--model vgg", "--model vgg: expected"},
        {"--model vgg", "--model vgg", "--model vgg: expected"},
        {"--help", "--batch 0", "--batch 0: expected"},
        {"", "--help", "--help or --usage on rank 1, but not on all"}};
    for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++) {
        const char *common = "--model cnn --data synthetic:8x8x1", *first;
        snprintf(mixed, sizeof mixed, "%s %s : %s 1 %s %s %s", common, pairs[i][0], option, program,
                 common, pairs[i][1]);
        assert_int_not_equal(run(1, mixed), 0);
        if (!(first = strstr(output, pairs[i][2])) || strstr(first + 1, pairs[i][2]))
            fail_msg("'%s' and '%s': expected '%s' once, printed:\n%s", pairs[i][0], pairs[i][1],
                     pairs[i][2], output);
    }
    expect(2, "--help", 0, "Usage: ");
    assert_null(strstr(strstr(output, "Usage: ") + 1, "Usage: "));
}

int main(int argc, char **argv)
{
    if (!program_arguments(argc, argv))
        return 2;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(help_is_complete),
        cmocka_unit_test(usage_errors_exit_with_2),
        cmocka_unit_test(optimizers_take_their_own_options),
        cmocka_unit_test(failures_exit_with_1),
        cmocka_unit_test(one_rank_writes_its_report),
        cmocka_unit_test(two_ranks_end_equal),
        cmocka_unit_test(two_ranks_stop_in_time),
        cmocka_unit_test(two_ranks_fail_together),
        cmocka_unit_test(memory_is_printed),
        cmocka_unit_test(ranks_of_a_host_share_its_memory),
        cmocka_unit_test(random_options_are_taken_or_refused),
        cmocka_unit_test(predictions_are_complete),
        cmocka_unit_test(descriptions_are_right),
        cmocka_unit_test(profiles_are_complete),
        cmocka_unit_test(resnet50_trains_on_two_ranks),
        cmocka_unit_test(checkpoints_of_two_ranks),
        cmocka_unit_test(the_report_has_the_options),
        cmocka_unit_test(presets_are_switches),
        cmocka_unit_test(ranks_that_were_told_different_things_end),
    };
    const int failed = cmocka_run_group_tests(tests, NULL, NULL);
    remove(json_path);
    return failed;
}
