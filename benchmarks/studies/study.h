/* Common parts of the studies: options, a device, works that are timed by turns, and pictures by
 * gnuplot. Main thread. */
#ifndef ALNICO_BENCHMARKS_STUDIES_STUDY_H
#define ALNICO_BENCHMARKS_STUDIES_STUDY_H

#include "device/device.h"
#include "tools/common/options.h"
#include "tools/common/program.h"

struct study_options {
    const char *json, *picture; /* files; NULL: none */
    bool full;
};

/* Rows of an option table; `member` is a struct study_options in `type`. */
#define STUDY_OPTIONS(type, member)                                                                \
    {.name = "full",                                                                               \
     .help = "as large as the source's experiment",                                                \
     .kind = OPTION_FLAG,                                                                          \
     OPTION_FIELD(type, member.full)},                                                             \
        {.name = "json",                                                                           \
         .value = "FILE",                                                                          \
         .help = "writes the results",                                                             \
         .kind = OPTION_TEXT,                                                                      \
         OPTION_FIELD(type, member.json)},                                                         \
    {                                                                                              \
        .name = "picture", .value = "FILE.svg|FILE.png", .help = "draws them, by gnuplot",         \
        .kind = OPTION_TEXT, OPTION_FIELD(type, member.picture)                                    \
    }

/* A row of an option table: the member becomes an alnico_device_t. */
#define STUDY_DEVICE(type, member)                                                                 \
    {                                                                                              \
        .name = "device", .value = "cpu|cuda", .help = "what computes", .kind = OPTION_CHOICE,     \
        .initial = "cpu", OPTION_FIELD(type, member), .choices = option_devices                    \
    }

/* A row of an option table: the member, a double, is above 0. */
#define STUDY_SECONDS(type, member, what, seconds)                                                 \
    {                                                                                              \
        .name = "seconds", .value = "S", .help = "of measuring " what, .kind = OPTION_POSITIVE,    \
        .initial = seconds, OPTION_FIELD(type, member), .high = 60                                 \
    }

/* The device and the stream that a study computes on; the CPU's stream is inline. */
struct study_device {
    const struct device_ops *ops;
    void *stream;
};

/* A work that is timed: the function computes, or enqueues on the device's stream. */
struct study_work {
    void (*run)(void *context);
    void *context;
    double us;       /* median of a run */
    double least_us; /* of the fastest run */
};

/* Begins a study: a picture that cannot be drawn is a usage error, no gnuplot ends it with 77. */
void study_begin(const struct study_options *options);

/* Ends the study with 77 if there is no such device. */
struct study_device study_device_open(alnico_device_t kind);

/* Memory of the device with these numbers in it (NULL: zeros); and back to the host. */
void *study_put(const struct study_device *device, const void *host, size_t bytes);
void study_get(const struct study_device *device, void *host, const void *memory, size_t bytes);

/* A function of a library that is found when it is needed; `to`: a pointer to it. */
struct study_function {
    const char *name;
    void *to;
};
#define STUDY_FUNCTION(name) __typeof__(name) *name;

/* Finds functions in the first library of these names, which NULL ends, or ends the study with 77. */
void study_library(const char *const *names, const struct study_function *functions, size_t count);

/* Times the works by turns until so many seconds are over, three turns at least; on a GPU as
 * graphs. */
void study_race(const struct study_device *device, struct study_work *works, int count,
                double seconds);

/* The median of some values, which it sorts. */
double study_median(double *values, int count);

/* Memory of the host, or the program fails; and numbers from -1 to 1 in it. */
void *study_memory(size_t bytes);
float *study_random(size_t count, uint64_t seed);

/* A gnuplot that draws into the picture: commands go into the file, `height` is a panel's share of
 * the width. Lines 1 to 8 can be told apart in black and white. NULL: no picture is wanted. */
FILE *study_picture_begin(const struct study_options *options, const char *title, int panels,
                          double height);

/* Fails the program if gnuplot did. NULL is fine. */
void study_picture_end(FILE *picture);

/* Describes the study and the machine in a report, which the caller adds to. */
cJSON *study_report(const char *name);

#endif
