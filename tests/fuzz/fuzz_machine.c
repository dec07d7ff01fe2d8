/* Any bytes as a machine file: refused with the file's name, or figures within their bounds, on
 * which every algorithm comes to an end with the right values, and not before the time of one
 * message. */
#include "tests/fuzz/fuzz.h"
#include "tools/simulate/run.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void check_figures(const struct simulate_machine *machine)
{
    const struct sim_machine *sim = &machine->sim;
    FUZZ_REQUIRE(*machine->name && memchr(machine->name, 0, sizeof machine->name));
    FUZZ_REQUIRE(sim->ranks_per_host >= 1 && sim->hosts_per_leaf >= 0);
    FUZZ_REQUIRE(sim->taper >= 1 && sim->reduce_gbps >= 0 && sim->injection_gbps >= 0);
    for (int c = 0; c < SIM_CLASSES; c++)
        FUZZ_REQUIRE(sim->link[c].latency_us >= 0 && sim->link[c].bandwidth_gbps > 0);
}

static void check_runs(const struct sim_machine *machine)
{
    const struct sim_link *link = machine->link;
    double least = fmin(link[0].latency_us, fmin(link[1].latency_us, link[2].latency_us));
    struct simulate_case what = {.machine = machine, .ranks = 5, .count = 7, .data = true};
    for (what.operation = collectives; what.operation < collectives + COLLECTIVES; what.operation++)
        for (int i = 0; (what.algorithm = operation_algorithms(what.operation)[i]); i++) {
            struct simulate_result result;
            FUZZ_REQUIRE(simulate_run(&what, &result) == ALNICO_SUCCESS);
            FUZZ_REQUIRE(result.wrong == 0 && result.time_us >= least && result.time_us < 1e12);
        }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct simulate_machine machine;
    char *text = malloc(size + 1);
    FUZZ_REQUIRE(text);
    memcpy(text, data, size);
    text[size] = '\0';
    if (machine_parse(text, size, "fuzz", &machine) == ALNICO_SUCCESS) {
        check_figures(&machine);
        check_runs(&machine.sim);
    } else {
        FUZZ_REQUIRE(strncmp(alnico_error_detail(), "fuzz: ", 6) == 0 ||
                     strncmp(alnico_error_detail(), "fuzz, line ", 11) == 0);
    }
    free(text);
    return 0;
}
