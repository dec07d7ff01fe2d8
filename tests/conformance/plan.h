/* One call as one rank makes it: where each block of its two buffers stands and what it holds
 * before and after. All ranks plan for themselves, from the same trial. */
#ifndef ALNICO_TESTS_CONFORMANCE_PLAN_H
#define ALNICO_TESTS_CONFORMANCE_PLAN_H

#include "tests/conformance/case.h"

enum { REDUCED = -1, REQUESTS_MOST = 2 * MESSAGES_MOST };

/* A block of a buffer. */
struct piece {
    size_t at; /* bytes from the buffer's begin */
    size_t count;
    alnico_datatype_t type;
    int owner;     /* the rank whose data it is; REDUCED: the result over all */
    uint64_t data; /* which of the owner's */
};

struct area {
    struct piece *pieces;
    int number;
    size_t bytes; /* to the end of the last block */
};

/* A call of a rank: it sends a message, receives one, or both at once; -1: none. */
struct action {
    int send, receive;
    bool nonblocking;
};

struct message {
    int from, to;
    size_t count;
    alnico_datatype_t type;
    uint64_t data;          /* equal for messages that are sent from the same place */
    struct piece *out, *in; /* on the sending and on the receiving rank */
};

/* The first buffer is sent from, the second received into; in place there is only the second. */
struct plan {
    const struct trial *trial;
    const struct operation *operation;
    alnico_comm_t comm;
    int rank, size, root;
    enum place place; /* of this rank */
    bool one;         /* both areas stand in the second buffer */
    struct area reads, writes;
    size_t *send_counts, *send_at, *recv_counts, *recv_at; /* as given to the call */
    char *buffer[2];                                       /* addresses of the data */

    struct message *messages;
    struct action *actions;
    int messages_count, actions_count;
};

/* `self`: a message to oneself may be sent by calls of its own. Ends the process if memory is
 * lacking. */
void plan_init(struct plan *plan, const struct trial *trial, alnico_comm_t comm, bool self);
void plan_finish(struct plan *plan);

/* Bytes of the data of buffer 0 or 1. */
size_t plan_bytes(const struct plan *plan, int buffer);

/* Where a block stands: an address of a buffer. */
char *plan_address(const struct plan *plan, int buffer, const struct piece *piece);

/* The rank's own block in the area with all blocks, or the only one. */
const struct piece *plan_own(const struct plan *plan, const struct area *area);

/* A pseudo-random number of the trial, equal on all ranks. */
uint64_t plan_draw(const struct plan *plan, uint64_t a, uint64_t b);

/* For messages.c. */
void plan_messages(struct plan *plan, bool self);

/* Elements by the trial's pattern of what has number b of `number`. */
size_t plan_count(const struct plan *plan, uint64_t b, uint64_t number);

/* Memory that is there: calloc, or the process ends. */
void *need(size_t number, size_t bytes);

#endif
