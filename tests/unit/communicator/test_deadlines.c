/* When the other rank does not come, is stopped in the middle (SIGSTOP) or ends (SIGKILL), every kind
 * of call ends at the deadline: at most a tenth of it and a tenth of a second later.
 *
 *     unit_deadlines [DEADLINE REPETITIONS]    prints how much later */
#include "comm/communicator/comm.h"
#include "tests/support/forks.h"
#include "tests/support/reference.h"

#include "base/status.h"

#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

enum { COUNT = 1 << 16, MOST_REPETITIONS = 1000, TRIES = 3 };

static float values[COUNT], sums[COUNT];

/* ---- Kinds of calls; rank 1 is the one that others wait for ---- */

static alnico_status_t sum(alnico_comm_t comm)
{
    return alnico_allreduce(values, sums, 8, ALNICO_FLOAT32, ALNICO_SUM, comm);
}

static alnico_status_t sum_large(alnico_comm_t comm)
{
    return alnico_allreduce(values, sums, COUNT, ALNICO_FLOAT32, ALNICO_SUM, comm);
}

static alnico_status_t sum_on_stream(alnico_comm_t comm)
{
    TRY(sum(comm));
    TRY(alnico_stream_synchronize(comm->stream));
    return alnico_comm_status(comm);
}

static alnico_status_t sum_and_wait(alnico_comm_t comm)
{
    alnico_request_t request;
    TRY(alnico_iallreduce(values, sums, 8, ALNICO_FLOAT32, ALNICO_SUM, comm, &request));
    return alnico_wait(&request);
}

static alnico_status_t message(alnico_comm_t comm, size_t count)
{
    if (comm->rank == 0)
        return alnico_recv(sums, count, ALNICO_FLOAT32, 1, comm);
    return alnico_send(values, count, ALNICO_FLOAT32, 0, comm);
}

static alnico_status_t message_short(alnico_comm_t comm)
{
    return message(comm, 8);
}

static alnico_status_t message_long(alnico_comm_t comm)
{
    return message(comm, COUNT);
}

static alnico_status_t duplicate(alnico_comm_t comm)
{
    alnico_comm_t copy;
    TRY(alnico_comm_duplicate(comm, NULL, &copy));
    alnico_comm_destroy(copy);
    return ALNICO_SUCCESS;
}

static alnico_status_t split(alnico_comm_t comm)
{
    alnico_comm_t part;
    TRY(alnico_comm_split(comm, 0, -comm->rank, NULL, &part));
    alnico_comm_destroy(part);
    return ALNICO_SUCCESS;
}

static alnico_status_t force(alnico_comm_t comm)
{
    return alnico_comm_set_algorithm(comm, ALNICO_ALLREDUCE, NULL);
}

static alnico_status_t enroll(alnico_comm_t comm)
{
    alnico_registration_t registration;
    TRY(alnico_comm_register(comm, values, sizeof values, &registration));
    return alnico_comm_deregister(comm, registration);
}

/* The last one's destroy waits for it. */
static alnico_status_t leave_request(alnico_comm_t comm)
{
    alnico_request_t request;
    return alnico_iallreduce(values, sums, 8, ALNICO_FLOAT32, ALNICO_SUM, comm, &request);
}

static const struct kind {
    const char *name;
    alnico_status_t (*call)(alnico_comm_t);
    const char *algorithm;
    bool streams, checks, destroys;
} kinds[] = {
    {.name = "allreduce in shared memory", .call = sum, .algorithm = "one_shot"},
    {.name = "allreduce by messages", .call = sum, .algorithm = "recursive_doubling"},
    {.name = "large allreduce in shared memory", .call = sum_large, .algorithm = "two_shot"},
    {.name = "large allreduce by messages", .call = sum_large, .algorithm = "ring"},
    {.name = "nonblocking and wait", .call = sum_and_wait},
    {.name = "on a stream", .call = sum_on_stream, .streams = true},
    {.name = "checked", .call = sum, .checks = true},
    {.name = "message", .call = message_short},
    {.name = "long message", .call = message_long},
    {.name = "duplicate", .call = duplicate},
    {.name = "split", .call = split},
    {.name = "set_algorithm", .call = force},
    {.name = "register and deregister", .call = enroll},
    {.name = "destroy", .call = leave_request, .destroys = true},
};

enum { KINDS = sizeof kinds / sizeof *kinds };

/* ---- What happens to rank 1 ---- */

enum harm { ABSENT, STOPPED, KILLED, HARMS };
static const char *const harms[] = {"does not come", "is stopped", "is killed"};

static struct {
    const struct kind *kind;
    enum harm harm;
    double deadline;
    uint64_t seed;
    /* Shared by both processes. */
    struct outcome {
        double late;       /* seconds that rank 0's call took beyond the deadline */
        atomic_bool ended; /* rank 1's calls */
    } * outcome;
} trial;

static void harm_now(int number)
{
    (void)number;
    kill(getpid(), trial.harm == STOPPED ? SIGSTOP : SIGKILL);
}

static void harm_soon(void)
{
    struct itimerval soon = {
        .it_value = {0, 1 + (suseconds_t)(reference_random(trial.seed, 1, 2) % 9999)}};
    signal(SIGALRM, harm_now);
    setitimer(ITIMER_REAL, &soon, NULL);
}

static alnico_comm_t make_comm(struct rank *rank, alnico_stream_t stream)
{
    alnico_comm_t comm = forks_comm(rank, stream);
    const char *algorithm = trial.kind->algorithm;
    comm->family->settings.timeout = trial.deadline;
    comm->family->settings.check = trial.kind->checks;
    if (algorithm)
        REQUIRE_STATUS(alnico_comm_set_algorithm(comm, ALNICO_ALLREDUCE, algorithm),
                       ALNICO_SUCCESS);
    return comm;
}

/* Calls until one fails; returns the seconds that it took. */
static double call(alnico_comm_t *comm)
{
    alnico_status_t status = ALNICO_SUCCESS;
    double start = 0;
    while (status == ALNICO_SUCCESS) {
        start = ranks_seconds();
        status = trial.kind->call(*comm);
        if (trial.kind->destroys) {
            alnico_comm_destroy(*comm);
            *comm = NULL;
            break;
        }
    }
    if (*comm && (*comm)->rank == 0)
        REQUIRE_STATUS(status, ALNICO_ERROR_TIMEOUT);
    return ranks_seconds() - start;
}

/* A busy machine may have stopped it later than rank 0 gave up. */
static void wake(struct rank *rank)
{
    while (!atomic_load(&trial.outcome->ended)) {
        kill(forks_pid(rank, 1), SIGCONT);
        usleep(1000);
    }
}

static void body(struct rank *rank)
{
    alnico_stream_t stream = NULL;
    if (trial.kind->streams)
        REQUIRE_STATUS(alnico_stream_create(&stream), ALNICO_SUCCESS);
    alnico_comm_t comm = make_comm(rank, stream);
    if (rank->rank == 1 && trial.harm != ABSENT)
        harm_soon();
    if (rank->rank == 0)
        trial.outcome->late = call(&comm) - trial.deadline;
    else if (trial.harm != ABSENT)
        call(&comm);
    if (rank->rank == 1)
        atomic_store(&trial.outcome->ended, true);
    else if (trial.harm == STOPPED)
        wake(rank);
    forks_barrier(rank);
    alnico_comm_destroy(comm);
    alnico_stream_destroy(stream);
}

/* ---- Figures ---- */

static int compare(const void *a, const void *b)
{
    return *(const double *)a < *(const double *)b ? -1 : 1;
}

static double run_once(void)
{
    trial.seed++;
    *trial.outcome = (struct outcome){0};
    if (trial.harm == KILLED)
        forks_run_victim(2, 1, SIGKILL, body, NULL);
    else
        forks_run(2, 1, body, NULL);
    return trial.outcome->late;
}

/* A busy machine may hold up a rank once, but not each time. */
static void require_deadline(void)
{
    double late = run_once();
    for (int i = 1; i < TRIES && late >= 0.1 * trial.deadline + 0.1; i++)
        late = run_once();
    printf("%-34s %-14s %7.1f ms\n", trial.kind->name, harms[trial.harm], 1e3 * late);
    fflush(stdout);
    REQUIRE(late < 0.1 * trial.deadline + 0.1);
    REQUIRE(trial.harm != ABSENT || late >= 0);
}

static void measure(int repetitions)
{
    static double late[MOST_REPETITIONS];
    for (int i = 0; i < repetitions; i++)
        late[i] = run_once();
    qsort(late, (size_t)repetitions, sizeof *late, compare);
    printf("%-34s %-14s median %7.1f ms, worst %7.1f ms\n", trial.kind->name, harms[trial.harm],
           1e3 * late[repetitions / 2], 1e3 * late[repetitions - 1]);
    fflush(stdout);
}

int main(int argc, char **argv)
{
    int repetitions = argc > 2 ? atoi(argv[2]) : 0;
    REQUIRE(repetitions >= 0 && repetitions <= MOST_REPETITIONS);
    setenv("ALNICO_LOG", "error", 1); /* destroy warns */
    trial.deadline = argc > 1 ? atof(argv[1]) : 0.5;
    trial.seed = (uint64_t)time(NULL);
    trial.outcome = mmap(NULL, sizeof *trial.outcome, PROT_READ | PROT_WRITE,
                         MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    REQUIRE(trial.outcome != MAP_FAILED);
    printf("seed %llu, deadline %g s\n", (unsigned long long)trial.seed, trial.deadline);
    for (int k = 0; k < KINDS; k++)
        for (int h = 0; h < HARMS; h++) {
            trial.kind = &kinds[k];
            trial.harm = (enum harm)h;
            if (kinds[k].destroys && h != ABSENT)
                continue;
            if (repetitions)
                measure(repetitions);
            else if (h != STOPPED || k % 3 == 0) /* some, as that takes the longest */
                require_deadline();
        }
    return 0;
}
