/* Ranks as threads of the test's process: starts one thread a rank and gives each a bootstrap. */
#ifndef ALNICO_TESTS_SUPPORT_RANKS_H
#define ALNICO_TESTS_SUPPORT_RANKS_H

#include "comm/agree.h"

#include <alnico/alnico.h>

#include <stdint.h>

struct rank {
    int rank, size;
    alnico_bootstrap_t bootstrap;
    void *argument;
};

/* Runs `body` once for each of `size` ranks at the same time, and returns when all have. */
void ranks_run(int size, void (*body)(struct rank *), void *argument);

/* All ranks wait for each other, outside the library. */
void ranks_barrier(struct rank *rank);

/* All ranks: an id that rank 0 makes. The thread that listens there runs in rank 0's process: a test
 * whose ranks are processes makes none before it forks, where a thread may hold a lock. */
alnico_id_t ranks_share_id(struct rank *rank);

/* All ranks, who meet outside the library. */
struct rendezvous ranks_rendezvous(struct rank *rank, double timeout);

/* A communicator over all ranks on the CPU; the test fails if it cannot be made. */
alnico_comm_t ranks_comm(struct rank *rank, void *stream);

/* Ends the process with the place if `condition` is false: cmocka's own checks work on its main
 * thread only. */
#define REQUIRE(condition) ranks_require((condition), #condition, __FILE__, __LINE__)
void ranks_require(bool condition, const char *text, const char *file, int line);

/* Requires a status, showing the detail if it is another. */
#define REQUIRE_STATUS(expr, expected)                                                             \
    ranks_require_status((expr), (expected), #expr, __FILE__, __LINE__)
void ranks_require_status(alnico_status_t status, alnico_status_t expected, const char *text,
                          const char *file, int line);

/* Requires that the thread's error detail contains the text. */
void ranks_require_detail(const char *text);

/* Number of this process's threads. */
int ranks_threads(void);

/* Whether this build has a sanitizer, whose memory grows by itself and whose time is another. */
bool ranks_sanitized(void);

/* How many of so many repetitions are enough: under the thread sanitizer, which finds a race whether
 * or not it is lost, a quarter. */
int ranks_repetitions(int count);

/* CPU seconds of this process, and seconds on a steady clock. */
double ranks_cpu_seconds(void);
double ranks_seconds(void);

#endif
