/* Messages over shared memory, between threads, processes and both, copied at once or through the
 * rings: matching, sizes, cancelling, floods, and communicators over it. */
#include "comm/api/create.h"
#include "comm/rendezvous/out_of_band.h"
#include "comm/transports/shm/shm.h"

#include "tests/support/cases.h"
#include "tests/support/forks.h"
#include "tests/support/reference.h"
#include "tests/support/traffic.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "tests/support/patience.h"

enum { SIZE = 3, SMALL = 16, MIDDLE = 5000, LARGE = 300000 };

static uint64_t seed;

static alnico_status_t exchange(void *context, const void *mine, void *all, size_t bytes)
{
    struct rank *rank = context;
    return rank->bootstrap.allgather(rank->bootstrap.context, mine, all, bytes)
               ? ALNICO_ERROR_SYSTEM
               : ALNICO_SUCCESS;
}

static void wait_all(struct rank *rank)
{
    char one = 1, all[128];
    REQUIRE_STATUS(exchange(rank, &one, all, 1), ALNICO_SUCCESS);
}

static alnico_status_t create(struct rank *rank, const struct shm_options *options,
                              struct transport **out)
{
    struct rendezvous r = ranks_rendezvous(rank, 20);
    return transport_shm_create(&r, options, out);
}

static struct transport *make(struct rank *rank, bool through_rings)
{
    struct shm_options options = {.read_from = 1, .through_rings = through_rings};
    struct transport *t;
    REQUIRE_STATUS(create(rank, &options, &t), ALNICO_SUCCESS);
    REQUIRE(t->rank == rank->rank && t->size == rank->size && t->concurrent);
    return t;
}

/* ---- Three ranks moved by one thread ---- */

struct world {
    struct transport *rank[SIZE];
    bool through_rings;
};

static void join_body(struct rank *rank)
{
    struct world *w = rank->argument;
    w->rank[rank->rank] = make(rank, w->through_rings);
}

static int setup(void **state)
{
    struct world *w = calloc(1, sizeof *w);
    assert_non_null(w);
    w->through_rings = *state != NULL;
    ranks_run(SIZE, join_body, w);
    *state = w;
    return 0;
}

static int teardown(void **state)
{
    struct world *w = *state;
    for (int r = 0; r < SIZE; r++)
        if (w->rank[r])
            w->rank[r]->ops->destroy(w->rank[r]);
    free(w);
    return 0;
}

/* Both sides of a message, tested in turn until both have ended. */
static void finish_both(struct transport *from, struct transfer *a, struct transport *to,
                        struct transfer *b, alnico_status_t sent, alnico_status_t received)
{
    alnico_status_t x = ALNICO_PENDING, y = ALNICO_PENDING;
    for (int i = 0; i < 10000 && (x == ALNICO_PENDING || y == ALNICO_PENDING); i++) {
        if (x == ALNICO_PENDING)
            x = from->ops->test(from, a);
        if (y == ALNICO_PENDING)
            y = to->ops->test(to, b);
    }
    assert_int_equal(x, sent);
    assert_int_equal(y, received);
}

static void test_either_side_may_be_first(void **state)
{
    struct world *w = *state;
    static char out[LARGE + 1], in[LARGE + 1];
    size_t sizes[] = {0, 1, SMALL, 48, 49, MIDDLE, 8192, 8193, LARGE};
    for (int i = 0; i < 18; i++) {
        size_t bytes = sizes[i / 2];
        memset(out, i + 1, sizeof out);
        memset(in, 0, sizeof in);
        struct transfer a, b;
        if (i % 2) {
            a = traffic_send(w->rank[0], 1, 7, out, bytes);
            b = traffic_receive(w->rank[1], 0, 7, in, bytes);
        } else {
            b = traffic_receive(w->rank[1], 0, 7, in, bytes);
            assert_int_equal(w->rank[1]->ops->test(w->rank[1], &b), ALNICO_PENDING);
            a = traffic_send(w->rank[0], 1, 7, out, bytes);
        }
        finish_both(w->rank[0], &a, w->rank[1], &b, ALNICO_SUCCESS, ALNICO_SUCCESS);
        assert_memory_equal(in, out, bytes);
        assert_int_equal(in[bytes], 0);
    }
}

static void test_sender_and_tag_select_and_order_holds(void **state)
{
    struct world *w = *state;
    int values[4] = {10, 11, 12, 13}, got[4] = {0};
    struct transfer sends[4], receives[4];
    sends[0] = traffic_send(w->rank[0], 2, 1, &values[0], sizeof(int));
    sends[1] = traffic_send(w->rank[0], 2, 1, &values[1], sizeof(int));
    sends[2] = traffic_send(w->rank[1], 2, 1, &values[2], sizeof(int));
    sends[3] = traffic_send(w->rank[0], 2, 5, &values[3], sizeof(int));
    receives[3] = traffic_receive(w->rank[2], 0, 5, &got[3], sizeof(int));
    receives[2] = traffic_receive(w->rank[2], 1, 1, &got[2], sizeof(int));
    receives[0] = traffic_receive(w->rank[2], 0, 1, &got[0], sizeof(int));
    receives[1] = traffic_receive(w->rank[2], TRANSPORT_ANY, 1, &got[1], sizeof(int));
    for (int i = 0; i < 4; i++) {
        assert_int_equal(traffic_finish(w->rank[2], &receives[i]), ALNICO_SUCCESS);
        assert_int_equal(traffic_finish(w->rank[i == 2 ? 1 : 0], &sends[i]), ALNICO_SUCCESS);
        assert_int_equal(got[i], values[i]);
    }
}

/* Small and large ones with one tag, received after all have come. */
static void test_order_holds_between_sizes(void **state)
{
    struct world *w = *state;
    enum { COUNT = 12 };
    static char out[COUNT][LARGE], in[COUNT][LARGE];
    struct transfer sends[COUNT], receives[COUNT], none;
    size_t sizes[] = {SMALL, LARGE, 0, MIDDLE};
    char never;
    for (int i = 0; i < COUNT; i++) {
        memset(out[i], i + 1, LARGE);
        sends[i] = traffic_send(w->rank[0], 1, 3, out[i], sizes[i % 4]);
    }
    none = traffic_receive(w->rank[1], TRANSPORT_ANY, 99, &never, 1);
    assert_int_equal(w->rank[1]->ops->test(w->rank[1], &none), ALNICO_PENDING); /* all are read */
    assert_true(w->rank[1]->ops->cancel(w->rank[1], &none));
    for (int i = 0; i < COUNT; i++)
        receives[i] = traffic_receive(w->rank[1], 0, 3, in[i], sizes[i % 4]);
    for (int i = COUNT - 1; i >= 0; i--) {
        finish_both(w->rank[0], &sends[i], w->rank[1], &receives[i], ALNICO_SUCCESS,
                    ALNICO_SUCCESS);
        assert_memory_equal(in[i], out[i], sizes[i % 4]);
    }
}

static void test_sizes_must_agree(void **state)
{
    struct world *w = *state;
    static char out[LARGE], in[LARGE];
    struct transfer a = traffic_send(w->rank[0], 1, 1, out, LARGE);
    struct transfer b = traffic_receive(w->rank[1], 0, 1, in, LARGE - 1);
    finish_both(w->rank[0], &a, w->rank[1], &b, ALNICO_ERROR_MISMATCH, ALNICO_ERROR_MISMATCH);
    a = traffic_send(w->rank[0], 1, 1, out,
                     SMALL); /* takes its bytes along: only the receiver can tell */
    b = traffic_receive(w->rank[1], 0, 1, in, SMALL + 1);
    finish_both(w->rank[0], &a, w->rank[1], &b, ALNICO_SUCCESS, ALNICO_ERROR_MISMATCH);
    a = traffic_send(w->rank[0], 1, 1, out, LARGE);
    b = traffic_receive(w->rank[1], 0, 1, in, SMALL);
    finish_both(w->rank[0], &a, w->rank[1], &b, ALNICO_ERROR_MISMATCH, ALNICO_ERROR_MISMATCH);
}

static void test_cancelled_sides_do_not_match(void **state)
{
    struct world *w = *state;
    static char out[LARGE], in[LARGE], other[LARGE];
    struct transfer a = traffic_send(w->rank[0], 1, 1, out, LARGE);
    assert_int_equal(w->rank[0]->ops->test(w->rank[0], &a), ALNICO_PENDING);
    assert_true(w->rank[0]->ops->cancel(w->rank[0], &a));
    struct transfer b = traffic_receive(w->rank[1], 0, 1, in, LARGE);
    assert_int_equal(w->rank[1]->ops->test(w->rank[1], &b), ALNICO_PENDING);
    assert_true(w->rank[1]->ops->cancel(w->rank[1], &b));
    memset(out, 3, sizeof out);
    b = traffic_receive(w->rank[1], 0, 1, other, LARGE);
    a = traffic_send(w->rank[0], 1, 1, out, LARGE);
    finish_both(w->rank[0], &a, w->rank[1], &b, ALNICO_SUCCESS, ALNICO_SUCCESS);
    assert_int_equal(in[0], 0);
    assert_memory_equal(other, out, LARGE);
}

/* More than the channel holds: the rest waits at the sender, and may be cancelled there. */
static void test_what_finds_no_room_waits(void **state)
{
    struct world *w = *state;
    enum { COUNT = 600 };
    static uint64_t out[COUNT][100], in[100];
    static struct transfer sends[COUNT];
    for (uint64_t i = 0; i < COUNT; i++) {
        out[i][0] = i;
        sends[i] = traffic_send(w->rank[0], 1, 4, out[i], sizeof out[i]);
    }
    assert_int_equal(w->rank[0]->ops->test(w->rank[0], &sends[COUNT - 1]), ALNICO_PENDING);
    assert_int_equal(w->rank[0]->ops->test(w->rank[0], &sends[0]), ALNICO_SUCCESS);
    for (int i = COUNT - 50; i < COUNT; i++)
        assert_true(w->rank[0]->ops->cancel(w->rank[0], &sends[i]));
    for (uint64_t i = 0; i < COUNT - 50; i++) {
        struct transfer b = traffic_receive(w->rank[1], 0, 4, in, sizeof in);
        finish_both(w->rank[0], &sends[i], w->rank[1], &b, ALNICO_SUCCESS, ALNICO_SUCCESS);
        assert_int_equal(in[0], i);
    }
    out[0][0] = 4711;
    struct transfer a = traffic_send(w->rank[0], 1, 4, out[0], sizeof out[0]);
    struct transfer b = traffic_receive(w->rank[1], 0, 4, in, sizeof in);
    finish_both(w->rank[0], &a, w->rank[1], &b, ALNICO_SUCCESS, ALNICO_SUCCESS);
    assert_int_equal(in[0], 4711);
}

/* A message of a tag of its own, while `held` others are on the way that nobody receives. */
static void passes(struct world *w, uint32_t tag, size_t bytes, const char *held)
{
    static char out[LARGE], in[LARGE];
    memset(out, (int)tag, bytes);
    struct transfer a = traffic_send(w->rank[0], 1, tag, out, bytes);
    struct transfer b = traffic_receive(w->rank[1], 0, tag, in, bytes);
    finish_both(w->rank[0], &a, w->rank[1], &b, ALNICO_SUCCESS, ALNICO_SUCCESS);
    if (memcmp(in, out, bytes))
        fail_msg("%zu bytes of tag %u beside %s", bytes, (unsigned)tag, held);
}

/* Long messages between two ranks, more than there are offers for, and those of 64 operations, which
 * their receiver begins later: neither holds up anything else, and all arrive in order. */
static void test_what_nobody_receives_holds_up_nothing(void **state)
{
    struct world *w = *state;
    enum { MESSAGES = 1500, OPERATIONS = 64, EACH = 4, COUNT = MESSAGES + OPERATIONS * EACH };
    static char out[COUNT][9000], in[9000];
    static struct transfer sends[COUNT];
    for (uint32_t i = 0; i < COUNT; i++) {
        const uint32_t tag = i < MESSAGES ? TAG_MESSAGE : TAG_OPERATIONS + i % OPERATIONS;
        memcpy(out[i], &i, sizeof i);
        sends[i] = traffic_send(w->rank[0], 1, tag, out[i], sizeof out[i]);
        if (i == MESSAGES - 1) {
            passes(w, TAG_OUT_OF_BAND, SMALL, "messages");
            passes(w, TAG_OPERATIONS + OPERATIONS, LARGE, "messages");
        }
    }
    passes(w, TAG_OUT_OF_BAND, SMALL, "messages and operations");
    passes(w, TAG_OPERATIONS + OPERATIONS, LARGE, "messages and operations");
    for (uint32_t i = COUNT; i-- > 0;) { /* the operations backwards */
        const uint32_t place =
            i < MESSAGES ? MESSAGES - 1 - i
                         : MESSAGES + i % OPERATIONS + (COUNT - 1 - i) / OPERATIONS * OPERATIONS;
        const uint32_t tag = place < MESSAGES ? TAG_MESSAGE : TAG_OPERATIONS + place % OPERATIONS;
        uint32_t got;
        struct transfer b = traffic_receive(w->rank[1], 0, tag, in, sizeof in);
        finish_both(w->rank[0], &sends[place], w->rank[1], &b, ALNICO_SUCCESS, ALNICO_SUCCESS);
        memcpy(&got, in, sizeof got);
        assert_int_equal(got, place);
    }
}

/* Either side of a message in fragments gives up in the middle. */
static void test_cancelling_in_the_middle(void **state)
{
    struct world *w = *state;
    static char out[LARGE], in[LARGE], wanted[LARGE];
    memset(wanted, 9, LARGE);
    for (int side = 0; side < 2; side++) {
        struct transport *from = w->rank[0], *to = w->rank[1];
        struct transfer b = traffic_receive(to, 0, 1, in, LARGE),
                        a = traffic_send(from, 1, 1, out, LARGE);
        assert_int_equal(to->ops->test(to, &b), ALNICO_PENDING);
        assert_int_equal(from->ops->test(from, &a), ALNICO_PENDING);
        assert_int_equal(to->ops->test(to, &b), ALNICO_PENDING);
        if (side == 0) { /* the receiver: its buffer is its own again, and the send stays open */
            assert_true(to->ops->cancel(to, &b));
            memset(in, 7, LARGE);
            for (int i = 0; i < 10; i++)
                assert_int_equal(from->ops->test(from, &a), ALNICO_PENDING);
            assert_true(from->ops->cancel(from, &a));
        } else { /* the sender: the receive takes the next message instead */
            assert_true(from->ops->cancel(from, &a));
        }
        struct transfer c = traffic_send(from, 1, 1, wanted, LARGE);
        if (side == 0)
            b = traffic_receive(to, 0, 1, out, LARGE);
        finish_both(from, &c, to, &b, ALNICO_SUCCESS, ALNICO_SUCCESS);
        assert_memory_equal(side ? in : out, wanted, LARGE);
        assert_true(side || in[0] == 7);
    }
}

/* An offer's place is another message's before the receive of the first one looks again, or is
 * cancelled. */
static void test_a_late_look_leaves_the_next_message_alone(void **state)
{
    struct world *w = *state;
    static char out[LARGE], in[LARGE], wanted[LARGE], other[LARGE];
    struct transport *from = w->rank[0], *to = w->rank[1];
    memset(wanted, 9, LARGE);
    for (int cancels = 0; cancels < 2; cancels++) {
        struct transfer b = traffic_receive(to, 0, 1, in, LARGE),
                        a = traffic_send(from, 1, 1, out, LARGE);
        assert_int_equal(to->ops->test(to, &b), ALNICO_PENDING);
        assert_true(from->ops->cancel(from, &a));
        a = traffic_send(from, 1, 2, wanted, LARGE);
        struct transfer c = traffic_receive(to, 0, 2, other, LARGE);
        assert_int_equal(to->ops->test(to, &c), ALNICO_PENDING);
        if (!cancels)
            assert_int_equal(to->ops->test(to, &b), ALNICO_PENDING);
        else
            assert_true(to->ops->cancel(to, &b));
        memset(other, 0, LARGE);
        finish_both(from, &a, to, &c, ALNICO_SUCCESS, ALNICO_SUCCESS);
        assert_memory_equal(other, wanted, LARGE);
        if (!cancels)
            assert_true(to->ops->cancel(to, &b));
    }
}

/* ---- Copies by both sides ---- */

enum { NOBODY = 1 << 30 }; /* no process has that number */

/* The ranks do as if they were processes. `reads`: rank 1 is able to read rank 0's memory. */
static void set_apart(struct world *w, bool reads)
{
    for (int r = 0; r < SIZE; r++)
        for (int i = 0; i < SIZE; i++) {
            struct shm_peer *p = &((struct transport_shm *)w->rank[r])->peer[i];
            p->same_process = false;
            p->shares = true;
            p->pid = r == 1 && !reads ? NOBODY : getpid();
        }
}

struct sending {
    struct transport *from;
    struct transfer transfer;
    alnico_status_t status;
};

static void *run_sending(void *argument)
{
    struct sending *sending = argument;
    sending->status = traffic_finish(sending->from, &sending->transfer);
    return NULL;
}

/* A message whose sender waits on a thread of its own. Returns how many pieces that one wrote. */
static uint32_t share_message(struct world *w, char *out, char *in, size_t bytes, int fill)
{
    struct sending sending = {.from = w->rank[0]};
    pthread_t thread;
    memset(out, fill, bytes);
    memset(in, 0, bytes);
    out[0] = out[bytes - 1] = 'x';
    struct transfer b = traffic_receive(w->rank[1], 0, 7, in, bytes);
    sending.transfer = traffic_send(w->rank[0], 1, 7, out, bytes);
    assert_int_equal(pthread_create(&thread, NULL, run_sending, &sending), 0);
    assert_int_equal(traffic_finish(w->rank[1], &b), ALNICO_SUCCESS);
    pthread_join(thread, NULL);
    assert_int_equal(sending.status, ALNICO_SUCCESS);
    assert_memory_equal(in, out, bytes);
    struct channel *channel = ((struct transport_shm *)w->rank[1])->peer[0].in.channel;
    return atomic_load(&channel->shares[0].written);
}

/* Any size, or one about two pieces of whole pages. */
static size_t shared_size(size_t most, uint64_t i)
{
    const size_t any = reference_random(seed, 9, i) % (most - MIDDLE), pages = 2 * 4096;
    return i % 2 ? most - any : ((most - any) / pages + 1) * pages + i / 2 % 3 - 1;
}

static void test_both_sides_copy(void **state)
{
    enum { MOST = 3000001 };
    struct world *w = *state;
    char *out = malloc(2 * MOST), *in = malloc(2 * MOST);
    uint32_t written = 0;
    double end = ranks_seconds() + 30;
    assert_true(out && in);
    set_apart(w, true);
    memset(out, 1, 2 * MOST);
    for (uint64_t i = 0; i < 50 || (written == 0 && ranks_seconds() < end); i++) {
        const size_t bytes = shared_size(MOST, i);
        memset(in, 0, 2 * MOST);
        written += share_message(w, out, in, bytes, (int)(i & 127));
        for (size_t k = bytes; k < bytes + MOST / 2; k++)
            assert_int_equal(in[k], 0);
    }
    assert_true(written > 0);
    free(out);
    free(in);
}

/* The pieces that it takes in vain are the receiver's. */
static void test_a_sender_that_may_not_write(void **state)
{
    struct world *w = *state;
    static char out[10 * LARGE], in[10 * LARGE];
    struct shm_peer *p = &((struct transport_shm *)w->rank[0])->peer[1];
    double end = ranks_seconds() + 30;
    set_apart(w, true);
    p->pid = NOBODY;
    for (int i = 0; p->writes && ranks_seconds() < end; i++)
        assert_int_equal(share_message(w, out, in, sizeof out, i), 0);
    assert_false(p->writes);
    assert_int_equal(share_message(w, out, in, sizeof out, 1), 0);
}

/* A copy that does not end since the receiver cannot read; either side gives up. */
static void test_giving_up_a_shared_copy(void **state)
{
    struct world *w = *state;
    static char out[LARGE], in[LARGE];
    struct transport *from = w->rank[0], *to = w->rank[1];
    for (int side = 0; side < 3; side++) {
        set_apart(w, false);
        memset(in, 0, LARGE);
        struct transfer b = traffic_receive(to, 0, 1, in, LARGE),
                        a = traffic_send(from, 1, 1, out, LARGE);
        struct message *m = (struct message *)b.word[0];
        assert_int_equal(to->ops->test(to, &b), ALNICO_PENDING);
        assert_int_equal(from->ops->test(from, &a), ALNICO_PENDING);
        assert_int_equal(m->state, RECEIVE_SHARED);
        if (side == 2) /* as if the sender had been stopped in the middle of one */
            m->taken--;
        double start = ranks_seconds();
        if (side == 0)
            assert_true(from->ops->cancel(from, &a));
        else
            assert_true(to->ops->cancel(to, &b));
        double waited = ranks_seconds() - start;
        assert_true(side == 2 ? waited > 0.1 && waited < 2 : waited < 1);
        assert_true(side == 0 || from->ops->test(from, &a) == ALNICO_PENDING);
        assert_true(side == 0 || from->ops->cancel(from, &a));
        set_apart(w, true);
        memset(out, side + 1, LARGE);
        if (side > 0)
            b = traffic_receive(to, 0, 1, in, LARGE);
        a = traffic_send(from, 1, 1, out, LARGE);
        finish_both(from, &a, to, &b, ALNICO_SUCCESS, ALNICO_SUCCESS);
        assert_memory_equal(in, out, LARGE);
    }
}

/* What came of an offer that was withdrawn does not touch the copy of the next one in its place. */
static void test_a_late_look_at_a_withdrawn_offer(void **state)
{
    struct world *w = *state;
    static char out[LARGE], in[LARGE], other[LARGE];
    struct transport *from = w->rank[0], *to = w->rank[1];
    struct share *share = ((struct transport_shm *)to)->peer[0].in.channel->shares;
    set_apart(w, false);
    struct transfer a = traffic_send(from, 1, 1, out, LARGE),
                    b = traffic_receive(to, 0, 2, in, LARGE);
    assert_int_equal(to->ops->test(to, &b), ALNICO_PENDING); /* keeps the first */
    assert_true(from->ops->cancel(from, &a));
    a = traffic_send(from, 1, 2, out, LARGE);
    assert_int_equal(to->ops->test(to, &b), ALNICO_PENDING);
    assert_int_equal(((struct message *)b.word[0])->state, RECEIVE_SHARED);
    assert_ptr_equal(share->address, in);
    struct transfer c = traffic_receive(to, 0, 1, other, LARGE);
    assert_ptr_equal(share->address, in);
    assert_true(to->ops->cancel(to, &b) && to->ops->cancel(to, &c) && from->ops->cancel(from, &a));
}

static void test_a_small_message_outlives_its_sender(void **state)
{
    struct world *w = *state;
    int value = 42, got = 0;
    struct transfer a = traffic_send(w->rank[0], 1, 1, &value, sizeof value);
    assert_int_equal(w->rank[0]->ops->test(w->rank[0], &a), ALNICO_SUCCESS);
    traffic_send(w->rank[0], 2, 1, &value, sizeof value); /* nobody takes it */
    w->rank[0]->ops->destroy(w->rank[0]);
    w->rank[0] = NULL;
    value = 0;
    struct transfer b = traffic_receive(w->rank[1], 0, 1, &got, sizeof got);
    assert_int_equal(traffic_finish(w->rank[1], &b), ALNICO_SUCCESS);
    assert_int_equal(got, 42);
}

static void test_a_message_to_oneself(void **state)
{
    struct world *w = *state;
    static char out[LARGE] = "self", in[LARGE];
    for (size_t bytes = SMALL; bytes <= LARGE; bytes += LARGE - SMALL) {
        memset(in, 0, LARGE);
        struct transfer a = traffic_send(w->rank[1], 1, 1, out, bytes);
        struct transfer b = traffic_receive(w->rank[1], 1, 1, in, bytes);
        finish_both(w->rank[1], &a, w->rank[1], &b, ALNICO_SUCCESS, ALNICO_SUCCESS);
        assert_string_equal(in, "self");
    }
}

/* ---- Traffic between ranks ---- */

struct mode {
    bool through_rings;
    int rounds;
    size_t largest;
};

static void traffic_body(struct rank *rank)
{
    const struct mode *mode = rank->argument;
    struct transport *t = make(rank, mode->through_rings);
    struct traffic traffic = {t, 50, mode->rounds, mode->largest, seed, false};
    traffic_run(&traffic);
    wait_all(rank);
    t->ops->destroy(t);
}

/* Two threads of each rank at once. */
static void busy_body(struct rank *rank)
{
    const struct mode *mode = rank->argument;
    struct transport *t = make(rank, mode->through_rings);
    struct traffic traffic[2] = {{t, 50, mode->rounds, mode->largest, seed, false},
                                 {t, 100000, mode->rounds, mode->largest, seed, false}};
    pthread_t thread;
    REQUIRE(pthread_create(&thread, NULL, traffic_run, &traffic[1]) == 0);
    traffic_run(&traffic[0]);
    pthread_join(thread, NULL);
    wait_all(rank);
    t->ops->destroy(t);
}

static void test_mixed_sizes_between_processes(void **state)
{
    (void)state;
    for (int rings = 0; rings < 2; rings++) {
        struct mode mode = {rings != 0, ranks_repetitions(50), 300000};
        for (int size = 2; size <= 4; size++)
            forks_run(size, 1, traffic_body, &mode);
        forks_run(2, 2, traffic_body, &mode);
        forks_run(2, 1, busy_body, &mode);
    }
}

static void test_mixed_sizes_between_threads(void **state)
{
    (void)state;
    for (int rings = 0; rings < 2; rings++) {
        struct mode mode = {rings != 0, 50, 100000};
        ranks_run(3, traffic_body, &mode);
        ranks_run(2, busy_body, &mode);
    }
}

static void test_many_ranks(void **state)
{
    (void)state;
    struct mode mode = {false, 20, 30000};
    forks_run(20, 1, traffic_body, &mode);
}

/* ---- Large ones and floods ---- */

static void large_body(struct rank *rank)
{
    const struct mode *mode = rank->argument;
    struct transport *t = make(rank, mode->through_rings);
    size_t bytes = mode->largest;
    uint64_t *out = malloc(bytes), *in = malloc(bytes);
    REQUIRE(out && in);
    for (size_t i = 0; i < bytes / 8; i++) {
        out[i] = i * 2654435761u + (uint64_t)rank->rank;
        in[i] = 0;
    }
    int other = 1 - rank->rank;
    struct transfer b = traffic_receive(t, other, 2, in, bytes),
                    a = traffic_send(t, other, 2, out, bytes);
    alnico_status_t x = ALNICO_PENDING, y = ALNICO_PENDING;
    while (x == ALNICO_PENDING || y == ALNICO_PENDING) {
        x = x == ALNICO_PENDING ? t->ops->test(t, &b) : x;
        y = y == ALNICO_PENDING ? t->ops->test(t, &a) : y;
    }
    REQUIRE(x == ALNICO_SUCCESS && y == ALNICO_SUCCESS);
    for (size_t i = 0; i < bytes / 8; i++)
        REQUIRE(in[i] == i * 2654435761u + (uint64_t)other);
    free(in);
    free(out);
    t->ops->destroy(t);
}

static void test_64_megabytes(void **state)
{
    (void)state;
    for (int rings = 0; rings < 2; rings++) {
        struct mode mode = {rings != 0, 0, (size_t)64 << 20};
        forks_run(2, 1, large_body, &mode);
    }
}

/* Thousands of messages that nobody expects come before the one that is waited for. */
static void flood_body(struct rank *rank)
{
    enum { COUNT = 5000, WORDS = 20 };
    struct transport *t = make(rank, false);
    static uint64_t values[COUNT][WORDS];
    static struct transfer transfers[COUNT + 1];
    uint64_t last = 99;
    if (rank->rank == 0) {
        for (uint64_t i = 0; i < COUNT; i++) {
            values[i][WORDS - 1] = i;
            transfers[i] = traffic_send(t, 1, 10 + (uint32_t)(i % 3), values[i], sizeof values[i]);
        }
        transfers[COUNT] = traffic_send(t, 1, 9, &last, sizeof last);
        for (int i = 0; i <= COUNT; i++)
            REQUIRE_STATUS(traffic_finish(t, &transfers[i]), ALNICO_SUCCESS);
    } else {
        last = 0;
        transfers[0] = traffic_receive(t, 0, 9, &last, sizeof last);
        REQUIRE_STATUS(traffic_finish(t, &transfers[0]), ALNICO_SUCCESS);
        REQUIRE(last == 99);
        for (uint64_t i = 0; i < COUNT; i++) {
            transfers[i] =
                traffic_receive(t, 0, 10 + (uint32_t)(i % 3), values[i], sizeof values[i]);
            REQUIRE_STATUS(traffic_finish(t, &transfers[i]), ALNICO_SUCCESS);
            REQUIRE(values[i][WORDS - 1] == i);
        }
    }
    wait_all(rank);
    t->ops->destroy(t);
}

static void test_a_flood_that_nobody_expects(void **state)
{
    (void)state;
    forks_run(2, 1, flood_body, NULL);
}

/* What is too small for the receiver to read directly goes whole, so that nobody has to be there;
 * with more than 16 ranks that is all up to 4 KB. */
static void eager_body(struct rank *rank)
{
    static char out[3000], in[sizeof out];
    struct shm_options options = {.read_from = SHM_READ_FROM};
    struct transport *t;
    memset(out, 7, sizeof out);
    REQUIRE_STATUS(create(rank, &options, &t), ALNICO_SUCCESS);
    if (rank->rank == 0) {
        struct transfer a = traffic_send(t, 1, TAG_MESSAGE, out, sizeof out);
        REQUIRE_STATUS(t->ops->test(t, &a), ALNICO_SUCCESS);
    }
    wait_all(rank);
    if (rank->rank == 1) {
        struct transfer b = traffic_receive(t, 0, TAG_MESSAGE, in, sizeof in);
        REQUIRE_STATUS(traffic_finish(t, &b), ALNICO_SUCCESS);
        REQUIRE(memcmp(in, out, sizeof in) == 0);
    }
    wait_all(rank);
    t->ops->destroy(t);
}

static void test_short_messages_go_whole(void **state)
{
    (void)state;
    forks_run(2, 1, eager_body, NULL);
    forks_run(17, 1, eager_body, NULL);
}

static alnico_status_t gather_part(void *wait, const void *mine, void *all, size_t bytes)
{
    return out_of_band_gather(wait, mine, all, bytes);
}

static void subset_body(struct rank *rank)
{
    struct transport *t = make(rank, false), *part;
    int odd[] = {3, 1}, even[] = {4, 2, 0};
    bool is_odd = rank->rank % 2;
    int mine = is_odd ? rank->rank == 1 : 2 - rank->rank / 2;
    struct out_of_band wait = {.transport = t,
                               .timeout = 20,
                               .who = "part",
                               .members = is_odd ? odd : even,
                               .count = is_odd ? 2 : 3,
                               .place = mine};
    struct rendezvous r = {.allgather = gather_part,
                           .context = &wait,
                           .rank = mine,
                           .size = wait.count,
                           .called = wait.members,
                           .who = "part",
                           .timeout = 20};
    REQUIRE_STATUS(t->ops->subset(t, &r, &part), ALNICO_SUCCESS);
    REQUIRE(part->rank == mine && part->size == (is_odd ? 2 : 3));
    struct traffic traffic = {part, 50, 20, 50000, seed, false};
    t->ops->destroy(t);
    traffic_run(&traffic);
    wait_all(rank);
    part->ops->destroy(part);
}

static void test_a_part_of_the_ranks(void **state)
{
    (void)state;
    forks_run(5, 1, subset_body, NULL);
    ranks_run(5, subset_body, NULL);
}

/* ---- Communicators ---- */

static const size_t counts[] = {3, 5000};

/* An algorithm that sends messages, whatever the table prefers on one host. */
static void use_messages(alnico_comm_t comm)
{
    REQUIRE_STATUS(alnico_comm_set_algorithm(comm, ALNICO_ALLREDUCE, "rabenseifner"),
                   ALNICO_SUCCESS);
}

static void comm_body(struct rank *rank)
{
    alnico_comm_t comm = forks_comm(rank, NULL), copy, part;
    REQUIRE(rank->size == 1 || strcmp(comm->transport->ops->name, "shm") == 0);
    use_messages(comm);
    cases_run_all(comm, counts, rank->size <= 2 ? 2 : 1, seed);
    REQUIRE_STATUS(alnico_comm_duplicate(comm, NULL, &copy), ALNICO_SUCCESS);
    REQUIRE_STATUS(alnico_comm_split(comm, rank->rank % 2, 0, NULL, &part), ALNICO_SUCCESS);
    alnico_comm_destroy(comm);
    use_messages(copy);
    use_messages(part);
    struct allreduce_case c = {.count = 70000, .type = ALNICO_FLOAT32, .op = ALNICO_SUM};
    cases_run(copy, &c, seed);
    cases_run(part, &c, seed);
    alnico_comm_destroy(part);
    alnico_comm_destroy(copy);
}

static void test_communicators_of_processes_need_no_mpi(void **state)
{
    (void)state;
    for (int size = 1; size <= 6; size++)
        forks_run(size, 1, comm_body, NULL);
    forks_run(2, 2, comm_body, NULL);
}

static void stream_body(struct rank *rank)
{
    alnico_stream_t stream;
    REQUIRE_STATUS(alnico_stream_create(&stream), ALNICO_SUCCESS);
    alnico_comm_t comm = forks_comm(rank, stream);
    use_messages(comm);
    for (size_t i = 0; i < 40; i++) {
        struct allreduce_case c = {.count = 1 + i * i * i, .type = ALNICO_INT32, .op = ALNICO_SUM};
        c.how = i % 2 ? HOW_NONBLOCKING : HOW_BLOCKING;
        cases_run(comm, &c, seed + i);
    }
    alnico_comm_destroy(comm);
    alnico_stream_destroy(stream);
}

static void test_streams_of_processes(void **state)
{
    (void)state;
    forks_run(3, 1, stream_body, NULL);
}

/* A message there and an answer back, whose ways over the ring say how it came. */
static uint32_t swap_once(struct transport *t, char *buffer, size_t bytes, int round)
{
    const struct channel_end *in = &((struct transport_shm *)t)->peer[1 - t->rank].in;
    const uint32_t before = in->byte;
    for (int turn = 0; turn < 2; turn++) {
        struct transfer transfer;
        if (turn == t->rank) {
            memset(buffer, round + turn, bytes);
            transfer = traffic_send(t, 1 - t->rank, TAG_OPERATIONS, buffer, bytes);
        } else {
            transfer = traffic_receive(t, 1 - t->rank, TAG_OPERATIONS, buffer, bytes);
        }
        REQUIRE_STATUS(traffic_finish(t, &transfer), ALNICO_SUCCESS);
        if (turn != t->rank)
            REQUIRE(buffer[0] == (char)(round + turn) && buffer[bytes - 1] == buffer[0]);
    }
    return in->byte - before;
}

static bool is_tried(const struct copy_times *times)
{
    return times->tries[COPY_DIRECTLY] == 8 && times->tries[COPY_IN_FRAGMENTS] == 8;
}

/* Both ways are tried with messages of each size, and then the one that took less, whichever. On a
 * busy machine a sender may not be there in time to use the ring, but not each time. */
static void learning_body(struct rank *rank)
{
    enum { SLOW = 1000000 }; /* 0.3 s for the longest, which is in no hurry then */
    static const size_t sizes[] = {9000, 70000, LARGE};
    static char buffer[LARGE];
    struct shm_options options = {.read_from = 1, .learns = true};
    struct transport *t;
    REQUIRE_STATUS(create(rank, &options, &t), ALNICO_SUCCESS);
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        struct copy_times *times = ((struct transport_shm *)t)->times;
        for (size_t left = sizes[i]; left > 1; left /= 2)
            times++;
        char more = 1, all[2] = {1, 1};
        for (int round = 0; all[0] || all[1]; round++) {
            REQUIRE(round < 5000);
            swap_once(t, buffer, sizes[i], round);
            more = !is_tried(times);
            REQUIRE_STATUS(exchange(rank, &more, all, 1), ALNICO_SUCCESS);
        }
        REQUIRE(times->picoseconds[COPY_DIRECTLY] > 0 && times->picoseconds[COPY_IN_FRAGMENTS] > 0);
        *times = (struct copy_times){{SLOW - 1, SLOW}, {8, 8}, 0};
        swap_once(t, buffer, sizes[i], 1); /* takes what was left of one that was cut short */
        REQUIRE(swap_once(t, buffer, sizes[i], 1) == 0);
        *times = (struct copy_times){{SLOW, 1}, {8, 8}, 8}; /* eight too late */
        REQUIRE(swap_once(t, buffer, sizes[i], 1) == 0);
        *times = (struct copy_times){{SLOW, 1}, {8, 8}, 0};
        more = 1;
        for (int round = 0; round == 0 || all[0] || all[1]; round++) {
            REQUIRE(round < 5000);
            more &= swap_once(t, buffer, sizes[i], round) < sizes[i];
            REQUIRE_STATUS(exchange(rank, &more, all, 1), ALNICO_SUCCESS);
        }
    }
    wait_all(rank);
    t->ops->destroy(t);
}

static void test_the_faster_way_is_learned(void **state)
{
    (void)state;
    forks_run(2, 1, learning_body, NULL);
}

/* Eight messages whose rest was copied directly, more than came in time, make that the faster way. */
static void test_late_messages_are_counted(void **state)
{
    enum { BYTES = 1 << 20 };
    (void)state;
    struct transport_shm *t = calloc(1, sizeof *t + sizeof *t->peer);
    struct message late = {.bytes = BYTES, .moved = BYTES / 2}, whole = late, none = late;
    assert_non_null(t);
    t->options.learns = true;
    t->times[20] = (struct copy_times){{2, 1}, {8, 8}, 0};
    whole.moved = BYTES;
    none.moved = 0;
    calibrate_end(t, t->peer, &whole, COPY_IN_FRAGMENTS);
    for (int i = 0; i < 7; i++)
        calibrate_end(t, t->peer, &late, COPY_IN_FRAGMENTS);
    calibrate_end(t, t->peer, &none, COPY_IN_FRAGMENTS); /* its sender was away: nobody's fault */
    calibrate_end(t, t->peer, &whole, COPY_IN_FRAGMENTS);
    calibrate_end(t, t->peer, &late, COPY_IN_FRAGMENTS);
    assert_int_equal(calibrate_begin(t, &late), COPY_IN_FRAGMENTS);
    calibrate_end(t, t->peer, &late, COPY_IN_FRAGMENTS);
    assert_int_equal(calibrate_begin(t, &late), COPY_DIRECTLY);
    calibrate_end(t, t->peer, &whole, COPY_IN_FRAGMENTS);
    assert_int_equal(calibrate_begin(t, &late), COPY_DIRECTLY);
    free(t);
}

/* Until something of the message has gone into the ring, or it is over. */
static alnico_status_t send_a_part(struct transport *t, struct transfer *transfer)
{
    alnico_status_t status = ALNICO_PENDING;
    const struct channel_end *out = &((struct transport_shm *)t)->peer[1].out;
    const uint32_t before = out->byte;
    double end = ranks_seconds() + 30;
    while (out->byte == before && (status = t->ops->test(t, transfer)) == ALNICO_PENDING) {
        REQUIRE(ranks_seconds() < end);
        sched_yield();
    }
    return status;
}

/* A sender that has offered a message and does not look again, or sends a part first: its receiver
 * does not wait for more. */
static void busy_sender_body(struct rank *rank)
{
    enum { BYTES = 4 << 20 };
    static char buffer[BYTES];
    struct shm_options options = {.read_from = 1, .learns = true};
    struct transport *t;
    struct transfer transfer;
    REQUIRE_STATUS(create(rank, &options, &t), ALNICO_SUCCESS);
    for (int round = 0; round < 20; round++) {
        alnico_status_t status = ALNICO_SUCCESS;
        for (int i = 0; i < SIZE_CLASSES; i++)
            ((struct transport_shm *)t)->times[i] = (struct copy_times){{2, 1}, {8, 8}, 0};
        wait_all(rank);
        if (rank->rank == 0) {
            memset(buffer, round, BYTES);
            transfer = traffic_send(t, 1, TAG_OPERATIONS, buffer, BYTES);
            status = round % 2 ? send_a_part(t, &transfer) : ALNICO_PENDING;
        } else {
            memset(buffer, -1, BYTES);
            transfer = traffic_receive(t, 0, TAG_OPERATIONS, buffer, BYTES);
            REQUIRE_STATUS(traffic_finish(t, &transfer), ALNICO_SUCCESS);
            for (size_t i = 0; i < BYTES; i++)
                REQUIRE(buffer[i] == (char)round);
        }
        wait_all(rank); /* not before the message was received */
        if (rank->rank == 0 && status == ALNICO_PENDING)
            status = traffic_finish(t, &transfer);
        REQUIRE_STATUS(status, ALNICO_SUCCESS);
        if (round % 3 == 0) /* the next one finds what was left of this one, if anything */
            swap_once(t, buffer, LARGE, round);
    }
    t->ops->destroy(t);
}

static void test_a_busy_sender_is_not_waited_for(void **state)
{
    (void)state;
    forks_run(2, 1, busy_sender_body, NULL);
}

/* One rank begins eight operations and 600 messages at once, of which each sends what the other is not
 * there for; the other takes one after the other, and a duplicate of the communicator first. */
static void ahead_body(struct rank *rank)
{
    enum { OPERATIONS = 8, MESSAGES = 600, COUNT = 300000, SHORT = 9000 };
    const bool ahead = rank->rank == 0;
    alnico_comm_t comm = forks_comm(rank, NULL), copy;
    alnico_request_t requests[OPERATIONS], messages[MESSAGES];
    float *values = calloc((size_t)OPERATIONS * COUNT, sizeof *values);
    char *bytes = calloc(MESSAGES, SHORT);
    REQUIRE(values && bytes);
    use_messages(comm);
    for (int i = 0; i < MESSAGES && ahead; i++) {
        char *message = bytes + (size_t)i * SHORT;
        message[SHORT - 1] = (char)i;
        REQUIRE_STATUS(alnico_isend(message, SHORT, ALNICO_UINT8, 1, comm, &messages[i]),
                       ALNICO_SUCCESS);
    }
    REQUIRE_STATUS(alnico_comm_duplicate(comm, NULL, &copy), ALNICO_SUCCESS);
    for (int i = 0; i < OPERATIONS; i++) {
        float *vector = values + (size_t)i * COUNT;
        vector[COUNT - 1] = (float)(i + 1);
        REQUIRE_STATUS(alnico_iallreduce(ALNICO_IN_PLACE, vector, COUNT, ALNICO_FLOAT32, ALNICO_SUM,
                                         comm, &requests[i]),
                       ALNICO_SUCCESS);
        if (!ahead)
            REQUIRE_STATUS(alnico_wait(&requests[i]), ALNICO_SUCCESS);
    }
    for (int i = 0; i < OPERATIONS; i++) {
        if (ahead)
            REQUIRE_STATUS(alnico_wait(&requests[i]), ALNICO_SUCCESS);
        REQUIRE(values[(size_t)i * COUNT + COUNT - 1] == 2 * (float)(i + 1));
    }
    for (int i = 0; i < MESSAGES; i++) {
        if (ahead) {
            REQUIRE_STATUS(alnico_wait(&messages[i]), ALNICO_SUCCESS);
        } else {
            REQUIRE_STATUS(alnico_recv(bytes, SHORT, ALNICO_UINT8, 0, comm), ALNICO_SUCCESS);
            REQUIRE(bytes[SHORT - 1] == (char)i);
        }
    }
    alnico_comm_destroy(copy);
    alnico_comm_destroy(comm);
    free(values);
    free(bytes);
}

static void test_one_rank_ahead(void **state)
{
    (void)state;
    forks_run(2, 1, ahead_body, NULL);
}

/* Ranks as threads over shared memory, as in no program: for the thread sanitizer. */
static void threads_body(struct rank *rank)
{
    alnico_comm_t comm;
    bool *through_rings = rank->argument;
    const struct creation made = {
        .transport = make(rank, *through_rings), .device = &device_cpu, .who = "test"};
    REQUIRE_STATUS(comm_build(&made, &comm), ALNICO_SUCCESS);
    use_messages(comm);
    struct allreduce_case c = {.count = 30000, .type = ALNICO_FLOAT32, .op = ALNICO_SUM};
    for (uint64_t i = 0; i < 10; i++)
        cases_run(comm, &c, seed + i);
    if (!*through_rings)
        cases_run_all(comm, counts, 1, seed);
    alnico_comm_destroy(comm);
}

static void test_threads_over_shared_memory(void **state)
{
    (void)state;
    bool modes[] = {false, true};
    for (int i = 0; i < 2; i++)
        ranks_run(3, threads_body, &modes[i]);
}

/* A send is given up at any time of the other thread's copy, and its memory is gone at once. */
static void gone_body(struct rank *rank)
{
    enum { BYTES = 4 << 20, ROUNDS = 30 };
    atomic_int *over = rank->argument;
    struct transport *t = make(rank, false);
    char *in = malloc(BYTES);
    REQUIRE(in != NULL);
    memset(in, 2, BYTES);
    for (int i = 0; i < ROUNDS; i++) {
        if (rank->rank == 0) {
            char *out =
                mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
            REQUIRE(out != MAP_FAILED);
            memset(out, 1, BYTES);
            wait_all(rank);
            struct transfer a = traffic_send(t, 1, 1, out, BYTES);
            nap_us(i * 50);
            t->ops->cancel(t, &a);
            munmap(out, BYTES);
            atomic_store(over, i + 1);
        } else {
            wait_all(rank);
            struct transfer b = traffic_receive(t, 0, 1, in, BYTES);
            alnico_status_t status = ALNICO_PENDING;
            while (status == ALNICO_PENDING && atomic_load(over) == i)
                status = t->ops->test(t, &b);
            if (status == ALNICO_PENDING)
                t->ops->cancel(t, &b);
        }
        wait_all(rank);
    }
    free(in);
    t->ops->destroy(t);
}

static void test_what_is_given_up_is_not_read(void **state)
{
    (void)state;
    atomic_int over = 0;
    ranks_run(2, gone_body, &over);
}

int main(void)
{
    static int rings = 1;
    seed = (uint64_t)time(NULL);
    printf("seed %llu\n", (unsigned long long)seed);
#define CASE(function)                                                                             \
    {#function, function, setup, teardown, NULL},                                                  \
    {                                                                                              \
#function " through rings", function, setup, teardown, &rings                              \
    }
    const struct CMUnitTest tests[] = {
        CASE(test_either_side_may_be_first),
        CASE(test_sender_and_tag_select_and_order_holds),
        CASE(test_order_holds_between_sizes),
        CASE(test_sizes_must_agree),
        CASE(test_cancelled_sides_do_not_match),
        CASE(test_what_finds_no_room_waits),
        CASE(test_what_nobody_receives_holds_up_nothing),
        {"test_cancelling_in_the_middle", test_cancelling_in_the_middle, setup, teardown, &rings},
        {"test_a_late_look_leaves_the_next_message_alone",
         test_a_late_look_leaves_the_next_message_alone, setup, teardown, &rings},
        {"test_both_sides_copy", test_both_sides_copy, setup, teardown, NULL},
        {"test_a_sender_that_may_not_write", test_a_sender_that_may_not_write, setup, teardown,
         NULL},
        {"test_giving_up_a_shared_copy", test_giving_up_a_shared_copy, setup, teardown, NULL},
        {"test_a_late_look_at_a_withdrawn_offer", test_a_late_look_at_a_withdrawn_offer, setup,
         teardown, NULL},
        CASE(test_a_small_message_outlives_its_sender),
        CASE(test_a_message_to_oneself),
        cmocka_unit_test(test_mixed_sizes_between_processes),
        cmocka_unit_test(test_mixed_sizes_between_threads),
        cmocka_unit_test(test_many_ranks),
        cmocka_unit_test(test_64_megabytes),
        cmocka_unit_test(test_a_flood_that_nobody_expects),
        cmocka_unit_test(test_short_messages_go_whole),
        cmocka_unit_test(test_a_part_of_the_ranks),
        cmocka_unit_test(test_communicators_of_processes_need_no_mpi),
        cmocka_unit_test(test_streams_of_processes),
        cmocka_unit_test(test_one_rank_ahead),
        cmocka_unit_test(test_the_faster_way_is_learned),
        cmocka_unit_test(test_late_messages_are_counted),
        cmocka_unit_test(test_a_busy_sender_is_not_waited_for),
        cmocka_unit_test(test_threads_over_shared_memory),
        cmocka_unit_test(test_what_is_given_up_is_not_read),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
