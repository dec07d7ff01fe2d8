/* Checkpoints: a run that goes on from one ends where the run that never stopped ends, to the bit,
 * alone, on a stream and on two ranks; and files that are damaged, of another run or out of reach
 * are refused by name. */
#include "tests/support/ranks.h"

#include "train/trainer/checkpoint_file.h"
#include "train/trainer/trainer.h"

#include <dirent.h>
#include <errno.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

enum { STEPS = 11, EVERY = 5 };

static char folder[64], saved[96], kept[96], broken[96];

static void copy_file(const char *from, const char *to)
{
    static char bytes[1 << 23];
    FILE *in = fopen(from, "rb"), *out = fopen(to, "wb");
    if (!in || !out)
        fail_msg("cannot copy %s to %s", from, to);
    const size_t count = fread(bytes, 1, sizeof bytes, in);
    assert_true(count > 0 && count < sizeof bytes);
    assert_int_equal(fwrite(bytes, 1, count, out), count);
    fclose(in);
    fclose(out);
}

/* Keeps the checkpoint of step 5, before that of step 10 takes its place. */
static void keep_first(void *context, const struct trainer_progress *progress)
{
    (void)context;
    if (progress->step == EVERY + 2 && !progress->tested && access(saved, R_OK) == 0)
        copy_file(saved, kept);
}

/* The first step that a run tells of. */
static void record_first(void *context, const struct trainer_progress *progress)
{
    size_t *first = context;
    if (*first == 0)
        *first = progress->step;
}

/* Four batches in an epoch: the first checkpoint stands in the second. */
static struct trainer_options options_make(const char *model, size_t batch)
{
    struct trainer_options options = {.model = model,
                                      .data = "synthetic:4x4x1",
                                      .kernels = "onednn",
                                      .strategy = "allreduce",
                                      .batch = batch,
                                      .steps = STEPS,
                                      .tests = 1,
                                      .seed = 3,
                                      .buckets = 1 << 14,
                                      .compute = {.threads = 1, .deterministic = true},
                                      .wire = ALNICO_FLOAT32,
                                      .optimizer = optimizer_defaults(OPTIMIZER_SGD, 128)};
    if (!kernels_find("onednn"))
        options.kernels = "naive";
    return options;
}

static uint64_t run(const struct trainer_options *options, const struct trainer_place *place)
{
    struct trainer_report report;
    if (trainer_run(options, place, &report))
        fail_msg("%s", alnico_error_detail());
    assert_int_equal(report.steps, STEPS);
    return report.hash;
}

static void check_resume(struct trainer_options options, void *stream)
{
    const struct trainer_place place = {.stream = stream};
    const uint64_t expected = run(&options, &place);
    options.save = saved;
    options.save_every = EVERY;
    options.progress = keep_first;
    assert_true(run(&options, &place) == expected);
    options.progress = NULL;
    options.save_every = 0;
    options.load = saved;
    struct trainer_report report;
    assert_int_equal(trainer_run(&options, &place, &report), ALNICO_ERROR_ARGUMENT);
    assert_non_null(strstr(alnico_error_detail(), "it has done 11 steps already"));
    size_t first = 0;
    options.load = kept;
    options.progress = record_first;
    options.context = &first;
    assert_true(run(&options, &place) == expected);
    assert_int_equal(first, EVERY + 1);
    remove(saved);
}

static void runs_resume_to_the_bit(void **unused)
{
    (void)unused;
    check_resume(options_make("cnn", 12500), NULL);
    struct trainer_options options = options_make("resnet20", 16);
    check_resume(options, NULL);
    options.optimizer.schedule = SCHEDULE_COSINE;
    options.optimizer.trust = 0.01;
    check_resume(options, NULL);
}

/* With all states, and the number of updates. */
static void optimizers_resume_to_the_bit(void **unused)
{
    (void)unused;
    struct trainer_options options = options_make("cnn", 16);
    for (int kind = 0; kind < OPTIMIZERS; kind++) {
        options.optimizer = optimizer_defaults((enum optimizer_kind)kind, 128);
        options.optimizer.clip = 0.5;
        check_resume(options, NULL);
    }
}

static void streams_resume_to_the_bit(void **unused)
{
    (void)unused;
    alnico_stream_t stream;
    struct trainer_options options = options_make("resnet20", 16);
    const struct trainer_place alone = {0};
    const uint64_t expected = run(&options, &alone);
    options.save = saved;
    options.save_every = EVERY;
    options.progress = keep_first;
    assert_true(run(&options, &alone) == expected);
    size_t first = 0;
    options.save_every = 0;
    options.progress = record_first;
    options.context = &first;
    options.load = kept;
    assert_int_equal(alnico_stream_create(&stream), ALNICO_SUCCESS);
    const struct trainer_place place = {.stream = stream};
    assert_true(run(&options, &place) == expected);
    assert_true(first > EVERY);
    alnico_stream_destroy(stream);
}

/* The rates of a run's first two steps. */
static void record_rates(void *context, const struct trainer_progress *progress)
{
    double *rates = context;
    if (progress->step <= 5 && !progress->tested)
        rates[progress->step - 4] = progress->rate;
}

/* The time limit of a run that goes on counts from there: it learns from its second step on. */
static void timed_runs_go_on_learning(void **unused)
{
    (void)unused;
    const struct trainer_place place = {0};
    struct trainer_report report;
    double rates[2] = {0};
    struct trainer_options options = options_make("cnn", 16);
    options.steps = 3;
    options.tests = 0;
    options.save = saved;
    assert_int_equal(trainer_run(&options, &place, &report), ALNICO_SUCCESS);
    options.save = NULL;
    options.load = saved;
    options.steps = 0;
    options.seconds = 0.5;
    options.progress = record_rates;
    options.context = rates;
    assert_int_equal(trainer_run(&options, &place, &report), ALNICO_SUCCESS);
    assert_true(report.seconds >= 0.5 && report.steps > 5);
    assert_true(rates[0] == 0 && rates[1] > 0);
}

/* The loss scale of the checkpoint that a run leaves, after it went on from `broken`. */
static float scale_left(struct trainer_options options, float asked)
{
    struct checkpoint left;
    const struct trainer_place place = {0};
    options.load = broken;
    options.save = kept;
    options.compute.loss_scale = asked;
    run(&options, &place);
    assert_int_equal(checkpoint_read(kept, &left), ALNICO_SUCCESS);
    const float scale = left.words[CONTROL_LOSS_SCALE];
    checkpoint_free(&left);
    return scale;
}

/* The CPU's kernels have no loss scale; what they carry along stands in for a GPU's. */
static void loss_scales_go_on_unless_given(void **unused)
{
    (void)unused;
    struct checkpoint state;
    const struct trainer_place place = {0};
    struct trainer_report report;
    struct trainer_options options = options_make("cnn", 16);
    options.steps = 3;
    options.save = saved;
    assert_int_equal(trainer_run(&options, &place, &report), ALNICO_SUCCESS);
    assert_int_equal(checkpoint_read(saved, &state), ALNICO_SUCCESS);
    state.words[CONTROL_LOSS_SCALE] = 65536;
    assert_int_equal(checkpoint_write(broken, &state), ALNICO_SUCCESS);
    checkpoint_free(&state);
    options.steps = STEPS;
    assert_true(scale_left(options, 0) == 65536);
    assert_true(scale_left(options, 128) == 0); /* as it was before */
}

/* ---- Two ranks ---- */

struct together {
    struct trainer_options options;
    uint64_t hash;
};

static void rank_run(struct rank *rank)
{
    struct together *together = rank->argument;
    alnico_comm_t comm = ranks_comm(rank, NULL);
    const struct trainer_place place = {.host = comm};
    struct trainer_report report;
    REQUIRE_STATUS(trainer_run(&together->options, &place, &report), ALNICO_SUCCESS);
    if (rank->rank == 0)
        together->hash = report.hash;
    alnico_comm_destroy(comm);
}

static void check_ranks_resume(const struct codec *codec)
{
    struct together together = {.options = options_make("resnet20", 8)};
    together.options.codec = *codec;
    ranks_run(2, rank_run, &together);
    const uint64_t expected = together.hash;
    together.options.save = saved;
    together.options.save_every = EVERY;
    together.options.progress = keep_first;
    ranks_run(2, rank_run, &together);
    assert_true(together.hash == expected);
    size_t first = 0;
    together.options.progress = record_first;
    together.options.context = &first;
    together.options.save = NULL;
    together.options.save_every = 0;
    together.options.load = kept;
    ranks_run(2, rank_run, &together);
    assert_true(together.hash == expected);
    assert_int_equal(first, EVERY + 1);
}

static void ranks_resume_to_the_bit(void **unused)
{
    (void)unused;
    check_ranks_resume(&(struct codec){.ops = NULL});
    check_ranks_resume(&(struct codec){&codec_int8, 1});
    check_ranks_resume(&(struct codec){&codec_topk, 0.02});
}

static void rank_refuse(struct rank *rank)
{
    struct together *together = rank->argument;
    alnico_comm_t comm = ranks_comm(rank, NULL);
    const struct trainer_place place = {.host = comm};
    struct trainer_report report;
    const alnico_status_t status = trainer_run(&together->options, &place, &report);
    REQUIRE(status == ALNICO_ERROR_SYSTEM || status == ALNICO_ERROR_ABORTED);
    if (rank->rank == 0)
        ranks_require_detail(together->options.save);
    alnico_comm_destroy(comm);
}

/* Removes the folder that the context names. */
static void folder_remove(void *context, const struct trainer_progress *progress)
{
    (void)progress;
    rmdir(context);
}

/* Only rank 0 writes; the other does not wait for it for ever, neither at the start nor where the
 * folder has gone. */
static void failed_saves_end_all_ranks(void **unused)
{
    (void)unused;
    char gone[96], path[128];
    struct together together = {.options = options_make("cnn", 8)};
    together.options.save = "/nonexistent/file";
    together.options.save_every = 2;
    ranks_run(2, rank_refuse, &together);
    snprintf(gone, sizeof gone, "%s/gone", folder);
    snprintf(path, sizeof path, "%s/file", gone);
    assert_int_equal(mkdir(gone, 0700), 0);
    together.options.save = path;
    together.options.progress = folder_remove;
    together.options.context = gone;
    ranks_run(2, rank_refuse, &together);
}

/* ---- Files that are refused ---- */

static void refused(const struct trainer_options *options, alnico_status_t expected,
                    const char *detail)
{
    const struct trainer_place place = {0};
    struct trainer_report report;
    const alnico_status_t status = trainer_run(options, &place, &report);
    if (status == ALNICO_SUCCESS)
        fail_msg("a run went on from a checkpoint, expected '%s'", detail);
    if (!strstr(alnico_error_detail(), detail))
        fail_msg("'%s' does not say '%s'", alnico_error_detail(), detail);
    assert_int_equal(status, expected);
}

/* What could not be written at the end is refused before the first step. */
static void saves_are_tried_first(void **unused)
{
    (void)unused;
    char pipe[96], missing[128];
    size_t first = 0;
    struct trainer_options options = options_make("cnn", 16);
    snprintf(pipe, sizeof pipe, "%s/pipe", folder);
    snprintf(missing, sizeof missing, "%s/missing/file", folder);
    assert_int_equal(mkfifo(pipe, 0600), 0);
    const char *const rows[][2] = {{missing, "cannot be opened"},
                                   {"", "cannot be opened"},
                                   {"/proc/x", "cannot be opened"},
                                   {folder, "it is not a regular file"},
                                   {pipe, "it is not a regular file"}};
    options.progress = record_first;
    options.context = &first;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        options.save = rows[i][0];
        refused(&options, ALNICO_ERROR_SYSTEM, rows[i][1]);
        assert_int_equal(first, 0);
    }
    struct stat about;
    assert_int_equal(lstat(pipe, &about), 0);
    assert_true(S_ISFIFO(about.st_mode));
    remove(pipe);
}

static void other_runs_are_refused(void **unused)
{
    (void)unused;
    struct trainer_options options = options_make("cnn", 16);
    options.save = saved;
    options.steps = 3;
    struct trainer_report report;
    const struct trainer_place place = {0};
    assert_int_equal(trainer_run(&options, &place, &report), ALNICO_SUCCESS);
    options = options_make("cnn", 16);
    options.load = saved;
    options.model = "resnet20";
    refused(&options, ALNICO_ERROR_ARGUMENT, "it is of model cnn, not resnet20");
    options.model = "cnn";
    options.data = "synthetic:6x4x1";
    refused(&options, ALNICO_ERROR_ARGUMENT, "it is of data synthetic:4x4x1, not synthetic:6x4x1");
    options.data = "synthetic:4x4x1";
    options.classes = 7;
    refused(&options, ALNICO_ERROR_ARGUMENT, "it is of classes 10, not 7");
    options.classes = 0;
    options.batch = 8;
    refused(&options, ALNICO_ERROR_ARGUMENT, "it is of batch 16, not 8");
    options.batch = 16;
    options.seed = 4;
    refused(&options, ALNICO_ERROR_ARGUMENT, "it is of seed 3, not 4");
    options.seed = 3;
    struct checkpoint checkpoint;
    assert_int_equal(checkpoint_read(saved, &checkpoint), ALNICO_SUCCESS);
    checkpoint.run.layout ^= 1;
    assert_int_equal(checkpoint_write(broken, &checkpoint), ALNICO_SUCCESS);
    options.load = broken;
    refused(&options, ALNICO_ERROR_ARGUMENT,
            "its parameters stand in another order than cnn's here");
    snprintf(checkpoint.run.strategy, sizeof checkpoint.run.strategy, "gossip");
    assert_int_equal(checkpoint_write(broken, &checkpoint), ALNICO_SUCCESS);
    refused(&options, ALNICO_ERROR_ARGUMENT, "it is of strategy gossip, not allreduce");
    snprintf(checkpoint.run.strategy, sizeof checkpoint.run.strategy, "allreduce");
    checkpoint.run.precision = PRECISION_BF16;
    assert_int_equal(checkpoint_write(broken, &checkpoint), ALNICO_SUCCESS);
    checkpoint_free(&checkpoint);
    refused(&options, ALNICO_ERROR_ARGUMENT, "it is of precision bf16, not fp32");
    options.load = saved;
    options.optimizer = optimizer_defaults(OPTIMIZER_ADAM, 128);
    refused(&options, ALNICO_ERROR_ARGUMENT, "it is of optimizer sgd, not adam");
    options.optimizer = optimizer_defaults(OPTIMIZER_SGD, 128);
    options.codec = (struct codec){&codec_topk, 0.1};
    refused(&options, ALNICO_ERROR_ARGUMENT,
            "it is of strategy allreduce, not allreduce with residuals of topk");
    options.codec = (struct codec){&codec_topk, 2};
    refused(&options, ALNICO_ERROR_ARGUMENT, "codec topk with a share of 2, expected");
    options.codec = (struct codec){&codec_int8, 1};
    options.wire = ALNICO_FLOAT16;
    refused(&options, ALNICO_ERROR_ARGUMENT, "codec int8 with a wire type of 16 bits");
    options.wire = ALNICO_FLOAT32;
    options.codec.ops = NULL;
    options.load = "/nonexistent";
    refused(&options, ALNICO_ERROR_SYSTEM, "/nonexistent: cannot be opened: No such file");
}

/* A checkpoint with more states or with more of each rank than the run has. */
static void other_sizes_are_refused(void **unused)
{
    (void)unused;
    struct trainer_options options = options_make("cnn", 16);
    struct checkpoint checkpoint;
    options.load = broken;
    for (int way = 0; way < 2; way++) {
        assert_int_equal(checkpoint_read(saved, &checkpoint), ALNICO_SUCCESS);
        checkpoint_free(&checkpoint);
        checkpoint.states += way == 0;
        checkpoint.extra += way == 1;
        checkpoint.values = calloc(checkpoint_count(&checkpoint), sizeof *checkpoint.values);
        assert_non_null(checkpoint.values);
        assert_int_equal(checkpoint_write(broken, &checkpoint), ALNICO_SUCCESS);
        checkpoint_free(&checkpoint);
        refused(&options, ALNICO_ERROR_ARGUMENT,
                way ? "it has 1 extra numbers of a rank, not 0" : "it has 2 states, not 1");
    }
}

static void byte_change(long at, unsigned char by)
{
    FILE *file = fopen(broken, "r+b");
    assert_non_null(file);
    fseek(file, at, SEEK_SET);
    const int byte = fgetc(file);
    fseek(file, at, SEEK_SET);
    fputc(byte ^ by, file);
    fclose(file);
}

static void damaged_files_are_refused(void **unused)
{
    (void)unused;
    struct trainer_options options = options_make("cnn", 16);
    struct stat about;
    options.load = broken;
    assert_int_equal(stat(saved, &about), 0);
    const off_t lengths[] = {0, 5, 100, 600, about.st_size / 2, about.st_size - 1};
    for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++) {
        copy_file(saved, broken);
        assert_int_equal(truncate(broken, lengths[i]), 0);
        refused(&options, ALNICO_ERROR_ARGUMENT, "truncated");
    }
    copy_file(saved, broken);
    assert_int_equal(truncate(broken, about.st_size + 4), 0);
    refused(&options, ALNICO_ERROR_ARGUMENT, "truncated or damaged");
    copy_file(saved, broken);
    byte_change(0, 1);
    refused(&options, ALNICO_ERROR_ARGUMENT, "no checkpoint of this program");
    copy_file(saved, broken);
    byte_change(7, 1);
    refused(&options, ALNICO_ERROR_ARGUMENT, "it is of version 2, not 3");
    /* names; high bytes of the numbers of parameters, statistics, states, extras; control words */
    const long places[] = {
        9, 17, 390, 541, 549, 557, 565, 600, (long)about.st_size / 2, (long)about.st_size - 1};
    for (size_t i = 0; i < sizeof places / sizeof *places; i++) {
        copy_file(saved, broken);
        byte_change(places[i], 4);
        refused(&options, ALNICO_ERROR_ARGUMENT, "checkpoint ");
        assert_non_null(strstr(alnico_error_detail(), "damaged"));
    }
}

static int folder_entries(void)
{
    int count = 0;
    DIR *entries = opendir(folder);
    assert_non_null(entries);
    while (readdir(entries))
        count++;
    closedir(entries);
    return count;
}

static void writes_that_cannot_begin_fail(void **unused)
{
    (void)unused;
    struct checkpoint state;
    if (checkpoint_read(saved, &state))
        fail_msg("%s", alnico_error_detail());
    const int before = folder_entries();
    assert_int_equal(checkpoint_write("/nonexistent/file", &state), ALNICO_ERROR_SYSTEM);
    assert_string_equal(alnico_error_detail(), "checkpoint /nonexistent/file: cannot be opened: "
                                               "No such file or directory");
    assert_int_equal(checkpoint_write(folder, &state), ALNICO_ERROR_SYSTEM);
    assert_non_null(strstr(alnico_error_detail(), "cannot be replaced"));
    assert_int_equal(folder_entries(), before);
    checkpoint_free(&state);
    checkpoint_free(&state);
}

static bool disk_fails;

int __real_fsync(int file);
int __wrap_fsync(int file);

int __wrap_fsync(int file)
{
    errno = EIO;
    return disk_fails ? -1 : __real_fsync(file);
}

/* A write that fails, as `detail` has it, leaves what was there, and nothing beside it. */
static void write_fail(const struct checkpoint *state, const char *detail)
{
    struct checkpoint still;
    const int before = folder_entries();
    assert_int_equal(checkpoint_write(broken, state), ALNICO_ERROR_SYSTEM);
    if (!strstr(alnico_error_detail(), detail))
        fail_msg("'%s' does not say '%s'", alnico_error_detail(), detail);
    assert_int_equal(folder_entries(), before);
    assert_int_equal(checkpoint_read(broken, &still), ALNICO_SUCCESS);
    assert_int_equal(still.step + 1, state->step);
    checkpoint_free(&still);
}

/* What may not be on the disk does not take the place of what is. */
static void failed_writes_leave_the_old_file(void **unused)
{
    (void)unused;
    struct checkpoint state;
    struct stat about;
    struct rlimit unlimited, limit;
    signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &unlimited), 0);
    assert_int_equal(stat(saved, &about), 0);
    assert_int_equal(checkpoint_read(saved, &state), ALNICO_SUCCESS);
    assert_int_equal(checkpoint_write(broken, &state), ALNICO_SUCCESS);
    state.step++;
    disk_fails = true;
    write_fail(&state, "cannot be flushed: Input/output error");
    disk_fails = false;
    const rlim_t limits[] = {0, 100, 4096, (rlim_t)about.st_size / 2, (rlim_t)about.st_size - 1};
    for (size_t i = 0; i < sizeof limits / sizeof *limits; i++) {
        limit = (struct rlimit){limits[i], unlimited.rlim_max};
        assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
        write_fail(&state, "cannot be written: File too large");
        assert_int_equal(setrlimit(RLIMIT_FSIZE, &unlimited), 0);
    }
    checkpoint_free(&state);
}

/* A link to a link, to a file that is not there yet and then is. */
static void links_are_followed(void **unused)
{
    (void)unused;
    struct checkpoint state, again;
    struct stat about;
    char link[96], other[96];
    snprintf(link, sizeof link, "%s/link", folder);
    snprintf(other, sizeof other, "%s/other", folder);
    assert_int_equal(checkpoint_read(saved, &state), ALNICO_SUCCESS);
    assert_int_equal(symlink(other, link), 0);
    assert_int_equal(symlink("broken", other), 0);
    remove(broken);
    for (state.step = 7; state.step < 9; state.step++) {
        assert_int_equal(checkpoint_try(link), ALNICO_SUCCESS);
        assert_int_equal(checkpoint_write(link, &state), ALNICO_SUCCESS);
        assert_int_equal(checkpoint_read(broken, &again), ALNICO_SUCCESS);
        assert_int_equal(again.step, state.step);
        checkpoint_free(&again);
        assert_true(lstat(link, &about) == 0 && S_ISLNK(about.st_mode));
        assert_true(lstat(other, &about) == 0 && S_ISLNK(about.st_mode));
        assert_true(lstat(broken, &about) == 0 && S_ISREG(about.st_mode));
    }
    remove(other);
    assert_int_equal(symlink("link", other), 0);
    assert_int_equal(checkpoint_try(link), ALNICO_ERROR_SYSTEM);
    remove(link);
    remove(other);
    checkpoint_free(&state);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(runs_resume_to_the_bit),
                                       cmocka_unit_test(optimizers_resume_to_the_bit),
                                       cmocka_unit_test(streams_resume_to_the_bit),
                                       cmocka_unit_test(timed_runs_go_on_learning),
                                       cmocka_unit_test(loss_scales_go_on_unless_given),
                                       cmocka_unit_test(ranks_resume_to_the_bit),
                                       cmocka_unit_test(failed_saves_end_all_ranks),
                                       cmocka_unit_test(saves_are_tried_first),
                                       cmocka_unit_test(other_runs_are_refused),
                                       cmocka_unit_test(other_sizes_are_refused),
                                       cmocka_unit_test(damaged_files_are_refused),
                                       cmocka_unit_test(writes_that_cannot_begin_fail),
                                       cmocka_unit_test(failed_writes_leave_the_old_file),
                                       cmocka_unit_test(links_are_followed)};
    snprintf(folder, sizeof folder, "/tmp/alnico-checkpoint-%d", (int)getpid());
    snprintf(saved, sizeof saved, "%s/saved", folder);
    snprintf(kept, sizeof kept, "%s/kept", folder);
    snprintf(broken, sizeof broken, "%s/broken", folder);
    if (mkdir(folder, 0700) != 0)
        return 1;
    const int failed = cmocka_run_group_tests(tests, NULL, NULL);
    remove(saved);
    remove(kept);
    remove(broken);
    rmdir(folder);
    return failed;
}
