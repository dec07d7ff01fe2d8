/* A slot has the process of the scene that plays there. */
#include "tests/support/stage.h"

#include "tests/support/forks.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <sys/wait.h>

static struct {
    pid_t slots[STAGE_SLOTS]; /* 0: free */
    int failed;
} stage;

static int free_slot(int at_once)
{
    int slot = 0;
    while (slot < at_once && stage.slots[slot])
        slot++;
    return slot;
}

static void wait_for_one(void)
{
    int status;
    pid_t pid = wait(&status);
    REQUIRE(pid > 0);
    for (int i = 0; i < STAGE_SLOTS; i++)
        if (stage.slots[i] == pid)
            stage.slots[i] = 0;
    stage.failed += status != 0;
}

void stage_play(const struct stage_act *act, const void *scene, size_t bytes)
{
    int slot;
    while ((slot = free_slot(act->at_once)) == act->at_once)
        wait_for_one();
    fflush(NULL);
    pid_t pid = forks_process();
    if (pid == 0) {
        char *own = malloc(bytes);
        REQUIRE(own);
        memcpy(own, scene, bytes);
        act->play(own, slot);
        _Exit(0);
    }
    stage.slots[slot] = pid;
}

static int playing(void)
{
    int count = 0;
    for (int i = 0; i < STAGE_SLOTS; i++)
        count += stage.slots[i] != 0;
    return count;
}

int stage_end(void)
{
    while (playing())
        wait_for_one();
    int failed = stage.failed;
    stage.failed = 0;
    return failed;
}
