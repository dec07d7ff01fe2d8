/* Failures between hosts, again and again: one of four ranks is killed, stopped, cut off or late, at a
 * random message of a random call or a random moment of the creation. All others get a status that
 * names it within twice the deadline; those that have a communicator shrink it, while in some scenes
 * another one dies, and add up numbers on what comes of that. As root; skipped elsewhere. */
#include "comm/communicator/comm.h"

#include "tests/hosts/namespaces.h"
#include "tests/support/calls.h"
#include "tests/support/forks.h"
#include "tests/support/reference.h"
#include "tests/support/stage.h"

#include <ctype.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { RANKS = 4, SMALL = 20, LARGE = 60000, AT_ONCE = 3, TOGETHER = 20, NOBODY = -1 };

static const double deadline = 1.5;
static const char root_address[] = "10.77.0.1:"; /* rank 0 is on host 0 */
static char name[24];
static uint64_t seed;
static int calls = 50;

enum fate { KILLED, STOPPED, CUT_OFF, LATE, FATES };
static const char *const fate_names[FATES] = {"killed", "stopped", "cut off", "late"};

/* Which host each rank is on. */
static const int layouts[][RANKS] = {{0, 1, 2, 3}, {0, 0, 1, 1}, {0, 1, 1, 1}};
enum { LAYOUTS = sizeof layouts / sizeof *layouts };

struct scene {
    enum fate fate;
    bool in_creation;
    const int *host;
    int victim, second; /* the second dies by SIGKILL while it shrinks, or is NOBODY */
    const struct calls_row *row;
    enum calls_way way;
    size_t count;
    uint64_t random;
    int number, slot; /* for the log, and whose hosts it has */
};

/* ---- The victim's end ---- */

static struct {
    const struct scene *scene;
    int switch_socket;
    pthread_t main; /* of the rank */
    const struct transport_ops *real;
    struct transport_ops counting;
    atomic_int messages_left;
} fate;

static void sleep_for(double seconds)
{
    struct timespec time = {(time_t)seconds, (long)(1e9 * (seconds - (double)(time_t)seconds))};
    nanosleep(&time, NULL);
}

static void be_late(int signal)
{
    (void)signal;
    sleep_for(deadline * (1.5 + 2.7 * (double)(fate.scene->random % 1000) / 1000));
}

static void strike(void)
{
    switch (fate.scene->fate) {
    case KILLED:
        raise(SIGKILL);
        break;
    case STOPPED:
        raise(SIGSTOP);
        break;
    case CUT_OFF:
        namespaces_plug(fate.switch_socket, fate.scene->host[fate.scene->victim], false);
        break;
    default:
        be_late(0);
    }
}

/* From a thread of its own: there the main one is to be late, wherever it is. */
static void *strike_soon(void *argument)
{
    (void)argument;
    usleep((useconds_t)(fate.scene->random % 60000));
    if (fate.scene->fate == LATE)
        pthread_kill(fate.main, SIGUSR1);
    else
        strike();
    return NULL;
}

static void count_message(void)
{
    if (atomic_fetch_sub(&fate.messages_left, 1) == 1)
        strike();
}

static alnico_status_t counting_isend(struct transport *t, int to, uint32_t tag, const void *buffer,
                                      size_t bytes, struct transfer *out)
{
    count_message();
    return fate.real->isend(t, to, tag, buffer, bytes, out);
}

static alnico_status_t counting_irecv(struct transport *t, int from, uint32_t tag, void *buffer,
                                      size_t bytes, struct transfer *out)
{
    count_message();
    return fate.real->irecv(t, from, tag, buffer, bytes, out);
}

static void strike_at_a_message(alnico_comm_t comm)
{
    atomic_store(&fate.messages_left, 1 + (int)(fate.scene->random % 100));
    fate.real = comm->transport->ops;
    fate.counting = *fate.real;
    fate.counting.isend = counting_isend;
    fate.counting.irecv = counting_irecv;
    comm->transport->ops = &fate.counting;
}

static void strike_at_a_moment(void)
{
    pthread_t thread;
    const struct sigaction action = {.sa_handler = be_late, .sa_flags = SA_RESTART};
    fate.main = pthread_self();
    REQUIRE(sigaction(SIGUSR1, &action, NULL) == 0);
    REQUIRE(pthread_create(&thread, NULL, strike_soon, NULL) == 0);
    pthread_detach(thread);
}

/* ---- What the others learn ---- */

/* Of a host that is cut off each side sees the other one go. */
static bool is_cut_off_from(const struct scene *s, int rank, int other)
{
    int host = s->host[s->victim];
    return s->fate == CUT_OFF && (s->host[rank] == host) != (s->host[other] == host);
}

/* Who dies while it shrinks may be the first that a rank misses which does not shrink yet. */
static bool is_culprit(const struct scene *s, int rank, int other)
{
    return other == s->second ||
           (s->fate == CUT_OFF ? is_cut_off_from(s, rank, other) : other == s->victim);
}

/* Which ranks a detail names, a bit each: "rank 2", "ranks 0, 1 and 3". */
static unsigned named(const char *detail)
{
    unsigned ranks = 0;
    for (const char *at = detail; (at = strstr(at, "rank")) != NULL;) {
        at += strspn(at, "ranks");
        while (*at == ' ' && isdigit((unsigned char)at[1])) {
            char *end;
            ranks |= 1u << (strtoul(at, &end, 10) % 32);
            end += *end == ',';
            at = strncmp(end, " and ", 5) == 0 ? end + 4 : end;
        }
    }
    return ranks;
}

/* In creation a rank may know of rank 0, which made the id, no more than its address. */
static bool is_named(const struct scene *s, int rank, bool in_creation)
{
    unsigned culprits = 0;
    for (int i = 0; i < RANKS; i++)
        culprits |= (unsigned)is_culprit(s, rank, i) << i;
    const char *detail = alnico_error_detail();
    bool of_root = strstr(detail, "root of the rendezvous") || strstr(detail, root_address);
    return (named(detail) & culprits) || (in_creation && (culprits & 1) && of_root);
}

static void require_verdict(const struct scene *s, int rank, const char *where, double seconds)
{
    bool well = seconds < 2 * deadline && is_named(s, rank, strcmp(where, "creation") == 0);
    if (!well)
        fprintf(stderr, "scene %d: rank %d, in %s, after %.2f s: %s\n", s->number, rank, where,
                seconds, alnico_error_detail());
    REQUIRE(well);
}

/* ---- Those that go on ---- */

/* Whether it must be in the communicator of this rank, or may be: where the creation failed on some they
 * have none. Who is cut off goes on with the ranks of its host. */
static bool must_go_on(const struct scene *s, int rank, int other)
{
    return other == rank ||
           (other != s->second && !s->in_creation &&
            (s->fate == CUT_OFF ? !is_cut_off_from(s, rank, other) : other != s->victim));
}

static bool may_go_on(const struct scene *s, int rank, int other)
{
    return must_go_on(s, rank, other) || (s->fate == LATE && other == s->victim) ||
           (s->in_creation && other != s->second &&
            (s->fate == CUT_OFF ? !is_cut_off_from(s, rank, other) : other != s->victim));
}

static void require_members(alnico_comm_t comm, const struct scene *s, int rank, float *total)
{
    int before[RANKS], size = alnico_comm_size(comm), place = 0;
    REQUIRE(size <= RANKS);
    REQUIRE_STATUS(alnico_allgather(&rank, before, 1, ALNICO_INT32, comm), ALNICO_SUCCESS);
    REQUIRE_STATUS(alnico_synchronize(comm), ALNICO_SUCCESS);
    *total = 0;
    for (int i = 0; i < RANKS; i++) {
        bool there = place < size && before[place] == i; /* in the old order */
        if (there ? !may_go_on(s, rank, i) : must_go_on(s, rank, i))
            fprintf(stderr, "scene %d: rank %d goes on with%s rank %d\n", s->number, rank,
                    there ? "" : "out", i);
        REQUIRE(there ? may_go_on(s, rank, i) : !must_go_on(s, rank, i));
        *total += there ? (float)(1 << i) : 0;
        place += there;
    }
    REQUIRE(place == size);
}

static void require_sums(alnico_comm_t comm, const struct scene *s, int rank)
{
    enum { MOST = 3000 };
    static float values[MOST];
    float total;
    require_members(comm, s, rank, &total);
    for (int i = 0; i < calls; i++) {
        size_t count = 1 + reference_random(s->random, 5, (uint64_t)i) % MOST;
        for (size_t k = 0; k < count; k++)
            values[k] = (float)((1 << rank) * (i % 7 + 1));
        REQUIRE_STATUS(
            alnico_allreduce(ALNICO_IN_PLACE, values, count, ALNICO_FLOAT32, ALNICO_SUM, comm),
            ALNICO_SUCCESS);
        REQUIRE_STATUS(alnico_synchronize(comm), ALNICO_SUCCESS);
        for (size_t k = 0; k < count; k++)
            REQUIRE(values[k] == total * (float)(i % 7 + 1));
    }
}

static void *die_soon(void *argument)
{
    usleep((useconds_t)(((const struct scene *)argument)->random / 1024 % 400000));
    kill(getpid(), SIGKILL);
    return NULL;
}

static alnico_status_t meet(alnico_comm_t comm)
{
    const alnico_status_t status = alnico_barrier(comm);
    return status == ALNICO_SUCCESS ? alnico_synchronize(comm) : status;
}

/* The second one may have lived until the communicator was made. */
static void shrink_again(alnico_comm_t *comm, void *stream, const struct scene *s)
{
    alnico_comm_t again;
    if (s->second == NOBODY || meet(*comm) == ALNICO_SUCCESS)
        return;
    REQUIRE_STATUS(alnico_comm_shrink(*comm, stream, &again), ALNICO_SUCCESS);
    alnico_comm_destroy(*comm);
    *comm = again;
}

/* Who comes when the others have gone on hears that. */
static void go_on(alnico_comm_t comm, void *stream, const struct scene *s, int rank)
{
    alnico_comm_t shrunk;
    pthread_t thread;
    double start = ranks_seconds();
    if (rank == s->second)
        REQUIRE(pthread_create(&thread, NULL, die_soon, (void *)s) == 0);
    alnico_status_t status = alnico_comm_shrink(comm, stream, &shrunk);
    double seconds = ranks_seconds() - start;
    if (rank == s->second)
        pthread_join(thread, NULL); /* never returns */
    if (rank == s->victim && s->fate == LATE && status != ALNICO_SUCCESS) {
        REQUIRE(status == ALNICO_ERROR_ABORTED || status == ALNICO_ERROR_TIMEOUT);
        return;
    }
    REQUIRE_STATUS(status, ALNICO_SUCCESS);
    if (seconds >= 6 * deadline)
        fprintf(stderr, "scene %d: rank %d shrank for %.2f s\n", s->number, rank, seconds);
    REQUIRE(seconds < 6 * deadline);
    shrink_again(&shrunk, stream, s);
    require_sums(shrunk, s, rank);
    alnico_comm_destroy(shrunk);
}

/* ---- A scene ---- */

static alnico_comm_t make(struct rank *rank, const struct scene *s, void *stream)
{
    alnico_comm_t comm;
    char hosts[32];
    snprintf(hosts, sizeof hosts, "%s-%d", name, s->slot);
    fate.scene = s;
    fate.switch_socket = namespaces_switch(hosts);
    namespaces_enter(hosts, s->host[rank->rank], deadline);
    const alnico_id_t id = ranks_share_id(rank);
    if (rank->rank == s->victim && s->in_creation)
        strike_at_a_moment();
    double start = ranks_seconds();
    if (alnico_comm_create_id(&id, rank->rank, RANKS, ALNICO_DEVICE_CPU, stream, &comm) !=
            ALNICO_SUCCESS &&
        rank->rank != s->victim)
        require_verdict(s, rank->rank, "creation", ranks_seconds() - start);
    return comm;
}

/* Until the failure is this rank's, too. Who only sends, as to a root, goes ahead of the others but for
 * the barriers, and hears late. */
static void go_wrong(alnico_comm_t comm, const struct scene *s, int rank)
{
    struct calls_buffers b = calls_buffers_make(RANKS, s->count);
    alnico_status_t status = ALNICO_SUCCESS;
    double start = 0, created = ranks_seconds();
    if (rank == s->victim && !s->in_creation)
        strike_at_a_message(comm);
    for (int i = 1; status == ALNICO_SUCCESS && ranks_seconds() - created < 4 * deadline; i++) {
        start = ranks_seconds();
        status = calls_once(comm, s->row, s->way, &b);
        if (status == ALNICO_SUCCESS && i % TOGETHER == 0)
            status = meet(comm);
    }
    if (rank != s->victim)
        require_verdict(s, rank, s->row->name, ranks_seconds() - start);
    calls_buffers_free(&b);
}

static int first_survivor(const struct scene *s)
{
    int rank = 0;
    while (rank == s->victim || rank == s->second)
        rank++;
    return rank;
}

/* There was nothing to shrink: when the others know of the victim. */
static void die_late(void)
{
    sleep_for(2 * deadline);
    raise(SIGKILL);
}

static void scene_body(struct rank *rank)
{
    const struct scene *s = rank->argument;
    alnico_stream_t stream = NULL;
    if (s->way == CALLS_ON_A_STREAM)
        REQUIRE_STATUS(alnico_stream_create(&stream), ALNICO_SUCCESS);
    alnico_comm_t comm = make(rank, s, stream);
    if (comm) {
        go_wrong(comm, s, rank->rank);
        go_on(comm, stream, s, rank->rank);
        alnico_comm_destroy(comm);
    }
    alnico_stream_destroy(stream);
    if (rank->rank == s->second)
        die_late();
    if (s->fate == STOPPED && rank->rank == first_survivor(s)) {
        sleep_for(deadline);
        kill(forks_pid(rank, s->victim), SIGKILL);
    }
}

/* The scene before may have cut one off. */
static void plug_all_in(int slot)
{
    char hosts[32];
    bool were_in = true;
    snprintf(hosts, sizeof hosts, "%s-%d", name, slot);
    int fd = namespaces_switch(hosts);
    for (int i = 0; i < RANKS; i++)
        were_in &= namespaces_plug(fd, i, true);
    close(fd);
    if (!were_in)
        sleep_for(1.5);
}

static void play(void *argument, int slot)
{
    struct scene *s = argument;
    uint64_t victims = s->fate == KILLED || s->fate == STOPPED ? UINT64_C(1) << s->victim : 0;
    if (s->second != NOBODY)
        victims |= UINT64_C(1) << s->second;
    s->slot = slot;
    plug_all_in(slot);
    forks_run_victims(FORKS_SECONDS + (unsigned)calls / 4, RANKS, victims, SIGKILL, scene_body, s);
}

static struct scene draw(int number)
{
    uint64_t random[4];
    for (int i = 0; i < 4; i++)
        random[i] = reference_random(seed, (uint64_t)i, (uint64_t)number) >> 8;
    const struct calls_row *row = &calls_rows[number / FATES % calls_count()];
    struct scene s = {.number = number,
                      .fate = (enum fate)(number % FATES),
                      .in_creation = random[0] % 4 == 0,
                      .host = layouts[random[0] / 4 % LAYOUTS],
                      .victim = (int)(random[1] % RANKS),
                      .second = NOBODY,
                      .row = row,
                      .way = (enum calls_way)(random[2] % (uint64_t)row->ways),
                      .count = random[2] / 16 % 2 ? LARGE : SMALL,
                      .random = random[3]};
    if (random[1] / 64 % 3 == 0)
        s.second = (s.victim + 1 + (int)(random[1] / 256 % (RANKS - 1))) % RANKS;
    return s;
}

static void make_hosts(int slot)
{
    int status = namespaces_script("up %s-%d %d", name, slot, RANKS);
    if (status != 0)
        exit(status == NAMESPACES_SKIPPED ? NAMESPACES_SKIPPED : 1);
}

static void play_all(int first, int count)
{
    static const struct stage_act act = {play, AT_ONCE};
    for (int i = first; i < first + count; i++) {
        const struct scene s = draw(i);
        printf("scene %d: rank %d of hosts %d %d %d %d is %s in %s%s, way %d, %zu elements, "
               "second %d\n",
               i, s.victim, s.host[0], s.host[1], s.host[2], s.host[3], fate_names[s.fate],
               s.in_creation ? "creation before " : "", s.row->name, (int)s.way, s.count, s.second);
        stage_play(&act, &s, sizeof s);
    }
}

/* Usage: hosts_failures [SCENES [SEED [CALLS [FIRST]]]]: so many scenes, from one of that number on,
 * with so many allreduces after each. */
int main(int argc, char **argv)
{
    int scenes = argc > 1 ? atoi(argv[1]) : 8, first = argc > 4 ? atoi(argv[4]) : 0;
    setvbuf(stdout, NULL, _IOLBF, 0);
    seed = argc > 2 ? strtoull(argv[2], NULL, 10) : (uint64_t)time(NULL);
    calls = argc > 3 ? atoi(argv[3]) : calls;
    printf("seed %llu\n", (unsigned long long)seed);
    snprintf(name, sizeof name, "alnico-%d", (int)getpid());
    setenv("ALNICO_LOG", "error", 1);
    for (int slot = 0; slot < AT_ONCE; slot++)
        make_hosts(slot);
    play_all(first, scenes);
    int failed = stage_end();
    for (int slot = 0; slot < AT_ONCE; slot++)
        namespaces_script("down %s-%d", name, slot);
    printf("%d of %d scenes failed\n", failed, scenes);
    return failed > 0;
}
