/* alnico-train: data-parallel training on the ranks of an MPI job. Arguments and printing; the work is in
 * src/train. */
#include "program.h"
#include "train_options.h"
#include "train_report.h"

#include <alnico/mpi.h>
#include <sched.h>
#include <stdlib.h>
#include <unistd.h>

/* Compute threads of this rank if the command line does not say: what OpenMP's environment says, or its
 * share of the host's cores. Where ranks are bound to cores, each uses its own. Collective. */
static int threads_default(void)
{
    const char *environment = getenv("OMP_NUM_THREADS");
    cpu_set_t usable;
    MPI_Comm host;
    int ranks = 1, cores = 1, bound;
    if (sched_getaffinity(0, sizeof usable, &usable) == 0)
        cores = CPU_COUNT(&usable);
    bound = cores < sysconf(_SC_NPROCESSORS_ONLN);
    MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &host);
    MPI_Comm_size(host, &ranks);
    MPI_Allreduce(MPI_IN_PLACE, &bound, 1, MPI_INT, MPI_MAX, host);
    MPI_Comm_free(&host);
    if (environment && atoi(environment) > 0)
        return atoi(environment);
    if (bound)
        return cores;
    return cores > ranks ? cores / ranks : 1;
}

static alnico_comm_t comm_make(void)
{
    alnico_comm_t comm;
    program_check(alnico_comm_create_mpi(MPI_COMM_WORLD, ALNICO_DEVICE_CPU, NULL, &comm),
                  "alnico_comm_create_mpi");
    return comm;
}

/* Everything between MPI_Init and MPI_Finalize. Any failure ends all ranks. */
static void train(struct train_options *options)
{
    struct train_display display = {0};
    struct trainer_report report;
    alnico_comm_t comm = comm_make();
    const bool first = alnico_comm_rank(comm) == 0;
    FILE *json = first && options->json ? program_json_open(options->json) : NULL;
    train_options_complete(options, alnico_comm_size(comm));
    const int threads = threads_default();
    if (!options->trainer.threads)
        options->trainer.threads = threads;
    if (first) {
        train_display_begin(&display, &options->trainer, alnico_comm_size(comm));
        options->trainer.progress = train_display_progress;
        options->trainer.context = &display;
    }
    program_check(trainer_run(&options->trainer, comm, &report), "training");
    if (first)
        train_report_print(&options->trainer, &report);
    if (json) {
        cJSON *object = train_report_json(&options->trainer, &report, &display);
        program_json_close(json, object);
        cJSON_Delete(object);
    }
    cJSON_Delete(display.epochs);
    alnico_comm_destroy(comm);
}

int main(int argc, char **argv)
{
    int level;
    struct train_options options = train_options_parse(argc, argv);
    MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &level);
    train(&options);
    MPI_Finalize();
    return EXIT_SUCCESS;
}
