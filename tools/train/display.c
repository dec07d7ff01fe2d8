/* See display.h. */
#include "tools/train/display.h"

#include "tools/common/options.h"
#include "tools/common/program.h"
#include "train/base/clock.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* Training seconds between two redrawings of the bar, and between two lines. */
static const double bar_seconds = 0.1, line_seconds = 5;

enum { BAR = 30, LOSS_STEPS = 10 };

void train_display_begin(struct train_display *display, const struct train_options *options,
                         int ranks)
{
    const struct trainer_options *trainer = &options->trainer;
    char times[32] = "";
    *display = (struct train_display){.ranks = (int)trainer_image_parts(trainer, ranks),
                                      .terminal = isatty(STDOUT_FILENO),
                                      .epochs = cJSON_CreateArray(),
                                      .losses = cJSON_CreateArray()};
    if (trainer->accumulate > 1)
        snprintf(times, sizeof times, " x %zu", trainer->accumulate);
    printf("%s on %s: %d rank%s%s%s, batch %zu%s each, %s kernels with %d thread%s, learning rate "
           "%g\n",
           trainer->model, trainer->data, ranks, ranks > 1 ? "s" : "",
           trainer->split ? " split by " : "", trainer->split ? trainer->split : "", trainer->batch,
           times, trainer->kernels, trainer->compute.threads,
           trainer->compute.threads > 1 ? "s" : "", trainer->optimizer.rate);
    train_log_begin(&display->log, options->log, trainer->load, display->ranks);
    fflush(stdout);
}

void train_display_end(struct train_display *display)
{
    cJSON_Delete(display->epochs);
    cJSON_Delete(display->losses);
    train_log_end(&display->log);
}

cJSON *train_score_json(const struct score *score)
{
    return json_add(cJSON_CreateObject(), "loss %g accuracy %g images %zu", score->loss,
                    score->accuracy, score->images);
}

double train_eta(const struct train_display *display, double now, double done)
{
    const double gone = done - display->done;
    return gone > 0 ? (now - display->begun) / gone * (1 - done) : -1;
}

void train_eta_format(double seconds, char *out, size_t bytes)
{
    const uint64_t whole = seconds > 0 ? (uint64_t)fmin(round(seconds), 1e15) : 0;
    const unsigned minutes = whole / 60 % 60, rest = whole % 60;
    if (seconds < 0)
        snprintf(out, bytes, "-");
    else if (whole < 3600)
        snprintf(out, bytes, "%u:%02u", minutes, rest);
    else
        snprintf(out, bytes, "%llu:%02u:%02u", (unsigned long long)(whole / 3600), minutes, rest);
}

void train_shares_format(const double *phases, char *out, size_t bytes)
{
    static const char *const words[PHASES] = {"io",   "h2d", "f", "b", "halo",
                                              "comm", "avg", "u", "w"};
    double sum = 0;
    for (int i = 0; i < PHASES; i++)
        sum += phases[i];
    snprintf(out, bytes, " ");
    for (int i = 0; i < PHASES; i++)
        if (phases[i] >= 0.005 * sum && sum > 0)
            text_append(out, bytes, " %s %.0f", words[i], 100 * phases[i] / sum);
    text_append(out, bytes, " %%");
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

/* "  eta 1:05", behind a line of a run at work. */
static void eta_append(const struct train_display *display, const struct trainer_progress *progress,
                       char *out, size_t bytes)
{
    char eta[32];
    train_eta_format(train_eta(display, clock_seconds(), progress->done), eta, sizeof eta);
    text_append(out, bytes, "  eta %s", eta);
}

static void bar_draw(struct train_display *display, const struct trainer_progress *progress)
{
    char line[160], bar[BAR + 1];
    const size_t full = (size_t)(progress->done * BAR);
    memset(bar, '.', BAR);
    memset(bar, '#', full < BAR ? full : BAR);
    bar[BAR] = '\0';
    line_format(display, progress, line, sizeof line);
    eta_append(display, progress, line, sizeof line);
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
    cJSON_AddItemToObject(row, "train", train_score_json(&progress->score));
    cJSON_AddItemToObject(row, "test", train_score_json(&progress->test));
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
    train_log_row(&display->log, progress);
    loss_append(display, progress);
    for (int i = 0; i < PHASES; i++)
        display->phases[i] += progress->latest_phases[i];
    if (!display->begun) {
        display->begun = clock_seconds();
        display->done = progress->done;
    }
    if (progress->tested) {
        epoch_print(display, progress);
    } else if (since < (display->terminal ? bar_seconds : line_seconds)) {
        return;
    } else if (display->terminal) {
        bar_draw(display, progress);
    } else {
        char line[160], shares[80];
        line_format(display, progress, line, sizeof line);
        eta_append(display, progress, line, sizeof line);
        train_shares_format(display->phases, shares, sizeof shares);
        printf("%s%s\n", line, shares);
        memset(display->phases, 0, sizeof display->phases);
    }
    display->printed = progress->seconds;
    fflush(stdout);
}
