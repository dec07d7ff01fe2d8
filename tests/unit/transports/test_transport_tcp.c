/* Messages over TCP between threads and processes of this host: matching, sizes, cancelling, the
 * window, ranks that leave, die or lie, and parts. */
#include "comm/transports/tcp/tcp.h"

#include "comm/rendezvous/out_of_band.h"

#include "tests/support/forks.h"
#include "tests/support/reference.h"
#include "tests/support/traffic.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

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

struct mode {
    const char *interface;
    int connections, rounds;
    size_t largest;
};

static struct transport *make(struct rank *rank, const struct mode *mode)
{
    const struct tcp_options options = {.interface = mode->interface,
                                        .connections = mode->connections};
    struct rendezvous r = ranks_rendezvous(rank, 20);
    struct transport *t;
    REQUIRE_STATUS(transport_tcp_create(&r, &options, &t), ALNICO_SUCCESS);
    REQUIRE(t->rank == rank->rank && t->size == rank->size && t->concurrent);
    return t;
}

/* ---- Three ranks moved by one thread ---- */

struct world {
    struct transport *rank[SIZE];
    struct mode mode;
};

static void join_body(struct rank *rank)
{
    struct world *w = rank->argument;
    w->rank[rank->rank] = make(rank, &w->mode);
}

static int setup(void **state)
{
    struct world *w = calloc(1, sizeof *w);
    assert_non_null(w);
    w->mode = *(const struct mode *)*state;
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
    double end = ranks_seconds() + 10;
    while ((x == ALNICO_PENDING || y == ALNICO_PENDING) && ranks_seconds() < end) {
        if (x == ALNICO_PENDING)
            x = from->ops->test(from, a);
        if (y == ALNICO_PENDING)
            y = to->ops->test(to, b);
    }
    assert_int_equal(x, sent);
    assert_int_equal(y, received);
}

/* Until what was sent has come to the rank, where nothing waits for it. */
static void settle(struct transport *t)
{
    struct transfer none;
    char never;
    none = traffic_receive(t, TRANSPORT_ANY, 999999, &never, 1);
    for (double end = ranks_seconds() + 0.05; ranks_seconds() < end;)
        assert_int_equal(t->ops->test(t, &none), ALNICO_PENDING);
    assert_true(t->ops->cancel(t, &none));
}

static void test_either_side_may_be_first(void **state)
{
    struct world *w = *state;
    static char out[LARGE + 1], in[LARGE + 1];
    size_t sizes[] = {0, 1, SMALL, MIDDLE, STAGED, EAGER_MOST, EAGER_MOST + 1, LARGE};
    for (int i = 0; i < 16; i++) {
        size_t bytes = sizes[i / 2];
        memset(out, i + 1, sizeof out);
        memset(in, 0, sizeof in);
        struct transfer a, b;
        if (i % 2) {
            a = traffic_send(w->rank[0], 1, 7, out, bytes);
            settle(w->rank[1]);
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
    struct transfer sends[COUNT], receives[COUNT];
    size_t sizes[] = {SMALL, LARGE, 0, MIDDLE};
    for (int i = 0; i < COUNT; i++) {
        memset(out[i], i + 1, LARGE);
        sends[i] = traffic_send(w->rank[0], 1, 3, out[i], sizes[i % 4]);
    }
    settle(w->rank[1]);
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
    for (size_t i = 0; i < 2; i++) { /* only the receiver can tell; posted before, and after */
        if (i == 0)
            b = traffic_receive(w->rank[1], 0, 1, in, SMALL + 1);
        a = traffic_send(w->rank[0], 1, 1, out, SMALL);
        settle(w->rank[1]);
        if (i == 1)
            b = traffic_receive(w->rank[1], 0, 1, in, SMALL + 1);
        finish_both(w->rank[0], &a, w->rank[1], &b, ALNICO_SUCCESS, ALNICO_ERROR_MISMATCH);
    }
    a = traffic_send(w->rank[0], 1, 1, out, LARGE);
    b = traffic_receive(w->rank[1], 0, 1, in, SMALL);
    finish_both(w->rank[0], &a, w->rank[1], &b, ALNICO_ERROR_MISMATCH, ALNICO_ERROR_MISMATCH);
}

static void test_cancelled_sides_do_not_match(void **state)
{
    struct world *w = *state;
    static char out[LARGE], in[LARGE], other[LARGE];
    for (int late = 0; late < 2; late++) { /* the withdrawal comes before the receive, or after */
        memset(in, 0, LARGE);
        struct transfer a = traffic_send(w->rank[0], 1, 1, out, LARGE), b;
        assert_int_equal(w->rank[0]->ops->test(w->rank[0], &a), ALNICO_PENDING);
        if (late)
            settle(w->rank[1]);
        assert_true(w->rank[0]->ops->cancel(w->rank[0], &a));
        b = traffic_receive(w->rank[1], 0, 1, in, LARGE);
        settle(w->rank[1]);
        assert_int_equal(w->rank[1]->ops->test(w->rank[1], &b), ALNICO_PENDING);
        assert_true(w->rank[1]->ops->cancel(w->rank[1], &b));
        memset(out, 3, sizeof out);
        b = traffic_receive(w->rank[1], 0, 1, other, LARGE);
        a = traffic_send(w->rank[0], 1, 1, out, LARGE);
        finish_both(w->rank[0], &a, w->rank[1], &b, ALNICO_SUCCESS, ALNICO_SUCCESS);
        assert_int_equal(in[0], 0);
        assert_memory_equal(other, out, LARGE);
    }
}

/* Whole messages beyond the window wait at their sender; none is lost, and others pass them. */
static void test_what_nobody_receives_is_bounded(void **state)
{
    struct world *w = *state;
    enum { COUNT = 1000, BYTES = 4000 };
    static char out[COUNT][BYTES], in[BYTES];
    static struct transfer sends[COUNT];
    struct transport *to = w->rank[1];
    for (uint32_t i = 0; i < COUNT; i++) {
        memcpy(out[i], &i, sizeof i);
        sends[i] = traffic_send(w->rank[0], 1, 4, out[i], BYTES);
    }
    for (int i = 0; i < 10; i++) { /* the connection takes a part at a time */
        settle(w->rank[0]);
        settle(to);
    }
    size_t kept = 0;
    for (struct arrival *a = ((struct transport_tcp *)to)->peer[0].arrivals; a; a = a->next)
        kept += a->frame.kind == FRAME_WHOLE ? a->frame.bytes : 0;
    assert_true(kept > WINDOW_BYTES / 2 && kept <= WINDOW_BYTES);
    assert_int_equal(w->rank[0]->ops->test(w->rank[0], &sends[COUNT - 1]), ALNICO_PENDING);
    struct transfer a = traffic_send(w->rank[0], 1, 5, out[7], BYTES);
    struct transfer b = traffic_receive(to, 0, 5, in, BYTES);
    finish_both(w->rank[0], &a, to, &b, ALNICO_SUCCESS, ALNICO_SUCCESS);
    for (uint32_t i = 0, got; i < COUNT; i++) {
        b = traffic_receive(to, 0, 4, in, BYTES);
        finish_both(w->rank[0], &sends[i], to, &b, ALNICO_SUCCESS, ALNICO_SUCCESS);
        memcpy(&got, in, sizeof got);
        assert_int_equal(got, i);
    }
    for (int i = 0; i < 300; i++) { /* and the window is open again */
        a = traffic_send(w->rank[0], 1, 4, out[0], BYTES);
        b = traffic_receive(to, 0, 4, in, BYTES);
        finish_both(w->rank[0], &a, to, &b, ALNICO_SUCCESS, ALNICO_SUCCESS);
    }
    settle(w->rank[0]);
    struct tcp_peer *p = &((struct transport_tcp *)w->rank[0])->peer[1];
    assert_true(p->window > WINDOW_BYTES - CREDIT_STEP - BYTES - WHOLE_COST);
}

/* Either side of a large message, or of a small one that the connection has no room for, gives up in
 * the middle. */
static void test_cancelling_in_the_middle(void **state)
{
    enum { BIG = 64 << 20 }; /* more than a connection holds */
    struct world *w = *state;
    struct transport *from = w->rank[0], *to = w->rank[1];
    char *out = malloc(BIG), *in = malloc(BIG), *wanted = malloc(LARGE), *got = malloc(LARGE);
    assert_true(out && in && wanted && got);
    memset(wanted, 9, LARGE);
    for (int side = 0; side < 2; side++) {
        memset(out, 1, BIG);
        struct transfer b = traffic_receive(to, 0, 1, in, BIG);
        struct transfer a = traffic_send(from, 1, 1, out, BIG);
        settle(to);
        assert_int_equal(from->ops->test(from, &a), ALNICO_PENDING);
        assert_int_equal(to->ops->test(to, &b), ALNICO_PENDING);
        if (side == 0) { /* the receiver: its buffer is its own again */
            assert_true(to->ops->cancel(to, &b));
            memset(in, 7, BIG);
            struct transfer c = traffic_receive(to, 0, 2, got, LARGE);
            struct transfer d = traffic_send(from, 1, 2, wanted, LARGE);
            finish_both(from, &d, to, &c, ALNICO_SUCCESS, ALNICO_SUCCESS);
            assert_memory_equal(got, wanted, LARGE);
            assert_true(in[0] == 7 && memcmp(in, in + 1, BIG - 1) == 0);
            from->ops->cancel(from, &a);
        } else { /* the sender: the receive takes the next message of its size instead */
            assert_true(from->ops->cancel(from, &a));
            memset(out, 5, BIG);
            a = traffic_send(from, 1, 1, out, BIG);
            finish_both(from, &a, to, &b, ALNICO_SUCCESS, ALNICO_SUCCESS);
            assert_memory_equal(in, out, BIG);
        }
    }
    free(out);
    free(in);
    free(wanted);
    free(got);
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
    assert_false(w->rank[2]->ops->gone(w->rank[2], 0)); /* it has left */
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

/* ---- Ranks that die or lie ---- */

static void test_a_connection_that_breaks(void **state)
{
    struct world *w = *state;
    struct transport_tcp *dying = (struct transport_tcp *)w->rank[0];
    int value = 7, got = 0;
    assert_false(w->rank[1]->ops->gone(w->rank[1], 0));
    struct transfer a = traffic_send(w->rank[0], 1, 1, &value, sizeof value);
    assert_int_equal(traffic_finish(w->rank[0], &a), ALNICO_SUCCESS);
    shutdown(dying->peer[1].lane[0].fd, SHUT_RDWR); /* as the kernel does at a process's end */
    for (double end = ranks_seconds() + 5; !w->rank[1]->ops->gone(w->rank[1], 0);)
        assert_true(ranks_seconds() < end);
    assert_false(w->rank[1]->ops->gone(w->rank[1], 2));
    struct transfer b = traffic_receive(w->rank[1], 0, 1, &got, sizeof got);
    assert_int_equal(traffic_finish(w->rank[1], &b), ALNICO_SUCCESS); /* what came before counts */
    assert_int_equal(got, 7);
    b = traffic_receive(w->rank[1], 0, 1, &got, sizeof got);
    a = traffic_send(w->rank[1], 0, 1, &value, sizeof value);
    assert_int_equal(w->rank[1]->ops->test(w->rank[1], &b), ALNICO_PENDING);
    assert_int_equal(w->rank[1]->ops->test(w->rank[1], &a), ALNICO_PENDING);
    assert_true(w->rank[1]->ops->cancel(w->rank[1], &a) && w->rank[1]->ops->cancel(w->rank[1], &b));
    a = traffic_send(w->rank[2], 1, 1, &value, sizeof value);
    b = traffic_receive(w->rank[1], 2, 1, &got, sizeof got);
    finish_both(w->rank[2], &a, w->rank[1], &b, ALNICO_SUCCESS, ALNICO_SUCCESS);
}

/* What rank 0 writes past its own transport, and how rank 1's receive of LARGE bytes with tag 1 ends. */
static void lie(void **state, const struct frame *frames, size_t count)
{
    struct world *w = *state;
    static char in[LARGE];
    int value = 5, got = 0;
    struct transport_tcp *liar = (struct transport_tcp *)w->rank[0];
    struct transfer b = traffic_receive(w->rank[1], 0, 1, in, LARGE);
    size_t bytes = count * sizeof *frames;
    assert_int_equal(write(liar->peer[1].lane[0].fd, frames, bytes), bytes);
    assert_int_equal(traffic_finish(w->rank[1], &b), ALNICO_ERROR_SYSTEM);
    assert_non_null(strstr(alnico_error_detail(), "rank 0 sent what no rank sends"));
    assert_true(w->rank[1]->ops->gone(w->rank[1], 0));
    assert_true(w->rank[1]->ops->cancel(w->rank[1], &b));
    struct transfer a = traffic_send(w->rank[2], 1, 1, &value, sizeof value);
    b = traffic_receive(w->rank[1], 2, 1, &got, sizeof got);
    finish_both(w->rank[2], &a, w->rank[1], &b, ALNICO_SUCCESS, ALNICO_SUCCESS);
}

static void test_a_kind_that_there_is_not(void **state)
{
    lie(state, &(struct frame){.kind = FRAME_KINDS}, 1);
}

static void test_a_whole_message_that_is_too_long(void **state)
{
    lie(state, &(struct frame){.kind = FRAME_WHOLE, .bytes = EAGER_MOST + 1, .at = 1}, 1);
}

static void test_an_offer_that_is_too_long(void **state)
{
    lie(state, &(struct frame){.kind = FRAME_OFFER, .bytes = UINT32_MAX, .at = 1, .id = 1}, 1);
}

static void test_credit_for_nothing(void **state)
{
    lie(state, &(struct frame){.kind = FRAME_CREDIT, .bytes = 1}, 1);
}

/* Rank 1's first number is 1. */
static void test_a_fragment_behind_the_end(void **state)
{
    const struct frame frames[] = {
        {.kind = FRAME_OFFER, .bytes = LARGE, .at = 1, .id = 77},
        {.kind = FRAME_DATA, .bytes = FRAGMENT_MOST, .at = LARGE - 5, .id = 1}};
    lie(state, frames, 2);
}

static void test_more_than_the_window(void **state)
{
    enum { COUNT = WINDOW_BYTES / WHOLE_COST + 1 };
    static struct frame frames[COUNT];
    for (int i = 0; i < COUNT; i++)
        frames[i] = (struct frame){.kind = FRAME_WHOLE, .at = 9};
    lie(state, frames, COUNT);
}

/* In whatever order they come: what is not data goes over the first one, which both sides read. */
static void test_connections_have_their_numbers_order(void **state)
{
    (void)state;
    static const uint32_t numbers[] = {2, 0, 3, 1};
    const struct tcp_options options = {.connections = 4};
    struct transport_tcp *t;
    int fds[4];
    assert_int_equal(tcp_prepare(0, 2, &options, &t), ALNICO_SUCCESS);
    for (int i = 0; i < 4; i++) {
        fds[numbers[i]] = socket(AF_INET, SOCK_STREAM, 0);
        assert_true(fds[numbers[i]] >= 0);
        assert_int_equal(tcp_add_lane(t, 1, numbers[i], fds[numbers[i]]), ALNICO_SUCCESS);
    }
    for (int i = 0; i < 4; i++)
        assert_int_equal(t->peer[1].lane[i].fd, fds[i]);
    tcp_free(t);
}

/* ---- Traffic ---- */

static void traffic_body(struct rank *rank)
{
    const struct mode *mode = rank->argument;
    struct transport *t = make(rank, mode);
    struct traffic traffic = {t, 50, mode->rounds, mode->largest, seed, false};
    traffic_run(&traffic);
    t->ops->destroy(t); /* at once: what it sent still comes */
}

/* Two threads of each rank at once. */
static void busy_body(struct rank *rank)
{
    const struct mode *mode = rank->argument;
    struct transport *t = make(rank, mode);
    struct traffic traffic[2] = {{t, 50, mode->rounds, mode->largest, seed, false},
                                 {t, 100000, mode->rounds, mode->largest, seed, false}};
    pthread_t thread;
    REQUIRE(pthread_create(&thread, NULL, traffic_run, &traffic[1]) == 0);
    traffic_run(&traffic[0]);
    pthread_join(thread, NULL);
    wait_all(rank);
    t->ops->destroy(t);
}

static void test_mixed_sizes(void **state)
{
    (void)state;
    for (int connections = 1; connections <= 3; connections += 2) {
        struct mode mode = {"127.0.0.1", connections, ranks_repetitions(50), 400000};
        for (int size = 2; size <= 4; size++)
            forks_run(size, 1, traffic_body, &mode);
        forks_run(2, 2, traffic_body, &mode);
        forks_run(2, 1, busy_body, &mode);
        ranks_run(3, traffic_body, &mode);
    }
}

static void test_many_ranks(void **state)
{
    (void)state;
    struct mode mode = {"127.0.0.1", 1, 20, 30000};
    forks_run(20, 1, traffic_body, &mode);
}

static void test_version_6(void **state)
{
    (void)state;
    struct mode mode = {"::1", 1, 20, 100000};
    int fd = socket(AF_INET6, SOCK_STREAM, 0);
    if (fd < 0)
        skip();
    close(fd);
    forks_run(3, 1, traffic_body, &mode);
}

static void death_body(struct rank *rank)
{
    const struct mode mode = {.interface = "127.0.0.1"};
    struct transport *t = make(rank, &mode);
    char byte = 1;
    struct transfer a;
    if (rank->rank == 1) {
        forks_barrier(rank);
        raise(SIGKILL);
    }
    a = traffic_receive(t, 1, 9, &byte, 1);
    forks_barrier(rank);
    for (double end = ranks_seconds() + 5; !t->ops->gone(t, 1);)
        REQUIRE(ranks_seconds() < end);
    REQUIRE(!t->ops->gone(t, 2 - rank->rank));
    REQUIRE(t->ops->test(t, &a) == ALNICO_PENDING && t->ops->cancel(t, &a));
    forks_barrier(rank);
    t->ops->destroy(t);
}

/* Messages of a rank that has left are received, though writes to it have failed meanwhile: the first one
 * makes its kernel reset the connection, the next ones see that. */
static void last_words_body(struct rank *rank)
{
    enum { WRITES = 3 };
    const struct mode mode = {.interface = "127.0.0.1"};
    struct transport *t = make(rank, &mode);
    char byte = 7;
    struct transfer a, late[WRITES];
    if (rank->rank == 0) {
        a = traffic_send(t, 1, 9, &byte, 1);
        REQUIRE_STATUS(traffic_finish(t, &a), ALNICO_SUCCESS);
        t->ops->destroy(t);
        forks_barrier(rank);
        return;
    }
    forks_barrier(rank);
    for (int i = 0; i < WRITES; i++) {
        late[i] = traffic_send(t, 0, 5, &byte, 1);
        nanosleep(&(struct timespec){.tv_nsec = 50000000}, NULL);
    }
    byte = 0;
    a = traffic_receive(t, 0, 9, &byte, 1);
    REQUIRE_STATUS(traffic_finish(t, &a), ALNICO_SUCCESS);
    REQUIRE(byte == 7 && t->ops->left(t, 0));
    for (int i = 0; i < WRITES; i++)
        REQUIRE(t->ops->cancel(t, &late[i]));
    t->ops->destroy(t);
}

static void test_last_words(void **state)
{
    (void)state;
    forks_run(2, 1, last_words_body, NULL);
}

static void test_a_process_that_is_killed(void **state)
{
    (void)state;
    forks_run_victim(3, 1, SIGKILL, death_body, NULL);
}

static int option_of(int fd, int level, int option)
{
    int value = -1;
    socklen_t bytes = sizeof value;
    REQUIRE(getsockopt(fd, level, option, &value, &bytes) == 0);
    return value;
}

/* The kernel asks hosts from which nothing comes, and gives them up after two and a half deadlines. */
static void heartbeat_body(struct rank *rank)
{
    const struct mode mode = {.interface = "127.0.0.1"};
    struct transport *t = make(rank, &mode);
    const struct tcp_peer *p = &((struct transport_tcp *)t)->peer[1 - rank->rank];
    REQUIRE(p->lanes == 1);
    REQUIRE(option_of(p->lane[0].fd, SOL_SOCKET, SO_KEEPALIVE) == 1);
    REQUIRE(option_of(p->lane[0].fd, IPPROTO_TCP, TCP_KEEPIDLE) == 10);
    REQUIRE(option_of(p->lane[0].fd, IPPROTO_TCP, TCP_KEEPINTVL) == 5);
    REQUIRE(option_of(p->lane[0].fd, IPPROTO_TCP, TCP_USER_TIMEOUT) == 50001);
    wait_all(rank);
    t->ops->destroy(t);
}

static void test_the_kernel_asks_whether_a_host_is_there(void **state)
{
    (void)state;
    ranks_run(2, heartbeat_body, NULL);
}

static alnico_status_t gather_part(void *wait, const void *mine, void *all, size_t bytes)
{
    return out_of_band_gather(wait, mine, all, bytes);
}

static void subset_body(struct rank *rank)
{
    const struct mode mode = {.interface = "127.0.0.1"};
    struct transport *t = make(rank, &mode), *part;
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
    part->ops->destroy(part);
}

static void test_a_part_of_the_ranks(void **state)
{
    (void)state;
    forks_run(5, 1, subset_body, NULL);
    ranks_run(5, subset_body, NULL);
}

static void wrong_body(struct rank *rank)
{
    const struct tcp_options options = {.interface = rank->rank == 1 ? "no0" : "127.0.0.1"};
    struct rendezvous r = ranks_rendezvous(rank, 20);
    struct transport *t;
    REQUIRE_STATUS(transport_tcp_create(&r, &options, &t), ALNICO_ERROR_ARGUMENT);
    ranks_require_detail("rank 1: ");
    ranks_require_detail("no0");
}

static void test_an_interface_that_there_is_not(void **state)
{
    (void)state;
    ranks_run(3, wrong_body, NULL);
}

int main(void)
{
    static struct mode one = {.interface = "127.0.0.1"};
    static struct mode several = {.interface = "127.0.0.1", .connections = 3};
#define CASE(function, mode)                                                                       \
    cmocka_unit_test_prestate_setup_teardown(function, setup, teardown, &mode)
    const struct CMUnitTest tests[] = {
        CASE(test_either_side_may_be_first, one),
        CASE(test_either_side_may_be_first, several),
        CASE(test_sender_and_tag_select_and_order_holds, one),
        CASE(test_order_holds_between_sizes, one),
        CASE(test_order_holds_between_sizes, several),
        CASE(test_sizes_must_agree, one),
        CASE(test_cancelled_sides_do_not_match, one),
        CASE(test_what_nobody_receives_is_bounded, one),
        CASE(test_cancelling_in_the_middle, one),
        CASE(test_cancelling_in_the_middle, several),
        CASE(test_a_small_message_outlives_its_sender, one),
        CASE(test_a_message_to_oneself, one),
        CASE(test_a_connection_that_breaks, one),
        CASE(test_a_kind_that_there_is_not, one),
        CASE(test_a_whole_message_that_is_too_long, one),
        CASE(test_an_offer_that_is_too_long, one),
        CASE(test_credit_for_nothing, one),
        CASE(test_a_fragment_behind_the_end, one),
        CASE(test_more_than_the_window, one),
        cmocka_unit_test(test_connections_have_their_numbers_order),
        cmocka_unit_test(test_mixed_sizes),
        cmocka_unit_test(test_many_ranks),
        cmocka_unit_test(test_version_6),
        cmocka_unit_test(test_last_words),
        cmocka_unit_test(test_a_process_that_is_killed),
        cmocka_unit_test(test_the_kernel_asks_whether_a_host_is_there),
        cmocka_unit_test(test_a_part_of_the_ranks),
        cmocka_unit_test(test_an_interface_that_there_is_not),
    };
    seed = (uint64_t)time(NULL);
    print_message("seed %llu\n", (unsigned long long)seed);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
