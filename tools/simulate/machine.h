/* Machine files: the figures of a simulated machine as JSON, checked. docs/simulation.md lists the
 * keys. */
#ifndef ALNICO_TOOLS_SIMULATE_MACHINE_H
#define ALNICO_TOOLS_SIMULATE_MACHINE_H

#include "comm/transports/sim/sim.h"

struct simulate_machine {
    char name[64], path[4096];
    struct sim_machine sim;
};

/* Reads a machine from text that need not end in 0. Errors: ARGUMENT, with a detail that names
 * `file`, the key and its value; `file` is for that only. */
alnico_status_t machine_parse(const char *text, size_t bytes, const char *file,
                              struct simulate_machine *out);

/* Reads the file, or the installed machine of that name where there is no slash and no dot in it.
 * Also SYSTEM. */
alnico_status_t machine_read(const char *name, struct simulate_machine *out);

#endif
