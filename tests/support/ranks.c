/* Threads as ranks, with an allgather over shared memory as bootstrap. */
#include "tests/support/ranks.h"

#include <dirent.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>

struct group {
    int size;
    pthread_barrier_t barrier;
    const void **parts;
};

struct member {
    struct rank rank; /* first: what the body sees */
    struct group *group;
    void (*body)(struct rank *);
};

static int group_allgather(void *context, const void *mine, void *all, size_t bytes)
{
    struct member *member = context;
    struct group *group = member->group;
    group->parts[member->rank.rank] = mine;
    pthread_barrier_wait(&group->barrier);
    for (int i = 0; i < group->size; i++)
        memcpy((char *)all + (size_t)i * bytes, group->parts[i], bytes);
    pthread_barrier_wait(&group->barrier);
    return 0;
}

static void *member_run(void *argument)
{
    struct member *member = argument;
    member->body(&member->rank);
    return NULL;
}

void ranks_run(int size, void (*body)(struct rank *), void *argument)
{
    struct group group = {.size = size, .parts = calloc((size_t)size, sizeof *group.parts)};
    struct member *members = calloc((size_t)size, sizeof *members);
    pthread_t *threads = calloc((size_t)size, sizeof *threads);
    REQUIRE(group.parts && members && threads);
    pthread_barrier_init(&group.barrier, NULL, (unsigned)size);
    for (int i = 0; i < size; i++) {
        struct member *m = &members[i];
        m->group = &group;
        m->body = body;
        m->rank = (struct rank){i, size, {i, size, group_allgather, m}, argument};
        REQUIRE(pthread_create(&threads[i], NULL, member_run, m) == 0);
    }
    for (int i = 0; i < size; i++)
        pthread_join(threads[i], NULL);
    pthread_barrier_destroy(&group.barrier);
    free(threads);
    free(members);
    free(group.parts);
}

void ranks_barrier(struct rank *rank)
{
    pthread_barrier_wait(&((struct member *)rank)->group->barrier);
}

alnico_id_t ranks_share_id(struct rank *rank)
{
    alnico_id_t mine, *all = calloc((size_t)rank->size, sizeof *all);
    memset(&mine, 0, sizeof mine);
    if (rank->rank == 0)
        REQUIRE_STATUS(alnico_id_create(&mine), ALNICO_SUCCESS);
    REQUIRE(all &&
            rank->bootstrap.allgather(rank->bootstrap.context, &mine, all, sizeof mine) == 0);
    mine = all[0];
    free(all);
    return mine;
}

static alnico_status_t allgather(void *context, const void *mine, void *all, size_t bytes)
{
    const struct rank *rank = context;
    return rank->bootstrap.allgather(rank->bootstrap.context, mine, all, bytes)
               ? ALNICO_ERROR_SYSTEM
               : ALNICO_SUCCESS;
}

struct rendezvous ranks_rendezvous(struct rank *rank, double timeout)
{
    return (struct rendezvous){.allgather = allgather,
                               .context = rank,
                               .rank = rank->rank,
                               .size = rank->size,
                               .who = "alnico_test",
                               .timeout = timeout};
}

alnico_comm_t ranks_comm(struct rank *rank, void *stream)
{
    alnico_comm_t comm = NULL;
    REQUIRE_STATUS(alnico_comm_create(&rank->bootstrap, ALNICO_DEVICE_CPU, stream, &comm),
                   ALNICO_SUCCESS);
    return comm;
}

void ranks_require(bool condition, const char *text, const char *file, int line)
{
    if (condition)
        return;
    fprintf(stderr, "%s:%d: %s is false (detail: %s)\n", file, line, text, alnico_error_detail());
    _Exit(1);
}

void ranks_require_status(alnico_status_t status, alnico_status_t expected, const char *text,
                          const char *file, int line)
{
    if (status == expected)
        return;
    fprintf(stderr, "%s:%d: %s is %d, expected %d (detail: %s)\n", file, line, text, (int)status,
            (int)expected, alnico_error_detail());
    _Exit(1);
}

void ranks_require_detail(const char *text)
{
    if (strstr(alnico_error_detail(), text))
        return;
    fprintf(stderr, "the detail '%s' does not say '%s'\n", alnico_error_detail(), text);
    _Exit(1);
}

int ranks_threads(void)
{
    int count = 0;
    DIR *folder = opendir("/proc/self/task");
    for (struct dirent *entry; folder && (entry = readdir(folder));)
        count += entry->d_name[0] != '.';
    if (folder)
        closedir(folder);
    return count;
}

bool ranks_sanitized(void)
{
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    return true;
#else
    return false;
#endif
}

int ranks_repetitions(int count)
{
#if defined(__SANITIZE_THREAD__)
    return (count + 3) / 4;
#else
    return count;
#endif
}

double ranks_cpu_seconds(void)
{
    struct rusage use;
    getrusage(RUSAGE_SELF, &use);
    return (double)(use.ru_utime.tv_sec + use.ru_stime.tv_sec) +
           1e-6 * (double)(use.ru_utime.tv_usec + use.ru_stime.tv_usec);
}

double ranks_seconds(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + 1e-9 * (double)time.tv_nsec;
}
