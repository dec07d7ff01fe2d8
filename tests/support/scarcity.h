/* Memory that runs out: allocation k of a call fails, for every k, on one rank or on all. Each call
 * ends, says why it failed, and leaves neither memory nor descriptors behind. A test that uses this
 * names itself to alnico_scarce (tests/CMakeLists.txt), which wraps the allocator. */
#ifndef ALNICO_TESTS_SUPPORT_SCARCITY_H
#define ALNICO_TESTS_SUPPORT_SCARCITY_H

#include "tests/support/ranks.h"

/* A call, and what one trial of it needs. */
struct scarce_call {
    const char *name;
    const char
        *named;      /* the detail of each of its errors contains this, or `name`; NULL: any text */
    bool collective; /* it fails on all ranks or on none */
    bool alike;      /* all get the same status: nobody waits for the deadline */
    int parts;       /* rank i is in part i % parts: of those `collective` speaks; 0: one */
    alnico_status_t (*call)(struct rank *rank, alnico_comm_t base, void **out);
    alnico_comm_t (*base)(struct rank *rank); /* what it is called on; NULL: nothing */
    void (*undo)(void *out);                  /* NULL: it ends with the base */
};

enum { SCARCE_ALL = -1 };

/* Tries all allocations of the call on the rank `victim`, or on SCARCE_ALL. Collective. */
void scarce_try(struct rank *rank, const struct scarce_call *call, int victim);

/* Tries duplicate, split, register, iallreduce and stream_create; `base` makes their communicator. */
void scarce_try_calls(struct rank *rank, alnico_comm_t (*base)(struct rank *), int victim);

/* For `undo`. */
void scarce_destroy(void *comm);

#endif
