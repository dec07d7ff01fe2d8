/* The reference that alnico-perf checks with: it must accept every right result, in whatever order
 * the ranks were combined, and see one wrong element. */
#include "tools/perf/check.h"

#include "base/datatype.h"
#include "device/cpu/math.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

enum { COUNT = 700, ELEMENT_MOST = 8 };

struct vector {
    _Alignas(64) unsigned char bytes[COUNT * ELEMENT_MOST];
};

/* What a correct library may return: the ranks combined one after the other, upwards or
 * downwards. */
static void reduce_all(const struct check *check, bool downwards, struct vector *out)
{
    struct vector next;
    bool divide = check->op == ALNICO_AVERAGE, integer = datatype_is_integer(check->type);
    for (int i = 0; i < check->ranks; i++) {
        int rank = downwards ? check->ranks - 1 - i : i;
        struct vector *into = i ? &next : out;
        check_fill(check, rank, into->bytes, COUNT);
        if (divide && !integer)
            math_divide(into->bytes, into->bytes, COUNT, check->type, check->ranks);
        if (i)
            math_reduce(out->bytes, out->bytes, next.bytes, COUNT, check->type, check->op);
    }
    if (divide && integer)
        math_divide(out->bytes, out->bytes, COUNT, check->type, check->ranks);
}

static void assert_right(const struct check *check, const struct vector *result)
{
    struct check_fault fault;
    size_t wrong = check_compare(check, result->bytes, 0, COUNT, &fault);
    if (wrong)
        fail_msg("%s %s over %d ranks: %zu wrong, element %zu is %.17g, expected %.17g +- %.3g",
                 datatype_name(check->type), op_name(check->op), check->ranks, wrong, fault.index,
                 fault.found, fault.expected, fault.tolerance);
}

/* Changes an integer's highest bits, or makes a float huge, and expects exactly that to be
 * found. */
static void assert_seen(const struct check *check, struct vector *result, size_t index)
{
    struct check_fault fault = {0};
    size_t bytes = datatype_bytes(check->type);
    unsigned char *top = &result->bytes[index * bytes + bytes - 1];
    *top = datatype_is_integer(check->type) ? *top ^ 0x41 : 0x7B;
    assert_int_equal(check_compare(check, result->bytes, 0, COUNT, &fault), 1);
    assert_int_equal(fault.index, index);
    assert_int_equal(check_compare(check, result->bytes, index + 1, COUNT, &fault), 0);
}

static void check_case(struct check *check)
{
    struct vector result;
    for (int downwards = 0; downwards < 2; downwards++) {
        reduce_all(check, downwards, &result);
        assert_right(check, &result);
    }
    assert_seen(check, &result, (size_t)(check->seed % COUNT));
}

static void test_every_type_and_op(void **state)
{
    static const int ranks[] = {1, 2, 3, 64};
    struct check check = {.seed = *(uint64_t *)*state};
    for (int type = 0; type < DATATYPES; type++)
        for (int op = 0; op < OPS; op++)
            for (size_t i = 0; i < sizeof ranks / sizeof *ranks; i++) {
                check.type = (alnico_datatype_t)type;
                check.op = (alnico_op_t)op;
                check.ranks = ranks[i];
                if (op_supports(check.op, check.type))
                    check_case(&check);
            }
}

/* A float32 sum that is off by more than its roundings, although by little. */
static void test_small_error_is_seen(void **state)
{
    struct check check = {
        .seed = *(uint64_t *)*state, .ranks = 4, .type = ALNICO_FLOAT32, .op = ALNICO_SUM};
    struct vector result;
    struct check_fault fault;
    reduce_all(&check, false, &result);
    float *value = (float *)result.bytes;
    value[7] += 4e-6f;
    assert_int_equal(check_compare(&check, result.bytes, 0, COUNT, &fault), 1);
    assert_true(fault.tolerance < 2e-6);
}

/* What is copied from a place of one rank's sequence is that rank's and that place's, to the
 * bit. */
static void test_copies(void **state)
{
    struct check check = {.seed = *(uint64_t *)*state, .ranks = 1, .op = ALNICO_SUM, .first = 3};
    struct vector input;
    struct check_fault fault;
    for (int type = 0; type < DATATYPES; type++) {
        check.type = (alnico_datatype_t)type;
        size_t bytes = datatype_bytes(check.type), rest = COUNT - 40;
        check.shift = 0;
        check_fill(&check, 3, input.bytes, COUNT);
        check.shift = 40;
        assert_int_equal(check_compare(&check, input.bytes + 40 * bytes, 0, rest, &fault), 0);
        assert_true(check_compare(&check, input.bytes, 0, rest, &fault) > rest / 2);
        check.first = 2;
        assert_true(check_compare(&check, input.bytes + 40 * bytes, 0, rest, &fault) > rest / 2);
        check.first = 3;
        input.bytes[(40 + 7) * bytes] ^= 1;
        assert_int_equal(check_compare(&check, input.bytes + 40 * bytes, 0, rest, &fault), 1);
        assert_int_equal(fault.index, 7);
    }
}

static void test_nan_is_wrong(void **state)
{
    struct check check = {
        .seed = *(uint64_t *)*state, .ranks = 2, .type = ALNICO_FLOAT16, .op = ALNICO_SUM};
    struct vector result;
    struct check_fault fault;
    memset(&result, 0xFF, sizeof result);
    assert_int_equal(check_compare(&check, result.bytes, 0, COUNT, &fault), COUNT);
}

static void test_hash_sees_one_bit(void **state)
{
    unsigned char bytes[37];
    for (size_t i = 0; i < sizeof bytes; i++)
        bytes[i] = (unsigned char)(*(uint64_t *)*state >> i % 57);
    uint64_t before = check_hash(bytes, sizeof bytes);
    for (size_t i = 0; i < sizeof bytes; i++) {
        bytes[i] ^= 4;
        assert_true(check_hash(bytes, sizeof bytes) != before);
        bytes[i] ^= 4;
    }
    assert_true(check_hash(bytes, sizeof bytes) == before);
}

int main(void)
{
    uint64_t seed = (uint64_t)time(NULL) * 7919;
    print_message("seed %llu\n", (unsigned long long)seed);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_prestate(test_every_type_and_op, &seed),
        cmocka_unit_test_prestate(test_small_error_is_seen, &seed),
        cmocka_unit_test_prestate(test_copies, &seed),
        cmocka_unit_test_prestate(test_nan_is_wrong, &seed),
        cmocka_unit_test_prestate(test_hash_sees_one_bit, &seed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
