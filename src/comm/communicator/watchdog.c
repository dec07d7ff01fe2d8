/* The watchdog's thread and its list. A rank that ended counts at the second look: what it wrote
 * before has come by then, and what waits for that has ended well. */
#include "comm/communicator/watchdog.h"

#include "base/status.h"
#include "base/thread.h"
#include "comm/communicator/comm.h"
#include "comm/rendezvous/out_of_band.h"

#include <string.h>
#include <time.h>

enum { LOOK_NS = 150000000, LOST_LOOKS = 2 };

static void look_at(alnico_comm_t comm)
{
    if (atomic_load(&comm->latch.status) != ALNICO_SUCCESS)
        return;
    int lost = out_of_band_find_lost(comm->transport);
    comm->watch.lost_looks = lost < 0 ? 0 : comm->watch.lost_looks + 1;
    if (comm->watch.lost_looks == LOST_LOOKS)
        comm_lose(comm, lost);
}

static void sleep_locked(struct watchdog *watchdog)
{
    int64_t end_ns = backoff_now_ns() + LOOK_NS;
    struct timespec end = {end_ns / 1000000000, end_ns % 1000000000};
    pthread_cond_timedwait(&watchdog->stopped, &watchdog->lock, &end);
}

static void *run(void *argument)
{
    struct watchdog *watchdog = argument;
    pthread_mutex_lock(&watchdog->lock);
    while (!watchdog->stopping) {
        for (alnico_comm_t comm = watchdog->watched; comm; comm = comm->watch.next)
            look_at(comm);
        sleep_locked(watchdog);
    }
    pthread_mutex_unlock(&watchdog->lock);
    return NULL;
}

void watchdog_init(struct watchdog *watchdog)
{
    pthread_condattr_t clock;
    *watchdog = (struct watchdog){0};
    pthread_mutex_init(&watchdog->lock, NULL);
    pthread_condattr_init(&clock);
    pthread_condattr_setclock(&clock, CLOCK_MONOTONIC);
    pthread_cond_init(&watchdog->stopped, &clock);
    pthread_condattr_destroy(&clock);
}

alnico_status_t watchdog_add(struct watchdog *watchdog, alnico_comm_t comm)
{
    int error = 0;
    pthread_mutex_lock(&watchdog->lock);
    if (!watchdog->started)
        error = thread_create(&watchdog->thread, run, watchdog);
    watchdog->started = error == 0;
    if (watchdog->started) {
        comm->watch = (struct watch){.next = watchdog->watched};
        watchdog->watched = comm;
    }
    pthread_mutex_unlock(&watchdog->lock);
    return error ? error_set(ALNICO_ERROR_SYSTEM, "cannot start the watchdog's thread: %s",
                             strerror(error))
                 : ALNICO_SUCCESS;
}

void watchdog_remove(struct watchdog *watchdog, alnico_comm_t comm)
{
    pthread_mutex_lock(&watchdog->lock);
    alnico_comm_t *link = &watchdog->watched;
    while (*link && *link != comm)
        link = &(*link)->watch.next;
    if (*link)
        *link = comm->watch.next;
    pthread_mutex_unlock(&watchdog->lock);
}

void watchdog_finish(struct watchdog *watchdog)
{
    pthread_mutex_lock(&watchdog->lock);
    watchdog->stopping = true;
    pthread_cond_signal(&watchdog->stopped);
    pthread_mutex_unlock(&watchdog->lock);
    if (watchdog->started)
        pthread_join(watchdog->thread, NULL);
    pthread_cond_destroy(&watchdog->stopped);
    pthread_mutex_destroy(&watchdog->lock);
}
