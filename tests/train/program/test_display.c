/* The time that is left of a run, as the bar and the lines have it. */
#include "tools/train/display.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

static void times_are_formatted(void **unused)
{
    (void)unused;
    const struct {
        double seconds;
        const char *text;
    } rows[] = {{-1, "-"},
                {0, "0:00"},
                {0.4, "0:00"},
                {0.6, "0:01"},
                {59.4, "0:59"},
                {59.6, "1:00"},
                {61, "1:01"},
                {3599.4, "59:59"},
                {3599.6, "1:00:00"},
                {36000, "10:00:00"},
                {90061, "25:01:01"},
                {3.6e6, "1000:00:00"},
                {1e300, "277777777777:46:40"}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char text[32];
        train_eta_format(rows[i].seconds, text, sizeof text);
        assert_string_equal(text, rows[i].text);
    }
}

/* From the first progress on: of a run that goes on from a checkpoint, only what it does itself. */
static void what_is_left_goes_by_what_was_done(void **unused)
{
    (void)unused;
    const struct train_display display = {.begun = 1000, .done = 0.5};
    assert_true(train_eta(&display, 1000, 0.5) < 0);
    assert_true(fabs(train_eta(&display, 1010, 0.6) - 40) < 1e-9);
    assert_true(fabs(train_eta(&display, 1040, 0.9) - 10) < 1e-9);
    assert_true(train_eta(&display, 1050, 1) == 0);
}

static void shares_are_formatted(void **unused)
{
    (void)unused;
    const double phases[PHASES] = {
        [PHASE_IO] = 0.004,     [PHASE_COPY] = 0.006,         [PHASE_FORWARD] = 0.3,
        [PHASE_BACKWARD] = 0.6, [PHASE_COMMUNICATION] = 0.06, [PHASE_UPDATE] = 0.03};
    const double server[PHASES] = {[PHASE_AVERAGE] = 2, [PHASE_WEIGHTS] = 6}, none[PHASES] = {0};
    char text[80];
    train_shares_format(phases, text, sizeof text);
    assert_string_equal(text, "  h2d 1 f 30 b 60 comm 6 u 3 %");
    train_shares_format(server, text, sizeof text);
    assert_string_equal(text, "  avg 25 w 75 %");
    train_shares_format(none, text, sizeof text);
    assert_string_equal(text, "  %");
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(times_are_formatted),
                                       cmocka_unit_test(what_is_left_goes_by_what_was_done),
                                       cmocka_unit_test(shares_are_formatted)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
