/* What alnico-train shows and keeps while it trains: a bar or lines, rows of the JSON report, and
 * the log. Rank 0, main thread. */
#ifndef ALNICO_TOOLS_TRAIN_DISPLAY_H
#define ALNICO_TOOLS_TRAIN_DISPLAY_H

#include "tools/train/log.h"
#include "tools/train/options.h"

struct train_display {
    const struct trainer_options *options;
    int ranks;              /* that take images of their own */
    bool terminal;          /* a bar that is redrawn, rather than lines */
    double printed;         /* training seconds when it was last drawn */
    size_t width;           /* of the drawn bar's line */
    double begun, done;     /* the first progress: when it was, and the share of the run */
    double phases[PHASES];  /* seconds since the last line */
    cJSON *epochs;          /* what each test gave */
    cJSON *losses;          /* of some steps each */
    struct outcome outcome; /* since the last of them, on this rank */
    size_t step;            /* that it ended with */
    struct train_log log;
};

/* Begins; train_display_end deletes what was not given to the JSON report, and fails the program if
 * the log could not be written. */
void train_display_begin(struct train_display *display, const struct train_options *options,
                         int ranks);
void train_display_end(struct train_display *display);

/* A struct trainer_options' progress, with the display as its context. */
void train_display_progress(void *display, const struct trainer_progress *progress);

/* Seconds until the end of the run at its speed since the first progress, tests and checkpoints
 * included; below 0: not known yet. now: as clock_seconds. */
double train_eta(const struct train_display *display, double now, double done);

/* "m:ss", from an hour on "h:mm:ss"; "-" below 0. */
void train_eta_format(double seconds, char *out, size_t bytes);

/* "  f 31 b 62 comm 5 %": the shares of phases in their sum, from half a per cent on; a bar has no
 * room for it. */
void train_shares_format(const double *phases, char *out, size_t bytes);

cJSON *train_score_json(const struct score *score);

#endif
