/* Batches that threads prepare ahead: what comes out does not depend on the threads, slow ones
 * included; who works on what, what failures say, and that nothing spins. Without the trainer, so
 * that sanitizers see it everywhere. */
#include "train/input/loader.h"

#include "base/status.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

enum { SLOTS = 8, PARTS = 16, THREADS = 32, FIRST = 7 };

static const size_t thread_counts[] = {0, 1, 2, 3, 8, THREADS};
enum { COUNTS = sizeof thread_counts / sizeof *thread_counts };

/* What a loader works on: a slot holds its batch's number, and of each part a number made of both. */
struct shelf {
    uint64_t seed, next;
    uint64_t numbers[SLOTS], parts[SLOTS][PARTS];
    useconds_t most_us;     /* a part takes up to that long */
    size_t fixed;           /* parts of every batch; 0: by its number */
    int busy[THREADS];      /* a thread has a part */
    atomic_size_t prepared; /* parts so far */
    atomic_size_t inside;   /* threads that are in the first batch's parts */
    size_t gather;          /* these parts wait for so many threads; 0: they do not */
    useconds_t first_us;    /* parts of the first batch take so long */
    uint64_t failing;       /* batch whose later half of parts fails; 0: none */
    bool alone;             /* only `caller` prepares */
    pthread_t caller;
};

/* On any thread. */
static void must(bool condition, const char *what)
{
    if (condition)
        return;
    fprintf(stderr, "FAILED: %s\n", what);
    abort();
}

static uint64_t mix(uint64_t seed, uint64_t number, uint64_t part)
{
    uint64_t x = seed ^ (number * UINT64_C(0x9e3779b97f4a7c15)) ^ part << 48;
    x = (x ^ x >> 31) * UINT64_C(0xbf58476d1ce4e5b9);
    return x ^ x >> 29;
}

static size_t parts_of(const struct shelf *shelf, uint64_t number)
{
    return shelf->fixed ? shelf->fixed : mix(shelf->seed, number, PARTS) % (PARTS + 1);
}

static size_t begin(void *context, uint64_t number, size_t slot)
{
    struct shelf *shelf = context;
    must(number == shelf->next++, "batches begin in order");
    must(slot < SLOTS, "there is such a slot");
    shelf->numbers[slot] = number;
    memset(shelf->parts[slot], 0, sizeof shelf->parts[slot]);
    return parts_of(shelf, number);
}

/* Waits until enough threads have come, at most ten seconds. */
static void gather(struct shelf *shelf)
{
    atomic_fetch_add(&shelf->inside, 1);
    for (int i = 0; i < 10000 && atomic_load(&shelf->inside) < shelf->gather; i++)
        usleep(1000);
    must(atomic_load(&shelf->inside) >= shelf->gather, "all threads work on a batch");
}

static alnico_status_t prepare(void *context, size_t thread, size_t slot, size_t part)
{
    struct shelf *shelf = context;
    const uint64_t number = shelf->numbers[slot], value = mix(shelf->seed, number, part);
    must(shelf->busy[thread]++ == 0, "a thread has one part at a time");
    must(!shelf->alone || pthread_equal(shelf->caller, pthread_self()), "the caller prepares");
    if (number == FIRST)
        usleep(shelf->first_us);
    if (shelf->most_us)
        usleep((useconds_t)(value % shelf->most_us));
    if (shelf->gather && (number == FIRST || number == FIRST + 2))
        gather(shelf);
    shelf->parts[slot][part] = value;
    atomic_fetch_add(&shelf->prepared, 1);
    shelf->busy[thread]--;
    if (shelf->failing && number == shelf->failing && part >= PARTS / 2)
        return error_set(ALNICO_ERROR_SYSTEM, "part %zu of batch %llu", part,
                         (unsigned long long)number);
    return ALNICO_SUCCESS;
}

static uint64_t seed;

static struct shelf shelf_make(void)
{
    return (struct shelf){.seed = seed, .next = FIRST};
}

static struct loader *open_loader(struct shelf *shelf, size_t threads, size_t slots, size_t held)
{
    const struct loader_options options = {.threads = threads,
                                           .slots = slots,
                                           .held = held,
                                           .first = FIRST,
                                           .context = shelf,
                                           .begin = begin,
                                           .prepare = prepare};
    struct loader *loader;
    if (loader_create(&options, &loader) != ALNICO_SUCCESS)
        fail_msg("%s", alnico_error_detail());
    return loader;
}

static void check_slot(const struct shelf *shelf, size_t slot, uint64_t number)
{
    assert_int_equal(shelf->numbers[slot], number);
    for (size_t i = 0; i < PARTS; i++)
        assert_int_equal(shelf->parts[slot][i],
                         i < parts_of(shelf, number) ? mix(shelf->seed, number, i) : 0);
}

/* Takes batches in their order, and looks at all that are held. */
static void take(struct shelf *shelf, size_t threads, size_t slots, size_t held, size_t batches)
{
    struct loader *loader = open_loader(shelf, threads, slots, held);
    size_t at[SLOTS];
    for (size_t i = 0; i < batches; i++) {
        assert_int_equal(loader_next(loader, &at[i % held]), ALNICO_SUCCESS);
        for (size_t j = 0; j < held && j <= i; j++)
            check_slot(shelf, at[(i - j) % held], FIRST + i - j);
    }
    loader_destroy(loader);
}

static void any_threads_give_the_same_batches(void **unused)
{
    (void)unused;
    for (size_t t = 0; t < COUNTS; t++)
        for (size_t held = 1; held <= 3; held++)
            for (size_t slots = held + 1; slots <= SLOTS; slots += 2) {
                struct shelf shelf = shelf_make();
                take(&shelf, thread_counts[t], slots, held, 100);
            }
}

static void slow_parts_change_nothing(void **unused)
{
    (void)unused;
    for (size_t t = 0; t < COUNTS; t++) {
        struct shelf shelf = shelf_make();
        shelf.most_us = 300;
        take(&shelf, thread_counts[t], 4, 2, 40);
    }
}

/* Those that come, and those that sleep since the ring was full. */
static void all_threads_work_on_the_batch_that_is_next(void **unused)
{
    (void)unused;
    struct shelf shelf = shelf_make();
    size_t slot;
    shelf.fixed = shelf.gather = PARTS;
    struct loader *loader = open_loader(&shelf, PARTS, 2, 1);
    assert_int_equal(loader_next(loader, &slot), ALNICO_SUCCESS);
    assert_int_equal(atomic_load(&shelf.inside), PARTS);
    while (atomic_load(&shelf.prepared) < 2 * PARTS)
        usleep(1000);
    usleep(50000);
    shelf.gather = 2 * PARTS; /* with those of before */
    for (int batch = 1; batch < 3; batch++)
        assert_int_equal(loader_next(loader, &slot), ALNICO_SUCCESS);
    assert_int_equal(atomic_load(&shelf.inside), 2 * PARTS);
    loader_destroy(loader);
}

static void without_threads_the_caller_prepares_what_it_asks_for(void **unused)
{
    (void)unused;
    struct shelf shelf = shelf_make();
    size_t slot;
    shelf.fixed = 5;
    shelf.alone = true;
    shelf.caller = pthread_self();
    struct loader *loader = open_loader(&shelf, 0, 4, 1);
    for (size_t i = 1; i <= 10; i++) {
        assert_int_equal(loader_next(loader, &slot), ALNICO_SUCCESS);
        assert_int_equal(atomic_load(&shelf.prepared), 5 * i);
    }
    loader_destroy(loader);
}

/* Those before the batch come; of its parts the first that failed is named, each time. */
static void a_failure_names_the_first_part(void **unused)
{
    (void)unused;
    for (size_t t = 0; t < COUNTS; t++) {
        struct shelf shelf = shelf_make();
        char expected[64];
        size_t slot;
        shelf.fixed = PARTS;
        shelf.most_us = 200;
        shelf.failing = FIRST + 5;
        snprintf(expected, sizeof expected, "part %d of batch %d", PARTS / 2, FIRST + 5);
        struct loader *loader = open_loader(&shelf, thread_counts[t], 4, 2);
        for (size_t i = 0; i < 5; i++)
            assert_int_equal(loader_next(loader, &slot), ALNICO_SUCCESS);
        for (int i = 0; i < 3; i++) {
            error_set(ALNICO_ERROR_ARGUMENT, "something else");
            assert_int_equal(loader_next(loader, &slot), ALNICO_ERROR_SYSTEM);
            assert_string_equal(alnico_error_detail(), expected);
        }
        loader_destroy(loader);
    }
}

/* While the ring fills, is full, and empties. */
static void it_ends_at_any_time(void **unused)
{
    (void)unused;
    loader_destroy(NULL);
    for (size_t i = 0; i < 120; i++) {
        struct shelf shelf = shelf_make();
        size_t slot;
        shelf.most_us = i % 3 ? 0 : 500;
        struct loader *loader = open_loader(&shelf, thread_counts[i % COUNTS], 3, 1);
        for (size_t j = 0; j < i % 7; j++)
            assert_int_equal(loader_next(loader, &slot), ALNICO_SUCCESS);
        if (i % 2)
            usleep(300);
        loader_destroy(loader);
    }
}

static double processor_seconds(void)
{
    struct timespec time;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
    return (double)time.tv_sec + 1e-9 * (double)time.tv_nsec;
}

/* Once the ring is full, and while the caller waits for what is slow. */
static void nothing_spins(void **unused)
{
    (void)unused;
    struct shelf shelf = shelf_make();
    size_t slot;
    shelf.fixed = 1;
    struct loader *loader = open_loader(&shelf, 8, 4, 1);
    while (atomic_load(&shelf.prepared) < 4)
        usleep(1000);
    double start = processor_seconds();
    usleep(200000);
    assert_true(processor_seconds() - start < 0.05);
    loader_destroy(loader);

    struct shelf slow = shelf_make();
    slow.fixed = 1;
    slow.first_us = 300000;
    loader = open_loader(&slow, 8, 4, 1);
    start = processor_seconds();
    assert_int_equal(loader_next(loader, &slot), ALNICO_SUCCESS);
    assert_true(processor_seconds() - start < 0.05);
    loader_destroy(loader);
}

int main(void)
{
    const char *given = getenv("TEST_SEED");
    seed = given ? strtoull(given, NULL, 10) : (uint64_t)time(NULL);
    printf("TEST_SEED=%llu\n", (unsigned long long)seed);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(any_threads_give_the_same_batches),
        cmocka_unit_test(slow_parts_change_nothing),
        cmocka_unit_test(all_threads_work_on_the_batch_that_is_next),
        cmocka_unit_test(without_threads_the_caller_prepares_what_it_asks_for),
        cmocka_unit_test(a_failure_names_the_first_part),
        cmocka_unit_test(it_ends_at_any_time),
        cmocka_unit_test(nothing_spins),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
