/* The staging pool over a device that counts its buffers and can run out of memory. */
#include "progress/pool.h"

#include "base/status.h"
#include "train/base/random.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tests/support/patience.h"

static uint64_t seed;
static atomic_int made, alive;
static atomic_bool exhausted;

static alnico_status_t counting_alloc(size_t bytes, void **out)
{
    *out = NULL;
    if (atomic_load(&exhausted))
        return error_set(ALNICO_ERROR_MEMORY, "no memory for %zu bytes", bytes);
    alnico_status_t status = device_cpu.pinned_alloc(bytes, out);
    if (status == ALNICO_SUCCESS) {
        atomic_fetch_add(&made, 1);
        atomic_fetch_add(&alive, 1);
    }
    return status;
}

static void counting_free(void *memory)
{
    if (memory)
        atomic_fetch_sub(&alive, 1);
    device_cpu.pinned_free(memory);
}

static struct device_ops device;

/* Must be called first: each test starts with nothing counted. */
static void open_pool(struct pool *pool)
{
    device = device_cpu;
    device.pinned_alloc = counting_alloc;
    device.pinned_free = counting_free;
    atomic_store(&made, 0);
    atomic_store(&exhausted, false);
    pool_init(pool, &device);
}

static void close_pool(struct pool *pool)
{
    assert_int_equal(pool->used, 0);
    pool_finish(pool);
    assert_int_equal(atomic_load(&alive), 0);
}

static unsigned char *take(struct pool *pool, size_t bytes)
{
    void *buffer = NULL;
    assert_int_equal(pool_take(pool, bytes, &buffer), ALNICO_SUCCESS);
    assert_non_null(buffer);
    assert_int_equal((uintptr_t)buffer % 64, 0);
    return buffer;
}

static void every_size_has_room(void **state)
{
    (void)state;
    static const size_t sizes[] = {
        0, 1, 64, 4095, 4096, 4097, 8192, 100000, POOL_KEPT_LIMIT, POOL_KEPT_LIMIT + 1};
    struct pool pool;
    open_pool(&pool);
    for (int round = 0; round < 2; round++)
        for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
            unsigned char *buffer = take(&pool, sizes[i]);
            for (size_t at = 0; at < sizes[i]; at += 4096)
                buffer[at] = 0xa5;
            if (sizes[i])
                buffer[sizes[i] - 1] = 0x5a;
            pool_give(&pool, buffer, sizes[i]);
        }
    close_pool(&pool);
}

static void buffers_are_used_again(void **state)
{
    (void)state;
    struct pool pool;
    open_pool(&pool);
    unsigned char *a = take(&pool, 5000), *b = take(&pool, 5000);
    assert_ptr_not_equal(a, b);
    assert_int_equal(pool.kept, 0);
    assert_true(pool.used >= 10000);
    pool_give(&pool, a, 5000);
    pool_give(&pool, b, 5000);
    assert_int_equal(pool.used, 0);
    assert_true(pool.kept >= 10000);
    assert_ptr_equal(take(&pool, 8000), b); /* of the same power of two */
    assert_ptr_equal(take(&pool, 4097), a);
    assert_int_equal(pool.kept, 0);
    unsigned char *c = take(&pool, 4096); /* of another */
    assert_int_equal(atomic_load(&made), 3);
    pool_give(&pool, a, 4097);
    pool_give(&pool, b, 8000);
    pool_give(&pool, c, 4096);
    pool_give(&pool, NULL, 4096);
    close_pool(&pool);
}

static void what_is_kept_is_bounded(void **state)
{
    (void)state;
    enum { BUFFERS = 100, BYTES = 1 << 20 };
    struct pool pool;
    unsigned char *buffers[BUFFERS];
    open_pool(&pool);
    for (int i = 0; i < BUFFERS; i++)
        buffers[i] = take(&pool, BYTES);
    assert_int_equal(pool.used, (size_t)BUFFERS * BYTES);
    for (int i = 0; i < BUFFERS; i++) {
        pool_give(&pool, buffers[i], BYTES);
        assert_true(pool.kept <= POOL_KEPT_LIMIT);
    }
    assert_int_equal(atomic_load(&alive), POOL_KEPT_LIMIT / BYTES);
    assert_int_equal(pool.kept, POOL_KEPT_LIMIT);
    close_pool(&pool);
}

/* A buffer as large as the limit is kept, so that a large message does not allocate each time. */
static void largest_kept_buffer_is_the_limit(void **state)
{
    (void)state;
    struct pool pool;
    open_pool(&pool);
    for (int i = 0; i < 3; i++)
        pool_give(&pool, take(&pool, POOL_KEPT_LIMIT), POOL_KEPT_LIMIT);
    assert_int_equal(atomic_load(&made), 1);
    for (int i = 0; i < 3; i++)
        pool_give(&pool, take(&pool, POOL_KEPT_LIMIT + 1), POOL_KEPT_LIMIT + 1);
    assert_int_equal(atomic_load(&made), 4);
    assert_int_equal(pool.kept, POOL_KEPT_LIMIT);
    unsigned char *large = take(&pool, POOL_KEPT_LIMIT + 1); /* and is no larger than asked for */
    assert_int_equal(pool.used, (size_t)POOL_KEPT_LIMIT + 1);
    pool_give(&pool, large, POOL_KEPT_LIMIT + 1);
    close_pool(&pool);
}

static void failure_leaves_nothing_behind(void **state)
{
    (void)state;
    static const size_t sizes[] = {1, 100000, SIZE_MAX};
    struct pool pool;
    open_pool(&pool);
    void *kept = take(&pool, 100);
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        void *buffer = &pool;
        atomic_store(&exhausted, sizes[i] != SIZE_MAX);
        assert_int_equal(pool_take(&pool, sizes[i], &buffer), ALNICO_ERROR_MEMORY);
        assert_null(buffer);
        assert_int_equal(pool.used, POOL_FIRST_BYTES);
        assert_int_equal(pool.kept, 0);
    }
    atomic_store(&exhausted, true);
    pool_give(&pool, kept, 100);
    assert_ptr_equal(take(&pool, 1), kept); /* needs no memory */
    pool_give(&pool, kept, 1);
    close_pool(&pool);
}

static void does_not_grow(void **state)
{
    (void)state;
    enum { TAKES = 100000, HELD = 8 };
    struct pool pool;
    struct {
        void *buffer;
        size_t bytes;
    } held[HELD] = {0};
    uint64_t generator = seed;
    int made_early = 0;
    open_pool(&pool);
    for (int i = 0; i < TAKES; i++) {
        int k = (int)(random_next(&generator) % HELD);
        pool_give(&pool, held[k].buffer, held[k].bytes);
        held[k].bytes = random_next(&generator) % 60000;
        held[k].buffer = take(&pool, held[k].bytes);
        if (i == TAKES / 10)
            made_early = atomic_load(&made);
    }
    assert_true(atomic_load(&made) <= made_early + HELD);
    assert_true(atomic_load(&made) <=
                HELD * 5); /* bins of 4 KB to 64 KB, all held at once in each */
    for (int k = 0; k < HELD; k++)
        pool_give(&pool, held[k].buffer, held[k].bytes);
    close_pool(&pool);
}

/* ---- Several users ---- */

struct user {
    pthread_t thread;
    struct pool *pool;
    uint64_t generator;
    int faults;
};

/* Marks what it holds at both ends, and looks whether somebody else has written there. */
static void *use(void *argument)
{
    struct user *user = argument;
    unsigned char mark = (unsigned char)user->generator;
    for (int i = 0; i < 10000; i++) {
        size_t bytes = 2 + random_next(&user->generator) % 20000;
        void *memory;
        if (pool_take(user->pool, bytes, &memory) != ALNICO_SUCCESS) {
            user->faults++;
            continue;
        }
        unsigned char *buffer = memory;
        buffer[0] = buffer[bytes - 1] = mark;
        if (i % 64 == 0)
            nap_us(10);
        user->faults += buffer[0] != mark || buffer[bytes - 1] != mark;
        pool_give(user->pool, buffer, bytes);
    }
    return NULL;
}

static void users_do_not_meet_in_a_buffer(void **state)
{
    (void)state;
    enum { USERS = 4 };
    struct pool pool;
    struct user users[USERS];
    open_pool(&pool);
    for (int i = 0; i < USERS; i++) {
        users[i] =
            (struct user){.pool = &pool, .generator = (seed & ~UINT64_C(0xff)) + (uint64_t)i};
        assert_int_equal(pthread_create(&users[i].thread, NULL, use, &users[i]), 0);
    }
    for (int i = 0; i < USERS; i++) {
        pthread_join(users[i].thread, NULL);
        assert_int_equal(users[i].faults, 0);
    }
    assert_true(atomic_load(&made) <= USERS * 4); /* 4, 8, 16 and 32 KB */
    close_pool(&pool);
}

static int set_up(void **state)
{
    (void)state;
    seed = (uint64_t)time(NULL);
    const char *text = getenv("SEED");
    if (text)
        seed = strtoull(text, NULL, 0);
    printf("seed %llu\n", (unsigned long long)seed);
    alarm(WATCHDOG_S);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_size_has_room),
        cmocka_unit_test(buffers_are_used_again),
        cmocka_unit_test(what_is_kept_is_bounded),
        cmocka_unit_test(largest_kept_buffer_is_the_limit),
        cmocka_unit_test(failure_leaves_nothing_behind),
        cmocka_unit_test(does_not_grow),
        cmocka_unit_test(users_do_not_meet_in_a_buffer),
    };
    return cmocka_run_group_tests(tests, set_up, NULL);
}
