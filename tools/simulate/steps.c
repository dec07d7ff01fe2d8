/* See steps.h. */
#include "tools/simulate/steps.h"

#include "base/json.h"
#include "base/status.h"

#include <stdlib.h>

enum { PROFILE_BYTES_MAX = 16 << 20 };

alnico_status_t steps_read(const char *path, struct step_parts *out)
{
    char *text, error[128] = "there is no 'prediction' with 'parts'";
    size_t length;
    cJSON *json = NULL;
    TRY(json_file_text(path, PROFILE_BYTES_MAX, &text, &length));
    alnico_status_t status = json_parse(path, text, length, &json);
    const cJSON *parts = cJSON_GetObjectItemCaseSensitive(
        cJSON_GetObjectItemCaseSensitive(json, "prediction"), "parts");
    if (status == ALNICO_SUCCESS && (!parts || !step_parts_read(parts, out, error, sizeof error)))
        status = error_set(ALNICO_ERROR_ARGUMENT, "%s: %s", path, error);
    cJSON_Delete(json);
    free(text);
    return status;
}

static int by_size(const void *a, const void *b)
{
    const size_t x = *(const size_t *)a, y = *(const size_t *)b;
    return (x > y) - (x < y);
}

/* In whole elements, as the simulation cuts them. */
static size_t bucket_bytes(const struct step_parts *parts, size_t bucket)
{
    const size_t bytes = parts->buckets[bucket].bytes / sizeof(float) * sizeof(float);
    return bytes ? bytes : sizeof(float);
}

int steps_sizes(const struct step_parts *parts, size_t *sizes, int most)
{
    size_t *all = calloc(parts->count, sizeof *all);
    int count = 0;
    for (size_t i = 0; all && i < parts->count; i++)
        all[i] = bucket_bytes(parts, i);
    if (all)
        qsort(all, parts->count, sizeof *all, by_size);
    for (size_t i = 0; all && i < parts->count; i++)
        if (i == 0 || all[i] != all[i - 1]) {
            if (count < most)
                sizes[count] = all[i];
            count++;
        }
    free(all);
    return count;
}

/* Seconds of the fastest algorithm for so many bytes; < 0: all were left out. */
static double fastest_seconds(const struct simulate_options *options, size_t bytes,
                              const struct simulate_cell *cells)
{
    double least = -1;
    for (int s = 0; s < options->sizes_count; s++)
        for (int a = 0; a < options->algorithms_count && options->sizes[s] == bytes; a++) {
            const double us = cells[s * options->algorithms_count + a].result.time_us;
            if (us >= 0 && (least < 0 || us < least))
                least = us;
        }
    return 1e-6 * least;
}

/* Fills each bucket's seconds; false: of some bucket every algorithm was left out. */
static bool buckets_fill(const struct simulate_options *options, const struct simulate_cell *cells,
                         double *communication)
{
    for (size_t i = 0; i < options->steps.count; i++) {
        communication[i] = fastest_seconds(options, bucket_bytes(&options->steps, i), cells);
        if (communication[i] < 0)
            return false;
    }
    return true;
}

void steps_report(const struct simulate_options *options, int ranks,
                  const struct simulate_cell *cells, cJSON *json)
{
    const struct step_parts *parts = &options->steps;
    double *communication = calloc(2 * parts->count, sizeof *communication), sum = 0;
    const double *none = communication + parts->count;
    if (!communication)
        program_fail("no memory for %zu buckets", parts->count);
    if (!buckets_fill(options, cells, communication)) {
        printf("# step: every algorithm was left out of some bucket; --rounds may be raised\n\n");
        free(communication);
        return;
    }
    for (size_t i = 0; i < parts->count; i++)
        sum += communication[i];
    const double alone = step_seconds(parts, none, true);
    const double step[2] = {step_seconds(parts, communication, true),
                            step_seconds(parts, communication, false)};
    cJSON *object =
        json_add(cJSON_AddObjectToObject(json, "step"), "alone %g communication %g", alone, sum);
    printf("# step: %.3f ms alone, %.3f ms of communication\n", 1e3 * alone, 1e3 * sum);
    for (int late = 0; late < 2; late++) {
        const char *name = late ? "not_overlapped" : "overlapped";
        const double images = parts->images * ranks / step[late];
        printf(
            "# step, %-15s %.3f ms, %.0f images/s, speed-up %.2f, exposed communication %.1f %%\n",
            late ? "not overlapped:" : "overlapped:", 1e3 * step[late], images,
            ranks * alone / step[late], 100 * (1 - alone / step[late]));
        json_add(cJSON_AddObjectToObject(object, name),
                 "step %g images_per_second %g speed_up %g exposed_share %g", step[late], images,
                 ranks * alone / step[late], 1 - alone / step[late]);
    }
    printf("\n");
    free(communication);
}
