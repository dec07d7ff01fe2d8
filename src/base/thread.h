/* Threads of the library. They take no signals: those are the application's, and its threads'. */
#ifndef ALNICO_BASE_THREAD_H
#define ALNICO_BASE_THREAD_H

#include <pthread.h>
#include <signal.h>

/* pthread_create with all signals blocked in the new thread; returns its error number. */
static inline int thread_create(pthread_t *out, void *(*run)(void *), void *argument)
{
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int error = pthread_create(out, NULL, run, argument);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return error;
}

#endif
