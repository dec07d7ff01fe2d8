/* The memory plan as a table, for alnico-train --memory. Main thread. */
#include "tools/train/report.h"

#include "tools/common/program.h"

#include <stdio.h>

static double mebibytes(size_t bytes)
{
    return (double)bytes / (1 << 20);
}

/* A piece of the allocation: where it begins, "-" if there is none. */
static void place_print(size_t offset)
{
    if (offset == PLAN_NONE)
        printf(" %10s", "-");
    else
        printf(" %10.3f", mebibytes(offset));
}

static void steps_print(const struct plan *plan)
{
    printf("%-16s %14s %10s %10s %10s %10s\n", "# MiB; step", "image", "value at", "slope at",
           "saved at", "scratch at");
    for (size_t s = 0; s < plan->count; s++) {
        const struct step *step = &plan->steps[s];
        const struct tensor *tensor = &plan->network->tensors[step->out];
        char shape[32];
        snprintf(shape, sizeof shape, "%zux%zux%zu", tensor->height, tensor->width,
                 tensor->channels);
        printf("%-16s %14s", network_tensor_name(plan->network, step->out), shape);
        place_print(plan->values[step->out]);
        place_print(plan->diffs[step->out]);
        place_print(step->saved);
        place_print(step->scratch[1] == PLAN_NONE ? step->scratch[0] : step->scratch[1]);
        puts("");
    }
}

static void totals_print(const struct trainer_needs *needs)
{
    const struct replica_memory *memory = &needs->memory;
    const struct {
        const char *what;
        size_t bytes;
    } rows[] = {{"parameters", memory->parameters},
                {"gradients", memory->gradients},
                {"optimizer", memory->optimizer},
                {"statistics", memory->statistics},
                {"images and labels", memory->images},
                {"activations", memory->activations},
                {"messages", memory->messages},
                {"kernels, about", memory->kernels},
                {"total", memory->total}};
    puts("");
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        printf("%-18s %12.2f MiB\n", rows[i].what, mebibytes(rows[i].bytes));
    printf("activations: %.2f MiB live at one time, %.2f MiB if none shared memory\n",
           mebibytes(needs->plan->least), mebibytes(needs->plan->apart));
    if (needs->available)
        printf("largest batch for %.2f MiB: %zu\n", mebibytes(needs->available), needs->largest);
}

void train_memory_print(const struct trainer_options *options, int ranks)
{
    struct trainer_needs needs;
    const alnico_status_t status = trainer_measure(options, ranks, &needs);
    if (status != ALNICO_SUCCESS) {
        trainer_needs_free(&needs);
        program_check(status, "planning memory");
    }
    printf("%s on %s, batch %zu, %s kernels, %s\n", options->model, options->data, options->batch,
           options->kernels, precision_name(options->compute.precision));
    steps_print(needs.plan);
    totals_print(&needs);
    trainer_needs_free(&needs);
}
