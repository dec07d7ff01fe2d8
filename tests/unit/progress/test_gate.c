/* Gates: between a stream and the host in both directions, armed again and again. */
#include "progress/gate.h"

#include "base/status.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdlib.h>

#include <cmocka.h>

#include "tests/support/patience.h"

static struct gate new_gate(void)
{
    struct gate gate;
    assert_int_equal(gate_init(&gate, &device_cpu), ALNICO_SUCCESS);
    return gate;
}

static void set(void *argument)
{
    atomic_store((atomic_bool *)argument, true);
}

static void until_set(void *argument)
{
    while (!atomic_load((atomic_bool *)argument))
        nap_us(50);
}

static void new_gate_is_open(void **state)
{
    (void)state;
    struct gate gate = new_gate();
    assert_true(gate_is_open(&gate));
    gate_wait(&gate);
    assert_int_equal(gate_hold(&gate, NULL), ALNICO_SUCCESS);
    gate_finish(&gate);
    gate_finish(&gate); /* finished or never made: nothing to do */
}

static void host_closes_and_opens(void **state)
{
    (void)state;
    struct gate gate = new_gate();
    for (int i = 0; i < 3; i++) {
        gate_close(&gate);
        assert_false(gate_is_open(&gate));
        gate_open(&gate);
        assert_true(gate_is_open(&gate));
        gate_open(&gate);
        gate_wait(&gate);
    }
    assert_int_equal(gate_open_on(&gate, NULL), ALNICO_SUCCESS);
    gate_close(&gate);
    assert_int_equal(gate_open_on(&gate, NULL), ALNICO_SUCCESS);
    assert_true(gate_is_open(&gate));
    gate_finish(&gate);
}

static void stream_opens_in_its_order(void **state)
{
    (void)state;
    struct gate gate = new_gate();
    alnico_stream_t stream;
    atomic_bool go = false;
    assert_int_equal(alnico_stream_create(&stream), ALNICO_SUCCESS);
    gate_close(&gate);
    assert_int_equal(alnico_stream_enqueue(stream, until_set, &go), ALNICO_SUCCESS);
    assert_int_equal(gate_open_on(&gate, stream), ALNICO_SUCCESS);
    nap_us(2000);
    assert_false(gate_is_open(&gate));
    atomic_store(&go, true);
    gate_wait(&gate);
    assert_true(gate_is_open(&gate));
    alnico_stream_destroy(stream);
    gate_finish(&gate);
}

static void gate_holds_its_stream_and_nobody_else(void **state)
{
    (void)state;
    struct gate gate = new_gate();
    alnico_stream_t held, other;
    atomic_bool passed = false, ran = false;
    assert_int_equal(alnico_stream_create(&held), ALNICO_SUCCESS);
    assert_int_equal(alnico_stream_create(&other), ALNICO_SUCCESS);
    gate_close(&gate);
    assert_int_equal(gate_hold(&gate, held), ALNICO_SUCCESS);
    assert_int_equal(alnico_stream_enqueue(held, set, &passed), ALNICO_SUCCESS);
    assert_int_equal(alnico_stream_enqueue(other, set, &ran), ALNICO_SUCCESS);
    assert_int_equal(alnico_stream_synchronize(other), ALNICO_SUCCESS);
    nap_us(5000); /* by then the held one sleeps */
    assert_true(atomic_load(&ran));
    assert_false(atomic_load(&passed));
    gate_open(&gate);
    assert_int_equal(alnico_stream_synchronize(held), ALNICO_SUCCESS);
    assert_true(atomic_load(&passed));
    alnico_stream_destroy(held);
    alnico_stream_destroy(other);
    gate_finish(&gate);
}

/* A stream that has not come to the gate yet passes by the opening of its own use, not a later
 * one. */
static void late_stream_passes_a_gate_armed_again(void **state)
{
    (void)state;
    struct gate gate = new_gate();
    alnico_stream_t stream;
    atomic_bool go = false, passed = false;
    assert_int_equal(alnico_stream_create(&stream), ALNICO_SUCCESS);
    gate_close(&gate);
    assert_int_equal(alnico_stream_enqueue(stream, until_set, &go), ALNICO_SUCCESS);
    assert_int_equal(gate_hold(&gate, stream), ALNICO_SUCCESS);
    assert_int_equal(alnico_stream_enqueue(stream, set, &passed), ALNICO_SUCCESS);
    gate_open(&gate);
    gate_close(&gate);
    atomic_store(&go, true);
    EVENTUALLY(atomic_load(&passed));
    assert_false(gate_is_open(&gate));
    alnico_stream_destroy(stream);
    gate_finish(&gate);
}

/* ---- Both directions, many times ---- */

/* Thousands, or as many as a busy machine does in a while. */
enum { LEAST_ROUNDS = 200, ROUNDS = 5000, OVER = -1 };

struct exchange {
    struct gate ready, done;
    alnico_stream_t stream;
    long sent, answer; /* ordered by the gates alone */
    long sum;
    atomic_int round; /* what the engine's part may look at */
};

static void write_input(void *argument)
{
    struct exchange *exchange = argument;
    exchange->sent = exchange->sent * 3 % 1000003 + 1;
}

static void read_output(void *argument)
{
    struct exchange *exchange = argument;
    exchange->sum += exchange->answer;
}

/* As the engine does: polls `ready`, works, opens `done`. Blocks in every fourth round instead. */
static void *serve(void *argument)
{
    struct exchange *exchange = argument;
    for (int i = 1;; i++) {
        int round;
        while ((round = atomic_load(&exchange->round)) == i - 1)
            sched_yield();
        if (round == OVER)
            return NULL;
        if (i % 4 == 0)
            gate_wait(&exchange->ready);
        while (!gate_is_open(&exchange->ready))
            sched_yield();
        exchange->answer = 2 * exchange->sent;
        gate_open(&exchange->done);
    }
}

static void run_exchange(struct exchange *exchange)
{
    pthread_t server;
    long sent = exchange->sent = 1, sum = 0;
    assert_int_equal(alnico_stream_create(&exchange->stream), ALNICO_SUCCESS);
    assert_int_equal(pthread_create(&server, NULL, serve, exchange), 0);
    double end = now_s() + 2 * STRESS_S;
    for (int i = 1; i <= LEAST_ROUNDS || (i <= ROUNDS && now_s() < end); i++) {
        alnico_stream_t stream = exchange->stream;
        gate_close(&exchange->ready);
        gate_close(&exchange->done);
        assert_int_equal(alnico_stream_enqueue(stream, write_input, exchange), ALNICO_SUCCESS);
        assert_int_equal(gate_open_on(&exchange->ready, stream), ALNICO_SUCCESS);
        assert_int_equal(gate_hold(&exchange->done, stream), ALNICO_SUCCESS);
        assert_int_equal(alnico_stream_enqueue(stream, read_output, exchange), ALNICO_SUCCESS);
        atomic_store(&exchange->round, i);
        gate_wait(&exchange->done); /* then nobody polls `ready` any more */
        sent = sent * 3 % 1000003 + 1;
        sum += 2 * sent;
    }
    atomic_store(&exchange->round, OVER);
    pthread_join(server, NULL);
    alnico_stream_destroy(exchange->stream);
    assert_int_equal(exchange->sum, sum);
}

static void gates_work_thousands_of_times(void **state)
{
    (void)state;
    struct exchange exchange = {.ready = new_gate(), .done = new_gate()};
    run_exchange(&exchange);
    gate_finish(&exchange.ready);
    gate_finish(&exchange.done);
}

static void skip_to(struct gate *gate, uint32_t epoch)
{
    gate->epoch = epoch;
    gate_open(gate);
}

static void largest_epoch_is_closed_and_opened(void **state)
{
    (void)state;
    struct gate gate = new_gate();
    skip_to(&gate, INT32_MAX);
    skip_to(&gate, UINT32_MAX - 2);
    for (int i = 0; i < 5; i++) {
        gate_close(&gate);
        assert_false(gate_is_open(&gate));
        gate_open(&gate);
        assert_true(gate_is_open(&gate));
        gate_wait(&gate);
    }
    assert_int_equal(gate.epoch, 2);
    gate_finish(&gate);
}

static void gates_work_past_their_largest_epoch(void **state)
{
    (void)state;
    struct exchange exchange = {.ready = new_gate(), .done = new_gate()};
    skip_to(&exchange.ready, INT32_MAX);
    skip_to(&exchange.done, INT32_MAX);
    skip_to(&exchange.ready, UINT32_MAX - LEAST_ROUNDS / 2);
    skip_to(&exchange.done, UINT32_MAX - LEAST_ROUNDS / 3);
    run_exchange(&exchange);
    assert_true(exchange.ready.epoch < ROUNDS);
    gate_finish(&exchange.ready);
    gate_finish(&exchange.done);
}

/* ---- Failure ---- */

static alnico_status_t no_flag(struct device_flag **out)
{
    *out = NULL;
    return error_set(ALNICO_ERROR_MEMORY, "no flags left");
}

static void gate_that_could_not_be_made_may_be_finished(void **state)
{
    (void)state;
    struct device_ops device = device_cpu;
    struct gate gate;
    device.flag_create = no_flag;
    assert_int_equal(gate_init(&gate, &device), ALNICO_ERROR_MEMORY);
    gate_finish(&gate);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(new_gate_is_open),
        cmocka_unit_test(host_closes_and_opens),
        cmocka_unit_test(stream_opens_in_its_order),
        cmocka_unit_test(gate_holds_its_stream_and_nobody_else),
        cmocka_unit_test(late_stream_passes_a_gate_armed_again),
        cmocka_unit_test(gates_work_thousands_of_times),
        cmocka_unit_test(largest_epoch_is_closed_and_opened),
        cmocka_unit_test(gates_work_past_their_largest_epoch),
        cmocka_unit_test(gate_that_could_not_be_made_may_be_finished),
    };
    alarm(WATCHDOG_S);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
