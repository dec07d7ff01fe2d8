/* See study.h. */
#include "benchmarks/studies/study.h"

#include <stdlib.h>
#include <string.h>

enum { NOT_HERE = 77, WIDTH = 900 };

/* Dark enough for paper. */
static const char *const colours[] = {"#000000", "#a04000", "#1f4e9c", "#107030",
                                      "#000000", "#a04000", "#1f4e9c", "#107030"};

static bool picture_ends(const char *path, const char *ending)
{
    const size_t length = strlen(path), end = strlen(ending);
    return length > end && strcmp(path + length - end, ending) == 0;
}

void study_begin(const struct study_options *options)
{
    const char *path = options->picture;
    if (!path)
        return;
    if (!picture_ends(path, ".svg") && !picture_ends(path, ".png")) {
        fprintf(stderr, "--picture %s: expected a name that ends with .svg or .png\n", path);
        exit(EXIT_USAGE);
    }
    if (system("gnuplot --version >/dev/null 2>&1") != 0) {
        fprintf(stderr, "--picture %s: gnuplot is not installed\n", path);
        exit(NOT_HERE);
    }
}

FILE *study_picture_begin(const struct study_options *options, const char *title, int panels,
                          double height)
{
    if (!options->picture)
        return NULL;
    FILE *picture = popen("gnuplot", "w");
    if (!picture)
        program_fail("--picture %s: gnuplot cannot be started", options->picture);
    const bool svg = picture_ends(options->picture, ".svg");
    fprintf(picture, "set terminal %s size %d,%d %s\nset output '%s'\n", svg ? "svg" : "pngcairo",
            svg ? WIDTH : WIDTH * 3 / 2, (int)((svg ? 1 : 1.5) * WIDTH * height * panels),
            svg ? "dynamic background '#ffffff' font 'sans,14'" : "font 'sans,18'",
            options->picture);
    for (size_t i = 0; i < sizeof colours / sizeof *colours; i++)
        fprintf(picture, "set linetype %zu lc rgb '%s' lw %g dt %zu pt %zu ps 0.6\n", i + 1,
                colours[i], i < 4 ? 1.5 : 3.0, i % 4 + 1, i + 4);
    fprintf(picture, "set grid\nset multiplot layout %d,1 title '%s' noenhanced\n", panels, title);
    return picture;
}

void study_picture_end(FILE *picture)
{
    if (!picture)
        return;
    fprintf(picture, "unset multiplot\n");
    if (pclose(picture) != 0)
        program_fail("--picture: gnuplot failed");
}

cJSON *study_report(const char *name)
{
    cJSON *report = json_add(cJSON_CreateObject(), "study %s date %s", name, program_date());
    cJSON_AddItemToObject(report, "machine", program_machine());
    return report;
}
