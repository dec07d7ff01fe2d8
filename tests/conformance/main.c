/*
 * alnico-conformance: every operation against a reference, with ranks as threads, as processes or
 * under mpirun.
 *
 *     alnico-conformance                           the table and some random calls on 1 to 6 ranks
 *     alnico-conformance --cases 100000 --seed 7   random calls
 *     mpirun -n 3 alnico-conformance --seconds 60
 *     alnico-conformance --case 'ranks=3 threads=1; operation=reduce type=float32 count=10 root=2'
 */
#include "tests/conformance/crew.h"
#include "tests/conformance/generate.h"
#include "tests/conformance/watchdog.h"
#include "tests/support/forks.h"
#include "tools/common/program.h"

#ifdef ALNICO_HAVE_MPI
#include "tests/support/world.h"
#endif

#include <stdio.h>
#include <stdlib.h>

enum { SKIPPED = 77, SIGN_S = 15 };

struct job {
    const struct options *options;
    uint64_t cases; /* of one number of ranks */
    double seconds;
};

/* ---- One rank ---- */

static void open_crew(struct crew *crew, struct rank *rank, const struct options *options)
{
    *crew = (struct crew){.rank = rank, .options = options, .ops = options->site};
    crew->site = crew->ops->open(rank, options->mpi);
    crew->records = need((size_t)rank->size, sizeof *crew->records);
    lanes_open(crew);
}

static void close_crew(struct crew *crew)
{
    lanes_close(crew);
    crew->ops->close(crew->site);
    free(crew->records);
}

/* A sign of life of a long run. */
static void tell_progress(struct crew *crew)
{
    double now = ranks_seconds();
    if (crew->rank->rank != 0 || now < crew->next_sign)
        return;
    if (crew->next_sign > 0)
        printf("%d ranks: %llu calls so far\n", crew->rank->size, (unsigned long long)crew->calls);
    fflush(stdout);
    crew->next_sign = now + SIGN_S;
}

static bool run_batch(struct crew *crew, const struct batch *batch, bool over)
{
    watchdog_tell(batch);
    tell_progress(crew);
    uint64_t before = crew->calls / crew->ops->renew;
    over = play(crew, batch, over);
    if (crew->calls / crew->ops->renew != before) {
        lanes_close(crew);
        lanes_open(crew);
    }
    return over;
}

static void run_table(struct crew *crew)
{
    struct table table;
    struct batch batch;
    table_init(&table, crew->options, crew->rank->size);
    while (table_next(&table, &batch))
        run_batch(crew, &batch, false);
}

static void run_random(struct crew *crew, const struct job *job, double start)
{
    uint64_t first = crew->calls;
    bool over = false;
    for (uint64_t index = 0; !over; index++) {
        struct batch batch;
        random_batch(crew->options, crew->rank->size, index, &batch);
        if (crew->options->text)
            batch = crew->options->batch;
        over = job->cases ? crew->calls - first + (uint64_t)batch.number >= job->cases
                          : ranks_seconds() - start >= job->seconds;
        over = run_batch(crew, &batch, over);
    }
}

static void run_rank(struct rank *rank)
{
    const struct job *job = rank->argument;
    double start = ranks_seconds();
    struct crew *crew = need(1, sizeof *crew);
    if (job->options->forks)
        watchdog_start(job->options);
    open_crew(crew, rank, job->options);
    if (job->options->table && !job->options->text)
        run_table(crew);
    if (job->options->random || job->options->text)
        run_random(crew, job, start);
    if (rank->rank == 0) {
        printf("%d ranks: %llu calls, %llu refused, 0 wrong, %.1f s\n", rank->size,
               (unsigned long long)crew->calls, (unsigned long long)crew->refused,
               ranks_seconds() - start);
        fflush(stdout);
        if (crew->options->sabotage)
            crew_fail(crew, -1, "nothing was found");
    }
    close_crew(crew);
    free(crew);
}

/* ---- All ranks ---- */

static int skip(const char *why)
{
    printf("skipped: %s\n", why);
    return SKIPPED;
}

static void run_size(struct job *job, int size)
{
    int threads = job->options->forks;
    if (threads > 0 && size % threads)
        threads = 1;
    if (threads)
        forks_run_for(24 * 3600, size / threads, threads, run_rank, job);
    else
        ranks_run(size, run_rank, job);
}

static int run_sizes(const struct options *options)
{
    int there = options->site->most(), most = there < RANKS_DEFAULT ? there : RANKS_DEFAULT;
    most = options->ranks ? options->ranks : most;
    int least = options->ranks ? options->ranks : 1, sizes = most - least + 1;
    if (most > there || most == 0)
        return skip("fewer GPUs than ranks");
    for (int size = least; size <= most; size++) {
        struct job job = {options, (options->cases + (uint64_t)sizes - 1) / (uint64_t)sizes,
                          options->seconds / sizes};
        run_size(&job, size);
    }
    return EXIT_SUCCESS;
}

#ifdef ALNICO_HAVE_MPI
static int mpi_allgather(void *context, const void *mine, void *all, size_t bytes)
{
    (void)context;
    return MPI_Allgather(mine, (int)bytes, MPI_BYTE, all, (int)bytes, MPI_BYTE, MPI_COMM_WORLD) !=
           MPI_SUCCESS;
}

static int run_mpi(struct options *options)
{
    int wanted = options->single ? MPI_THREAD_SINGLE : MPI_THREAD_MULTIPLE, level;
    struct rank rank;
    struct job job = {options, options->cases, options->seconds};
    MPI_Init_thread(NULL, NULL, wanted, &level);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank.rank);
    MPI_Comm_size(MPI_COMM_WORLD, &rank.size);
    MPI_Bcast(&options->seed, 1, MPI_UINT64_T, 0, MPI_COMM_WORLD);
    rank.bootstrap = (alnico_bootstrap_t){rank.rank, rank.size, mpi_allgather, NULL};
    rank.argument = &job;
    int possible = level >= wanted && world_local_rank() < options->site->most();
    MPI_Allreduce(MPI_IN_PLACE, &possible, 1, MPI_INT, MPI_MIN, MPI_COMM_WORLD);
    if (possible)
        run_rank(&rank);
    MPI_Finalize();
    return possible ? EXIT_SUCCESS : skip("not so many GPUs, or MPI has no such thread level");
}
#else
static int run_mpi(struct options *options)
{
    (void)options;
    return skip("this build has no MPI");
}
#endif

static bool is_under_mpirun(void)
{
    return getenv("PMI_RANK") || getenv("PMIX_RANK") || getenv("OMPI_COMM_WORLD_RANK");
}

int main(int argc, char **argv)
{
    struct options options;
    options_read(argc, argv, &options);
    options.mpi = is_under_mpirun();
    watchdog_prepare(&options);
    if (!options.text && program_launch_rank() == 0)
        printf("alnico-conformance: seed %llu\n", (unsigned long long)options.seed);
    fflush(stdout);
    if (!options.forks)
        watchdog_start(&options);
    return options.mpi ? run_mpi(&options) : run_sizes(&options);
}
