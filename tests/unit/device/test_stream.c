/* CPU streams as a user sees them: first in, first out, one worker each, and the inline stream. */
#include "device/device.h"

#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tests/support/patience.h"

static alnico_stream_t new_stream(void)
{
    alnico_stream_t stream = NULL;
    assert_int_equal(alnico_stream_create(&stream), ALNICO_SUCCESS);
    assert_non_null(stream);
    return stream;
}

static void enqueue(alnico_stream_t stream, void (*function)(void *), void *argument)
{
    assert_int_equal(alnico_stream_enqueue(stream, function, argument), ALNICO_SUCCESS);
}

static void count_one(void *argument)
{
    atomic_fetch_add((atomic_int *)argument, 1);
}

static void until_set(void *argument)
{
    while (!atomic_load((atomic_int *)argument))
        nap_us(50);
}

/* ---- Bad input, and the inline stream ---- */

static void bad_input_is_an_error(void **state)
{
    (void)state;
    alnico_stream_t stream = new_stream();
    assert_int_equal(alnico_stream_create(NULL), ALNICO_ERROR_ARGUMENT);
    assert_string_equal(alnico_error_detail(), "alnico_stream_create: out is NULL");
    assert_int_equal(alnico_stream_enqueue(stream, NULL, NULL), ALNICO_ERROR_ARGUMENT);
    assert_string_equal(alnico_error_detail(), "alnico_stream_enqueue: function is NULL");
    assert_int_equal(alnico_stream_enqueue(NULL, NULL, NULL), ALNICO_ERROR_ARGUMENT);
    assert_int_equal(alnico_stream_synchronize(stream), ALNICO_SUCCESS);
    alnico_stream_destroy(stream);
    alnico_stream_destroy(NULL);
}

static void note_thread(void *argument)
{
    *(pthread_t *)argument = pthread_self();
}

static void note_signals(void *argument)
{
    pthread_sigmask(SIG_BLOCK, NULL, argument);
}

static void the_worker_takes_no_signals(void **state)
{
    (void)state;
    alnico_stream_t stream = new_stream();
    sigset_t worker, here;
    enqueue(stream, note_signals, &worker);
    assert_int_equal(alnico_stream_synchronize(stream), ALNICO_SUCCESS);
    alnico_stream_destroy(stream);
    pthread_sigmask(SIG_BLOCK, NULL, &here);
    assert_true(sigismember(&worker, SIGINT) && sigismember(&worker, SIGTERM));
    assert_false(sigismember(&here, SIGINT));
}

static void inline_stream_runs_at_once_on_the_caller(void **state)
{
    (void)state;
    pthread_t ran_on = 0;
    enqueue(NULL, note_thread, &ran_on);
    assert_true(pthread_equal(ran_on, pthread_self()));
    assert_int_equal(alnico_stream_synchronize(NULL), ALNICO_SUCCESS);
}

static void each_stream_has_one_thread_of_its_own(void **state)
{
    (void)state;
    alnico_stream_t a = new_stream(), b = new_stream();
    pthread_t ran_on[3];
    enqueue(a, note_thread, &ran_on[0]);
    enqueue(b, note_thread, &ran_on[1]);
    enqueue(a, note_thread, &ran_on[2]);
    assert_int_equal(alnico_stream_synchronize(a), ALNICO_SUCCESS);
    assert_int_equal(alnico_stream_synchronize(b), ALNICO_SUCCESS);
    assert_true(pthread_equal(ran_on[0], ran_on[2]));
    assert_false(pthread_equal(ran_on[0], ran_on[1]));
    assert_false(pthread_equal(ran_on[0], pthread_self()));
    alnico_stream_destroy(a);
    alnico_stream_destroy(b);
}

/* ---- Order ---- */

enum { PRODUCERS = 4, ITEMS = 5000 };

/* What the stream's functions see; only they touch it. */
struct record {
    int next[PRODUCERS];
    int total;
    atomic_int running, faults;
};

struct item {
    struct record *record;
    int producer, number;
};

struct producer {
    pthread_t thread;
    alnico_stream_t stream;
    struct item items[ITEMS];
};

static void take_item(void *argument)
{
    struct item *item = argument;
    struct record *record = item->record;
    if (atomic_fetch_add(&record->running, 1) != 0 ||
        record->next[item->producer]++ != item->number)
        atomic_fetch_add(&record->faults, 1);
    record->total++;
    atomic_fetch_sub(&record->running, 1);
}

static void *produce(void *argument)
{
    struct producer *producer = argument;
    for (int i = 0; i < ITEMS; i++)
        if (alnico_stream_enqueue(producer->stream, take_item, &producer->items[i]))
            atomic_fetch_add(&producer->items[i].record->faults, 1);
    return NULL;
}

static void many_producers_keep_their_order(void **state)
{
    (void)state;
    static struct producer producers[PRODUCERS];
    static struct record record;
    alnico_stream_t stream = new_stream();
    for (int p = 0; p < PRODUCERS; p++) {
        producers[p].stream = stream;
        for (int i = 0; i < ITEMS; i++)
            producers[p].items[i] = (struct item){&record, p, i};
        assert_int_equal(pthread_create(&producers[p].thread, NULL, produce, &producers[p]), 0);
    }
    for (int p = 0; p < PRODUCERS; p++)
        pthread_join(producers[p].thread, NULL);
    assert_int_equal(alnico_stream_synchronize(stream), ALNICO_SUCCESS);
    assert_int_equal(record.total, PRODUCERS * ITEMS);
    assert_int_equal(atomic_load(&record.faults), 0);
    alnico_stream_destroy(stream);
}

static void enqueue_does_not_wait(void **state)
{
    (void)state;
    alnico_stream_t held = new_stream(), other = new_stream();
    atomic_int go = 0, ran = 0, ran_elsewhere = 0;
    enqueue(held, until_set, &go);
    for (int i = 0; i < 1000; i++)
        enqueue(held, count_one, &ran);
    enqueue(other, count_one, &ran_elsewhere);
    assert_int_equal(alnico_stream_synchronize(other), ALNICO_SUCCESS);
    assert_int_equal(atomic_load(&ran_elsewhere), 1); /* streams do not hold each other */
    assert_int_equal(atomic_load(&ran), 0);
    atomic_store(&go, 1);
    assert_int_equal(alnico_stream_synchronize(held), ALNICO_SUCCESS);
    assert_int_equal(atomic_load(&ran), 1000);
    alnico_stream_destroy(held);
    alnico_stream_destroy(other);
}

/* ---- Synchronize and destroy ---- */

static void slowly_count_one(void *argument)
{
    nap_us(2000);
    count_one(argument);
}

static void *synchronize(void *stream)
{
    return alnico_stream_synchronize(stream) == ALNICO_SUCCESS ? stream : NULL;
}

static void synchronize_waits_for_the_last_one(void **state)
{
    (void)state;
    alnico_stream_t stream = new_stream();
    atomic_int ran = 0;
    for (int round = 1; round <= 10; round++) {
        enqueue(stream, slowly_count_one, &ran);
        assert_int_equal(alnico_stream_synchronize(stream), ALNICO_SUCCESS);
        assert_int_equal(atomic_load(&ran), round);
    }
    pthread_t threads[3];
    enqueue(stream, slowly_count_one, &ran);
    for (int i = 0; i < 3; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, synchronize, stream), 0);
    for (int i = 0; i < 3; i++) {
        void *returned;
        pthread_join(threads[i], &returned);
        assert_ptr_equal(returned, stream);
        assert_int_equal(atomic_load(&ran), 11);
    }
    alnico_stream_destroy(stream);
}

/* Goes on for as long as `go_on`, so that its stream is never empty. */
struct perpetual {
    alnico_stream_t stream;
    atomic_bool go_on;
    atomic_int runs;
};

static void run_again(void *argument)
{
    struct perpetual *perpetual = argument;
    atomic_fetch_add(&perpetual->runs, 1);
    if (atomic_load(&perpetual->go_on))
        alnico_stream_enqueue(perpetual->stream, run_again, perpetual);
}

static void *stop_late(void *argument)
{
    struct perpetual *perpetual = argument;
    for (int i = 0; i < 20000 && atomic_load(&perpetual->go_on); i++)
        nap_us(100);
    atomic_store(&perpetual->go_on, false);
    return NULL;
}

static void synchronize_does_not_wait_for_what_comes_later(void **state)
{
    (void)state;
    struct perpetual perpetual = {.stream = new_stream()};
    pthread_t rescue;
    atomic_store(&perpetual.go_on, true);
    enqueue(perpetual.stream, run_again, &perpetual);
    assert_int_equal(pthread_create(&rescue, NULL, stop_late, &perpetual), 0);
    for (int i = 0; i < 20; i++) {
        assert_int_equal(alnico_stream_synchronize(perpetual.stream), ALNICO_SUCCESS);
        assert_true(atomic_load(&perpetual.runs) > i);
    }
    assert_true(atomic_exchange(&perpetual.go_on, false));
    pthread_join(rescue, NULL);
    alnico_stream_destroy(perpetual.stream);
}

struct own {
    alnico_stream_t stream;
    alnico_status_t status;
};

static void synchronize_own(void *argument)
{
    struct own *own = argument;
    own->status = alnico_stream_synchronize(own->stream);
}

static void stream_cannot_wait_for_itself(void **state)
{
    (void)state;
    struct own own = {new_stream(), ALNICO_SUCCESS};
    enqueue(own.stream, synchronize_own, &own);
    assert_int_equal(alnico_stream_synchronize(own.stream), ALNICO_SUCCESS);
    assert_int_equal(own.status, ALNICO_ERROR_ARGUMENT);
    alnico_stream_destroy(own.stream);
}

struct chain {
    alnico_stream_t stream;
    int left;
    atomic_int *ran;
};

static void run_chain(void *argument)
{
    struct chain *chain = argument;
    count_one(chain->ran);
    if (chain->left-- > 0)
        alnico_stream_enqueue(chain->stream, run_chain, chain);
}

static void destroy_runs_the_rest(void **state)
{
    (void)state;
    for (int round = 0; round < 20; round++) {
        alnico_stream_t stream = new_stream();
        atomic_int go = 0, ran = 0;
        struct chain chain = {stream, 10, &ran};
        if (round % 2)
            enqueue(stream, slowly_count_one, &go);
        for (int i = 0; i < 100; i++)
            enqueue(stream, count_one, &ran);
        enqueue(stream, run_chain, &chain);
        alnico_stream_destroy(stream);
        assert_int_equal(atomic_load(&ran), 111);
        assert_int_equal(atomic_load(&go), round % 2);
    }
}

/* ---- Streams that wait for each other ---- */

struct relay {
    long *value;
    long step;
};

/* value -> 2 value + step, mod 2^30: the order of the steps decides the result. */
static void run_relay(void *argument)
{
    const struct relay *relay = argument;
    *relay->value = (*relay->value * 2 + relay->step) % (1 << 30);
}

/* Each waits for the other's mark in every round. The value is ordered by the events alone. */
static void two_streams_alternate_by_events(void **state)
{
    (void)state;
    enum { ROUNDS = 1000 };
    const struct device_ops *device = &device_cpu;
    alnico_stream_t stream[2] = {new_stream(), new_stream()};
    struct device_event *event[2];
    static struct relay relays[2 * ROUNDS];
    long value = 1, expected = 1;
    for (int i = 0; i < 2; i++)
        assert_int_equal(device->event_create(&event[i]), ALNICO_SUCCESS);
    for (int i = 0; i < 2 * ROUNDS; i++) {
        int self = i % 2, other = 1 - self;
        relays[i] = (struct relay){&value, i};
        expected = (expected * 2 + i) % (1 << 30);
        assert_int_equal(device->stream_wait(stream[self], event[other]), ALNICO_SUCCESS);
        enqueue(stream[self], run_relay, &relays[i]);
        assert_int_equal(device->event_record(event[self], stream[self]), ALNICO_SUCCESS);
    }
    for (int i = 0; i < 2; i++)
        assert_int_equal(device->event_synchronize(event[i]), ALNICO_SUCCESS);
    assert_int_equal(value, expected);
    for (int i = 0; i < 2; i++) {
        alnico_stream_destroy(stream[i]);
        device->event_destroy(event[i]);
    }
}

static void many_streams_come_and_go(void **state)
{
    (void)state;
    enum { STREAMS = 50 };
    alnico_stream_t streams[STREAMS];
    atomic_int ran = 0;
    for (int i = 0; i < STREAMS; i++) {
        streams[i] = new_stream();
        enqueue(streams[i], count_one, &ran);
    }
    for (int i = 0; i < STREAMS; i++)
        alnico_stream_destroy(streams[i]);
    assert_int_equal(atomic_load(&ran), STREAMS);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bad_input_is_an_error),
        cmocka_unit_test(the_worker_takes_no_signals),
        cmocka_unit_test(inline_stream_runs_at_once_on_the_caller),
        cmocka_unit_test(each_stream_has_one_thread_of_its_own),
        cmocka_unit_test(many_producers_keep_their_order),
        cmocka_unit_test(enqueue_does_not_wait),
        cmocka_unit_test(synchronize_waits_for_the_last_one),
        cmocka_unit_test(synchronize_does_not_wait_for_what_comes_later),
        cmocka_unit_test(stream_cannot_wait_for_itself),
        cmocka_unit_test(destroy_runs_the_rest),
        cmocka_unit_test(two_streams_alternate_by_events),
        cmocka_unit_test(many_streams_come_and_go),
    };
    alarm(WATCHDOG_S);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
