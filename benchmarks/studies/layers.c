/*
 * The time of an iteration by kinds of layers against the batch, and what a smaller batch makes of it
 * (Keuper, Pfreundt 2016): on ever more nodes each has a smaller batch, and even with free
 * communication an iteration gets no faster than its layers do. Layers that run as one are one kind.
 */
#include "benchmarks/studies/network_times.h"
#include "benchmarks/studies/study.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { BATCHES = 9, KINDS_MOST = 32, NAME = 96 };

struct options {
    struct study_options study;
    alnico_device_t device;
    const char *model;
    int batch;
};

static const struct option_row option_rows[] = {
    STUDY_DEVICE(struct options, device),
    {.name = "model",
     .value = "NAME",
     .help = "network (alexnet-cifar; with --full or on a GPU alexnet)",
     .kind = OPTION_TEXT,
     OPTION_FIELD(struct options, model)},
    {.name = "batch",
     .value = "N",
     .help = "the largest, a power of two (64; with --full or on a GPU 256)",
     .kind = OPTION_NUMBER,
     OPTION_FIELD(struct options, batch),
     .least = 1,
     .most = 256},
    STUDY_OPTIONS(struct options, study),
    {0}};

static const struct option_table option_table = {
    .options = option_rows,
    .about =
        "Time of an iteration by kinds of layers for batches down to 1, and its speed-up against "
        "the linear one.\v--full takes every power of two, otherwise every second."};

/* Times of an iteration by kind. */
struct kinds {
    char names[KINDS_MOST][NAME];
    int count;
};

struct iteration {
    size_t batch;
    double us[KINDS_MOST], all, step; /* all: the sum; step: of all at once */
};

static int kind_of(struct kinds *kinds, const char *name)
{
    int at = 0;
    while (at < kinds->count && strcmp(kinds->names[at], name) != 0)
        at++;
    if (at == kinds->count) {
        if (at == KINDS_MOST)
            program_fail("more than %d kinds of layers", KINDS_MOST);
        snprintf(kinds->names[kinds->count++], NAME, "%s", name);
    }
    return at;
}

/* "convolution + relu". */
static void step_name(const struct plan *plan, const struct step *step, char out[NAME])
{
    out[0] = '\0';
    for (size_t i = 0; i < step->count; i++) {
        const enum operation_kind kind = plan->network->nodes[step->first + i].operation.kind;
        const size_t length = strlen(out);
        snprintf(out + length, NAME - length, "%s%s", i ? " + " : "", operation_kind_name(kind));
    }
}

static struct iteration iteration_measure(const struct options *options,
                                          const struct study_device *device, size_t batch,
                                          struct kinds *kinds)
{
    struct trainer_times times = network_times(device, options->model, batch);
    const struct plan *plan = times.replica->plan;
    struct iteration out = {.batch = batch, .step = times.profile.step_us};
    char name[NAME];
    for (size_t s = 0; s < plan->count; s++) {
        step_name(plan, &plan->steps[s], name);
        out.us[kind_of(kinds, name)] += times.profile.us[s][0] + times.profile.us[s][1];
    }
    out.us[kind_of(kinds, "update")] += times.profile.update_us;
    for (int k = 0; k < kinds->count; k++)
        out.all += out.us[k];
    trainer_times_free(&times);
    return out;
}

static void iteration_tell(const struct kinds *kinds, const struct iteration *of,
                           const struct iteration *first, cJSON *rows)
{
    const double linear = (double)first->batch / (double)of->batch,
                 speedup = first->step / of->step;
    cJSON *row = json_add(json_row(rows), "batch %zu us %g sum_us %g speedup %g linear %g",
                          of->batch, of->step, of->all, speedup, linear),
          *shares = cJSON_AddObjectToObject(row, "percent");
    printf("batch %zu: %.1f us, one by one %.1f us; speed-up %.2f of %.0f\n", of->batch, of->step,
           of->all, speedup, linear);
    for (int k = 0; k < kinds->count; k++) {
        printf("  %-44s %6.2f %%\n", kinds->names[k], 100 * of->us[k] / of->all);
        cJSON_AddNumberToObject(shares, kinds->names[k], 100 * of->us[k] / of->all);
    }
    fflush(stdout);
}

/* Shares, one above the other; then the speed-up. */
static void picture_draw(FILE *picture, const struct kinds *kinds, const struct iteration *rows,
                         int count)
{
    if (!picture)
        return;
    fprintf(picture, "$rows << END\n");
    for (int i = 0; i < count; i++) {
        fprintf(picture, "%zu %g %g", rows[i].batch, rows[0].step / rows[i].step,
                (double)rows[0].batch / (double)rows[i].batch);
        for (int k = 0; k < kinds->count; k++)
            fprintf(picture, " %g", 100 * rows[i].us[k] / rows[i].all);
        fprintf(picture, "\n");
    }
    fprintf(picture,
            "END\nset xlabel 'batch'\nset ylabel '%% of an iteration'\nset yrange [0:100]\n"
            "set style data histograms\nset style histogram rowstacked\n"
            "set style fill pattern border -1\nplot ");
    for (int k = 0; k < kinds->count; k++)
        fprintf(picture, "%s$rows using %d%s lt %d title '%s'", k ? ", " : "", k + 4,
                k ? "" : ":xtic(1)", k % 8 + 1, kinds->names[k]);
    fprintf(picture, "\nset autoscale y\nset logscale x 2\nset logscale y 2\n"
                     "set ylabel 'speed-up'\nplot $rows using 1:2 with linespoints lt 1 title "
                     "'measured', '' using 1:3 with lines lt 2 title 'linear'\n");
}

int main(int argc, char **argv)
{
    static struct kinds kinds;
    struct options options = {0};
    struct iteration rows[BATCHES];
    int count = 0;
    program_start();
    options_read(&option_table, argc, argv, &options);
    const bool large = options.study.full || options.device == ALNICO_DEVICE_CUDA;
    if (!options.model)
        options.model = large ? "alexnet" : "alexnet-cifar";
    if (!options.batch)
        options.batch = large ? 256 : 64;
    network_named(options.model);
    study_begin(&options.study);
    program_json_try(options.study.json);
    const struct study_device device = study_device_open(options.device);
    FILE *picture = study_picture_begin(&options.study, options.model, 2, 0.5);
    cJSON *report = json_add(study_report("layers"), "device %s model %s",
                             option_devices[options.device], options.model),
          *list = cJSON_AddArrayToObject(report, "rows");
    for (int batch = options.batch; batch > 0; batch /= options.study.full ? 2 : 4, count++) {
        rows[count] = iteration_measure(&options, &device, (size_t)batch, &kinds);
        iteration_tell(&kinds, &rows[count], &rows[0], list);
    }
    picture_draw(picture, &kinds, rows, count);
    study_picture_end(picture);
    program_json_write(options.study.json, report);
    return 0;
}
