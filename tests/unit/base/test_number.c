/* Numbers of settings, options and files: what is one, what is none, and that no locale matters. */
#include "base/number.h"

#include <float.h>
#include <locale.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>

#include <cmocka.h>

static void test_whole(void **state)
{
    (void)state;
    static const char *const wrong[] = {"",    " 1",  "1 ",  "+1",  "-1",
                                        "0x1", "1.0", "1e3", "1,0", "18446744073709551616"};
    uint64_t value = 7;
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        assert_false(number_whole(wrong[i], 0, UINT64_MAX, &value));
    assert_false(number_whole("3", 4, 9, &value));
    assert_false(number_whole("10", 4, 9, &value));
    assert_int_equal(value, 7);
    assert_true(number_whole("0", 0, 9, &value) && value == 0);
    assert_true(number_whole("4", 4, 9, &value) && value == 4);
    assert_true(number_whole("009", 4, 9, &value) && value == 9);
    assert_true(number_whole("18446744073709551615", 0, UINT64_MAX, &value) && value == UINT64_MAX);
}

static void test_leading(void **state)
{
    (void)state;
    const char *text = "32x007x1e3", *const wrong[] = {"",   "x1", " 1",
                                                       "-1", "33", "99999999999999999999"};
    uint64_t value = 7;
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        const char *at = wrong[i];
        assert_false(number_leading(&at, 32, &value));
        assert_ptr_equal(at, wrong[i]);
    }
    assert_int_equal(value, 7);
    assert_true(number_leading(&text, 32, &value) && value == 32 && *text++ == 'x');
    assert_true(number_leading(&text, 32, &value) && value == 7 && *text++ == 'x');
    assert_true(number_leading(&text, 32, &value) && value == 1 && *text == 'e');
}

static void test_real(void **state)
{
    (void)state;
    static const char *const wrong[] = {"",      " 1",       "1 ",   "0x10", "0x1p3", "inf",
                                        "nan",   "1,5",      "1.5s", "1e",   "--1",   "1.5.5",
                                        "1e400", "infinity", "e5",   "."};
    double value = 7;
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        assert_false(number_real(wrong[i], -DBL_MAX, DBL_MAX, &value));
    assert_false(number_real("1e300", 0, 1e9, &value));
    assert_false(number_real("-0.5", 0, 1e9, &value));
    assert_true(value == 7);
    assert_true(number_real("1.5", 0, 2, &value) && value == 1.5);
    assert_true(number_real(".5", 0, 2, &value) && value == 0.5);
    assert_true(number_real("2", 0, 2, &value) && value == 2);
    assert_true(number_real("-1e-3", -2, 2, &value) && value == -1e-3);
    assert_true(number_real("+25E-1", 0, 5, &value) && value == 2.5);
}

/* Where the program's locale writes 1,5 for 1.5. */
static void test_no_locale_matters(void **state)
{
    (void)state;
    double value = 0;
    if (!setlocale(LC_ALL, "de_DE.UTF-8"))
        skip();
    assert_string_equal(localeconv()->decimal_point, ",");
    assert_true(number_real("1.5", 0, 2, &value) && value == 1.5);
    assert_false(number_real("1,5", 0, 2, &value));
    setlocale(LC_ALL, "C");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_whole),
        cmocka_unit_test(test_leading),
        cmocka_unit_test(test_real),
        cmocka_unit_test(test_no_locale_matters),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
