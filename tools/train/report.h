/* The output of alnico-train: progress, the closing summary, the JSON report, and for --memory
 * the memory plan. Rank 0. */
#ifndef ALNICO_TOOLS_TRAIN_REPORT_H
#define ALNICO_TOOLS_TRAIN_REPORT_H

#include "tools/train/options.h"

struct train_display {
    const struct trainer_options *options;
    int ranks;
    bool terminal;          /* a bar that is redrawn, rather than lines */
    double printed;         /* training seconds when it was last drawn */
    size_t width;           /* of the drawn bar's line */
    cJSON *epochs;          /* what each test gave */
    cJSON *losses;          /* of some steps each */
    struct outcome outcome; /* since the last of them, on this rank */
    size_t step;            /* that it ended with */
};

/* Begins; train_display_end deletes what was not given to the JSON report. */
void train_display_begin(struct train_display *display, const struct trainer_options *options,
                         int ranks);
void train_display_end(struct train_display *display);

/* A struct trainer_options' progress, with the display as its context. */
void train_display_progress(void *display, const struct trainer_progress *progress);

/* The summary, for people. */
void train_report_print(const struct trainer_options *options, const struct trainer_report *report);

/* The report as JSON; takes the display's epochs and losses. The caller deletes it. */
cJSON *train_report_json(const struct train_options *options, const struct trainer_report *report,
                         struct train_display *display);

/* The plan of the activations step by step, then all that a rank needs; fails the program if the
 * options make no run. */
void train_memory_print(const struct trainer_options *options);

#endif
