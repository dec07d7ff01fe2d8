/* Ends the process, with the command that repeats it, when a batch crashes or takes too long: the
 * library's own deadline is shorter, so that it should never come to this. */
#ifndef ALNICO_TESTS_CONFORMANCE_WATCHDOG_H
#define ALNICO_TESTS_CONFORMANCE_WATCHDOG_H

#include "tests/conformance/options.h"

/* Sets the library's deadline in the environment, before there is any thread or other process. */
void watchdog_prepare(const struct options *options);

/* Once in each process; again it does nothing. */
void watchdog_start(const struct options *options);

/* A batch begins on a rank of this process. */
void watchdog_tell(const struct batch *batch);

#endif
