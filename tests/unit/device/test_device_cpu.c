/* Every slot of the CPU device: memory, copies, arithmetic, events and flags, on streams and
 * without. */
#include "base/datatype.h"
#include "device/device.h"
#include "train/base/random.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tests/support/patience.h"

static const struct device_ops *const device = &device_cpu;
static uint64_t seed, generator;

/* Sizes that no machine has must give NULL under the sanitizers too. */
const char *__asan_default_options(void);
const char *__asan_default_options(void)
{
    return "allocator_may_return_null=1";
}
const char *__tsan_default_options(void);
const char *__tsan_default_options(void)
{
    return "allocator_may_return_null=1";
}

static size_t random_below(size_t bound)
{
    return (size_t)(random_next(&generator) % bound);
}

static void fill(void *memory, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++)
        ((unsigned char *)memory)[i] = (unsigned char)random_next(&generator);
}

/* A task that holds its stream until told to go on. */
struct barrier {
    atomic_bool reached, go;
};

static void hold(void *argument)
{
    struct barrier *barrier = argument;
    atomic_store(&barrier->reached, true);
    while (!atomic_load(&barrier->go))
        nap_us(50);
}

/* A stream that is at `barrier`. */
static alnico_stream_t held_stream(struct barrier *barrier)
{
    alnico_stream_t stream;
    atomic_store(&barrier->reached, false);
    atomic_store(&barrier->go, false);
    assert_int_equal(alnico_stream_create(&stream), ALNICO_SUCCESS);
    assert_int_equal(alnico_stream_enqueue(stream, hold, barrier), ALNICO_SUCCESS);
    EVENTUALLY(atomic_load(&barrier->reached));
    return stream;
}

/* ---- The table ---- */

static void table_is_complete_and_found(void **state)
{
    (void)state;
    assert_ptr_equal(device_find(ALNICO_DEVICE_CPU), device);
    assert_null(device_find((alnico_device_t)17));
    assert_string_equal(device->name, "cpu");
    assert_int_equal(device->kind, ALNICO_DEVICE_CPU);
    assert_true(device->host_accessible);
    size_t first = offsetof(struct device_ops, alloc);
    void (*slot)(void);
    for (size_t at = first; at + sizeof slot <= sizeof *device; at += sizeof slot) {
        memcpy(&slot, (const char *)device + at, sizeof slot);
        assert_true(slot != NULL);
    }
}

/* ---- Memory ---- */

static void memory_has_a_size(void **state)
{
    (void)state;
    size_t available = 0, total = 0;
    assert_int_equal(device->memory(&available, &total), ALNICO_SUCCESS);
    assert_true(available > 1 << 20 && available <= total);
}

/* In the stream's order: not before what it waits for. */
static void clears_and_stamps_are_ordered(void **state)
{
    (void)state;
    struct barrier barrier;
    alnico_stream_t stream = held_stream(&barrier);
    uint64_t before = 0, stamps[2] = {0};
    char memory[300];
    memset(memory, 1, sizeof memory);
    assert_int_equal(device->stamp(&before, NULL), ALNICO_SUCCESS);
    assert_int_equal(device->stamp(&stamps[0], stream), ALNICO_SUCCESS);
    assert_int_equal(device->clear(memory, 299, stream), ALNICO_SUCCESS);
    assert_int_equal(device->stamp(&stamps[1], stream), ALNICO_SUCCESS);
    nap_us(2000);
    assert_true(before > 0 && stamps[0] == 0 && memory[0] == 1);
    atomic_store(&barrier.go, true);
    alnico_stream_destroy(stream);
    assert_true(stamps[0] >= before + 2000000 && stamps[1] >= stamps[0]);
    for (int i = 0; i < 299; i++)
        assert_int_equal(memory[i], 0);
    assert_int_equal(memory[299], 1);
}

static void check_memory(alnico_status_t (*alloc)(size_t, void **), void (*release)(void *))
{
    static const size_t sizes[] = {0, 1, 63, 64, 65, 4096, 4097, 1 << 20};
    void *memory[sizeof sizes / sizeof *sizes];
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        assert_int_equal(alloc(sizes[i], &memory[i]), ALNICO_SUCCESS);
        assert_non_null(memory[i]);
        assert_int_equal((uintptr_t)memory[i] % 64, 0);
        memset(memory[i], (int)i, sizes[i]);
    }
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        for (size_t k = 0; k < sizes[i]; k += 61)
            assert_int_equal(((unsigned char *)memory[i])[k], i);
        release(memory[i]);
    }
    release(NULL);
}

static void memory_is_aligned(void **state)
{
    (void)state;
    check_memory(device->alloc, device->free);
    check_memory(device->pinned_alloc, device->pinned_free);
}

static void impossible_sizes_are_errors(void **state)
{
    (void)state;
    static const size_t sizes[] = {SIZE_MAX, SIZE_MAX - 1, SIZE_MAX - 63, SIZE_MAX - 64,
                                   SIZE_MAX / 2};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        char text[32];
        void *memory = &generator;
        snprintf(text, sizeof text, "%zu bytes", sizes[i]);
        assert_int_equal(device->alloc(sizes[i], &memory), ALNICO_ERROR_MEMORY);
        assert_null(memory);
        assert_non_null(strstr(alnico_error_detail(), text));
        memory = &generator;
        assert_int_equal(device->pinned_alloc(sizes[i], &memory), ALNICO_ERROR_MEMORY);
        assert_null(memory);
    }
}

/* ---- Copies and arithmetic ---- */

static void copies_are_exact(void **state)
{
    (void)state;
    enum { BYTES = 5000, GUARD = 64 };
    static unsigned char from[BYTES + 2 * GUARD], to[BYTES + 2 * GUARD], before[sizeof to];
    alnico_stream_t stream;
    assert_int_equal(alnico_stream_create(&stream), ALNICO_SUCCESS);
    for (int round = 0; round < 200; round++) {
        size_t bytes = random_below(BYTES), at = random_below(GUARD), into = random_below(GUARD);
        alnico_stream_t on = round % 2 ? stream : NULL;
        fill(from, sizeof from);
        fill(to, sizeof to);
        memcpy(before, to, sizeof to);
        assert_int_equal(device->copy(to + into, from + at, bytes, on), ALNICO_SUCCESS);
        assert_int_equal(device->stream_synchronize(on), ALNICO_SUCCESS);
        assert_memory_equal(to, before, into);
        assert_memory_equal(to + into, from + at, bytes);
        assert_memory_equal(to + into + bytes, before + into + bytes, sizeof to - into - bytes);
    }
    assert_int_equal(device->copy(NULL, NULL, 0, NULL), ALNICO_SUCCESS);
    assert_int_equal(device->copy(NULL, NULL, 0, stream), ALNICO_SUCCESS);
    alnico_stream_destroy(stream);
}

/* The pieces depend on each other: out of order, or done by the caller, the last one would be
 * wrong. */
static void work_on_a_stream_waits_for_what_came_before(void **state)
{
    (void)state;
    struct barrier barrier;
    alnico_stream_t stream = held_stream(&barrier);
    int32_t a[4] = {1, 2, 3, 4}, b[4] = {-1, -1, -1, -1}, c[4] = {-1, -1, -1, -1};
    assert_int_equal(device->copy(b, a, sizeof a, stream), ALNICO_SUCCESS);
    assert_int_equal(device->reduce(b, b, a, 4, ALNICO_INT32, ALNICO_PRODUCT, stream),
                     ALNICO_SUCCESS);
    assert_int_equal(device->divide(c, b, 4, ALNICO_INT32, 2, stream), ALNICO_SUCCESS);
    nap_us(1000);
    assert_int_equal(b[3], -1);
    a[0] = 10; /* before the stream reads it */
    atomic_store(&barrier.go, true);
    assert_int_equal(device->stream_synchronize(stream), ALNICO_SUCCESS);
    static const int32_t squares[4] = {100, 4, 9, 16}, halves[4] = {50, 2, 4, 8};
    assert_memory_equal(b, squares, sizeof b);
    assert_memory_equal(c, halves, sizeof c);
    alnico_stream_destroy(stream);
}

static int32_t combine(alnico_op_t op, int32_t a, int32_t b)
{
    switch (op) {
    case ALNICO_SUM:
    case ALNICO_AVERAGE:
        return a + b;
    case ALNICO_PRODUCT:
        return a * b;
    case ALNICO_MINIMUM:
        return a < b ? a : b;
    case ALNICO_MAXIMUM:
        return a > b ? a : b;
    case ALNICO_LOGICAL_AND:
        return a && b;
    case ALNICO_LOGICAL_OR:
        return a || b;
    case ALNICO_LOGICAL_XOR:
        return !a != !b;
    case ALNICO_BITWISE_AND:
        return a & b;
    case ALNICO_BITWISE_OR:
        return a | b;
    case ALNICO_BITWISE_XOR:
        return a ^ b;
    }
    return 0;
}

/* Small whole numbers, so that float32 and int32 agree. */
static void arithmetic_reaches_the_operands(void **state)
{
    (void)state;
    enum { COUNT = 100 };
    int32_t a[COUNT], b[COUNT], c[COUNT];
    float x[COUNT], y[COUNT], z[COUNT];
    for (int op = 0; op < OPS; op++) {
        for (int i = 0; i < COUNT; i++) {
            x[i] = (float)(a[i] = (int32_t)random_below(2001) - 1000);
            y[i] = (float)(b[i] = (int32_t)random_below(5) - 2);
            z[i] = (float)(c[i] = -77);
        }
        assert_int_equal(device->reduce(c, a, b, COUNT, ALNICO_INT32, (alnico_op_t)op, NULL),
                         ALNICO_SUCCESS);
        bool floats = op_supports((alnico_op_t)op, ALNICO_FLOAT32);
        if (floats)
            assert_int_equal(device->reduce(z, x, y, COUNT, ALNICO_FLOAT32, (alnico_op_t)op, NULL),
                             ALNICO_SUCCESS);
        for (int i = 0; i < COUNT; i++) {
            assert_int_equal(c[i], combine((alnico_op_t)op, a[i], b[i]));
            assert_true(!floats || z[i] == (float)c[i]);
        }
    }
    assert_int_equal(device->divide(c, a, COUNT, ALNICO_INT32, 3, NULL), ALNICO_SUCCESS);
    assert_int_equal(device->divide(z, x, COUNT, ALNICO_FLOAT32, 4, NULL), ALNICO_SUCCESS);
    for (int i = 0; i < COUNT; i++) {
        assert_int_equal(c[i], a[i] / 3);
        assert_true(z[i] == x[i] / 4);
    }
}

/* ---- Events ---- */

static void unrecorded_event_is_complete(void **state)
{
    (void)state;
    struct device_event *event = NULL;
    alnico_stream_t stream;
    assert_int_equal(alnico_stream_create(&stream), ALNICO_SUCCESS);
    assert_int_equal(device->event_create(&event), ALNICO_SUCCESS);
    assert_true(device->event_complete(event));
    assert_int_equal(device->event_synchronize(event), ALNICO_SUCCESS);
    assert_int_equal(device->stream_wait(stream, event), ALNICO_SUCCESS);
    assert_int_equal(device->stream_wait(NULL, event), ALNICO_SUCCESS);
    assert_int_equal(device->stream_synchronize(stream), ALNICO_SUCCESS);
    device->event_destroy(event);
    device->event_destroy(NULL);
    alnico_stream_destroy(stream);
}

static void event_is_complete_once_its_stream_has_passed(void **state)
{
    (void)state;
    struct barrier barrier;
    struct device_event *event;
    alnico_stream_t stream = held_stream(&barrier);
    assert_int_equal(device->event_create(&event), ALNICO_SUCCESS);
    assert_int_equal(device->event_record(event, stream), ALNICO_SUCCESS);
    nap_us(1000);
    assert_false(device->event_complete(event));
    atomic_store(&barrier.go, true);
    assert_int_equal(device->event_synchronize(event), ALNICO_SUCCESS);
    assert_true(device->event_complete(event));
    assert_int_equal(device->event_record(event, NULL), ALNICO_SUCCESS);
    assert_true(device->event_complete(event)); /* the inline stream is always past */
    device->event_destroy(event);
    alnico_stream_destroy(stream);
}

/* A stream that waits has the mark of its call in mind, whatever happens to the event later. */
static void recording_again_moves_an_event(void **state)
{
    (void)state;
    struct barrier first, second;
    struct device_event *event, *passed;
    alnico_stream_t a = held_stream(&first), b = held_stream(&second), waiter;
    assert_int_equal(alnico_stream_create(&waiter), ALNICO_SUCCESS);
    assert_int_equal(device->event_create(&event), ALNICO_SUCCESS);
    assert_int_equal(device->event_create(&passed), ALNICO_SUCCESS);
    assert_int_equal(device->event_record(event, a), ALNICO_SUCCESS);
    assert_int_equal(device->stream_wait(waiter, event), ALNICO_SUCCESS);
    assert_int_equal(device->event_record(passed, waiter), ALNICO_SUCCESS);
    assert_int_equal(device->event_record(event, b), ALNICO_SUCCESS);
    nap_us(1000);
    assert_false(device->event_complete(passed));
    atomic_store(&first.go, true);
    assert_int_equal(device->event_synchronize(passed), ALNICO_SUCCESS);
    assert_false(device->event_complete(event));
    atomic_store(&second.go, true);
    assert_int_equal(device->event_synchronize(event), ALNICO_SUCCESS);
    assert_true(device->event_complete(event));
    for (int i = 0; i < 1000; i++)
        assert_int_equal(device->event_record(event, i % 2 ? a : NULL), ALNICO_SUCCESS);
    assert_int_equal(device->event_synchronize(event), ALNICO_SUCCESS);
    alnico_stream_destroy(a);
    alnico_stream_destroy(b);
    alnico_stream_destroy(waiter);
    device->event_destroy(event);
    device->event_destroy(passed);
}

/* The stream's worker may still be about to leave the record. The sanitizers see it touch freed
 * memory. */
static void event_may_be_destroyed_when_it_is_complete(void **state)
{
    (void)state;
    alnico_stream_t stream;
    assert_int_equal(alnico_stream_create(&stream), ALNICO_SUCCESS);
    for (int i = 0; i < 5000; i++) {
        struct device_event *event;
        assert_int_equal(device->event_create(&event), ALNICO_SUCCESS);
        assert_int_equal(device->event_record(event, stream), ALNICO_SUCCESS);
        if (i % 2)
            assert_int_equal(device->event_synchronize(event), ALNICO_SUCCESS);
        while (!device->event_complete(event))
            ;
        device->event_destroy(event);
    }
    alnico_stream_destroy(stream);
}

/* ---- Flags ---- */

static struct device_flag *new_flag(void)
{
    struct device_flag *flag = NULL;
    assert_int_equal(device->flag_create(&flag), ALNICO_SUCCESS);
    assert_non_null(flag);
    return flag;
}

static void flag_only_grows(void **state)
{
    (void)state;
    struct device_flag *flag = new_flag();
    assert_int_equal(device->flag_read(flag), 0);
    device->flag_wait(flag, 0);
    device->flag_raise(flag, 7);
    assert_int_equal(device->flag_read(flag), 7);
    device->flag_raise(flag, 3);
    device->flag_raise(flag, 7);
    assert_int_equal(device->flag_read(flag), 7);
    device->flag_wait(flag, 7);
    device->flag_wait(flag, 1);
    device->flag_destroy(flag);
    device->flag_destroy(NULL);
}

static void flag_goes_on_past_its_largest_value(void **state)
{
    (void)state;
    struct device_flag *flag = new_flag();
    device->flag_raise(flag, UINT32_C(0x7fffffff));
    device->flag_raise(flag, UINT32_C(0xfffffff0));
    assert_int_equal(device->flag_read(flag), UINT32_C(0xfffffff0));
    device->flag_raise(flag, 5);
    assert_int_equal(device->flag_read(flag), 5);
    device->flag_wait(flag, UINT32_C(0xffffffff));
    device->flag_raise(flag, UINT32_C(0xfffffff8));
    assert_int_equal(device->flag_read(flag), 5);
    device->flag_raise(flag, 6);
    assert_int_equal(device->flag_read(flag), 6);
    device->flag_destroy(flag);
}

struct waiter {
    pthread_t thread;
    struct device_flag *flag;
    uint32_t value;
    atomic_bool passed;
};

static void *wait_for_flag(void *argument)
{
    struct waiter *waiter = argument;
    device->flag_wait(waiter->flag, waiter->value);
    atomic_store(&waiter->passed, true);
    return NULL;
}

/* The pauses are longer than a waiter spins, so that all of them sleep. */
static void waiters_wake_at_their_own_values(void **state)
{
    (void)state;
    enum { WAITERS = 5 };
    struct device_flag *flag = new_flag();
    struct waiter waiters[WAITERS] = {0};
    for (uint32_t i = 0; i < WAITERS; i++) {
        waiters[i].flag = flag;
        waiters[i].value = i / 2 + 1; /* 1 1 2 2 3 */
        assert_int_equal(pthread_create(&waiters[i].thread, NULL, wait_for_flag, &waiters[i]), 0);
    }
    for (uint32_t value = 0; value <= 3; value++) {
        device->flag_raise(flag, value);
        for (int i = 0; i < WAITERS; i++)
            if (waiters[i].value <= value)
                EVENTUALLY(atomic_load(&waiters[i].passed));
        nap_us(20000);
        for (int i = 0; i < WAITERS; i++)
            assert_int_equal(atomic_load(&waiters[i].passed), waiters[i].value <= value);
    }
    for (int i = 0; i < WAITERS; i++)
        pthread_join(waiters[i].thread, NULL);
    device->flag_destroy(flag);
}

static void streams_raise_and_await_in_order(void **state)
{
    (void)state;
    struct barrier barrier;
    struct device_flag *ready = new_flag(), *done = new_flag();
    alnico_stream_t stream = held_stream(&barrier);
    assert_int_equal(device->stream_raise(stream, ready, 4), ALNICO_SUCCESS);
    assert_int_equal(device->stream_await(stream, done, 9), ALNICO_SUCCESS);
    assert_int_equal(device->stream_raise(stream, ready, 5), ALNICO_SUCCESS);
    nap_us(1000);
    assert_int_equal(device->flag_read(ready), 0);
    atomic_store(&barrier.go, true);
    device->flag_wait(ready, 4);
    device->flag_raise(done, 8);
    nap_us(5000);
    assert_int_equal(device->flag_read(ready), 4);
    device->flag_raise(done, 9);
    device->flag_wait(ready, 5);
    assert_int_equal(device->stream_raise(NULL, ready, 6), ALNICO_SUCCESS);
    assert_int_equal(device->flag_read(ready), 6);
    assert_int_equal(device->stream_await(NULL, ready, 6), ALNICO_SUCCESS);
    alnico_stream_destroy(stream);
    device->flag_destroy(ready);
    device->flag_destroy(done);
}

static int set_up(void **state)
{
    (void)state;
    seed = (uint64_t)time(NULL);
    const char *text = getenv("SEED");
    if (text)
        seed = strtoull(text, NULL, 0);
    printf("seed %llu\n", (unsigned long long)seed);
    generator = seed;
    alarm(WATCHDOG_S);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(table_is_complete_and_found),
        cmocka_unit_test(memory_is_aligned),
        cmocka_unit_test(memory_has_a_size),
        cmocka_unit_test(clears_and_stamps_are_ordered),
        cmocka_unit_test(impossible_sizes_are_errors),
        cmocka_unit_test(copies_are_exact),
        cmocka_unit_test(work_on_a_stream_waits_for_what_came_before),
        cmocka_unit_test(arithmetic_reaches_the_operands),
        cmocka_unit_test(unrecorded_event_is_complete),
        cmocka_unit_test(event_is_complete_once_its_stream_has_passed),
        cmocka_unit_test(recording_again_moves_an_event),
        cmocka_unit_test(event_may_be_destroyed_when_it_is_complete),
        cmocka_unit_test(flag_only_grows),
        cmocka_unit_test(flag_goes_on_past_its_largest_value),
        cmocka_unit_test(waiters_wake_at_their_own_values),
        cmocka_unit_test(streams_raise_and_await_in_order),
    };
    return cmocka_run_group_tests(tests, set_up, NULL);
}
