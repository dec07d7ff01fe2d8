/* The inbox: order, and nothing lost or doubled when several threads push while one takes. */
#include "progress/inbox.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "tests/support/patience.h"

struct letter {
    struct inbox_link link;
    int sender, number;
};

static void takes_in_the_order_of_pushes(void **state)
{
    (void)state;
    struct inbox inbox = {.newest = NULL};
    struct letter letters[10];
    assert_true(inbox_empty(&inbox));
    assert_null(inbox_take(&inbox));
    for (int count = 1; count <= 10; count++) {
        for (int i = 0; i < count; i++) {
            letters[i].number = i;
            inbox_push(&inbox, &letters[i].link);
            assert_false(inbox_empty(&inbox));
        }
        struct inbox_link *link = inbox_take(&inbox);
        assert_true(inbox_empty(&inbox));
        for (int i = 0; i < count; i++, link = link->next)
            assert_ptr_equal(link, &letters[i].link);
        assert_null(link);
        assert_null(inbox_take(&inbox));
    }
}

enum { SENDERS = 3, LETTERS = 200000 };

struct sender {
    pthread_t thread;
    struct inbox *inbox;
    struct letter letters[LETTERS];
};

static void *send(void *argument)
{
    struct sender *sender = argument;
    for (int i = 0; i < LETTERS; i++) {
        sender->letters[i].number = i; /* published by the push alone */
        inbox_push(sender->inbox, &sender->letters[i].link);
        for (volatile int k = 0; k < i % 61;
             k++) /* so that the taker meets an almost empty inbox */
            ;
    }
    return NULL;
}

/* Returns the number of letters taken. */
static int take_all(struct inbox *inbox, int next[SENDERS])
{
    int taken = 0;
    for (struct inbox_link *link = inbox_take(inbox); link; link = link->next) {
        const struct letter *letter = (const struct letter *)link;
        assert_int_equal(letter->number, next[letter->sender]);
        next[letter->sender]++;
        taken++;
    }
    return taken;
}

static void nothing_is_lost_between_threads(void **state)
{
    (void)state;
    static struct sender senders[SENDERS];
    static struct inbox inbox;
    int next[SENDERS] = {0}, taken = 0;
    for (int s = 0; s < SENDERS; s++) {
        senders[s].inbox = &inbox;
        for (int i = 0; i < LETTERS; i++)
            senders[s].letters[i].sender = s;
        assert_int_equal(pthread_create(&senders[s].thread, NULL, send, &senders[s]), 0);
    }
    double limit = now_s() + PATIENCE_S;
    while (taken < SENDERS * LETTERS && now_s() < limit)
        taken += take_all(&inbox, next);
    for (int s = 0; s < SENDERS; s++)
        pthread_join(senders[s].thread, NULL);
    assert_int_equal(taken, SENDERS * LETTERS);
    assert_null(inbox_take(&inbox));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(takes_in_the_order_of_pushes),
        cmocka_unit_test(nothing_is_lost_between_threads),
    };
    alarm(WATCHDOG_S);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
