/* Each rank has a socketpair to the test's process, which gathers one block of every living rank
 * and gives all blocks to each. */
#include "tests/support/forks.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

enum { RANKS = 128, EXIT_STATUS = 9 };

struct party {
    int processes, threads, size;
    uint64_t victims; /* a bit each, of the processes that do not end well */
    int signal;
    unsigned seconds;           /* before what is left is killed */
    int hub[RANKS], end[RANKS]; /* sockets: the test's process's and the ranks' */
    pid_t *pid;                 /* by process, shared with all */
    void (*body)(struct rank *);
    void *argument;
};

struct member {
    struct rank rank; /* first: what the body sees */
    struct party *party;
};

/* ---- A rank's side ---- */

static bool move(int fd, void *data, size_t bytes, bool out)
{
    char *at = data;
    while (bytes) {
        ssize_t n = out ? send(fd, at, bytes, MSG_NOSIGNAL) : recv(fd, at, bytes, 0);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return false;
        at += n;
        bytes -= (size_t)n;
    }
    return true;
}

/* An allgather orders the threads of a process, which a sanitizer cannot see through sockets. */
static atomic_int meetings;

static int fork_allgather(void *context, const void *mine, void *all, size_t bytes)
{
    const struct member *member = context;
    int fd = member->party->end[member->rank.rank];
    uint64_t header = bytes;
    atomic_fetch_add(&meetings, 1);
    bool moved = move(fd, &header, sizeof header, true) && move(fd, (void *)mine, bytes, true) &&
                 move(fd, all, bytes * (size_t)member->rank.size, false);
    atomic_fetch_add(&meetings, 1);
    return moved ? 0 : -1;
}

static void *member_run(void *argument)
{
    struct member *member = argument;
    member->party->body(&member->rank);
    return NULL;
}

static void process_run(struct party *party, int process)
{
    pthread_t threads[RANKS];
    static struct member members[RANKS];
    for (int r = 0; r < party->size; r++) {
        close(party->hub[r]);
        if (r / party->threads != process)
            close(party->end[r]);
    }
    for (int i = 0; i < party->threads; i++) {
        int rank = process * party->threads + i;
        struct member *m = &members[i];
        m->party = party;
        m->rank = (struct rank){
            rank, party->size, {rank, party->size, fork_allgather, m}, party->argument};
        if (party->threads > 1)
            REQUIRE(pthread_create(&threads[i], NULL, member_run, m) == 0);
        else
            member_run(m);
    }
    for (int i = 0; i < party->threads && party->threads > 1; i++)
        pthread_join(threads[i], NULL);
    exit(0);
}

void forks_barrier(struct rank *rank)
{
    char mine = 1, all[RANKS];
    REQUIRE(fork_allgather(rank, &mine, all, 1) == 0);
}

int forks_pid(struct rank *rank, int other)
{
    const struct party *party = ((struct member *)rank)->party;
    return party->pid[other / party->threads];
}

alnico_comm_t forks_comm(struct rank *rank, void *stream)
{
    return ranks_comm(rank, stream);
}

/* ---- The test's side ---- */

/* One block of every living rank; false when none lives any more. A dead rank's block is zero. */
static bool relay(struct party *party)
{
    uint64_t bytes = 0, header;
    char *all = NULL;
    int alive = 0;
    for (int r = 0; r < party->size; r++) {
        if (party->hub[r] < 0)
            continue;
        bool there = move(party->hub[r], &header, sizeof header, false);
        if (there && !all) {
            bytes = header;
            all = calloc((size_t)party->size, bytes + 1);
        }
        if (there && all && header == bytes &&
            move(party->hub[r], all + (size_t)r * bytes, bytes, false)) {
            alive++;
            continue;
        }
        close(party->hub[r]);
        party->hub[r] = -1;
    }
    for (int r = 0; r < party->size; r++)
        if (party->hub[r] >= 0)
            move(party->hub[r], all, bytes * (size_t)party->size, true);
    free(all);
    return alive > 0;
}

static bool ended_well(const struct party *party, int process, int status)
{
    if (process > 63 || !(party->victims >> process & 1))
        return WIFEXITED(status) && WEXITSTATUS(status) == 0;
    return party->signal ? WIFSIGNALED(status) && WTERMSIG(status) == party->signal
                         : WIFEXITED(status) && WEXITSTATUS(status) == EXIT_STATUS;
}

static pid_t *watched;
static int watched_count;

static void give_up(int number)
{
    (void)number;
    static const char text[] = "the ranks take too long\n";
    if (write(2, text, sizeof text - 1) < 0)
        _Exit(2);
    for (int i = 0; i < watched_count; i++)
        if (watched[i] > 0)
            kill(watched[i], SIGKILL);
}

/* cmocka catches what ends a process by an error, and goes on with its next test. */
pid_t forks_process(void)
{
    static const int caught[] = {SIGABRT, SIGBUS, SIGFPE, SIGILL, SIGSEGV, SIGSYS};
    const pid_t pid = fork();
    REQUIRE(pid >= 0);
    for (size_t i = 0; pid == 0 && i < sizeof caught / sizeof *caught; i++)
        signal(caught[i], SIG_DFL);
    return pid;
}

static void start(struct party *party)
{
    fflush(NULL);
    for (int r = 0; r < party->size; r++) {
        int pair[2];
        REQUIRE(socketpair(AF_UNIX, SOCK_STREAM, 0, pair) == 0);
        party->hub[r] = pair[0];
        party->end[r] = pair[1];
    }
    for (int i = 0; i < party->processes; i++) {
        const pid_t pid = forks_process();
        if (pid == 0) {
            party->pid[i] = getpid();
            process_run(party, i);
        }
        party->pid[i] = pid;
    }
    for (int r = 0; r < party->size; r++)
        close(party->end[r]);
}

static void party_run(struct party *party)
{
    party->size = party->processes * party->threads;
    party->pid = mmap(NULL, RANKS * sizeof *party->pid, PROT_READ | PROT_WRITE,
                      MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    REQUIRE(party->size <= RANKS && party->pid != MAP_FAILED);
    start(party);
    watched = party->pid;
    watched_count = party->processes;
    signal(SIGALRM, give_up);
    alarm(party->seconds);
    while (relay(party))
        ;
    bool well = true;
    for (int i = 0; i < party->processes; i++) {
        int status;
        while (waitpid(party->pid[i], &status, 0) < 0 && errno == EINTR)
            ;
        if (!ended_well(party, i, status))
            fprintf(stderr, "process %d ended with status 0x%x\n", i, status);
        well &= ended_well(party, i, status);
    }
    alarm(0);
    munmap(party->pid, RANKS * sizeof *party->pid);
    REQUIRE(well);
}

void forks_run_for(unsigned seconds, int processes, int threads, void (*body)(struct rank *),
                   void *argument)
{
    struct party party = {.processes = processes,
                          .threads = threads,
                          .seconds = seconds,
                          .body = body,
                          .argument = argument};
    party_run(&party);
}

void forks_run(int processes, int threads, void (*body)(struct rank *), void *argument)
{
    forks_run_for(FORKS_SECONDS, processes, threads, body, argument);
}

void forks_run_victim(int processes, int victim, int signal, void (*body)(struct rank *),
                      void *argument)
{
    forks_run_victims(FORKS_SECONDS, processes, UINT64_C(1) << victim, signal, body, argument);
}

void forks_run_victims(unsigned seconds, int processes, uint64_t victims, int signal,
                       void (*body)(struct rank *), void *argument)
{
    struct party party = {.processes = processes,
                          .threads = 1,
                          .victims = victims,
                          .signal = signal,
                          .seconds = seconds,
                          .body = body,
                          .argument = argument};
    party_run(&party);
}
