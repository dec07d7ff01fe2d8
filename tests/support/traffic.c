/* Traffic between ranks, checked byte by byte. */
#include "tests/support/traffic.h"

#include "tests/support/ranks.h"
#include "tests/support/reference.h"

#include <sched.h>
#include <stdlib.h>

struct transfer traffic_send(struct transport *t, int to, uint32_t tag, const void *data,
                             size_t bytes)
{
    struct transfer transfer;
    REQUIRE_STATUS(t->ops->isend(t, to, tag, data, bytes, &transfer), ALNICO_SUCCESS);
    return transfer;
}

struct transfer traffic_receive(struct transport *t, int from, uint32_t tag, void *data,
                                size_t bytes)
{
    struct transfer transfer;
    REQUIRE_STATUS(t->ops->irecv(t, from, tag, data, bytes, &transfer), ALNICO_SUCCESS);
    return transfer;
}

alnico_status_t traffic_finish(struct transport *t, struct transfer *transfer)
{
    alnico_status_t status;
    double end = ranks_seconds() + 30;
    while ((status = t->ops->test(t, transfer)) == ALNICO_PENDING) {
        REQUIRE(ranks_seconds() < end);
        sched_yield();
    }
    return status;
}

enum { BURST = 6 };

static size_t pick_bytes(const struct traffic *traffic, uint64_t round, uint64_t k, int from,
                         int to)
{
    uint64_t random =
        reference_random(traffic->seed + traffic->tag, round * 64 + k, (uint64_t)(from * 128 + to));
    size_t scale = (size_t)1 << (random % 20);
    size_t bytes = (random >> 20) % (2 * scale);
    return bytes < traffic->largest ? bytes : bytes % traffic->largest;
}

static char pattern(uint64_t round, uint64_t k, int from, int to, size_t i)
{
    return (char)(round * 31 + k * 7 + (uint64_t)(from * 13 + to * 17) + i + i / 251);
}

static void fill(char *data, size_t bytes, uint64_t round, uint64_t k, int from, int to)
{
    for (size_t i = 0; i < bytes; i++)
        data[i] = pattern(round, k, from, to, i);
}

static void check(const char *data, size_t bytes, uint64_t round, uint64_t k, int from, int to)
{
    for (size_t i = 0; i < bytes; i++)
        REQUIRE(data[i] == pattern(round, k, from, to, i));
}

/* Each is used twice, and in one round only: who takes from anybody means this round's sender. */
static uint32_t tag_of(const struct traffic *traffic, uint64_t round, uint64_t k)
{
    return traffic->tag + (uint32_t)(8 * round + k / 2);
}

/* A burst to the next rank and one from the previous. */
static void run_round(const struct traffic *traffic, uint64_t round, char *out[], char *in[])
{
    struct transport *t = traffic->transport;
    int size = t->size, hop = 1 + (int)(round % (uint64_t)size);
    int to = (t->rank + hop) % size, from = (t->rank - hop % size + size) % size;
    struct transfer sends[BURST], receives[BURST];
    size_t bytes;
    for (uint64_t k = 0; k < BURST; k++) {
        bytes = pick_bytes(traffic, round, k, t->rank, to);
        fill(out[k], bytes, round, k, t->rank, to);
        sends[k] = traffic_send(t, to, tag_of(traffic, round, k), out[k], bytes);
    }
    for (uint64_t j = 0; j < BURST; j++) {
        uint64_t k = (j + 2 * (round % 3)) % BURST; /* other tags first, same tags in order */
        receives[k] = traffic_receive(t, round % 7 || traffic->named ? from : TRANSPORT_ANY,
                                      tag_of(traffic, round, k), in[k],
                                      pick_bytes(traffic, round, k, from, t->rank));
        if (round % 7 == 0 && !traffic->named)
            REQUIRE_STATUS(traffic_finish(t, &receives[k]), ALNICO_SUCCESS);
    }
    for (bool open = true; open;) {
        open = false;
        for (int k = 0; k < BURST; k++) {
            alnico_status_t a = t->ops->test(t, &receives[k]), b = t->ops->test(t, &sends[k]);
            REQUIRE(a >= 0 && b >= 0);
            open |= a == ALNICO_PENDING || b == ALNICO_PENDING;
        }
        if (open)
            sched_yield();
    }
    for (uint64_t k = 0; k < BURST; k++)
        check(in[k], pick_bytes(traffic, round, k, from, t->rank), round, k, from, t->rank);
}

void *traffic_run(void *argument)
{
    const struct traffic *traffic = argument;
    char *out[BURST], *in[BURST];
    for (int k = 0; k < BURST; k++) {
        out[k] = malloc(traffic->largest);
        in[k] = malloc(traffic->largest);
        REQUIRE(out[k] && in[k]);
    }
    for (int i = 0; i < traffic->rounds; i++)
        run_round(traffic, (uint64_t)i, out, in);
    for (int k = 0; k < BURST; k++) {
        free(out[k]);
        free(in[k]);
    }
    return NULL;
}
