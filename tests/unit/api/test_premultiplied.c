/* Premultiplied sums on communicators whose ranks are threads: every type, each rank with its own factor,
 * every reduction, in place and not, blocking and not, on every kind of stream; and what is refused. The
 * reference is plain loops over float64 and 64-bit integers. */
#include "base/datatype.h"
#include "base/float8.h"
#include "comm/communicator/comm.h"
#include "tests/support/ranks.h"
#include "tests/support/reference.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

#include "tests/support/patience.h"

enum { MOST = 30000, RANKS_HERE = 3 };

static uint64_t seed;

/* ---- Elements ---- */

/* A whole number from -1 to 1, of unsigned types from 0 to 2. */
static int number(alnico_datatype_t type, int rank, size_t i, int factor)
{
    uint64_t random = reference_random(seed + (uint64_t)factor, (uint64_t)rank, i);
    bool is_signed = type != ALNICO_UINT8 && type != ALNICO_UINT32 && type != ALNICO_UINT64;
    return is_signed ? (int)(random % 3) - 1 : (int)(random % 3);
}

static void store(alnico_datatype_t type, void *at, int value)
{
    float single = (float)value;
    double twofold = value;
    int64_t whole = value;
    uint16_t half = to_half(single), bfloat = to_bfloat(single);
    uint8_t e4m3 = to_e4m3(single), e5m2 = to_e5m2(single);
    const void *const from[DATATYPES] = {
        [ALNICO_FLOAT16] = &half,    [ALNICO_BFLOAT16] = &bfloat,  [ALNICO_FLOAT32] = &single,
        [ALNICO_FLOAT64] = &twofold, [ALNICO_FLOAT8_E4M3] = &e4m3, [ALNICO_FLOAT8_E5M2] = &e5m2,
    };
    memcpy(at, from[type] ? from[type] : &whole, datatype_bytes(type));
}

static int factor_of(alnico_datatype_t type, int rank)
{
    return number(type, rank, 77, 1) + 2 * (rank % 2);
}

static void fill(char *at, size_t count, alnico_datatype_t type, int rank)
{
    for (size_t i = 0; i < count; i++)
        store(type, at + i * datatype_bytes(type), number(type, rank, i, 0));
}

/* Results are small whole numbers, exact in every type. */
static void expect(const char *got, size_t first, size_t count, alnico_datatype_t type, int size,
                   const char *what)
{
    size_t bytes = datatype_bytes(type);
    for (size_t i = 0; i < count; i++) {
        char right[8];
        int sum = 0;
        for (int r = 0; r < size; r++)
            sum += factor_of(type, r) * number(type, r, first + i, 0);
        store(type, right, sum);
        bool zero = sum == 0 && !datatype_is_integer(type); /* of either sign */
        char bits[8];
        memcpy(bits, got + i * bytes, bytes);
        if (zero)
            bits[bytes - 1] &= 0x7f;
        if (memcmp(bits, right, bytes) == 0)
            continue;
        fprintf(stderr, "%s of %s: element %zu is not %d (seed %llu)\n", what, datatype_name(type),
                first + i, sum, (unsigned long long)seed);
        REQUIRE(!"right");
    }
}

/* ---- Calls ---- */

struct site {
    struct rank *rank;
    alnico_comm_t comm;
    alnico_stream_t stream;
    char *send, *recv;
    bool nonblocking;
};

static void finish(struct site *s, alnico_request_t *request)
{
    if (s->nonblocking && s->rank->rank == 1)
        REQUIRE_STATUS(alnico_request_synchronize(request), ALNICO_SUCCESS);
    else if (s->nonblocking)
        REQUIRE_STATUS(alnico_wait(request), ALNICO_SUCCESS);
    REQUIRE_STATUS(alnico_stream_synchronize(s->stream), ALNICO_SUCCESS);
}

#define CALL(NAME, ...)                                                                            \
    do {                                                                                           \
        alnico_request_t request = NULL;                                                           \
        if (s->nonblocking)                                                                        \
            REQUIRE_STATUS(alnico_i##NAME(__VA_ARGS__, s->comm, &request), ALNICO_SUCCESS);        \
        else                                                                                       \
            REQUIRE_STATUS(alnico_##NAME(__VA_ARGS__, s->comm), ALNICO_SUCCESS);                   \
        finish(s, &request);                                                                       \
    } while (0)

static void reset(struct site *s, size_t count, alnico_datatype_t type)
{
    fill(s->send, count, type, s->rank->rank);
    memset(s->recv, 0x33, count * datatype_bytes(type));
}

static void whole_vectors(struct site *s, size_t count, alnico_datatype_t type, alnico_op_t op)
{
    int size = s->rank->size, root = size - 1;
    reset(s, count, type);
    CALL(allreduce, s->send, s->recv, count, type, op);
    expect(s->recv, 0, count, type, size, "allreduce");
    CALL(allreduce, ALNICO_IN_PLACE, s->send, count, type, op);
    expect(s->send, 0, count, type, size, "allreduce in place");
    reset(s, count, type);
    CALL(reduce, s->send, s->recv, count, type, op, root);
    if (s->rank->rank == root)
        expect(s->recv, 0, count, type, size, "reduce");
    CALL(reduce, s->rank->rank == root ? ALNICO_IN_PLACE : s->send, s->send, count, type, op, root);
    if (s->rank->rank == root)
        expect(s->send, 0, count, type, size, "reduce in place");
}

/* What is only read stays as it is. */
static void expect_input(struct site *s, size_t begin, size_t end, alnico_datatype_t type)
{
    char right[8];
    size_t bytes = datatype_bytes(type);
    for (size_t i = begin; i < end; i++) {
        store(type, right, number(type, s->rank->rank, i, 0));
        REQUIRE(memcmp(s->send + i * bytes, right, bytes) == 0);
    }
}

static void blocks(struct site *s, size_t count, alnico_datatype_t type, alnico_op_t op)
{
    size_t size = (size_t)s->rank->size, mine = (size_t)s->rank->rank, bytes = datatype_bytes(type);
    size_t counts[RANKS_HERE] = {0}, before = 0, all = size * count;
    reset(s, all, type);
    CALL(reduce_scatter, s->send, s->recv, count, type, op);
    expect(s->recv, mine * count, count, type, s->rank->size, "reduce_scatter");
    expect_input(s, 0, all, type);
    CALL(reduce_scatter, ALNICO_IN_PLACE, s->send, count, type, op);
    expect(s->send + mine * count * bytes, mine * count, count, type, s->rank->size, "in place");
    expect_input(s, 0, mine * count, type);
    expect_input(s, (mine + 1) * count, all, type);
    reset(s, all + size, type);
    for (size_t r = 0; r < size; r++)
        counts[r] = r == 0 ? 0 : count + r - 1;
    for (size_t r = 0; r < mine; r++)
        before += counts[r];
    CALL(reduce_scatterv, s->send, s->recv, counts, type, op);
    expect(s->recv, before, counts[mine], type, s->rank->size, "reduce_scatterv");
}

static void all_types(struct rank *rank)
{
    static const size_t counts[] = {0, 1, 7, 300, MOST};
    struct site s = {.rank = rank,
                     .send = malloc((RANKS_HERE * MOST + 8) * 8),
                     .recv = malloc((RANKS_HERE * MOST + 8) * 8)};
    for (int kind = 0; kind < 4; kind++) {
        if (kind % 2)
            REQUIRE_STATUS(alnico_stream_create(&s.stream), ALNICO_SUCCESS);
        s.comm = ranks_comm(rank, s.stream);
        s.nonblocking = kind / 2;
        for (int t = 0; t < DATATYPES; t++) {
            char factor[8];
            alnico_op_t op;
            store((alnico_datatype_t)t, factor, factor_of((alnico_datatype_t)t, rank->rank));
            REQUIRE_STATUS(alnico_op_create_premultiplied_sum(s.comm, factor, (alnico_datatype_t)t,
                                                              ALNICO_DEVICE_CPU, &op),
                           ALNICO_SUCCESS);
            memset(factor, 0x55, sizeof factor); /* it was read */
            for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
                whole_vectors(&s, counts[i], (alnico_datatype_t)t, op);
                blocks(&s, counts[i], (alnico_datatype_t)t, op);
            }
            if (t % 2)
                REQUIRE_STATUS(alnico_op_destroy(s.comm, op), ALNICO_SUCCESS);
        }
        alnico_comm_destroy(s.comm);
        alnico_stream_destroy(s.stream);
        s.stream = NULL;
    }
    free(s.send);
    free(s.recv);
}

static void every_type_and_reduction(void **state)
{
    (void)state;
    for (int size = 1; size <= RANKS_HERE; size++)
        ranks_run(size, all_types, NULL);
}

/* ---- Every algorithm ---- */

static void every_algorithm(struct rank *rank)
{
    const struct backend *backend;
    struct site s = {.rank = rank,
                     .comm = ranks_comm(rank, NULL),
                     .send = malloc(RANKS_HERE * 4000 * 4),
                     .recv = malloc(RANKS_HERE * 4000 * 4)};
    float factor = (float)factor_of(ALNICO_FLOAT32, rank->rank);
    alnico_op_t op;
    REQUIRE_STATUS(
        alnico_op_create_premultiplied_sum(s.comm, &factor, ALNICO_FLOAT32, ALNICO_DEVICE_CPU, &op),
        ALNICO_SUCCESS);
    for (int c = 0; c < COLLECTIVES; c++)
        for (int i = 0; collectives[c].reduces; i++) {
            const struct algorithm *a = backend_algorithm_at(ALNICO_DEVICE_CPU, c, i, &backend);
            if (!a)
                break;
            if (alnico_comm_set_algorithm(s.comm, (alnico_collective_t)c, a->name) !=
                ALNICO_SUCCESS)
                continue;
            whole_vectors(&s, 500, ALNICO_FLOAT32, op);
            blocks(&s, 500, ALNICO_FLOAT32, op);
            REQUIRE_STATUS(alnico_comm_set_algorithm(s.comm, (alnico_collective_t)c, NULL),
                           ALNICO_SUCCESS);
        }
    alnico_comm_destroy(s.comm);
    free(s.send);
    free(s.recv);
}

static void every_algorithm_can(void **state)
{
    (void)state;
    ranks_run(RANKS_HERE, every_algorithm, NULL);
}

/* A request that nobody waits for leaves nothing behind. */
static void forgotten(struct rank *rank)
{
    alnico_comm_t comm = ranks_comm(rank, NULL);
    float factor = 2, in[RANKS_HERE] = {1, 1, 1}, out;
    alnico_op_t op;
    alnico_request_t request;
    REQUIRE_STATUS(
        alnico_op_create_premultiplied_sum(comm, &factor, ALNICO_FLOAT32, ALNICO_DEVICE_CPU, &op),
        ALNICO_SUCCESS);
    REQUIRE_STATUS(alnico_ireduce_scatter(in, &out, 1, ALNICO_FLOAT32, op, comm, &request),
                   ALNICO_SUCCESS);
    alnico_comm_destroy(comm);
    REQUIRE(out == 2 * (float)rank->size);
}

static void a_forgotten_request_is_freed(void **state)
{
    (void)state;
    ranks_run(RANKS_HERE, forgotten, NULL);
}

/* ---- What is refused ---- */

static void refuse(alnico_comm_t comm, const void *factor, int type, int device, const char *why)
{
    alnico_op_t op = ALNICO_PRODUCT;
    REQUIRE_STATUS(alnico_op_create_premultiplied_sum(comm, factor, (alnico_datatype_t)type,
                                                      (alnico_device_t)device, &op),
                   ALNICO_ERROR_ARGUMENT);
    ranks_require_detail(why);
}

static void refusals(struct rank *rank)
{
    alnico_comm_t comm = ranks_comm(rank, NULL);
    float factor = 2, value = 3;
    alnico_op_t op, other;
    refuse(comm, NULL, ALNICO_FLOAT32, ALNICO_DEVICE_CPU, "factor is NULL");
    refuse(comm, &factor, DATATYPES, ALNICO_DEVICE_CPU, "unknown type");
    refuse(comm, &factor, ALNICO_FLOAT32, 7, "unknown device 7");
    refuse(comm, &factor, ALNICO_FLOAT32, ALNICO_DEVICE_CUDA, "factor is on a GPU");
    REQUIRE_STATUS(
        alnico_op_create_premultiplied_sum(comm, &factor, ALNICO_FLOAT32, ALNICO_DEVICE_CPU, NULL),
        ALNICO_ERROR_ARGUMENT);
    REQUIRE_STATUS(
        alnico_op_create_premultiplied_sum(comm, &factor, ALNICO_FLOAT32, ALNICO_DEVICE_CPU, &op),
        ALNICO_SUCCESS);
    REQUIRE_STATUS(alnico_op_create_premultiplied_sum(comm, &factor, ALNICO_FLOAT32,
                                                      ALNICO_DEVICE_CPU, &other),
                   ALNICO_SUCCESS);
    REQUIRE(op != other);
    REQUIRE_STATUS(alnico_allreduce(ALNICO_IN_PLACE, &value, 1, ALNICO_INT32, op, comm),
                   ALNICO_ERROR_ARGUMENT);
    ranks_require_detail("type is int32, and operation");
    REQUIRE_STATUS(alnico_op_destroy(comm, ALNICO_SUM), ALNICO_ERROR_ARGUMENT);
    REQUIRE_STATUS(alnico_op_destroy(comm, op), ALNICO_SUCCESS);
    REQUIRE_STATUS(alnico_op_destroy(comm, op), ALNICO_ERROR_ARGUMENT);
    ranks_require_detail("has created no operation");
    REQUIRE_STATUS(alnico_allreduce(ALNICO_IN_PLACE, &value, 1, ALNICO_FLOAT32, op, comm),
                   ALNICO_ERROR_ARGUMENT);
    ranks_require_detail("unknown operation");
    REQUIRE_STATUS(alnico_allreduce(ALNICO_IN_PLACE, &value, 1, ALNICO_FLOAT32, other, comm),
                   ALNICO_SUCCESS);
    REQUIRE(value == 6);
    alnico_comm_destroy(comm);
}

static void misuse_is_refused(void **state)
{
    (void)state;
    ranks_run(1, refusals, NULL);
}

/* With ALNICO_CHECK a plain sum does not meet a premultiplied one. */
static void mixed(struct rank *rank)
{
    alnico_comm_t comm = ranks_comm(rank, NULL);
    float factor = 2, value = 3;
    alnico_op_t op;
    comm->family->settings.check = true;
    REQUIRE_STATUS(
        alnico_op_create_premultiplied_sum(comm, &factor, ALNICO_FLOAT32, ALNICO_DEVICE_CPU, &op),
        ALNICO_SUCCESS);
    REQUIRE_STATUS(alnico_allreduce(ALNICO_IN_PLACE, &value, 1, ALNICO_FLOAT32,
                                    rank->rank ? op : ALNICO_SUM, comm),
                   ALNICO_ERROR_MISMATCH);
    ranks_require_detail("op is sum on rank 0 and premultiplied sum on rank 1");
    REQUIRE(value == 3);
    alnico_comm_destroy(comm);
}

static void check_tells_them_from_sums(void **state)
{
    (void)state;
    ranks_run(2, mixed, NULL);
}

int main(void)
{
    const char *given = getenv("TEST_SEED");
    seed = given ? strtoull(given, NULL, 10) : (uint64_t)time(NULL);
    printf("TEST_SEED=%llu\n", (unsigned long long)seed);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_type_and_reduction),     cmocka_unit_test(every_algorithm_can),
        cmocka_unit_test(a_forgotten_request_is_freed), cmocka_unit_test(misuse_is_refused),
        cmocka_unit_test(check_tells_them_from_sums),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
