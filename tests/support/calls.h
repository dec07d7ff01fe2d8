/* The calls that wait for other ranks, in one table, for tests that repeat them while ranks die. */
#ifndef ALNICO_TESTS_SUPPORT_CALLS_H
#define ALNICO_TESTS_SUPPORT_CALLS_H

#include <alnico/alnico.h>

enum { CALLS_RANKS = 8 }; /* at most */

/* For `count` elements of and for each rank. */
struct calls_buffers {
    float *send, *recv;
    size_t count, counts[CALLS_RANKS], shares[CALLS_RANKS];
    int size;
};

struct calls_buffers calls_buffers_make(int size, size_t count);
void calls_buffers_free(struct calls_buffers *buffers);

enum calls_way { CALLS_BLOCKING, CALLS_NONBLOCKING, CALLS_ON_A_STREAM, CALLS_WAYS };

struct calls_row {
    const char *name;
    alnico_status_t (*call)(alnico_comm_t, const struct calls_buffers *, alnico_request_t *);
    alnico_collective_t collective;
    const char *algorithm; /* NULL: as the table chooses */
    int ways;              /* the first so many of them */
};

/* Ends with a row without a name. */
extern const struct calls_row calls_rows[];

/* How many there are. */
int calls_count(void);

/* Forces the row's algorithm, if it has one (collective). */
void calls_prepare(alnico_comm_t comm, const struct calls_row *row);

/* Calls once, and learns what it came to; on a stream the communicator has one. */
alnico_status_t calls_once(alnico_comm_t comm, const struct calls_row *row, enum calls_way way,
                           const struct calls_buffers *buffers);

#endif
