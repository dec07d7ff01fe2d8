/* The summary and the JSON report of alnico-train. Rank 0, main thread. */
#include "tools/train/report.h"

#include "tools/common/program.h"
#include "train/strategies/strategy.h"

#include <stdio.h>
#include <string.h>

/* The share of training outside the kernels' library; 1 if there is none. */
static double outside_share(const struct trainer_report *report)
{
    return 1 - report->library_seconds / report->seconds;
}

/* The strategy's word for a phase; NULL: it has none of its own. */
static const char *own_word(const struct trainer_options *options, int phase)
{
    return strategy_find(options->strategy)->phases[phase];
}

/* What rank 0 of a parameter server does for all. */
static void server_print(const struct trainer_options *options, const struct trainer_report *report)
{
    printf("rank 0, a step:");
    for (int i = PHASE_COMMUNICATION; i < PHASES; i++)
        printf("%s %s %.3f ms", i > PHASE_COMMUNICATION ? "," : "",
               own_word(options, i) ? own_word(options, i) : phase_name(i),
               1e3 * report->phases[i] / (double)report->own_steps);
    puts("");
}

/* Of the pushes to all shards, how many were so many updates late. */
static void staleness_print(const struct strategy_staleness *staleness)
{
    uint64_t pushes = 0;
    for (int i = 0; i < STALENESS_BINS; i++)
        pushes += staleness->counts[i];
    printf("staleness: mean %.2f updates, at most %llu;", (double)staleness->sum / (double)pushes,
           (unsigned long long)staleness->most);
    for (int i = 0; i < STALENESS_BINS; i++)
        if (staleness->counts[i])
            printf(" %d%s: %.1f %%", i, i + 1 < STALENESS_BINS ? "" : " and more",
                   100 * (double)staleness->counts[i] / (double)pushes);
    puts("");
}

void train_report_print(const struct trainer_options *options, const struct trainer_report *report)
{
    printf("\n%zu parameters, %s%zu steps (%.2f epochs) in %.1f s: %.0f images/s, %.0f per rank\n",
           report->parameters, report->stopped ? "stopped after " : "", report->steps,
           report->epochs, report->seconds, report->images_per_second,
           report->images_per_second / report->ranks);
    if (report->lost)
        printf("lost:  %d of %d ranks\n", report->lost, report->ranks + report->lost);
    printf("time:");
    for (int i = 0; i < PHASES; i++)
        if (report->phases[i] > 0)
            printf("%s %s %.1f %%", i ? "," : "",
                   own_word(options, i) ? own_word(options, i) : phase_name(i),
                   100 * report->phases[i] / report->seconds);
    if (report->communication > 0)
        printf("; communication in all %.1f %%", 100 * report->communication / report->seconds);
    if (report->library_seconds > 0)
        printf("; outside %s %.1f %%", options->kernels, 100 * outside_share(report));
    printf("\nstep: median %.2f ms, %.0f images/s\n", 1e3 * report->step_seconds,
           (double)(options->batch * options->accumulate *
                    trainer_image_parts(options, report->ranks)) /
               report->step_seconds);
    if (strategy_find(options->strategy)->rooted)
        server_print(options, report);
    if (strategy_find(options->strategy)->staleness)
        staleness_print(&report->staleness);
    printf("train: loss %.4f, accuracy %.2f %%\n", report->train.loss,
           100 * report->train.accuracy);
    if (report->test.images)
        printf("test:  loss %.4f, accuracy %.2f %% of %zu images\n", report->test.loss,
               100 * report->test.accuracy, report->test.images);
    if (options->skip_bad)
        printf("data:  %zu images could not be read and were left out%s\n", report->skipped,
               report->ranks > 1 ? ", the most of a rank" : "");
    if (report->wire_bytes)
        printf("sent:  %.3f MB per rank and step, %.2f bytes per parameter\n",
               1e-6 * (double)report->wire_bytes,
               (double)report->wire_bytes / (double)report->parameters);
    if (report->move_bytes)
        printf("moved: %.3f MB per rank and step\n", 1e-6 * (double)report->move_bytes);
    printf("parameters: hash %016llx%s\n", (unsigned long long)report->hash,
           report->ranks > 1 ? ", equal on all ranks" : "");
}

static cJSON *memory_json(const struct trainer_report *report)
{
    const struct replica_memory *memory = &report->memory;
    return json_add(cJSON_CreateObject(),
                    "parameters %zu gradients %zu optimizer %zu statistics %zu images %zu "
                    "activations %zu messages %zu kernels %zu total %zu",
                    memory->parameters, memory->gradients, memory->optimizer, memory->statistics,
                    memory->images, memory->activations, memory->messages, memory->kernels,
                    memory->total);
}

static cJSON *times_json(const struct trainer_options *options, const struct trainer_report *report)
{
    cJSON *object = cJSON_CreateObject();
    for (int i = 0; i < PHASES; i++)
        cJSON_AddNumberToObject(object, train_phase_key(i), report->phases[i]);
    for (int i = 0; i < PHASES; i++)
        if (own_word(options, i))
            cJSON_AddNumberToObject(object, own_word(options, i), report->phases[i]);
    return json_add(object,
                    "communication_in_all %g total %g inside_library %g test %g median_step %g",
                    report->communication, report->seconds, report->library_seconds,
                    report->test_seconds, report->step_seconds);
}

/* counts[i]: pushes that were i updates late, up to the last that there is. */
static cJSON *staleness_json(const struct strategy_staleness *staleness)
{
    cJSON *object = json_add(cJSON_CreateObject(), "sum %zu most %zu", (size_t)staleness->sum,
                             (size_t)staleness->most),
          *counts = cJSON_AddArrayToObject(object, "counts");
    for (uint64_t i = 0; i < STALENESS_BINS && i <= staleness->most; i++)
        cJSON_AddItemToArray(counts, cJSON_CreateNumber((double)staleness->counts[i]));
    return object;
}

cJSON *train_report_json(const struct train_options *options, const struct trainer_report *report,
                         struct train_display *display)
{
    char hash[17];
    cJSON *object = cJSON_CreateObject();
    snprintf(hash, sizeof hash, "%016llx", (unsigned long long)report->hash);
    json_add(object, "program %s version %s date %s", "alnico-train", alnico_version(),
             program_date());
    cJSON_AddItemToObject(object, "machine", program_machine());
    cJSON_AddItemToObject(object, "options", train_options_json(options));
    json_add(object,
             "ranks %d ranks_lost %d parameters %zu steps %zu epochs_done %g images_per_second %g "
             "images_per_second_per_rank %g",
             report->ranks, report->lost, report->parameters, report->steps, report->epochs,
             report->images_per_second, report->images_per_second / report->ranks);
    cJSON_AddItemToObject(object, "seconds", times_json(&options->trainer, report));
    cJSON_AddItemToObject(object, "memory_bytes", memory_json(report));
    json_add(object,
             "bucket_count %zu wire_bytes %zu move_bytes %zu median_images_per_second %g "
             "share_outside_library %g "
             "share_exposed_communication %g",
             report->buckets, report->wire_bytes, report->move_bytes,
             (double)train_step_images(options, report->ranks) / report->step_seconds,
             outside_share(report),
             (report->phases[PHASE_COMMUNICATION] + report->phases[PHASE_WEIGHTS]) /
                 report->seconds);
    if (strategy_find(options->trainer.strategy)->staleness)
        cJSON_AddItemToObject(object, "staleness", staleness_json(&report->staleness));
    cJSON_AddItemToObject(object, "train", train_score_json(&report->train));
    cJSON_AddItemToObject(object, "test", train_score_json(&report->test));
    cJSON_AddItemToObject(object, "history", display->epochs);
    cJSON_AddItemToObject(object, "losses", display->losses);
    display->epochs = display->losses = NULL;
    if (options->trainer.skip_bad)
        json_add(object, "skipped_images %zu", report->skipped);
    return json_add(object, "graph %hhd stopped %hhd parameter_hash %s", report->graph,
                    report->stopped, hash);
}
