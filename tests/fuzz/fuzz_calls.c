/*
 * Any arguments to the public calls of a communicator of one rank, made from a callback, but for
 * collectives, which are fuzz_collectives.c's. What is allowed is written down here once more: an
 * allowed call must succeed, and a message arrive; any other must be refused with a detail and
 * change nothing. Buffers are always large enough, or the count is one that no memory can hold.
 */
#include "tests/fuzz/call_values.h"
#include "tests/fuzz/fuzz.h"

#include <alnico/alnico.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ARENA = 4096, CALLS = 64 };

static _Alignas(64) unsigned char arena[ARENA], before[ARENA];

static int allgather(void *context, const void *mine, void *all, size_t bytes)
{
    (void)context;
    memcpy(all, mine, bytes);
    return 0;
}

static alnico_comm_t communicator(void)
{
    static alnico_comm_t comm;
    alnico_bootstrap_t bootstrap = {0, 1, allgather, NULL};
    if (!comm)
        FUZZ_REQUIRE(alnico_comm_create(&bootstrap, ALNICO_DEVICE_CPU, NULL, &comm) ==
                     ALNICO_SUCCESS);
    return comm;
}

static void require_refused(alnico_status_t status)
{
    FUZZ_REQUIRE(status == ALNICO_ERROR_ARGUMENT);
    FUZZ_REQUIRE(*alnico_error_detail());
}

/* ---- What is passed ---- */

static unsigned char *read_place(struct input *in)
{
    int kind = next(in), low = next(in), high = next(in);
    return kind % 8 == 0 ? NULL : arena + (low + 256 * high) % (ARENA / 2);
}

/* Small enough for what lies behind both places, or beyond all memory. */
static size_t read_count(struct input *in, int type)
{
    int kind = next(in);
    size_t count = (size_t)next(in) % 256, element = values_bytes(type) ? values_bytes(type) : 8;
    if (kind % 8 == 0)
        return (size_t)PTRDIFF_MAX / element + 1 + count;
    return kind % 8 == 1 ? SIZE_MAX - count : count;
}

static alnico_status_t finish_request(struct input *in, alnico_request_t *request)
{
    bool done = false;
    alnico_status_t status = ALNICO_SUCCESS;
    switch (next(in) % 3) {
    case 0:
        return alnico_wait(request);
    case 1:
        return alnico_request_synchronize(request);
    default:
        while (!done && status == ALNICO_SUCCESS)
            status = alnico_test(request, &done);
        return status;
    }
}

/* ---- Messages of the rank to itself ---- */

struct message {
    unsigned char *at;
    size_t count;
    int type, peer;
};

static bool is_good_message(const struct message *m)
{
    size_t element = values_bytes(m->type);
    if (!element || m->peer != 0 || m->count > (size_t)PTRDIFF_MAX / element)
        return false;
    return m->count == 0 || (m->at && (uintptr_t)m->at % element == 0);
}

static bool are_apart(const struct message *a, const struct message *b)
{
    size_t a_bytes = a->count * values_bytes(a->type), b_bytes = b->count * values_bytes(b->type);
    return !a_bytes || !b_bytes || a->at + a_bytes <= b->at || b->at + b_bytes <= a->at;
}

/* A message and its receive: as long as each other. */
static void read_messages(struct input *in, struct message *sent, struct message *received)
{
    sent->type = next(in) % 14 - 1;
    sent->peer = next(in) % 8 == 0 ? next(in) - 128 : 0;
    sent->count = read_count(in, sent->type);
    *received = *sent;
    sent->at = read_place(in);
    received->at = read_place(in);
}

static void expect_copy(const struct message *sent, const struct message *received)
{
    size_t bytes = sent->count * values_bytes(sent->type);
    if (bytes)
        memcpy(before + (received->at - arena), before + (sent->at - arena), bytes);
}

static void fill_arena(struct input *in)
{
    int seed = next(in);
    for (int i = 0; i < ARENA; i++)
        arena[i] = (unsigned char)(i * 13 + i / 256 + seed);
    memcpy(before, arena, ARENA);
}

static void fuzz_sendrecv(struct input *in)
{
    struct message sent, received;
    alnico_request_t request = NULL;
    read_messages(in, &sent, &received);
    fill_arena(in);
    received.peer = next(in) % 8 == 0 ? next(in) - 128 : sent.peer;
    bool blocking = next(in) % 2;
    bool allowed =
        is_good_message(&sent) && is_good_message(&received) && are_apart(&sent, &received);
    alnico_datatype_t type = (alnico_datatype_t)sent.type;
    alnico_status_t status =
        blocking ? alnico_sendrecv(sent.at, sent.count, sent.peer, received.at, received.count,
                                   received.peer, type, communicator())
                 : alnico_isendrecv(sent.at, sent.count, sent.peer, received.at, received.count,
                                    received.peer, type, communicator(), &request);
    FUZZ_REQUIRE((request != NULL) == (allowed && !blocking));
    if (!allowed)
        require_refused(status);
    else
        FUZZ_REQUIRE((request ? finish_request(in, &request) : status) == ALNICO_SUCCESS);
    if (allowed)
        expect_copy(&sent, &received);
    FUZZ_REQUIRE(memcmp(arena, before, ARENA) == 0);
}

enum { GROUP = 8 };

/* Whether the pair may join the group: a receive meets nothing else. */
static bool joins(const struct message *sent, const struct message *received, int number)
{
    for (int i = 0; i <= number; i++)
        if (!are_apart(&received[number], &sent[i]) ||
            (i < number && (!are_apart(&received[number], &received[i]) ||
                            !are_apart(&sent[number], &received[i]))))
            return false;
    return true;
}

static void record(const struct message *m, bool sends)
{
    alnico_datatype_t type = (alnico_datatype_t)m->type;
    alnico_status_t status = sends ? alnico_send(m->at, m->count, type, m->peer, communicator())
                                   : alnico_recv(m->at, m->count, type, m->peer, communicator());
    if (is_good_message(m))
        FUZZ_REQUIRE(status == ALNICO_SUCCESS);
    else
        require_refused(status);
}

/* Any mix of pairs, with what is refused left out, and with calls in between that have no place
 * there. */
static int record_pairs(struct input *in, struct message *sent, struct message *received)
{
    int number = 0;
    for (int i = next(in) % GROUP; i > 0; i--) {
        alnico_request_t request = (alnico_request_t)arena;
        struct message *s = &sent[number], *r = &received[number];
        read_messages(in, s, r);
        bool good = is_good_message(s), first = next(in) % 2;
        if (good != is_good_message(r) || (good && !joins(sent, received, number)))
            continue;
        record(first ? s : r, first);
        record(first ? r : s, !first);
        number += good;
        if (next(in) % 4 == 0)
            require_refused(alnico_barrier(communicator()));
        if (next(in) % 4 == 0)
            require_refused(alnico_isend(arena, 1, ALNICO_INT8, 0, communicator(), &request));
        if (next(in) % 4 == 0)
            require_refused(alnico_group_begin(communicator()));
    }
    return number;
}

static void fuzz_group(struct input *in)
{
    struct message sent[GROUP], received[GROUP];
    alnico_request_t request = NULL;
    fill_arena(in);
    if (next(in) % 8 == 0)
        require_refused(alnico_group_end(communicator(), &request));
    FUZZ_REQUIRE(alnico_group_begin(communicator()) == ALNICO_SUCCESS);
    int number = record_pairs(in, sent, received);
    bool blocking = next(in) % 2;
    FUZZ_REQUIRE(alnico_group_end(communicator(), blocking ? NULL : &request) == ALNICO_SUCCESS);
    FUZZ_REQUIRE(blocking || finish_request(in, &request) == ALNICO_SUCCESS);
    for (int i = 0; i < number; i++)
        expect_copy(&sent[i], &received[i]);
    FUZZ_REQUIRE(memcmp(arena, before, ARENA) == 0);
}

/* ---- The communicator ---- */

static void fuzz_split(struct input *in)
{
    alnico_comm_t part = (alnico_comm_t)arena;
    int color = next(in) - 128, key = next(in) - 128;
    if (next(in) % 8 == 0) {
        require_refused(alnico_comm_split(communicator(), color, key, NULL, NULL));
        return;
    }
    FUZZ_REQUIRE(alnico_comm_split(communicator(), color, key, NULL, &part) == ALNICO_SUCCESS);
    FUZZ_REQUIRE((part != NULL) == (color >= 0));
    if (!part)
        return;
    FUZZ_REQUIRE(alnico_comm_rank(part) == 0 && alnico_comm_size(part) == 1);
    alnico_comm_destroy(part);
    require_refused(alnico_comm_status(part));
    FUZZ_REQUIRE(alnico_comm_rank(part) == -1);
}

static bool is_among(const char *name, const char *const *names, int count)
{
    for (int i = 0; i < count; i++)
        if (strcmp(name, names[i]) == 0)
            return true;
    return false;
}

/* Shared memory needs a second rank. */
static void fuzz_algorithm(struct input *in)
{
    static const char *const names[] = {
        "recursive_doubling", "rabenseifner",         "ring", "binomial", "one_shot",
        "two_shot",           "recursive_multiplying"};
    char name[64] = "";
    int collective = next(in) % 4 == 0 ? next(in) - 128 : 0, kind = next(in) % 3;
    if (kind == 1)
        strcpy(name, names[next(in) % 7]);
    for (int i = 0, length = next(in) % 63; kind == 2 && i < length; i++)
        name[i] = (char)next(in);
    alnico_status_t status = alnico_comm_set_algorithm(
        communicator(), (alnico_collective_t)collective, kind == 0 ? NULL : name);
    if (collective == 0 && (kind == 0 || is_among(name, names, 4)))
        FUZZ_REQUIRE(status == ALNICO_SUCCESS);
    else if (collective == 0 && is_among(name, names + 4, 3))
        FUZZ_REQUIRE(status == ALNICO_ERROR_UNSUPPORTED && *alnico_error_detail());
    else if (collective > 0 && collective <= ALNICO_SENDRECV && kind == 0)
        FUZZ_REQUIRE(status == ALNICO_SUCCESS);
    else if (collective > 0 && collective <= ALNICO_SENDRECV &&
             status != ALNICO_SUCCESS) /* some have the name */
        FUZZ_REQUIRE((status == ALNICO_ERROR_ARGUMENT || status == ALNICO_ERROR_UNSUPPORTED) &&
                     *alnico_error_detail());
    else if (collective > 0 && collective <= ALNICO_SENDRECV)
        FUZZ_REQUIRE(kind == 1 || *name);
    else
        require_refused(status);
}

/* Everything but a communicator of one rank, which `communicator` makes. */
static void fuzz_create(struct input *in)
{
    alnico_comm_t comm = (alnico_comm_t)arena;
    alnico_bootstrap_t bootstrap = {next(in) - 128, next(in) - 128, allgather, NULL};
    int device = next(in) % 8 - 2, kind = next(in) % 4;
    bool inside = bootstrap.rank >= 0 && bootstrap.rank < bootstrap.size;
    if (kind == 1)
        bootstrap.allgather = NULL;
    if (kind > 1 && inside && (device == ALNICO_DEVICE_CPU || device == ALNICO_DEVICE_CUDA))
        return;
    alnico_status_t status =
        alnico_comm_create(kind == 0 ? NULL : &bootstrap, (alnico_device_t)device, NULL, &comm);
    FUZZ_REQUIRE(status == ALNICO_ERROR_ARGUMENT ||
                 (status == ALNICO_ERROR_UNSUPPORTED && device == ALNICO_DEVICE_CUDA));
    FUZZ_REQUIRE(*alnico_error_detail());
}

static void fuzz_empty(struct input *in)
{
    alnico_request_t request = NULL;
    bool done;
    float value = 1;
    switch (next(in) % 8) {
    case 0:
        require_refused(alnico_wait(&request));
        return;
    case 1:
        require_refused(alnico_wait(NULL));
        return;
    case 2:
        require_refused(alnico_test(&request, &done));
        return;
    case 3:
        require_refused(alnico_test(NULL, &done));
        return;
    case 4:
        require_refused(alnico_request_synchronize(&request));
        return;
    case 5:
        require_refused(
            alnico_iallreduce(&value, &value, 1, ALNICO_FLOAT32, ALNICO_SUM, NULL, &request));
        return;
    case 6:
        require_refused(alnico_synchronize(NULL));
        return;
    default:
        require_refused(
            alnico_iallreduce(&value, &value, 1, ALNICO_FLOAT32, ALNICO_SUM, communicator(), NULL));
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static void (*const calls[])(struct input *) = {fuzz_split, fuzz_algorithm, fuzz_create,
                                                    fuzz_empty, fuzz_sendrecv,  fuzz_group};
    struct input in = {data, size};
    for (int i = 0; i < CALLS && in.left; i++)
        calls[(size_t)next(&in) % (sizeof calls / sizeof *calls)](&in);
    FUZZ_REQUIRE(alnico_comm_status(communicator()) == ALNICO_SUCCESS);
    return 0;
}
