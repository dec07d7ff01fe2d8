/*
 * Watchdog: a thread that asks now and then whether the processes of a communicator's ranks live, for
 * communicators whose operations a device carries out: nobody on the host need be waiting for those,
 * as while a CUDA graph runs. When one has ended it latches the error and aborts the backends, whose
 * kernels poll for that. On the CPU whoever polls an operation asks. One thread a family, from its
 * first such communicator on.
 */
#ifndef ALNICO_COMM_COMMUNICATOR_WATCHDOG_H
#define ALNICO_COMM_COMMUNICATOR_WATCHDOG_H

#include <alnico/alnico.h>

#include <pthread.h>
#include <stdbool.h>

struct watchdog {
    pthread_mutex_t lock; /* of all below, and held while a communicator is looked at */
    pthread_cond_t stopped;
    pthread_t thread;
    bool started, stopping;
    alnico_comm_t watched; /* a list, by watch.next */
};

/* The watchdog's part of a communicator. */
struct watch {
    alnico_comm_t next;
    int lost_looks; /* one after the other at which a rank had ended */
};

void watchdog_init(struct watchdog *watchdog);

/* Watches the communicator until watchdog_remove. Errors: SYSTEM (no thread): it is not watched. */
alnico_status_t watchdog_add(struct watchdog *watchdog, alnico_comm_t comm);

/* Returns when nobody looks at the communicator any more. One that is not watched is fine. */
void watchdog_remove(struct watchdog *watchdog, alnico_comm_t comm);

/* Ends the thread; nothing is watched. */
void watchdog_finish(struct watchdog *watchdog);

#endif
