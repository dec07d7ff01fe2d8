/* alnico-train: data-parallel training on the ranks of a job. Arguments and printing; the work
 * is in src/train. */
#include "base/status.h"
#include "base/thread.h"
#include "tools/common/program.h"
#include "tools/common/ranks.h"
#include "tools/train/describe.h"
#include "tools/train/predict.h"
#include "tools/train/profile.h"
#include "tools/train/report.h"

#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* A rank's share of its host's cores; one that is bound to cores has all of those. */
static int cores_share(int cores, bool bound, int ranks)
{
    return bound ? cores : cores > ranks ? cores / ranks : 1;
}

/* Compute threads of this rank: what OpenMP's environment says, or its share of the cores. */
static int threads_default(int share)
{
    const char *environment = getenv("OMP_NUM_THREADS");
    return environment && atoi(environment) > 0 ? atoi(environment) : share;
}

/* Threads that prepare batches: on the CPU the others compute. */
static size_t loaders_default(const struct train_options *options, int share)
{
    enum { MOST = 16 };
    return options->device == ALNICO_DEVICE_CPU ? 1 : (size_t)(share < MOST ? share : MOST);
}

/* Sets what the command line leaves open of this rank's share of its host: threads, and on the CPU
 * memory. All look at the memory before one of them takes any. Collective. */
static void host_share(struct train_options *options)
{
    const struct device_ops *device = device_find(options->device);
    struct trainer_options *trainer = &options->trainer;
    size_t available = 0, total;
    cpu_set_t usable;
    int rank, ranks, cores = 1, bound;
    if (sched_getaffinity(0, sizeof usable, &usable) == 0)
        cores = CPU_COUNT(&usable);
    bound = cores < sysconf(_SC_NPROCESSORS_ONLN);
    if (options->device != ALNICO_DEVICE_CPU ||
        device->memory(&available, &total) != ALNICO_SUCCESS)
        available = 0;
    program_host(&rank, &ranks);
    program_greatest(&bound, 1);
    if (!trainer->compute.threads)
        trainer->compute.threads = threads_default(cores_share(cores, bound, ranks));
    if (!options->loading)
        trainer->loaders = loaders_default(options, cores_share(cores, bound, ranks));
    if (!trainer->memory_limit)
        trainer->memory_limit = available / (size_t)ranks;
}

/* One line says what went wrong: that of the lowest rank on which it did. Ranks that were only told
 * wait for those that know, whose end ends them. */
static void rank_check(alnico_status_t status, const char *what)
{
    char detail[512];
    const int rank = program_rank();
    snprintf(detail, sizeof detail, "%s", alnico_error_detail());
    if (status == ALNICO_SUCCESS)
        return;
    sleep((status == ALNICO_ERROR_ABORTED ? 2U : 0U) +
          (rank > 0 ? 2U : 0U)); /* a loaded host is slow to end them */
    program_fail("%s on rank %d: %s: %s", what, rank, alnico_status_string(status), detail);
}

static alnico_status_t place_open(const struct train_options *options, struct trainer_place *place)
{
    const struct device_ops *device = device_find(options->device);
    if (!device)
        return ALNICO_ERROR_UNSUPPORTED;
    TRY(program_comm(ALNICO_DEVICE_CPU, NULL, &place->host));
    if (options->device == ALNICO_DEVICE_CPU && !options->stream)
        return ALNICO_SUCCESS;
    int rank, ranks;
    program_host(&rank, &ranks);
    if (device->enter)
        TRY(device->enter(rank));
    TRY(device->work_stream_create ? device->work_stream_create(&place->stream)
                                   : device->stream_create(&place->stream));
    return program_comm(options->device, place->stream, &place->device);
}

/* The report of a program's mode that does not train. */
static cJSON *mode_json(const struct train_options *options, const char *program)
{
    cJSON *object = json_add(cJSON_CreateObject(), "program %s version %s date %s", program,
                             alnico_version(), program_date());
    cJSON_AddItemToObject(object, "machine", program_machine());
    cJSON_AddItemToObject(object, "options", train_options_json(options));
    return object;
}

/* On the first rank. */
static void describe(const struct train_options *options)
{
    struct trainer_description description;
    program_json_try(options->json);
    program_check(trainer_describe(&options->trainer, &description), "describing");
    train_description_print(&options->trainer, &description);
    if (options->json) {
        cJSON *object = mode_json(options, "alnico-train --describe");
        cJSON_AddItemToObject(object, "network", train_description_json(&description));
        program_json_write(options->json, object);
    }
    trainer_description_free(&description);
}

/* On the first rank. */
static void profile(struct train_options *options)
{
    const struct device_ops *device = device_find(options->device);
    struct trainer_times times;
    void *stream = NULL;
    program_json_try(options->json);
    program_check(device ? ALNICO_SUCCESS : ALNICO_ERROR_UNSUPPORTED, "taking the device");
    if (device->work_stream_create)
        program_check(device->work_stream_create(&stream), "taking the device");
    program_check(trainer_profile(&options->trainer, stream, &times), "profiling");
    train_profile_print(&times.profile);
    if (options->json) {
        cJSON *object = mode_json(options, "alnico-train --profile");
        cJSON_AddItemToObject(object, "profile", train_profile_json(&times.profile));
        program_json_write(options->json, object);
    }
    trainer_times_free(&times);
    if (stream)
        device->stream_destroy(stream);
}

static void place_close(const struct train_options *options, struct trainer_place *place)
{
    alnico_comm_destroy(place->device);
    if (place->stream)
        device_find(options->device)->stream_destroy(place->stream);
    alnico_comm_destroy(place->host);
}

static atomic_bool stop;

static void stop_note(int unused)
{
    (void)unused;
    atomic_store(&stop, true);
}

static void sigterm_mask(int how)
{
    sigset_t terminate;
    sigemptyset(&terminate);
    sigaddset(&terminate, SIGTERM);
    pthread_sigmask(how, &terminate, NULL);
}

static void *stop_wait(void *unused)
{
    sigterm_mask(SIG_UNBLOCK);
    for (;;)
        pause();
    return unused;
}

/* SIGTERM ends the run, not the program. A thread that computes must not take it: oneDNN 2.6 keeps
 * data where a handler's frame goes, further below the stack pointer than the ABI allows. So a
 * thread of its own does, and this one and those that it makes later do not. */
static void stop_catch(struct trainer_options *options)
{
    const struct sigaction action = {.sa_handler = stop_note, .sa_flags = SA_RESTART};
    pthread_t thread;
    const int error = thread_create(&thread, stop_wait, NULL);
    if (error)
        rank_check(error_set(ALNICO_ERROR_SYSTEM, "cannot start a thread: %s", strerror(error)),
                   "waiting for SIGTERM");
    sigterm_mask(SIG_BLOCK);
    sigaction(SIGTERM, &action, NULL);
    options->stop = &stop;
}

static void predict(struct train_options *options)
{
    struct trainer_place place = {0};
    cJSON *prediction;
    rank_check(place_open(options, &place), "taking the device");
    train_options_complete(options, alnico_comm_size(place.host));
    if (alnico_comm_rank(place.host) == 0)
        program_json_try(options->json);
    rank_check(train_predict(options, &place, &prediction), "predicting");
    if (prediction && options->json) {
        cJSON *object = mode_json(options, "alnico-train --predict");
        cJSON_AddItemToObject(object, "prediction", prediction);
        program_json_write(options->json, object);
    } else {
        cJSON_Delete(prediction);
    }
    place_close(options, &place);
}

/* Any failure ends all ranks. */
static void train(struct train_options *options)
{
    struct train_display display = {0};
    struct trainer_report report;
    struct trainer_place place = {0};
    rank_check(place_open(options, &place), "taking the device");
    const int ranks = alnico_comm_size(place.host);
    const bool first = alnico_comm_rank(place.host) == 0;
    train_options_complete(options, ranks);
    stop_catch(&options->trainer);
    if (first) {
        program_json_try(options->json);
        train_display_begin(&display, options, ranks);
        options->trainer.progress = train_display_progress;
        options->trainer.context = &display;
    }
    rank_check(trainer_run(&options->trainer, &place, &report), "training");
    if (report.first)
        train_report_print(&options->trainer, &report);
    if (report.first && options->json)
        program_json_write(options->json, train_report_json(options, &report, &display));
    if (first)
        train_display_end(&display);
    place_close(options, &place);
    if (report.lost) { /* MPI would wait for them */
        fflush(NULL);
        _Exit(EXIT_SUCCESS);
    }
}

int main(int argc, char **argv)
{
    struct train_trial trial;
    program_start();
    train_trial_run(argc, argv, &trial);
    program_ranks_open();
    train_trial_end(&trial);
    struct train_options options = train_options_parse(argc, argv);
    train_modes_agree(&options);
    host_share(&options);
    const bool first = program_rank() == 0,
               alone = options.describe || options.memory || options.profile;
    if (alone)
        train_options_complete(&options, 1);
    if (options.predict_count)
        predict(&options);
    else if (!alone)
        train(&options);
    else if (first && options.describe)
        describe(&options);
    else if (first && options.memory)
        train_memory_print(&options.trainer, program_size());
    else if (first)
        profile(&options);
    program_ranks_close();
    return EXIT_SUCCESS;
}
