/* Runs batches: all calls of a thread in order, some of which end at once and some after all
 * others, in another order on every rank; then the bytes are checked, and the ranks compare. */
#include "tests/conformance/crew.h"

#include "tests/conformance/operations.h"

#include <pthread.h>
#include <sched.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- What is wrong ---- */

const char *crew_command(const struct options *options, const struct batch *batch, char *text,
                         size_t bytes)
{
    char calls[4096], forks[24] = "";
    size_t at = 0;
    text[0] = '\0';
    for (char *const *e = environ; *e; e++)
        if (strncmp(*e, "ALNICO_", 7) == 0 && strncmp(*e, "ALNICO_TIMEOUT", 14) != 0 && at < bytes)
            at += (size_t)snprintf(text + at, bytes - at, "%s ", *e);
    if (options->forks)
        snprintf(forks, sizeof forks, " --forks=%d", options->forks);
    if (options->mpi && at < bytes)
        at += (size_t)snprintf(text + at, bytes - at, "mpirun -n %d ", batch->ranks);
    if (at < bytes)
        snprintf(text + at, bytes - at, "alnico-conformance --device %s%s%s%s%s --case '%s'",
                 options->site->name, forks, options->single ? " --single" : "",
                 options->sabotage ? " --sabotage " : "",
                 options->sabotage ? options_sabotage(options) : "",
                 batch_print(batch, calls, sizeof calls));
    return text;
}

_Noreturn void crew_fail(const struct crew *crew, int i, const char *format, ...)
{
    static pthread_mutex_t one =
        PTHREAD_MUTEX_INITIALIZER; /* the others of the process wait for its end */
    char what[512], command[8192];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(what, sizeof what, format, arguments);
    va_end(arguments);
    pthread_mutex_lock(&one);
    fflush(stdout);
    fprintf(stderr, "alnico-conformance: rank %d of %d, ", crew->rank->rank, crew->rank->size);
    if (i >= 0)
        fprintf(stderr, "call %d (%s): ", i, operations[crew->batch->trial[i].operation].name);
    fprintf(stderr, "%s\nRepeat it with:\n    %s\n", what,
            crew_command(crew->options, crew->batch, command, sizeof command));
    _Exit(EXIT_FAILURE);
}

static void require(const struct crew *crew, int i, alnico_status_t status, const char *what)
{
    if (status != ALNICO_SUCCESS)
        crew_fail(crew, i, "%s: %s (detail: %s)", what, alnico_status_string(status),
                  alnico_error_detail());
}

/* ---- One call ---- */

static struct lane *lane_of(struct crew *crew, int i)
{
    return &crew->lanes[crew->batch->trial[i].lane];
}

static void end_request(struct crew *crew, int i, alnico_request_t *request)
{
    bool done = false;
    switch (crew->batch->trial[i].ending) {
    case END_TEST:
        while (!done) {
            require(crew, i, alnico_test(request, &done), "alnico_test");
            if (!done)
                sched_yield();
        }
        break;
    case END_COMM:
        require(crew, i, alnico_synchronize(lane_of(crew, i)->comm), "alnico_synchronize");
        require(crew, i, alnico_test(request, &done), "alnico_test");
        if (!done)
            crew_fail(crew, i, "alnico_test does not find it done after alnico_synchronize");
        break;
    case END_HOST:
        require(crew, i, alnico_request_synchronize(request), "alnico_request_synchronize");
        break;
    default:
        require(crew, i, alnico_wait(request), "alnico_wait");
    }
    if (*request)
        crew_fail(crew, i, "the request is not NULL after its end");
}

/* Ends its requests, beginning anywhere, and fetches the result. */
static void end(struct crew *crew, int i)
{
    struct entry *e = &crew->entries[i];
    int first = (int)(crew->batch->trial[i].salt % REQUESTS_MOST) + crew->rank->rank;
    for (int k = 0; k < REQUESTS_MOST; k++)
        if (e->request[(first + k) % REQUESTS_MOST])
            end_request(crew, i, &e->request[(first + k) % REQUESTS_MOST]);
    for (int b = 0; b < 2; b++)
        crew->ops->get(crew->site, lane_of(crew, i)->stream, &e->get[b]);
}

/* The lists are the caller's again. */
static void forget_lists(struct plan *plan)
{
    size_t *lists[] = {plan->send_counts, plan->send_at, plan->recv_counts, plan->recv_at};
    for (int i = 0; i < 4; i++)
        if (lists[i])
            memset(lists[i], 0xff, (size_t)plan->size * sizeof *lists[i]);
}

static bool is_left_out(struct crew *crew)
{
    if (crew->options->sabotage == SABOTAGE_CRASH)
        abort();
    bool now = crew->options->sabotage == SABOTAGE_ABSENCE && crew->rank->rank == 0;
    crew->spoiled |= now;
    return now;
}

static void force(struct crew *crew, int i)
{
    require(crew, i, lane_force(crew, &crew->batch->trial[i]), "alnico_comm_set_algorithm");
}

static void begin(struct crew *crew, int i)
{
    struct entry *e = &crew->entries[i];
    const struct trial *trial = e->plan.trial;
    if (!crew->ops->calm)
        force(crew, i);
    for (int b = 0; b < 2; b++)
        crew->ops->put(crew->site, lane_of(crew, i)->stream, &e->put[b]);
    if (is_left_out(crew))
        return;
    alnico_status_t status =
        e->plan.operation->call(&e->plan, trial->ending == END_BLOCKING ? NULL : e->request);
    forget_lists(&e->plan);
    e->refused = status == ALNICO_ERROR_UNSUPPORTED && lane_may_refuse(crew, trial);
    if (!e->refused)
        require(crew, i, status, "the call");
}

/* ---- A thread's calls ---- */

static bool is_late(const struct trial *trial)
{
    return trial->late && trial->ending != END_BLOCKING;
}

static void run_thread(struct crew *crew, int thread)
{
    const struct batch *batch = crew->batch;
    bool mine[TRIALS];
    for (int i = 0; i < batch->number; i++) {
        mine[i] = lane_thread(batch->trial[i].lane, batch->threads) == thread;
        if (!mine[i])
            continue;
        begin(crew, i);
        if (!is_late(&batch->trial[i]))
            end(crew, i);
    }
    for (int k = 0; k < batch->number; k++) {
        int i = (crew->rank->rank + (crew->rank->rank % 2 ? k : batch->number - k)) % batch->number;
        if (mine[i] && is_late(&batch->trial[i]))
            end(crew, i);
    }
}

struct helper {
    struct crew *crew;
    int thread;
    pthread_t id;
};

static void *help(void *argument)
{
    struct helper *helper = argument;
    helper->crew->ops->enter(helper->crew->site);
    run_thread(helper->crew, helper->thread);
    return NULL;
}

static void run_all(struct crew *crew)
{
    struct helper helpers[LANES];
    for (int t = 1; t < crew->batch->threads; t++) {
        helpers[t] = (struct helper){.crew = crew, .thread = t};
        REQUIRE(pthread_create(&helpers[t].id, NULL, help, &helpers[t]) == 0);
    }
    run_thread(crew, 0);
    for (int t = 1; t < crew->batch->threads; t++)
        pthread_join(helpers[t].id, NULL);
    for (int s = 0; s < LANES; s++)
        if (crew->streams[s])
            crew->ops->drain(crew->streams[s]);
}

/* ---- After the calls ---- */

static void check_lanes(struct crew *crew)
{
    for (int i = 0; i < crew->batch->number; i++) {
        alnico_comm_t comm = lane_of(crew, i)->comm;
        bool waits = crew->batch->trial[i].salt % 4 == 0;
        require(crew, i, waits ? alnico_synchronize(comm) : alnico_comm_status(comm),
                waits ? "alnico_synchronize" : "alnico_comm_status");
    }
}

static void fill_record(struct crew *crew, struct record *record)
{
    for (int i = 0; i < crew->batch->number; i++) {
        struct entry *e = &crew->entries[i];
        record->hash[i] = frames_check(crew, i);
        record->begin[i] = e->put[1].time;
        record->end[i] = e->get[1].time ? e->get[1].time : ranks_seconds();
        record->refused[i] = e->refused;
        if (crew->rank->rank != 0)
            continue;
        record->hash[i] += crew->options->sabotage == SABOTAGE_BITS;
        record->refused[i] ^= crew->options->sabotage == SABOTAGE_REFUSAL;
        if (crew->options->sabotage == SABOTAGE_BARRIER)
            record->end[i] = 0;
    }
}

static void compare_ranks(struct crew *crew, int i)
{
    const struct lane *lane = lane_of(crew, i);
    const struct record *mine = &crew->records[crew->rank->rank];
    alnico_collective_t collective = crew->entries[i].plan.operation->collective;
    for (int k = 0; k < lane->size; k++) {
        const struct record *other = &crew->records[lane->ranks[k]];
        if (mine->refused[i] != other->refused[i])
            crew_fail(crew, i, "refused here: %d, on rank %d: %d", mine->refused[i], lane->ranks[k],
                      other->refused[i]);
        if (collective == ALNICO_ALLREDUCE && !mine->refused[i] && mine->hash[i] != other->hash[i])
            crew_fail(crew, i, "other bits than on rank %d", lane->ranks[k]);
        if (collective == ALNICO_BARRIER && mine->begin[i] > other->end[i])
            crew_fail(crew, i, "it ended on rank %d before it began here", lane->ranks[k]);
    }
}

static bool compare(struct crew *crew, bool over)
{
    struct record mine = {.over = over};
    fill_record(crew, &mine);
    alnico_bootstrap_t *b = &crew->rank->bootstrap;
    REQUIRE(b->allgather(b->context, &mine, crew->records, sizeof mine) == 0);
    for (int i = 0; i < crew->batch->number; i++)
        compare_ranks(crew, i);
    for (int r = 0; r < crew->rank->size; r++)
        over |= crew->records[r].over;
    return over;
}

bool play(struct crew *crew, const struct batch *batch, bool over)
{
    crew->batch = batch;
    for (int i = 0; i < batch->number; i++) {
        struct entry *e = &crew->entries[i];
        memset(e, 0, sizeof *e);
        plan_init(&e->plan, &batch->trial[i], lane_of(crew, i)->comm, crew->ops->self);
        frames_make(crew, i);
        if (crew->ops->calm)
            force(crew, i);
    }
    run_all(crew);
    check_lanes(crew);
    over = compare(crew, over);
    for (int i = 0; i < batch->number; i++) {
        crew->refused += crew->entries[i].refused;
        plan_finish(&crew->entries[i].plan);
    }
    crew->calls += (uint64_t)batch->number;
    crew->ops->give_all(crew->site);
    return over;
}
