/* The log of a run. See log.h. */
#include "tools/train/log.h"

#include "tools/common/options.h"
#include "tools/common/program.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <string.h>
#include <unistd.h>

enum { ROW_BYTES = 1024 };

/* Columns, before the phases and after them. */
enum { STEP, EPOCH, SECONDS, LOSS, ACCURACY, RATE, SPEED, FIRST_PHASE };
enum { TEST_LOSS = FIRST_PHASE + PHASES, TEST_ACCURACY, COLUMNS };

static const char *column_name(int column)
{
    static const char *const before[] = {"step",     "epoch",         "seconds",          "loss",
                                         "accuracy", "learning_rate", "images_per_second"};
    static const char *const after[] = {"test_loss", "test_accuracy"};
    return column < FIRST_PHASE ? before[column]
           : column < TEST_LOSS ? train_phase_key(column - FIRST_PHASE)
                                : after[column - TEST_LOSS];
}

const char *train_phase_key(int phase)
{
    static const char *const keys[PHASES] = {"io",       "h2d",    "forward",
                                             "backward", "halo",   "exposed_communication",
                                             "average",  "update", "weights"};
    return keys[phase];
}

bool train_log_form(const char *path, bool *json)
{
    const char *ending = strrchr(path, '.');
    *json = ending && strcmp(ending, ".jsonl") == 0;
    return *json || (ending && strcmp(ending, ".csv") == 0);
}

void train_log_begin(struct train_log *log, const char *path, bool goes_on, int ranks)
{
    *log = (struct train_log){.path = path, .file = -1, .ranks = ranks, .goes_on = goes_on};
    if (!path)
        return;
    train_log_form(path, &log->json);
    log->file = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
    if (log->file < 0)
        program_fail("--log %s: cannot be opened: %s", path, strerror(errno));
}

/* Writes all of it, or nothing to a file that can be cut. */
static void text_write(struct train_log *log, const char *text)
{
    const off_t end = lseek(log->file, 0, SEEK_END);
    for (size_t left = strlen(text); left && !log->error;) {
        const ssize_t wrote = write(log->file, text, left);
        if (wrote < 0 && errno != EINTR)
            log->error = errno;
        text += wrote > 0 ? wrote : 0;
        left -= wrote > 0 ? (size_t)wrote : 0;
    }
    if (log->error && end >= 0)
        (void)!ftruncate(log->file, end); /* of a device there is nothing to cut */
}

static void header_write(struct train_log *log)
{
    char line[ROW_BYTES] = "";
    for (int i = 0; i < COLUMNS; i++)
        text_append(line, sizeof line, "%s%c", column_name(i), i + 1 < COLUMNS ? ',' : '\n');
    text_write(log, line);
}

/* What is not known is empty in CSV and left out in JSON. */
static void row_write(struct train_log *log, const double *values)
{
    char line[ROW_BYTES] = "";
    const char *separator = log->json ? "{" : "";
    for (int i = 0; i < COLUMNS; i++) {
        const bool known = !isnan(values[i]);
        if (log->json && !known)
            continue;
        text_append(line, sizeof line, "%s", separator);
        if (log->json)
            text_append(line, sizeof line, "\"%s\": ", column_name(i));
        if (known)
            text_append(line, sizeof line, "%.10g", values[i]);
        separator = log->json ? ", " : ",";
    }
    text_append(line, sizeof line, log->json ? "}\n" : "\n");
    text_write(log, line);
}

/* Before the first row. */
static void rows_begin(struct train_log *log)
{
    log->begun = true;
    if (!log->goes_on && ftruncate(log->file, 0) != 0 && errno != EINVAL)
        log->error = errno;
    if (!log->json && lseek(log->file, 0, SEEK_END) <= 0)
        header_write(log);
}

void train_log_row(struct train_log *log, const struct trainer_progress *progress)
{
    const struct outcome *latest = &progress->latest;
    const double count = (double)latest->count, seconds = progress->seconds - log->seconds;
    double values[COLUMNS];
    for (int i = 0; i < COLUMNS; i++)
        values[i] = NAN;
    values[STEP] = (double)progress->step;
    values[EPOCH] = (double)progress->epoch;
    values[SECONDS] = progress->seconds;
    values[RATE] = progress->rate;
    if (latest->count) {
        values[LOSS] = latest->loss / count;
        values[ACCURACY] = (double)latest->correct / count;
        values[SPEED] = seconds > 0 ? (double)latest->images * log->ranks / seconds : NAN;
        memcpy(values + FIRST_PHASE, progress->latest_phases, sizeof progress->latest_phases);
    }
    if (progress->tested && progress->test.images) {
        values[TEST_LOSS] = progress->test.loss;
        values[TEST_ACCURACY] = progress->test.accuracy;
    }
    if (!log->path || log->error || (progress->tested && !progress->test.images))
        return;
    if (!log->begun)
        rows_begin(log);
    row_write(log, values);
    log->seconds = progress->seconds;
}

void train_log_end(struct train_log *log)
{
    if (log->path)
        close(log->file);
    if (log->error)
        program_fail("--log %s: cannot be written: %s", log->path, strerror(log->error));
}
