/* How the tests of threads wait: with generous limits, so that a lost wake-up is red and a busy
 * machine is not. Included after cmocka.h. */
#ifndef ALNICO_TESTS_SUPPORT_PATIENCE_H
#define ALNICO_TESTS_SUPPORT_PATIENCE_H

#include <time.h>
#include <unistd.h>

enum {
    PATIENCE_S = 10, /* what has not happened by then never will */
    WATCHDOG_S = 60  /* a test program that hangs is killed */
};

static inline double now_s(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + 1e-9 * (double)time.tv_nsec;
}

static inline void nap_us(long us)
{
    struct timespec nap = {us / 1000000, us % 1000000 * 1000};
    nanosleep(&nap, NULL);
}

/* How long a test tries to meet a rare moment. */
#define STRESS_S 0.3

/* Fails the test unless the condition comes true. */
#define EVENTUALLY(condition)                                                                      \
    do {                                                                                           \
        double limit_ = now_s() + PATIENCE_S;                                                      \
        while (!(condition)) {                                                                     \
            if (now_s() > limit_)                                                                  \
                fail_msg("after %d s still not: %s", PATIENCE_S, #condition);                      \
            nap_us(20);                                                                            \
        }                                                                                          \
    } while (0)

#endif
