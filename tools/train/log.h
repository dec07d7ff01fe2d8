/* --log FILE: the course of a run as a table, a row for each reading of the phase timer and for
 * each test. Each row is written at once and whole, so that a run that is killed leaves its rows.
 * Rank 0, main thread. */
#ifndef ALNICO_TOOLS_TRAIN_LOG_H
#define ALNICO_TOOLS_TRAIN_LOG_H

#include "train/trainer/trainer.h"

struct train_log {
    const char *path; /* NULL: no log */
    int file, ranks;
    bool json;      /* lines of JSON; or CSV */
    bool goes_on;   /* behind the rows that are there */
    bool begun;     /* a row was written */
    int error;      /* errno of the first write that failed, after which there is none; 0 */
    double seconds; /* of training, at the last row */
};

/* Whether the name ends as one of the forms, and which. */
bool train_log_form(const char *path, bool *json);

/* A column's name for a phase's seconds, also the report's in JSON. */
const char *train_phase_key(int phase);

/* Opens the file, of a name that train_log_form knows; fails the program if it cannot. What the
 * file holds stays until the first row, or if goes_on for good. */
void train_log_begin(struct train_log *log, const char *path, bool goes_on, int ranks);

/* Adds a row. A failure is kept for the end: training goes on. */
void train_log_row(struct train_log *log, const struct trainer_progress *progress);

/* Closes the file; fails the program if a row could not be written. */
void train_log_end(struct train_log *log);

#endif
