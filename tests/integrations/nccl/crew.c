/* See crew.h. */
#include "tests/integrations/nccl/crew.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

void crew_fail(const char *condition, const char *file, int line)
{
    fprintf(stderr, "%s:%d: %s; NCCL's last error: %s\n", file, line, condition,
            ncclGetLastError(NULL));
    fflush(NULL);
    _exit(1);
}

uint32_t crew_random(unsigned *state)
{
    *state = *state * 1664525u + 1013904223u;
    return *state >> 8;
}

void crew_synchronize(struct crew *crew)
{
    for (int i = 0; i < crew->count; i++)
        for (int s = 0; s < 2; s++)
            cudaStreamSynchronize(crew->streams[i][s]);
}

static void open_crew(struct crew *crew, ncclUniqueId id)
{
    CHECK(ncclGroupStart());
    for (int i = 0; i < crew->count; i++) {
        REQUIRE(cudaSetDevice(crew->first + i) == cudaSuccess);
        for (int s = 0; s < 2; s++)
            REQUIRE(cudaStreamCreateWithFlags(&crew->streams[i][s], 0) == cudaSuccess);
        CHECK(ncclCommInitRank(&crew->comms[i], crew->size, id, crew->first + i));
    }
    CHECK(ncclGroupEnd());
}

static void close_crew(struct crew *crew)
{
    for (int i = 0; i < crew->count; i++) {
        CHECK(ncclCommDestroy(crew->comms[i]));
        for (int s = 0; s < 2; s++)
            cudaStreamDestroy(crew->streams[i][s]);
    }
}

struct part {
    struct crew crew;
    ncclUniqueId id;
    void (*body)(struct crew *);
    pthread_t thread;
};

static void *run_part(void *argument)
{
    struct part *part = argument;
    open_crew(&part->crew, part->id);
    part->body(&part->crew);
    close_crew(&part->crew);
    return NULL;
}

static void run_threads(struct part *parts, int count)
{
    for (int i = 0; i < count; i++)
        REQUIRE(pthread_create(&parts[i].thread, NULL, run_part, &parts[i]) == 0);
    for (int i = 0; i < count; i++)
        pthread_join(parts[i].thread, NULL);
}

/* Rank 0's process makes the id, and the others read it from a pipe. */
static void run_process(struct part *part, const int *pipes, int count)
{
    ssize_t bytes = sizeof part->id;
    if (part->crew.first == 0) {
        CHECK(ncclGetUniqueId(&part->id));
        for (int i = 1; i < count; i++)
            REQUIRE(write(pipes[1], &part->id, sizeof part->id) == bytes);
    } else {
        REQUIRE(read(pipes[0], &part->id, sizeof part->id) == bytes);
    }
    run_part(part);
    fflush(NULL);
    _exit(0);
}

static void run_processes(struct part *parts, int count)
{
    int pipes[2], failed = 0;
    pid_t children[8];
    fflush(NULL);
    REQUIRE(pipe(pipes) == 0);
    for (int i = 0; i < count; i++)
        if ((children[i] = fork()) == 0)
            run_process(&parts[i], pipes, count);
    for (int i = 0; i < count; i++) {
        int status = 1;
        failed += waitpid(children[i], &status, 0) != children[i] || status != 0;
    }
    close(pipes[0]);
    close(pipes[1]);
    REQUIRE(failed == 0);
}

void crew_run(enum crew_way way, int size, unsigned seed, void (*body)(struct crew *))
{
    struct part parts[8] = {0};
    int count = way == ONE_THREAD ? 1 : size;
    for (int i = 0; i < count; i++) {
        parts[i].crew = (struct crew){
            .size = size, .first = i, .count = way == ONE_THREAD ? size : 1, .seed = seed};
        parts[i].body = body;
    }
    if (way == PROCESSES) {
        run_processes(parts, count);
        return;
    }
    CHECK(ncclGetUniqueId(&parts[0].id));
    for (int i = 1; i < count; i++)
        parts[i].id = parts[0].id;
    run_threads(parts, count);
}
