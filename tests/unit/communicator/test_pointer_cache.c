/* What is known about memory: over a device that counts how often it is asked. Its memory is in
 * extents of 100 bytes, those with an odd number are not its own. */
#include "comm/communicator/pointer_cache.h"

#include "base/status.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

static int asked;
static bool has_extents;

static alnico_status_t check(const void *memory, const char *name, const char *who)
{
    asked++;
    return (uintptr_t)memory / 100 % 2 == 0
               ? ALNICO_SUCCESS
               : error_set(ALNICO_ERROR_ARGUMENT, "%s: %s %p is not mine", who, name, memory);
}

static bool extent(const void *memory, uintptr_t *from, size_t *bytes)
{
    *from = (uintptr_t)memory / 100 * 100;
    *bytes = 100;
    return has_extents;
}

static const struct device_ops device = {.check_memory = check, .extent = extent};
static struct pointer_cache known;

static int set_up(void **state)
{
    (void)state;
    memset(&known, 0, sizeof known);
    asked = 0;
    has_extents = true;
    return 0;
}

static alnico_status_t pass(uintptr_t memory)
{
    return pointer_cache_check(&known, &device, (const void *)memory, "send", "who");
}

static void passes(uintptr_t memory, int questions)
{
    int before = asked;
    assert_int_equal(pass(memory), ALNICO_SUCCESS);
    assert_int_equal(asked - before, questions);
}

static void refused(uintptr_t memory)
{
    int before = asked;
    assert_int_equal(pass(memory), ALNICO_ERROR_ARGUMENT);
    assert_non_null(strstr(alnico_error_detail(), "who: send"));
    assert_int_equal(asked - before, 1);
}

static void an_extent_is_asked_about_once(void **state)
{
    (void)state;
    passes(250, 1);
    passes(200, 0);
    passes(299, 0);
    passes(400, 1);
    passes(200, 0);
}

static void its_neighbours_are_not_known(void **state)
{
    (void)state;
    passes(200, 1);
    refused(199);
    refused(300);
    passes(299, 0);
}

static void what_is_refused_stays_unknown(void **state)
{
    (void)state;
    for (int i = 0; i < 3; i++)
        refused(100);
    refused(101);
    passes(0, 1);
}

static void an_answer_holds_for_some_calls(void **state)
{
    (void)state;
    for (int round = 0; round < 3; round++) {
        passes(210, 1);
        for (int i = 0; i < CACHE_CALLS; i++)
            passes((uintptr_t)(200 + i % 100), 0);
    }
}

/* The newest are kept, however many there are, and in whatever order they are asked about again. */
static void few_are_kept(void **state)
{
    (void)state;
    for (uintptr_t i = 0; i < 10; i++)
        passes(200 * i, 1);
    for (uintptr_t i = 10 - CACHE_EXTENTS; i < 10; i++)
        passes(200 * i, 0);
    passes(200 * (9 - CACHE_EXTENTS), 1);
    passes(200 * 9, 0);
    passes(200 * (10 - CACHE_EXTENTS), 1);
}

static void an_old_answer_is_replaced_in_its_place(void **state)
{
    (void)state;
    for (uintptr_t i = 0; i < CACHE_EXTENTS; i++)
        passes(200 * i, 1);
    for (int i = 0; i < CACHE_CALLS; i++)
        passes(200, 0);
    passes(200, 1);
    for (uintptr_t i = 0; i < CACHE_EXTENTS; i++)
        passes(200 * i, 0);
}

static void without_extents_every_call_asks(void **state)
{
    (void)state;
    has_extents = false;
    passes(200, 1);
    passes(200, 1);
    refused(100);
    const struct device_ops plain = {.check_memory = check};
    for (int i = 1; i <= 2; i++) {
        int before = asked;
        assert_int_equal(
            pointer_cache_check(&known, &plain, (const void *)(uintptr_t)200, "send", "who"),
            ALNICO_SUCCESS);
        assert_int_equal(asked - before, 1);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(an_extent_is_asked_about_once, set_up),
        cmocka_unit_test_setup(its_neighbours_are_not_known, set_up),
        cmocka_unit_test_setup(what_is_refused_stays_unknown, set_up),
        cmocka_unit_test_setup(an_answer_holds_for_some_calls, set_up),
        cmocka_unit_test_setup(few_are_kept, set_up),
        cmocka_unit_test_setup(an_old_answer_is_replaced_in_its_place, set_up),
        cmocka_unit_test_setup(without_extents_every_call_asks, set_up),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
