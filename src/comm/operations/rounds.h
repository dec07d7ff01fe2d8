/* The executor: it runs any algorithm over any transport, one step at a time, without blocking. The
 * host backend uses one for each chunk of a message. */
#ifndef ALNICO_COMM_OPERATIONS_ROUNDS_H
#define ALNICO_COMM_OPERATIONS_ROUNDS_H

#include "comm/algorithms/algorithm.h"
#include "comm/transports/transport.h"
#include "device/device.h"
#include "progress/gate.h"

/* An exchange that was posted. */
struct pending {
    struct exchange exchange;
    struct transfer send, recv;
    char *arrival; /* where it goes to be reduced */
    bool sending, receiving;
};

/* The owner fills the first part, then calls rounds_begin. */
struct rounds {
    const struct algorithm *algorithm;
    struct shape shape;
    struct transport *transport;
    uint32_t tag;                    /* of all its messages; no other executor in flight has it */
    const struct device_ops *device; /* whose reductions combine elements in the buffers */
    void *stream;                    /* what it reduces on: the inline stream, NULL on the CPU */
    struct gate *ended; /* of a stream that is not inline, and not in use: opened behind what was
                           enqueued; NULL: all has ended when a call returns */
    bool enqueued;      /* something was, by the owner or here, since the gate was closed */
    alnico_datatype_t type;
    alnico_op_t op;
    /* RECV begins as a copy of the input; WORK has algorithm->work elements. */
    char *buffer[BUFFERS];
    char *arrivals;       /* room for what arrives to be reduced in one round */
    struct pending *many; /* room for as many exchanges as a round may have; NULL: EXCHANGES */
    bool empty;           /* messages without elements are sent too */

    size_t element; /* bytes */
    int round, rounds;
    int open;   /* exchanges of the present round; 0 before they are posted */
    int failed; /* which of them, after an error of the transport's */
    struct pending *pending;
    struct pending few[EXCHANGES];
};

void rounds_begin(struct rounds *r);

/* One step: ALNICO_PENDING, SUCCESS after the last round, or the transport's error. *moved is set
 * if anything advanced. After an error call rounds_cancel. Once it has succeeded another call waits
 * for what its owner has enqueued since. */
alnico_status_t rounds_poll(struct rounds *r, bool *moved);

/* Ends every transfer that is open, and waits for what is enqueued. */
void rounds_cancel(struct rounds *r);

/* A rank whose message or readiness is awaited now, or -1. */
int rounds_waits_for(const struct rounds *r);

#endif
