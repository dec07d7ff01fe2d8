/* Ranks as processes of their own: forks them and gives each a bootstrap over socketpairs to the
 * test's process, which passes the blocks on and waits for the ends. */
#ifndef ALNICO_TESTS_SUPPORT_FORKS_H
#define ALNICO_TESTS_SUPPORT_FORKS_H

#include "tests/support/ranks.h"

#include <sys/types.h>

enum { FORKS_SECONDS = 60 }; /* before what is left is killed, where nothing else is said */

/* As fork, which the test requires to work; but a child that crashes ends. */
pid_t forks_process(void);

/* Runs `body` once for each of processes * threads ranks, `threads` neighbouring ones in each
 * process, and returns when all have ended. The test fails, and what is left is killed, if a
 * process does not exit with 0 or if they take longer than a minute. */
void forks_run(int processes, int threads, void (*body)(struct rank *), void *argument);

/* The same with another time than a minute. */
void forks_run_for(unsigned seconds, int processes, int threads, void (*body)(struct rank *),
                   void *argument);

/* One rank a process, of which `victim` does not end well: it ends by that signal, or with exit
 * status 9 where the signal is 0. */
void forks_run_victim(int processes, int victim, int signal, void (*body)(struct rank *),
                      void *argument);

/* The same with several victims, a bit each, and another time than a minute. */
void forks_run_victims(unsigned seconds, int processes, uint64_t victims, int signal,
                       void (*body)(struct rank *), void *argument);

/* All ranks that live wait for each other. */
void forks_barrier(struct rank *rank);

/* From a rank: the process of another rank. */
int forks_pid(struct rank *rank, int other);

/* A communicator over all ranks on the CPU; the test fails if it cannot be made. */
alnico_comm_t forks_comm(struct rank *rank, void *stream);

#endif
