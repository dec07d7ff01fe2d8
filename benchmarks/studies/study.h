/* Common parts of the studies: options, pictures by gnuplot, and ranks as threads.
 * Main thread. */
#ifndef ALNICO_BENCHMARKS_STUDIES_STUDY_H
#define ALNICO_BENCHMARKS_STUDIES_STUDY_H

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

/* Begins a study: a picture that cannot be drawn is a usage error, no gnuplot ends it with 77. */
void study_begin(const struct study_options *options);

/* A gnuplot that draws into the picture: commands go into the file, `height` is a panel's share of
 * the width. Lines 1 to 8 can be told apart in black and white. NULL: no picture is wanted. */
FILE *study_picture_begin(const struct study_options *options, const char *title, int panels,
                          double height);

/* Fails the program if gnuplot did. NULL is fine. */
void study_picture_end(FILE *picture);

/* Describes the study and the machine in a report, which the caller adds to. */
cJSON *study_report(const char *name);

#endif
