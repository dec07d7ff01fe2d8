/* Messages over any transport: shorthands, and traffic between all ranks, many messages of mixed sizes
 * that are received in another order. */
#ifndef ALNICO_TESTS_SUPPORT_TRAFFIC_H
#define ALNICO_TESTS_SUPPORT_TRAFFIC_H

#include "comm/transports/transport.h"

/* Require that the call works. */
struct transfer traffic_send(struct transport *t, int to, uint32_t tag, const void *data,
                             size_t bytes);
struct transfer traffic_receive(struct transport *t, int from, uint32_t tag, void *data,
                                size_t bytes);

/* Tests until the end, for half a minute at most. */
alnico_status_t traffic_finish(struct transport *t, struct transfer *transfer);

struct traffic {
    struct transport *transport;
    uint32_t tag; /* the first one; each round takes eight */
    int rounds;
    size_t largest;
    uint64_t seed;
    bool named; /* every receive names its sender */
};

/* One rank's part; `argument` is its struct traffic. Returns NULL. */
void *traffic_run(void *argument);

#endif
