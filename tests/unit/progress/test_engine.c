/* What the progress engine does with operations: order, windows, lanes, and who may be freed
 * when. */
#include "progress/progress.h"

#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "tests/support/patience.h"
#include "tests/unit/progress/steps.h"

/* ---- Without a thread ---- */

static void inline_engine_advances_by_pumping_only(void **state)
{
    (void)state;
    struct engine *engine = new_engine(false, false);
    struct lane lane = {0};
    struct step steps[2];
    assert_false(engine_pump(engine));
    for (int i = 0; i < 2; i++) {
        step_prepare(&steps[i], &lane);
        steps[i].polls = 1 + i;
        submit(engine, &steps[i]);
    }
    nap_us(2000);
    assert_int_equal(steps[0].polled, 0);
    assert_false(engine_is_idle(engine));
    assert_true(engine_pump(engine)); /* admits both */
    assert_false(engine_is_idle(engine));
    assert_int_equal(steps[0].polled, 1);
    assert_int_equal(steps[1].polled, 1);
    assert_true(engine_pump(engine)); /* retires the first */
    assert_true(is_retired(&steps[0]));
    assert_false(is_retired(&steps[1]));
    assert_true(engine_pump(engine));
    assert_true(is_retired(&steps[1]));
    assert_false(engine_pump(engine));
    assert_int_equal(steps[1].polled, 3);
    assert_int_equal(engine_sleeps(engine), 0);
    assert_true(engine_is_idle(engine));
    engine_destroy(engine);
}

static void pump_says_whether_anything_moved(void **state)
{
    (void)state;
    struct engine *engine = new_engine(false, false);
    struct lane lane = {0};
    atomic_bool go = false;
    struct step step;
    step_prepare(&step, &lane);
    step.go = &go;
    submit(engine, &step);
    assert_true(engine_pump(engine));
    assert_false(engine_pump(engine));
    step.moves = true;
    assert_true(engine_pump(engine));
    step.moves = false;
    assert_false(engine_pump(engine));
    atomic_store(&go, true);
    assert_true(engine_pump(engine));
    assert_true(is_retired(&step));
    engine_destroy(engine);
}

/* ---- Lanes ---- */

static void only_a_window_is_polled(void **state)
{
    (void)state;
    enum { STEPS = 3 * LANE_WINDOW };
    static const int order[] = {3, 0, LANE_WINDOW + 1, 1, 2, LANE_WINDOW - 1};
    struct engine *engine = new_engine(false, false);
    struct lane lane = {0};
    struct step steps[STEPS];
    atomic_bool go[STEPS] = {0};
    int started = 0, window = LANE_WINDOW;
    for (int i = 0; i < STEPS; i++) {
        step_prepare(&steps[i], &lane);
        steps[i].go = &go[i];
        steps[i].started = &started;
        submit(engine, &steps[i]);
    }
    for (size_t k = 0; k <= sizeof order / sizeof *order; k++) {
        engine_pump(engine);
        engine_pump(engine);
        for (int i = 0; i < STEPS; i++) {
            assert_int_equal(steps[i].polled > 0, i < window);
            assert_int_equal(is_retired(&steps[i]), atomic_load(&go[i]));
        }
        if (k < sizeof order / sizeof *order) {
            atomic_store(&go[order[k]], true);
            window++;
        }
    }
    for (int i = 0; i < STEPS; i++)
        atomic_store(&go[i], true);
    for (int i = 0; i < STEPS; i++)
        engine_pump(engine);
    for (int i = 0; i < STEPS; i++) {
        assert_true(is_retired(&steps[i]));
        assert_int_equal(steps[i].start, i);
    }
    assert_null(lane.first);
    engine_destroy(engine);
}

/* Retires any one of a full window, then appends: the list's ends stay right. */
static void any_place_of_a_lane_may_retire_first(void **state)
{
    (void)state;
    struct engine *engine = new_engine(false, false);
    for (int length = 1; length <= 5; length++)
        for (int middle = 0; middle < length; middle++) {
            struct lane lane = {0};
            struct step steps[6];
            atomic_bool go[6] = {0};
            for (int i = 0; i < length; i++) {
                step_prepare(&steps[i], &lane);
                steps[i].go = &go[i];
                submit(engine, &steps[i]);
            }
            engine_pump(engine);
            atomic_store(&go[middle], true);
            engine_pump(engine);
            step_prepare(&steps[length], &lane);
            steps[length].go = &go[length];
            submit(engine, &steps[length]);
            engine_pump(engine);
            for (int i = 0; i <= length; i++) {
                assert_int_equal(is_retired(&steps[i]), i == middle);
                assert_true(steps[i].polled > 0);
                atomic_store(&go[i], true);
            }
            engine_pump(engine);
            for (int i = 0; i <= length; i++)
                assert_true(is_retired(&steps[i]));
            assert_false(engine_pump(engine));
        }
    engine_destroy(engine);
}

static void stuck_lane_does_not_hold_another(void **state)
{
    (void)state;
    enum { STUCK = 2 * LANE_WINDOW, FREE = 200 };
    struct engine *engine = new_engine(true, false);
    struct lane stuck = {0}, lanes[2] = {0};
    static struct step held[STUCK], steps[FREE];
    atomic_bool go = false;
    int started = 0;
    for (int i = 0; i < STUCK; i++) {
        step_prepare(&held[i], &stuck);
        held[i].go = &go;
        held[i].started = &started;
        submit(engine, &held[i]);
    }
    for (int i = 0; i < FREE; i++) {
        step_prepare(&steps[i], &lanes[i % 2]);
        submit(engine, &steps[i]);
    }
    for (int i = 0; i < FREE; i++)
        EVENTUALLY(is_retired(&steps[i]));
    for (int i = 0; i < STUCK; i++)
        assert_false(is_retired(&held[i]));
    atomic_store(&go, true);
    for (int i = 0; i < STUCK; i++)
        EVENTUALLY(is_retired(&held[i]));
    for (int i = 0; i < STUCK; i++)
        assert_int_equal(held[i].start, i);
    engine_destroy(engine);
}

/* Lanes leave the engine's list from its front, middle and end, and come back. */
static void lanes_come_and_go_in_any_order(void **state)
{
    (void)state;
    enum { LANES = 4 };
    struct engine *engine = new_engine(false, false);
    struct lane lanes[LANES] = {0};
    for (int mask = 0; mask < 1 << LANES; mask++) {
        struct step steps[LANES];
        atomic_bool first = false, second = false;
        for (int i = 0; i < LANES; i++) {
            step_prepare(&steps[i], &lanes[i]);
            steps[i].go = mask >> i & 1 ? &first : &second;
            submit(engine, &steps[i]);
        }
        engine_pump(engine);
        atomic_store(&first, true);
        engine_pump(engine);
        for (int i = 0; i < LANES; i++)
            assert_int_equal(is_retired(&steps[i]), mask >> i & 1);
        for (int i = 0; i < LANES; i++)
            if (mask >> i & 1) {
                step_prepare(&steps[i], &lanes[i]);
                submit(engine, &steps[i]);
            }
        engine_pump(engine);
        atomic_store(&second, true);
        engine_pump(engine);
        for (int i = 0; i < LANES; i++)
            assert_true(is_retired(&steps[i]));
        assert_false(engine_pump(engine));
    }
    engine_destroy(engine);
}

static void statuses_reach_retire(void **state)
{
    (void)state;
    struct engine *engine = new_engine(true, false);
    struct lane lane = {0};
    struct step steps[9];
    for (int i = 0; i < 9; i++) {
        step_prepare(&steps[i], &lane);
        steps[i].end = (alnico_status_t)-i;
        steps[i].polls = 9 - i;
        submit(engine, &steps[i]);
    }
    for (int i = 0; i < 9; i++) {
        EVENTUALLY(is_retired(&steps[i]));
        assert_int_equal(steps[i].status, -i);
    }
    engine_destroy(engine);
}

/* ---- What retire may do ---- */

struct heap_step {
    struct op op;
    struct lane *lane; /* freed with the last one of it */
    int *left;
    atomic_int *retired;
};

static alnico_status_t heap_poll(struct op *op, bool *moved)
{
    (void)op;
    (void)moved;
    return ALNICO_SUCCESS;
}

static void heap_retire(struct op *op, alnico_status_t status)
{
    (void)status;
    struct heap_step *step = (struct heap_step *)op;
    atomic_int *retired = step->retired;
    if (--*step->left == 0) {
        free(step->left);
        free(step->lane);
    }
    free(step);
    atomic_fetch_add(retired, 1);
}

static void submit_heap_lane(struct engine *engine, int length, atomic_int *retired)
{
    struct lane *lane = calloc(1, sizeof *lane);
    int *left = malloc(sizeof *left);
    struct heap_step *steps[16];
    assert_true(lane && left && length <= 16);
    *left = length;
    for (int i = 0; i < length; i++) {
        steps[i] = malloc(sizeof *steps[i]);
        assert_non_null(steps[i]);
        *steps[i] = (struct heap_step){
            {.lane = lane, .poll = heap_poll, .retire = heap_retire}, lane, left, retired};
    }
    for (int i = 0; i < length; i++)
        assert_int_equal(engine_submit(engine, &steps[i]->op), ALNICO_SUCCESS);
}

static void operation_and_lane_may_be_freed_in_retire(void **state)
{
    (void)state;
    enum { LANES = 400 };
    for (int threaded = 0; threaded < 2; threaded++) {
        struct engine *engine = new_engine(threaded, false);
        atomic_int retired = 0;
        int submitted = 0;
        for (int i = 0; i < LANES; i++) {
            submit_heap_lane(engine, 1 + i % 16, &retired);
            submitted += 1 + i % 16;
            if (!threaded && i % 7 == 0)
                engine_pump(engine);
        }
        for (int i = 0; i < 16 && !threaded; i++)
            engine_pump(engine);
        EVENTUALLY(atomic_load(&retired) == submitted);
        engine_destroy(engine);
    }
}

/* Its owner frees a lane as soon as the last operation has retired, as a communicator does. */
static void lane_may_be_freed_by_its_owner(void **state)
{
    (void)state;
    struct engine *engine = new_engine(true, false);
    double end = now_s() + STRESS_S;
    for (int i = 0; i < 3000 && now_s() < end; i++) {
        struct lane *lane = calloc(1, sizeof *lane);
        struct step *step = malloc(sizeof *step);
        assert_true(lane && step);
        step_prepare(step, lane);
        submit(engine, step);
        while (!is_retired(step))
            sched_yield();
        free(step);
        free(lane);
    }
    engine_destroy(engine);
}

/* Submits its successor, and itself again until it has run `left` times. */
struct parent {
    struct op op;
    struct engine *engine;
    struct step child;
    bool from_poll;
    int left, faults;
    atomic_bool done;
};

static void submit_child(struct parent *parent)
{
    parent->faults += engine_submit(parent->engine, &parent->child.op) != ALNICO_SUCCESS;
}

static alnico_status_t parent_poll(struct op *op, bool *moved)
{
    (void)moved;
    struct parent *parent = (struct parent *)op;
    if (parent->left == 1 && parent->from_poll)
        submit_child(parent);
    return ALNICO_SUCCESS;
}

static void parent_retire(struct op *op, alnico_status_t status)
{
    (void)status;
    struct parent *parent = (struct parent *)op;
    if (--parent->left > 0) {
        parent->faults += engine_submit(parent->engine, &parent->op) != ALNICO_SUCCESS;
        return;
    }
    if (!parent->from_poll)
        submit_child(parent);
    atomic_store(&parent->done, true);
}

static void poll_and_retire_may_submit(void **state)
{
    (void)state;
    for (int variant = 0; variant < 8; variant++) {
        bool threaded = variant & 1, crowded = variant & 2;
        struct engine *engine = new_engine(threaded, crowded);
        struct lane lane = {0};
        struct parent parent = {.op = {.lane = &lane, .poll = parent_poll, .retire = parent_retire},
                                .engine = engine,
                                .from_poll = variant & 4,
                                .left = 100};
        step_prepare(&parent.child, &lane);
        assert_int_equal(engine_submit(engine, &parent.op), ALNICO_SUCCESS);
        for (int i = 0; i < 110 && !threaded; i++)
            engine_pump(engine);
        EVENTUALLY(atomic_load(&parent.done));
        EVENTUALLY(is_retired(&parent.child));
        assert_int_equal(parent.faults, 0);
        engine_destroy(engine);
    }
}

/* ---- Many submitters ---- */

enum { SUBMITTERS = 4, SUBMISSIONS = 4000 };

struct submitter {
    pthread_t thread;
    struct engine *engine;
    struct lane lane;
    int started;
    struct step steps[SUBMISSIONS];
};

static void *submit_many(void *argument)
{
    struct submitter *submitter = argument;
    for (int i = 0; i < SUBMISSIONS; i++) {
        struct step *step = &submitter->steps[i];
        step_prepare(step, &submitter->lane);
        step->started = &submitter->started;
        step->polls = i * 7 % 3;
        if (engine_submit(submitter->engine, &step->op) != ALNICO_SUCCESS)
            return NULL;
        if (i % 1000 == 999)
            nap_us(2000); /* lets the engine fall asleep */
    }
    return submitter;
}

static void operations_start_in_order_under_many_submitters(void **state)
{
    (void)state;
    static struct submitter submitters[SUBMITTERS];
    struct engine *engine = new_engine(true, false);
    for (int s = 0; s < SUBMITTERS; s++) {
        submitters[s].engine = engine;
        assert_int_equal(pthread_create(&submitters[s].thread, NULL, submit_many, &submitters[s]),
                         0);
    }
    for (int s = 0; s < SUBMITTERS; s++) {
        void *returned;
        pthread_join(submitters[s].thread, &returned);
        assert_ptr_equal(returned, &submitters[s]);
    }
    for (int s = 0; s < SUBMITTERS; s++)
        for (int i = 0; i < SUBMISSIONS; i++) {
            EVENTUALLY(is_retired(&submitters[s].steps[i]));
            assert_int_equal(submitters[s].steps[i].start, i);
        }
    engine_destroy(engine);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(inline_engine_advances_by_pumping_only),
        cmocka_unit_test(pump_says_whether_anything_moved),
        cmocka_unit_test(only_a_window_is_polled),
        cmocka_unit_test(any_place_of_a_lane_may_retire_first),
        cmocka_unit_test(stuck_lane_does_not_hold_another),
        cmocka_unit_test(lanes_come_and_go_in_any_order),
        cmocka_unit_test(statuses_reach_retire),
        cmocka_unit_test(operation_and_lane_may_be_freed_in_retire),
        cmocka_unit_test(lane_may_be_freed_by_its_owner),
        cmocka_unit_test(poll_and_retire_may_submit),
        cmocka_unit_test(operations_start_in_order_under_many_submitters),
    };
    alarm(WATCHDOG_S);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
