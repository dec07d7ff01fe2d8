/* Datatypes and operations: sizes against C's own types, names both ways, which type has what. */
#include "base/datatype.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

static void sizes_are_those_of_c(void **state)
{
    (void)state;
    assert_int_equal(datatype_bytes(ALNICO_INT8), sizeof(int8_t));
    assert_int_equal(datatype_bytes(ALNICO_UINT8), sizeof(uint8_t));
    assert_int_equal(datatype_bytes(ALNICO_INT32), sizeof(int32_t));
    assert_int_equal(datatype_bytes(ALNICO_UINT32), sizeof(uint32_t));
    assert_int_equal(datatype_bytes(ALNICO_INT64), sizeof(int64_t));
    assert_int_equal(datatype_bytes(ALNICO_UINT64), sizeof(uint64_t));
    assert_int_equal(datatype_bytes(ALNICO_FLOAT16), 2);
    assert_int_equal(datatype_bytes(ALNICO_BFLOAT16), 2);
    assert_int_equal(datatype_bytes(ALNICO_FLOAT32), sizeof(float));
    assert_int_equal(datatype_bytes(ALNICO_FLOAT64), sizeof(double));
    assert_int_equal(datatype_bytes(ALNICO_FLOAT8_E4M3), 1);
    assert_int_equal(datatype_bytes(ALNICO_FLOAT8_E5M2), 1);
}

static void valid_are_the_enumerators_only(void **state)
{
    (void)state;
    for (int i = -3; i < 40; i++) {
        assert_int_equal(datatype_valid((alnico_datatype_t)i), i >= 0 && i <= ALNICO_FLOAT8_E5M2);
        assert_int_equal(op_valid((alnico_op_t)i), i >= 0 && i <= ALNICO_BITWISE_XOR);
    }
}

static void names_go_both_ways(void **state)
{
    (void)state;
    for (int i = 0; i < DATATYPES; i++) {
        alnico_datatype_t found = (alnico_datatype_t)-1;
        assert_true(datatype_find(datatype_name((alnico_datatype_t)i), &found));
        assert_int_equal(found, i);
    }
    for (int i = 0; i < OPS; i++) {
        alnico_op_t found = (alnico_op_t)-1;
        assert_true(op_find(op_name((alnico_op_t)i), &found));
        assert_int_equal(found, i);
    }
    assert_string_equal(datatype_name(ALNICO_BFLOAT16), "bfloat16");
    assert_string_equal(op_name(ALNICO_LOGICAL_XOR), "logical_xor");
}

static void foreign_names_are_not_found(void **state)
{
    (void)state;
    static const char *const foreign[] = {"",     "float", "float322", "FLOAT32",
                                          "summ", "Sum",   " sum"};
    for (size_t i = 0; i < sizeof foreign / sizeof *foreign; i++) {
        alnico_datatype_t type = ALNICO_INT32;
        alnico_op_t op = ALNICO_PRODUCT;
        assert_false(datatype_find(foreign[i], &type));
        assert_false(op_find(foreign[i], &op));
        assert_int_equal(type, ALNICO_INT32);
        assert_int_equal(op, ALNICO_PRODUCT);
    }
}

static void integers_have_all_operations_and_floats_the_arithmetic_ones(void **state)
{
    (void)state;
    for (int type = 0; type < DATATYPES; type++) {
        bool integer = strstr(datatype_name((alnico_datatype_t)type), "int") != NULL;
        assert_int_equal(datatype_is_integer((alnico_datatype_t)type), integer);
        assert_int_equal(datatype_is_short_float((alnico_datatype_t)type),
                         !integer && datatype_bytes((alnico_datatype_t)type) < sizeof(float));
        for (int op = 0; op < OPS; op++)
            assert_int_equal(op_supports((alnico_op_t)op, (alnico_datatype_t)type),
                             integer || op <= ALNICO_AVERAGE);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sizes_are_those_of_c),
        cmocka_unit_test(valid_are_the_enumerators_only),
        cmocka_unit_test(names_go_both_ways),
        cmocka_unit_test(foreign_names_are_not_found),
        cmocka_unit_test(integers_have_all_operations_and_floats_the_arithmetic_ones),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
