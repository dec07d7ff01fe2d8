/* A thread that looks once a second at what runs, and handlers of crashes. */
#include "tests/conformance/watchdog.h"

#include "tests/conformance/crew.h"

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static struct {
    pthread_mutex_t mutex;
    struct batch batch;
    int seconds; /* since it was told */
    /* A copy: the thread looks while main has returned and exit still runs. */
    struct options options;
    bool runs;
} now = {.mutex = PTHREAD_MUTEX_INITIALIZER};

static _Noreturn void give_up(const char *why)
{
    static char text[8192], command[8000];
    int bytes = snprintf(text, sizeof text, "alnico-conformance: %s\nRepeat it with:\n    %s\n",
                         why, crew_command(&now.options, &now.batch, command, sizeof command));
    if (write(STDERR_FILENO, text, (size_t)bytes) < 0)
        _Exit(3);
    _Exit(EXIT_FAILURE);
}

/* The process ends anyway: that the text does not come is the worst that may happen. */
static void on_crash(int number)
{
    static atomic_flag told = ATOMIC_FLAG_INIT;
    if (atomic_flag_test_and_set(&told)) { /* another thread's: let it speak */
        sleep(5);
        _Exit(EXIT_FAILURE);
    }
    give_up(number == SIGABRT ? "aborted" : "segmentation fault");
}

static void *watch(void *argument)
{
    (void)argument;
    for (;;) {
        sleep(1);
        pthread_mutex_lock(&now.mutex);
        if (now.batch.number && ++now.seconds > now.options.patience)
            give_up("not done in time");
        pthread_mutex_unlock(&now.mutex);
    }
    return NULL;
}

void watchdog_prepare(const struct options *options)
{
    char deadline[16];
    snprintf(deadline, sizeof deadline, "%d", options->patience / 2);
    setenv("ALNICO_TIMEOUT", deadline, 0);
}

void watchdog_start(const struct options *options)
{
    pthread_t thread;
    pthread_mutex_lock(&now.mutex);
    bool runs = now.runs;
    now.options = *options;
    now.runs = true;
    pthread_mutex_unlock(&now.mutex);
    if (runs)
        return;
    if (!ranks_sanitized()) {
        signal(SIGABRT, on_crash);
        signal(SIGSEGV, on_crash);
    }
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
