/* See presets.h. */
#include "tools/train/presets.h"

#include <stdio.h>
#include <string.h>

struct preset {
    const char *name, *strategy;
    bool pageable, late;
};

static const struct preset presets[] = {
    {"cntk", "allreduce", .pageable = false, .late = true},
    {"mxnet", "allreduce", .pageable = true, .late = false},
    {"caffe-mpi", "allreduce", .pageable = false, .late = false},
    {"tf-ps", "server", .pageable = true, .late = false},
    {"tf-allreduce", "allreduce", .pageable = true, .late = false},
};
enum { PRESETS = sizeof presets / sizeof *presets };

const char *train_preset_at(int i)
{
    return i < PRESETS ? presets[i].name : NULL;
}

void train_preset_apply(struct train_options *options)
{
    struct trainer_options *trainer = &options->trainer;
    for (int i = 0; options->preset && i < PRESETS; i++) {
        const struct preset *preset = &presets[i];
        if (strcmp(preset->name, options->preset) != 0)
            continue;
        if (!options->strategic)
            trainer->strategy = preset->strategy;
        trainer->late |= preset->late;
        trainer->pageable |= preset->pageable && options->device != ALNICO_DEVICE_CPU;
    }
}

char *train_presets_help(void)
{
    char *text = NULL;
    size_t bytes;
    FILE *out = open_memstream(&text, &bytes);
    if (!out)
        return NULL;
    fprintf(out, "Presets:\n");
    for (int i = 0; i < PRESETS; i++)
        fprintf(out, "  %-13s --strategy %s%s%s\n", presets[i].name, presets[i].strategy,
                presets[i].late ? " --no-overlap" : "",
                presets[i].pageable ? " and on GPUs --pageable" : "");
    fclose(out);
    return text;
}
