/*
 * Any arguments to the public calls of a communicator of one rank, made from a callback. What is allowed is written
 * down here once more: an allowed call must succeed and pass its input on, any other must be refused with a
 * detail and change nothing. Buffers are always large enough, or the count is one that no memory can hold.
 */
#include "fuzz.h"

#include <alnico/alnico.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ARENA = 4096, CALLS = 64 };

static _Alignas(64) unsigned char arena[ARENA], before[ARENA];

struct input {
    const uint8_t *data;
    size_t left;
};

static int next(struct input *in)
{
    if (in->left == 0)
        return 0;
    in->left--;
    return *in->data++;
}

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

/* ---- Allreduce ---- */

static size_t bytes_of(int type)
{
    static const size_t bytes[] = {1, 1, 4, 4, 8, 8, 2, 2, 4, 8};
    return type >= 0 && type < 10 ? bytes[type] : 0;
}

struct arguments {
    const unsigned char *send; /* NULL, ALNICO_IN_PLACE or in the arena */
    unsigned char *recv;
    size_t count;
    int type, op;
};

static bool is_allowed(const struct arguments *a)
{
    size_t element = bytes_of(a->type), most = (size_t)PTRDIFF_MAX;
    const unsigned char *send = (const void *)a->send == ALNICO_IN_PLACE ? a->recv : a->send;
    if (!element || a->op < 0 || a->op > 10 || (a->op > 4 && a->type > 5))
        return false;
    if (a->count > most / element)
        return false;
    if (a->count == 0)
        return true;
    if (!send || !a->recv || (uintptr_t)send % element || (uintptr_t)a->recv % element)
        return false;
    size_t bytes = a->count * element;
    return send == a->recv || send + bytes <= a->recv || a->recv + bytes <= send;
}

static unsigned char *read_place(struct input *in)
{
    int kind = next(in), low = next(in), high = next(in);
    return kind % 8 == 0 ? NULL : arena + (low + 256 * high) % (ARENA / 2);
}

/* Small enough for what lies behind both places, or beyond all memory. */
static size_t read_count(struct input *in, int type)
{
    int kind = next(in);
    size_t count = (size_t)next(in) % 256, element = bytes_of(type) ? bytes_of(type) : 8;
    if (kind % 8 == 0)
        return (size_t)PTRDIFF_MAX / element + 1 + count;
    return kind % 8 == 1 ? SIZE_MAX - count : count;
}

static struct arguments read_arguments(struct input *in)
{
    struct arguments a;
    a.type = next(in) % 13 - 1;
    a.op = next(in) % 14 - 1;
    a.recv = read_place(in);
    a.send = next(in) % 4 ? read_place(in) : ALNICO_IN_PLACE;
    a.count = read_count(in, a.type);
    return a;
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

static alnico_status_t call(struct input *in, const struct arguments *a, bool blocking)
{
    alnico_datatype_t type = (alnico_datatype_t)a->type;
    alnico_op_t op = (alnico_op_t)a->op;
    alnico_comm_t comm = communicator();
    if (blocking)
        return alnico_allreduce(a->send, a->recv, a->count, type, op, comm);
    alnico_request_t request = (alnico_request_t)arena;
    alnico_status_t status =
        alnico_iallreduce(a->send, a->recv, a->count, type, op, comm, &request);
    FUZZ_REQUIRE((status == ALNICO_SUCCESS) == (request != NULL));
    if (status == ALNICO_SUCCESS)
        status = finish_request(in, &request);
    FUZZ_REQUIRE(request == NULL);
    return status;
}

static void fuzz_allreduce(struct input *in)
{
    struct arguments a = read_arguments(in);
    for (int i = 0; i < ARENA; i++)
        arena[i] = (unsigned char)(i * 7 + next(in));
    memcpy(before, arena, ARENA);
    bool blocking = next(in) % 2;
    alnico_status_t status = call(in, &a, blocking);
    if (!is_allowed(&a)) {
        require_refused(status);
    } else {
        FUZZ_REQUIRE(status == ALNICO_SUCCESS);
        if (a.count && (const void *)a.send != ALNICO_IN_PLACE)
            memcpy(before + (a.recv - arena), before + (a.send - arena),
                   a.count * bytes_of(a.type));
    }
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
    static void (*const calls[])(struct input *) = {fuzz_allreduce, fuzz_allreduce, fuzz_allreduce,
                                                    fuzz_split,     fuzz_algorithm, fuzz_create,
                                                    fuzz_empty};
    struct input in = {data, size};
    for (int i = 0; i < CALLS && in.left; i++)
        calls[(size_t)next(&in) % (sizeof calls / sizeof *calls)](&in);
    FUZZ_REQUIRE(alnico_comm_status(communicator()) == ALNICO_SUCCESS);
    return 0;
}
