/* Votes: all ranks get the same outcome of each, whatever they want, whenever they come and whichever they leave
 * out; and what they posted is what the others read. */
#include "comm/communicator/vote.h"
#include "tests/support/ranks.h"

#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { RANKS = 3, VOTES = 30000 };

static struct vote word;
static uint64_t posts[RANKS]; /* written and read without a lock: thread sanitizers see */
static char outcomes[RANKS][VOTES];

/* Of one vote, alone: what each step leaves. */
static void test_steps(void **state)
{
    struct vote vote = {0};
    const struct ballot first = {&vote, 1, 0, 2}, second = {&vote, 1, 1, 2};
    const struct ballot next = {&vote, 2, 0, 2}, later = {&vote, 3, 1, 2};
    (void)state;
    assert_true(vote_is_free(&first));
    vote_join(&first);
    assert_int_equal(vote_look(&first), VOTE_OPEN);
    vote_join(&second);
    assert_int_equal(vote_look(&first), VOTE_ALL);
    assert_int_equal(vote_give_up(&first), VOTE_ALL);
    vote_leave(&first);
    assert_false(vote_is_free(&next));
    vote_leave(&second);
    assert_true(vote_is_free(&next));
    vote_join(&next);
    assert_int_equal(vote_give_up(&next), VOTE_FAILED);
    const struct ballot behind = {&vote, 2, 1, 2};
    vote_join(&behind);
    assert_int_equal(vote_look(&behind), VOTE_FAILED);
    vote_refuse(&later);
    assert_int_equal(vote_look(&next), VOTE_FAILED);
    vote_join(&next); /* too late for it */
    assert_int_equal(vote_look(&later), VOTE_FAILED);
}

static bool came(const struct ballot *b, unsigned *seed)
{
    int patience = rand_r(seed) % 300;
    posts[b->rank] = b->number;
    vote_join(b);
    while (vote_look(b) == VOTE_OPEN && patience-- > 0)
        sched_yield();
    if (vote_give_up(b) != VOTE_ALL)
        return false;
    for (int r = 0; r < RANKS; r++)
        REQUIRE(posts[r] == b->number);
    vote_leave(b);
    return true;
}

static void body(struct rank *rank)
{
    unsigned seed = (unsigned)rank->rank + 1;
    for (int i = 0; i < VOTES; i++) {
        const struct ballot b = {&word, (uint64_t)i + 1, rank->rank, RANKS};
        int kind = rand_r(&seed) % 40;
        if (kind == 0) /* left out */
            continue;
        while (!vote_is_free(&b))
            sched_yield();
        if (kind == 1)
            vote_refuse(&b);
        else
            outcomes[rank->rank][i] = came(&b, &seed);
    }
}

static void test_alike(void **state)
{
    int all = 0;
    (void)state;
    ranks_run(RANKS, body, NULL);
    for (int i = 0; i < VOTES; i++) {
        all += outcomes[0][i];
        for (int r = 1; r < RANKS; r++)
            assert_int_equal(outcomes[r][i], outcomes[0][i]);
    }
    print_message("%d of %d votes went well\n", all, VOTES);
    assert_true(all > 100 && all < VOTES);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_steps), cmocka_unit_test(test_alike)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
