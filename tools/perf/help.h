/* What alnico-perf's command line understands, and what --help says behind it. */
#ifndef ALNICO_TOOLS_PERF_HELP_H
#define ALNICO_TOOLS_PERF_HELP_H

#include <argp.h>

enum {
    KEY_DEVICE = 256,
    KEY_ALGORITHM,
    KEY_NONBLOCKING,
    KEY_IN_PLACE,
    KEY_VERSUS,
    KEY_OVERLAP,
    KEY_STREAM,
    KEY_BOOTSTRAP,
    KEY_GPU,
    KEY_REGISTER,
    KEY_MEMORY,
    KEY_HOST_TIME,
    KEY_THREADS,
    KEY_SECONDS,
    KEY_SEED,
    KEY_JSON
};

extern const struct argp_option perf_option_table[];

/* The end of --help: the operations and the columns. argp's help_filter. */
char *perf_help(int key, const char *text, void *input);

#endif
