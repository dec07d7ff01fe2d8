/* A thread that looks once a second at what runs. */
#include "watchdog.h"

#include "crew.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

enum { PATIENCE_S = 120 };

static struct {
    pthread_mutex_t mutex;
    struct batch batch;
    int seconds; /* since it was told */
    const struct options *options;
} now = {.mutex = PTHREAD_MUTEX_INITIALIZER};

static void give_up(void)
{
    char command[8192];
    fflush(stdout);
    fprintf(stderr, "alnico-conformance: not done after %d s\nRepeat it with:\n    %s\n",
            PATIENCE_S, crew_command(now.options, &now.batch, command, sizeof command));
    _Exit(EXIT_FAILURE);
}

static void *watch(void *argument)
{
    (void)argument;
    for (;;) {
        sleep(1);
        pthread_mutex_lock(&now.mutex);
        if (now.batch.number && ++now.seconds > PATIENCE_S)
            give_up();
        pthread_mutex_unlock(&now.mutex);
    }
    return NULL;
}

void watchdog_start(const struct options *options)
{
    pthread_t thread;
    now.options = options;
    setenv("ALNICO_TIMEOUT", "60", 0);
    REQUIRE(pthread_create(&thread, NULL, watch, NULL) == 0);
    pthread_detach(thread);
}

void watchdog_tell(const struct batch *batch)
{
    pthread_mutex_lock(&now.mutex);
    now.batch = *batch;
    now.seconds = 0;
    pthread_mutex_unlock(&now.mutex);
}
