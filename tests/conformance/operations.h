/* Every operation in one table: what each rank reads and writes of it, written down independently
 * of the library, and its public calls. */
#ifndef ALNICO_TESTS_CONFORMANCE_OPERATIONS_H
#define ALNICO_TESTS_CONFORMANCE_OPERATIONS_H

#include "tests/conformance/plan.h"

/* How many blocks a rank has of its input or result. */
enum blocks { NONE, ONE, ALL };

struct operation {
    const char *name;
    alnico_collective_t collective;
    enum blocks reads, writes;
    bool reads_at_root, writes_at_root; /* there only */
    bool writes_elsewhere;              /* not at the root, whose input stands in the same buffer */
    bool reduces, rooted;
    bool counts; /* blocks of different length */
    bool at;     /* ... with displacements */
    bool pairs;  /* ... and of every pair of ranks another one */
    bool in_place;
    bool messages; /* from some ranks to others: messages.c */

    /* Makes the call: blocking if `request` is NULL. Operations of messages make several, with a
     * request each. */
    alnico_status_t (*call)(const struct plan *plan, alnico_request_t *request);
};

extern const struct operation operations[]; /* ended by a NULL name */

int operations_count(void);

/* Ways to be in place that the operation has: of PLACES the first so many. Those that send from
 * where they receive are in place on all ranks or on none. */
int operation_places(int i);

/* Its number; -1: there is none of that name. */
int operation_find(const char *name);

/* Name of operation i; NULL after the last. */
const char *operation_name(int i);

#endif
