/* The output of alnico-train after its work: the closing summary and the JSON report, and for
 * --memory the memory plan. Rank 0. */
#ifndef ALNICO_TOOLS_TRAIN_REPORT_H
#define ALNICO_TOOLS_TRAIN_REPORT_H

#include "tools/train/display.h"

/* The summary, for people. */
void train_report_print(const struct trainer_options *options, const struct trainer_report *report);

/* The report as JSON; takes the display's epochs and losses. The caller deletes it. */
cJSON *train_report_json(const struct train_options *options, const struct trainer_report *report,
                         struct train_display *display);

/* The plan of the activations step by step, then all that rank 0 of so many needs; fails the program
 * if the options make no run. */
void train_memory_print(const struct trainer_options *options, int ranks);

#endif
