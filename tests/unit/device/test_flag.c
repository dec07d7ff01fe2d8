/* Flags whose waiters sleep at once, instead of spinning first: so that the narrow moments between
 * a raise and a waiter that falls asleep are met often enough to be seen. */
#include "device/backoff.h"

static inline bool sleep_at_once(struct backoff *backoff)
{
    (void)backoff;
    return true;
}

#define backoff_wants_sleep sleep_at_once
#include "device/cpu/device.c"
#undef backoff_wants_sleep

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

#include "tests/support/patience.h"

struct pair {
    struct device_flag *ping, *pong;
    uint32_t first;      /* the value of round 0 */
    long sent, received; /* ordered by the flags only, as is last */
    bool last;
};

/* Of varying length, to meet the other thread at every point. */
static void waste_time(int amount)
{
    for (volatile int i = 0; i < amount; i++)
        ;
}

static void *answer(void *argument)
{
    struct pair *pair = argument;
    bool last = false;
    for (uint32_t i = 1; !last; i++) {
        device_cpu.flag_wait(pair->ping, pair->first + i);
        last = pair->last;
        pair->received += pair->sent;
        waste_time((int)(i * 7 % 300));
        device_cpu.flag_raise(pair->pong, pair->first + i);
    }
    return NULL;
}

/* Each thread sleeps in every round. Starts below 2^32 and ends past it. A lost one hangs. */
static void no_wake_up_is_lost(void **state)
{
    (void)state;
    struct pair pair = {.first = UINT32_MAX - 50};
    pthread_t thread;
    assert_int_equal(device_cpu.flag_create(&pair.ping), ALNICO_SUCCESS);
    assert_int_equal(device_cpu.flag_create(&pair.pong), ALNICO_SUCCESS);
    device_cpu.flag_raise(pair.ping, INT32_MAX);
    device_cpu.flag_raise(pair.ping, pair.first);
    device_cpu.flag_raise(pair.pong, INT32_MAX);
    device_cpu.flag_raise(pair.pong, pair.first);
    assert_int_equal(pthread_create(&thread, NULL, answer, &pair), 0);
    double end = now_s() + STRESS_S;
    uint32_t rounds = 0;
    while (!pair.last) {
        uint32_t i = ++rounds;
        pair.sent = i;
        pair.last = i > 100 && now_s() > end;
        device_cpu.flag_raise(pair.ping, pair.first + i);
        waste_time((int)(i * 13 % 500));
        device_cpu.flag_wait(pair.pong, pair.first + i);
    }
    pthread_join(thread, NULL);
    assert_int_equal(pair.received, (long)rounds * (rounds + 1) / 2);
    device_cpu.flag_destroy(pair.ping);
    device_cpu.flag_destroy(pair.pong);
}

struct race {
    struct device_flag *flag;
    atomic_uint round, answered; /* UINT32_MAX: over */
};

/* False when it is over. */
static bool await_round(struct race *race, uint32_t number)
{
    uint32_t round;
    for (int k = 1; (round = atomic_load(&race->round)) == number - 1; k++)
        if (k % 1000 == 0)
            sched_yield();
    return round != UINT32_MAX;
}

static void *raise_in_each_round(void *argument)
{
    struct race *race = argument;
    for (uint32_t i = 1; await_round(race, i); i++) {
        waste_time((int)(i * 7 % 101));
        device_cpu.flag_raise(race->flag, i);
    }
    return NULL;
}

/* Both threads are awake when a round begins: the raise comes while the waiter falls asleep. */
static void raise_meets_a_waiter_that_falls_asleep(void **state)
{
    (void)state;
    struct race race = {0};
    pthread_t thread;
    assert_int_equal(device_cpu.flag_create(&race.flag), ALNICO_SUCCESS);
    assert_int_equal(pthread_create(&thread, NULL, raise_in_each_round, &race), 0);
    double end = now_s() + 2 * STRESS_S;
    for (uint32_t i = 1; now_s() < end; i++) {
        atomic_store(&race.round, i);
        waste_time((int)(i * 13 % 103));
        device_cpu.flag_wait(race.flag, i);
    }
    atomic_store(&race.round, UINT32_MAX);
    pthread_join(thread, NULL);
    device_cpu.flag_destroy(race.flag);
}

struct handover {
    _Atomic(struct device_flag *) flag;
    atomic_bool stop;
};

static void *raise_each(void *argument)
{
    struct handover *handover = argument;
    for (int i = 0; !atomic_load(&handover->stop); i++) {
        struct device_flag *flag;
        while (!(flag = atomic_exchange(&handover->flag, NULL)))
            if (atomic_load(&handover->stop))
                return NULL;
        waste_time(i % 200);
        device_cpu.flag_raise(flag, 1);
    }
    return NULL;
}

/* The raiser may still be on its way out of the raise that freed the waiter. */
static void waiter_may_destroy_the_flag(void **state)
{
    (void)state;
    struct handover handover = {.flag = NULL};
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, raise_each, &handover), 0);
    double end = now_s() + STRESS_S;
    for (int i = 0; now_s() < end; i++) {
        struct device_flag *flag;
        assert_int_equal(device_cpu.flag_create(&flag), ALNICO_SUCCESS);
        atomic_store(&handover.flag, flag);
        if (i % 2)
            device_cpu.flag_wait(flag, 1);
        while (device_cpu.flag_read(flag) != 1)
            ;
        device_cpu.flag_destroy(flag);
    }
    atomic_store(&handover.stop, true);
    pthread_join(thread, NULL);
}

/* As above, but says so after its raise, and always the lower of the two values of a round. */
static void *raise_the_lower_one(void *argument)
{
    struct race *race = argument;
    for (uint32_t i = 1; await_round(race, i); i++) {
        waste_time((int)(i * 7 % 31));
        device_cpu.flag_raise(race->flag, 2 * i - 1);
        atomic_store(&race->answered, i);
    }
    return NULL;
}

static void raisers_never_lower_it(void **state)
{
    (void)state;
    struct race race = {0};
    pthread_t thread;
    assert_int_equal(device_cpu.flag_create(&race.flag), ALNICO_SUCCESS);
    assert_int_equal(pthread_create(&thread, NULL, raise_the_lower_one, &race), 0);
    double end = now_s() + STRESS_S;
    for (uint32_t i = 1; now_s() < end; i++) {
        atomic_store(&race.round, i);
        waste_time((int)(i * 13 % 101));
        device_cpu.flag_raise(race.flag, 2 * i);
        for (int k = 1; atomic_load(&race.answered) != i; k++)
            if (k % 1000 == 0)
                sched_yield();
        assert_int_equal(device_cpu.flag_read(race.flag), 2 * i);
    }
    atomic_store(&race.round, UINT32_MAX);
    pthread_join(thread, NULL);
    device_cpu.flag_destroy(race.flag);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(no_wake_up_is_lost),
        cmocka_unit_test(raise_meets_a_waiter_that_falls_asleep),
        cmocka_unit_test(waiter_may_destroy_the_flag),
        cmocka_unit_test(raisers_never_lower_it),
    };
    alarm(WATCHDOG_S);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
