/* From measured times to the rows of a tuning table. Pure; called by alnico-tune on rank 0. */
#ifndef ALNICO_TOOLS_TUNE_ROWS_H
#define ALNICO_TOOLS_TUNE_ROWS_H

#include "comm/tuning/tuning.h"

enum { TUNE_WAYS = 256, TUNE_SIZES = 256 };

/* One way to carry out a call. With chunk_bytes at or above the message it is not cut. */
struct tune_way {
    const char *backend;
    const struct algorithm *algorithm;
    size_t chunk_bytes;
    int blocks; /* of a kernel's grid; 0: the backend's own */
};

/* The times of messages of `bytes` bytes. */
struct tune_size {
    size_t bytes;
    size_t elements; /* of the vector or of one rank's block */
    int count;
    struct tune_way ways[TUNE_WAYS];
    double time_us[TUNE_WAYS]; /* negative: this way cannot do it */
};

/* Whether it cuts messages of so many bytes. An algorithm without rounds cuts none. */
bool tune_cuts(const struct tune_way *way, size_t bytes);

/* Whether two ways come to the same at this size. */
bool tune_same_way(const struct tune_way *a, const struct tune_way *b, size_t bytes);

/* Adds a way, unless it comes to the same as one that is there or there is no room. */
void tune_add_way(struct tune_size *size, struct tune_way way);

/* Adds every backend, algorithm, chunk size and grid of a device that differ at this size; a few
 * chunk sizes and the default grid only if `quick`. */
void tune_add_all(struct tune_size *size, int device, int collective, bool quick);

/* The time of a way at this size; INFINITY if it was not measured or cannot do it. */
double tune_time(const struct tune_size *size, const struct tune_way *way);

/* The fastest way; NULL if none can do it. */
const struct tune_way *tune_best(const struct tune_size *size);

/* The rows that follow, as few as possible: each names the way that stays within `margin` (0.03: 3
 * %) of the fastest for the most sizes, and the last has no upper bound. Sizes grow, and each has a
 * way that can do it. `like` says what else the rows hold for. Returns how many there are, at most
 * one a size. */
int tune_choose_rows(const struct tune_size *sizes, int count, double margin,
                     const struct tuning_row *like, struct tuning_row *rows);

/* Puts the rows into the table in place of those for the same collective, device, ranks and hosts.
 * The table is then ordered from few hosts and ranks to many, those first that ask for more of a
 * call, and from few bytes to many, and rows that can no longer be chosen are left out. Errors:
 * MEMORY, ARGUMENT (more than TUNING_ROWS_MOST rows). */
alnico_status_t tune_merge(struct tuning *tuning, const struct tuning_row *rows, int count);

#endif
