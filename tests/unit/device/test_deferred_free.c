/* What is let go of later: when, in which amounts, and by whom, also by several threads at once. */
#include "device/deferred_free.h"
#include "tests/support/ranks.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdlib.h>

#include <cmocka.h>

static atomic_int released;
static atomic_size_t released_bytes;

static void release(struct deferred *item)
{
    atomic_fetch_add(&released, 1);
    atomic_fetch_add(&released_bytes, item->bytes);
    free(item);
}

static void put(size_t bytes)
{
    struct deferred *item = malloc(sizeof *item);
    REQUIRE(item != NULL);
    *item = (struct deferred){.bytes = bytes, .release = release};
    deferred_free(item);
}

static int forget(void **state)
{
    (void)state;
    deferred_run();
    atomic_store(&released, 0);
    atomic_store(&released_bytes, 0);
    return 0;
}

static void it_waits_until_somebody_wants(void **state)
{
    (void)state;
    for (int i = 0; i < 10; i++)
        put(1000);
    assert_int_equal(released, 0);
    deferred_run();
    assert_int_equal(released, 10);
    deferred_run();
    assert_int_equal(released, 10);
}

static void no_more_waits_than_is_allowed(void **state)
{
    (void)state;
    put(DEFERRED_BYTES - 1000);
    put(1000);
    assert_int_equal(released, 0);
    put(1);
    assert_int_equal(released, 2);
    assert_int_equal(released_bytes, DEFERRED_BYTES);
    put((size_t)DEFERRED_BYTES * 2); /* alone */
    assert_int_equal(released, 3);
    put(0);
    assert_int_equal(released, 4);
    deferred_run();
    assert_int_equal(released, 5);
}

/* What is released may put something itself. */
static void release_and_put(struct deferred *item)
{
    atomic_fetch_add(&released, 1);
    free(item);
    put(10);
}

static void a_release_may_put(void **state)
{
    (void)state;
    struct deferred *item = malloc(sizeof *item);
    assert_non_null(item);
    *item = (struct deferred){.bytes = 10, .release = release_and_put};
    deferred_free(item);
    deferred_run();
    assert_int_equal(released, 1);
    deferred_run();
    assert_int_equal(released, 2);
}

enum { THREADS = 4, EACH = 2000 };

static void busy_body(struct rank *rank)
{
    for (int i = 0; i < EACH; i++) {
        put((size_t)(DEFERRED_BYTES / 50));
        if (i % 7 == rank->rank)
            deferred_run();
    }
}

static void threads_release_each_thing_once(void **state)
{
    (void)state;
    ranks_run(THREADS, busy_body, NULL);
    deferred_run();
    assert_int_equal(released, THREADS * EACH);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(it_waits_until_somebody_wants, forget),
        cmocka_unit_test_setup(no_more_waits_than_is_allowed, forget),
        cmocka_unit_test_setup(a_release_may_put, forget),
        cmocka_unit_test_setup(threads_release_each_thing_once, forget),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
