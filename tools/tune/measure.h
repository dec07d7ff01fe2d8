/* Measuring ways on a device: cpu.c and cuda.c. Main thread of every rank, collective. */
#ifndef ALNICO_TOOLS_TUNE_MEASURE_H
#define ALNICO_TOOLS_TUNE_MEASURE_H

#include "comm/communicator/comm.h"
#include "tools/perf/measure.h"
#include "tools/tune/options.h"
#include "tools/tune/rows.h"

#include <cjson/cJSON.h>

/* From here on a way that took twice as long as the best is not measured at larger sizes: latency,
 * which may favour others there, no longer counts. */
enum { PRUNE_BYTES = 1 << 20 };

/* The one size of an operation whose rows hold for every size, since ranks do not know each other's
 * counts. Short where `one_shot` is among the ways: above 8 KB it is `linear` or `pairwise`
 * itself. */
enum { UNSIZED_BYTES = 64 << 10, UNSIZED_SHORT_BYTES = 1 << 10 };

struct tuner;

struct tune_device {
    unsigned modes; /* kinds of calls that have a table of their own: 1, or MODES */

    /* Makes buffers for any size and operation, and tuner->comm. */
    void (*open)(struct tuner *tuner);

    /* Times every way of the size that can do it, for calls of so many modes; the others get a
     * negative time. `before` is the size before it, or NULL. */
    void (*measure)(struct tuner *tuner, unsigned modes, struct tune_size *size,
                    const struct tune_size *before);

    void (*close)(struct tuner *tuner);
};

extern const struct tune_device tune_cpu;
extern const struct tune_device tune_cuda; /* in builds with CUDA */

struct tuner {
    const struct tune_device *device;
    struct tune_options options;
    int rank, ranks;
    alnico_comm_t comm;
    const struct perf_operation *operation; /* that is measured */
    struct tuning_steps in_force;           /* what the table said before */
    struct tune_size *sizes[MODES];         /* options' sizes, for every mode of the device */
    int count;
    const cJSON *describe; /* the GPU, for the file's description of the machine; NULL: none */
    struct bench *bench;   /* buffers and communicators; on GPUs a second one, of registered ones */
};

/* Opens a benchmark for operations that sum float32, on GPUs for calls that may be refused. */
struct bench_ops;
void tune_open_bench(const struct tuner *tuner, struct bench *bench, const struct bench_ops *ops,
                     bool registered);

/* Times ways in turns for about so many seconds. */
void tune_measure(struct candidate *candidates, int count, double seconds);

/* The way becomes the communicator's only one for the operation that is measured. */
void tune_force(const struct tuner *tuner, alnico_comm_t comm, const struct tune_way *way);

/* Whether it is so slow at the size before that it is not worth measuring, and not one that the
 * table may take. */
bool tune_is_pruned(const struct tuner *tuner, unsigned modes, const struct tune_size *size,
                    const struct tune_size *before, const struct tune_way *way);

/* The way that the table in force takes, once the size is measured: its first that can do it. */
struct tune_way tune_way_in_force(const struct tuner *tuner, unsigned modes,
                                  const struct tune_size *size);

/* ---- Output on rank 0 (print.c) ---- */

/* A line for every size and mode: the fastest way, and what the table in force takes. */
void tune_print_head(const struct tuner *tuner);
void tune_print_size(const struct tuner *tuner, unsigned modes, const struct tune_size *size);

void tune_print_rows(const struct tuner *tuner, const struct tuning_row *rows, int count);

/* Whether the table in force takes, everywhere, a way within 3 % or 0.2 us of the fastest; returns
 * how often not. */
int tune_print_comparison(const struct tuner *tuner);

#endif
