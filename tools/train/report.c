/* The progress bar, the summary and the JSON report of alnico-train. Rank 0, main thread. */
#include "tools/train/report.h"

#include "tools/common/program.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* Training seconds between two redrawings of the bar, and between two lines. */
static const double bar_seconds = 0.1, line_seconds = 5;

enum { BAR = 30, LOSS_STEPS = 10 };

void train_display_begin(struct train_display *display, const struct trainer_options *options,
                         int ranks)
{
    *display = (struct train_display){.options = options,
                                      .ranks = ranks,
                                      .terminal = isatty(STDOUT_FILENO),
                                      .epochs = cJSON_CreateArray(),
                                      .losses = cJSON_CreateArray()};
    printf("%s on %s: %d rank%s, batch %zu each, %s kernels with %d thread%s, learning rate %g\n",
           options->model, options->data, ranks, ranks > 1 ? "s" : "", options->batch,
           options->kernels, options->compute.threads, options->compute.threads > 1 ? "s" : "",
           options->optimizer.rate);
    fflush(stdout);
}

void train_display_end(struct train_display *display)
{
    cJSON_Delete(display->epochs);
    cJSON_Delete(display->losses);
}

static cJSON *score_json(const struct score *score)
{
    return json_add(cJSON_CreateObject(), "loss %g accuracy %g images %zu", score->loss,
                    score->accuracy, score->images);
}

/* Removes the bar from its line. */
static void bar_clear(struct train_display *display)
{
    if (display->width)
        printf("\r%*s\r", (int)display->width, "");
    display->width = 0;
}

/* "epoch 2 step 940  42 %  loss 0.4321  accuracy 84.5 %  1510 images/s" */
static void line_format(const struct train_display *display,
                        const struct trainer_progress *progress, char *out, size_t bytes)
{
    const double rate = progress->seconds > 0 ? (double)progress->images / progress->seconds : 0;
    snprintf(out, bytes,
             "epoch %zu  step %zu  %3.0f %%  loss %.4f  accuracy %.1f %%  %.0f images/s",
             progress->epoch, progress->step, 100 * progress->done, progress->score.loss,
             100 * progress->score.accuracy, rate * display->ranks);
}

static void bar_draw(struct train_display *display, const struct trainer_progress *progress)
{
    char line[160], bar[BAR + 1];
    const size_t full = (size_t)(progress->done * BAR);
    memset(bar, '.', BAR);
    memset(bar, '#', full < BAR ? full : BAR);
    bar[BAR] = '\0';
    line_format(display, progress, line, sizeof line);
    bar_clear(display);
    const int width = printf("[%s] %s", bar, line);
    display->width = width > 0 ? (size_t)width : 0;
}

static void epoch_print(struct train_display *display, const struct trainer_progress *progress)
{
    char line[160];
    line_format(display, progress, line, sizeof line);
    bar_clear(display);
    printf("%s", line);
    if (progress->test.images)
        printf("  test loss %.4f  test accuracy %.2f %%", progress->test.loss,
               100 * progress->test.accuracy);
    puts("");
    cJSON *row =
        json_add(json_row(display->epochs), "epoch %zu step %zu seconds %g learning_rate %g",
                 progress->epoch, progress->step, progress->seconds, progress->rate);
    cJSON_AddItemToObject(row, "train", score_json(&progress->score));
    cJSON_AddItemToObject(row, "test", score_json(&progress->test));
}

/* A row for LOSS_STEPS steps or, at the end of an epoch, for what is left. */
static void loss_append(struct train_display *display, const struct trainer_progress *progress)
{
    struct outcome *outcome = &display->outcome;
    outcome->loss += progress->latest.loss;
    outcome->count += progress->latest.count;
    if (!outcome->count || (progress->step < display->step + LOSS_STEPS && !progress->tested))
        return;
    json_add(json_row(display->losses), "step %zu loss %g", progress->step,
             outcome->loss / (double)outcome->count);
    display->step = progress->step;
    *outcome = (struct outcome){0};
}

void train_display_progress(void *context, const struct trainer_progress *progress)
{
    struct train_display *display = context;
    const double since = progress->seconds - display->printed;
    loss_append(display, progress);
    if (progress->tested) {
        epoch_print(display, progress);
    } else if (since < (display->terminal ? bar_seconds : line_seconds)) {
        return;
    } else if (display->terminal) {
        bar_draw(display, progress);
    } else {
        char line[160];
        line_format(display, progress, line, sizeof line);
        puts(line);
    }
    display->printed = progress->seconds;
    fflush(stdout);
}

/* The share of training outside the kernels' library; 1 if there is none. */
static double outside_share(const struct trainer_report *report)
{
    return 1 - report->library_seconds / report->seconds;
}

void train_report_print(const struct trainer_options *options, const struct trainer_report *report)
{
    printf("\n%zu parameters, %zu steps (%.2f epochs) in %.1f s: %.0f images/s, %.0f per rank\n",
           report->parameters, report->steps, report->epochs, report->seconds,
           report->images_per_second, report->images_per_second / report->ranks);
    printf("time:");
    for (int i = 0; i < PHASES; i++)
        if (report->phases[i] > 0)
            printf("%s %s %.1f %%", i ? "," : "", phase_name(i),
                   100 * report->phases[i] / report->seconds);
    if (report->library_seconds > 0)
        printf("; outside %s %.1f %%", options->kernels, 100 * outside_share(report));
    printf("\nstep: median %.2f ms, %.0f images/s\n", 1e3 * report->step_seconds,
           (double)options->batch * report->ranks / report->step_seconds);
    printf("train: loss %.4f, accuracy %.2f %%\n", report->train.loss,
           100 * report->train.accuracy);
    if (report->test.images)
        printf("test:  loss %.4f, accuracy %.2f %% of %zu images\n", report->test.loss,
               100 * report->test.accuracy, report->test.images);
    printf("parameters: hash %016llx%s\n", (unsigned long long)report->hash,
           report->ranks > 1 ? ", equal on all ranks" : "");
}

static cJSON *memory_json(const struct trainer_report *report)
{
    const struct replica_memory *memory = &report->memory;
    return json_add(cJSON_CreateObject(),
                    "parameters %zu gradients %zu optimizer %zu statistics %zu images %zu "
                    "activations %zu kernels %zu total %zu",
                    memory->parameters, memory->gradients, memory->optimizer, memory->statistics,
                    memory->images, memory->activations, memory->kernels, memory->total);
}

static cJSON *times_json(const struct trainer_report *report)
{
    static const char *const keys[PHASES] = {
        "input", "forward", "backward", "exposed_communication", "average", "update", "weights"};
    cJSON *object = cJSON_CreateObject();
    for (int i = 0; i < PHASES; i++)
        cJSON_AddNumberToObject(object, keys[i], report->phases[i]);
    return json_add(object, "total %g inside_library %g test %g median_step %g", report->seconds,
                    report->library_seconds, report->test_seconds, report->step_seconds);
}

cJSON *train_report_json(const struct train_options *options, const struct trainer_report *report,
                         struct train_display *display)
{
    char hash[17];
    cJSON *object = cJSON_CreateObject();
    snprintf(hash, sizeof hash, "%016llx", (unsigned long long)report->hash);
    json_add(object, "program %s version %s date %s", "alnico-train", alnico_version(),
             program_date());
    cJSON_AddItemToObject(object, "machine", program_machine());
    json_add(object, "mpi %s", program_mpi_library());
    cJSON_AddItemToObject(object, "options", train_options_json(options));
    json_add(object,
             "ranks %d parameters %zu steps %zu epochs_done %g images_per_second %g "
             "images_per_second_per_rank %g",
             report->ranks, report->parameters, report->steps, report->epochs,
             report->images_per_second, report->images_per_second / report->ranks);
    cJSON_AddItemToObject(object, "seconds", times_json(report));
    cJSON_AddItemToObject(object, "memory_bytes", memory_json(report));
    json_add(object,
             "bucket_count %zu median_images_per_second %g share_outside_library %g "
             "share_exposed_communication %g",
             report->buckets, options->trainer.batch * report->ranks / report->step_seconds,
             outside_share(report),
             (report->phases[PHASE_COMMUNICATION] + report->phases[PHASE_WEIGHTS]) /
                 report->seconds);
    cJSON_AddItemToObject(object, "train", score_json(&report->train));
    cJSON_AddItemToObject(object, "test", score_json(&report->test));
    cJSON_AddItemToObject(object, "history", display->epochs);
    cJSON_AddItemToObject(object, "losses", display->losses);
    display->epochs = display->losses = NULL;
    return json_add(object, "graph %hhd parameter_hash %s", report->graph, hash);
}
