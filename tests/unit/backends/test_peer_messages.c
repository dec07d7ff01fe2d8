/*
 * Messages between GPUs without a GPU: the plans of groups, and what kernels do with them, here by
 * warps that take a step each in random order, over scratch in the host's memory. Groups of several
 * ranks are cut differently, rings are used again and again, and lengths that differ are seen.
 * Argument: the seed.
 */
#include "comm/backends/peer_cuda/messages.h"

#include "comm/algorithms/algorithm.h"
#include "tests/support/ranks.h"
#include "tests/support/reference.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

enum { MESSAGES = 60, BATCH = 4, WARPS = PEER_GRID_BLOCKS * PEER_BLOCK_WARPS, AROUND = 16 };

static uint64_t seed, drawn;

static uint64_t draw(uint64_t below)
{
    return reference_random(seed, drawn++, 0) % below;
}

/* ---- A world of ranks ---- */

struct message {
    int from, to;
    size_t bytes;
    char *sent, *received; /* `received` between AROUND bytes of poison */
    bool sends, receives;  /* it is part of the present group of that rank */
};

/* A warp of a kernel, at a unit of a message of its job. */
struct warp {
    const struct peer_job *job;
    uint32_t strand;
    int message;
    uint32_t unit;
    bool done;
};

struct rank_state {
    struct peer_world world;
    struct peer_messages plan;
    struct warp warps[WARPS];
    int count, left, next; /* warps, those that have not ended, the next message of the list */
};

static struct rank_state ranks[PEER_GPUS];
static struct message messages[MESSAGES];
static struct {
    uint64_t sent, received;
} contradiction;

static uint32_t *count_at(char *scratch, uint64_t at)
{
    return (uint32_t *)(void *)(scratch + at);
}

/* As though so many units had been sent and received in each strand. */
static void set_counts(int size, uint32_t units)
{
    for (int r = 0; r < size; r++)
        for (int p = 0; p < size; p++)
            for (uint32_t s = 0; s < PEER_STRANDS; s++) {
                uint32_t *sent = count_at(ranks[r].world.own, peer_sent_at(p, s));
                sent[0] = sent[1] = units;
                *count_at(ranks[r].world.own, peer_received_at(p, s)) = units;
            }
}

static void open_world(int size)
{
    for (int r = 0; r < size; r++) {
        ranks[r] = (struct rank_state){.world = {.rank = r, .size = size}};
        ranks[0].world.scratch[r] = calloc(1, PEER_SCRATCH_BYTES);
        assert_non_null(ranks[0].world.scratch[r]);
    }
    for (int r = 0; r < size; r++) {
        memcpy(ranks[r].world.scratch, ranks[0].world.scratch, sizeof ranks[r].world.scratch);
        ranks[r].world.own = ranks[r].world.scratch[r];
    }
}

static void close_world(int size)
{
    for (int r = 0; r < size; r++)
        free(ranks[0].world.scratch[r]);
}

static void make_message(struct message *m, int from, int to, size_t bytes)
{
    *m = (struct message){.from = from, .to = to, .bytes = bytes};
    m->sent = malloc(bytes + 1);
    m->received = malloc(bytes + 2 * AROUND);
    assert_non_null(m->sent);
    assert_non_null(m->received);
    uint64_t salt = draw(UINT64_MAX);
    for (size_t i = 0; i < bytes; i++)
        m->sent[i] = (char)(reference_random(salt, i / 8, 0) >> i % 8 * 8);
    memset(m->received, 0x5a, bytes + 2 * AROUND);
}

static void check_message(struct message *m)
{
    assert_memory_equal(m->received + AROUND, m->sent, m->bytes);
    for (size_t i = 0; i < AROUND; i++)
        assert_true(m->received[i] == 0x5a && m->received[m->bytes + AROUND + i] == 0x5a);
    free(m->sent);
    free(m->received);
}

/* ---- What a warp does ---- */

static char *line_at(const struct rank_state *me, int from, int to, uint32_t strand,
                     uint32_t number, uint32_t line)
{
    return me->world.scratch[to] + peer_ring_at(from, to, me->world.size, strand) +
           number % PEER_DEPTH * PEER_UNIT_BYTES + line % PEER_UNIT_LINES * 128;
}

static size_t part_of(uint64_t bytes, uint32_t line)
{
    uint32_t left = peer_bytes_from(bytes, line);
    return left < PEER_LINE_PAYLOAD ? left : PEER_LINE_PAYLOAD;
}

static void send_unit(const struct rank_state *me, const struct warp *w,
                      const struct peer_message *m, uint32_t number, uint32_t unit)
{
    for (uint32_t i = unit * PEER_UNIT_LINES; i < (unit + 1) * PEER_UNIT_LINES; i++) {
        char *to = line_at(me, me->world.rank, w->job->peer, w->strand, number, i);
        uint64_t flag = peer_line_flag(number, m->bytes, i);
        if (part_of(m->bytes, i))
            memcpy(to, m->at + (size_t)i * PEER_LINE_PAYLOAD, part_of(m->bytes, i));
        memcpy(to + PEER_LINE_PAYLOAD, &flag, sizeof flag);
    }
}

/* False: it is not there. */
static bool receive_unit(const struct rank_state *me, const struct warp *w,
                         const struct peer_message *m, uint32_t number, uint32_t unit)
{
    for (uint32_t i = unit * PEER_UNIT_LINES; i < (unit + 1) * PEER_UNIT_LINES; i++) {
        const char *from = line_at(me, w->job->peer, me->world.rank, w->strand, number, i);
        uint64_t flag, wanted = peer_line_flag(number, m->bytes, i);
        memcpy(&flag, from + PEER_LINE_PAYLOAD, sizeof flag);
        if (i >= peer_message_lines(m->bytes) || flag == wanted)
            continue;
        if (peer_flag_contradicts(flag, wanted) && contradiction.received == 0) {
            contradiction.sent = peer_flag_bytes(flag, i);
            contradiction.received = m->bytes + 1;
        }
        return false;
    }
    return true;
}

static void land_unit(const struct rank_state *me, const struct warp *w,
                      const struct peer_message *m, uint32_t number, uint32_t unit)
{
    for (uint32_t i = unit * PEER_UNIT_LINES; i < (unit + 1) * PEER_UNIT_LINES; i++)
        if (part_of(m->bytes, i))
            memcpy(m->at + (size_t)i * PEER_LINE_PAYLOAD,
                   line_at(me, w->job->peer, me->world.rank, w->strand, number, i),
                   part_of(m->bytes, i));
}

static uint32_t batch_of(const struct warp *w, const struct peer_message *m, uint32_t strands)
{
    uint32_t n = 0;
    while (n < BATCH && w->unit + n * strands < peer_message_units(m->bytes))
        n++;
    return n;
}

static bool send_batch(struct rank_state *me, const struct warp *w, const struct peer_message *m,
                       uint32_t strands, uint32_t n)
{
    uint32_t *counts = count_at(me->world.own, peer_sent_at(w->job->peer, w->strand));
    if (!peer_has_room(counts[0], counts[1], n))
        return false;
    for (uint32_t k = 0; k < n; k++)
        send_unit(me, w, m, counts[0] + k, w->unit + k * strands);
    counts[0] += n;
    return true;
}

static bool receive_batch(struct rank_state *me, const struct warp *w, const struct peer_message *m,
                          uint32_t strands, uint32_t n)
{
    uint32_t *count = count_at(me->world.own, peer_received_at(w->job->peer, w->strand));
    for (uint32_t k = 0; k < n; k++)
        if (!receive_unit(me, w, m, *count + k, w->unit + k * strands))
            return false;
    for (uint32_t k = 0; k < n; k++)
        land_unit(me, w, m, *count + k, w->unit + k * strands);
    *count += n;
    count_at(me->world.scratch[w->job->peer], peer_sent_at(me->world.rank, w->strand))[1] = *count;
    return true;
}

static void copy_own(const struct rank_state *me, const struct peer_job *job)
{
    const struct peer_message *from = &me->plan.messages[job->first];
    for (int i = 0; i < job->count; i++) {
        assert_int_equal(from[i].bytes, from[i + job->count].bytes);
        if (from[i].bytes)
            memcpy(from[i + job->count].at, from[i].at, from[i].bytes);
    }
}

/* One try; whether it got further. */
static bool step(struct rank_state *me, struct warp *w)
{
    const struct peer_job *job = w->job;
    while (!w->done && job->kind != PEER_JOB_OWN && w->message < job->count) {
        const struct peer_message *m = &me->plan.messages[job->first + w->message];
        uint32_t strands = peer_message_strands(m->bytes, me->plan.group.strands);
        uint32_t n = batch_of(w, m, strands);
        bool sends = job->kind == PEER_JOB_SEND;
        if (n > 0 && !(sends ? send_batch : receive_batch)(me, w, m, strands, n))
            return false;
        w->unit += n * strands;
        if (n > 0)
            return true;
        w->unit = w->strand;
        w->message++;
    }
    if (w->done)
        return false;
    if (job->kind == PEER_JOB_OWN && w->strand == 0)
        copy_own(me, job);
    w->done = true;
    me->left--;
    return true;
}

/* ---- Groups ---- */

static void make_warps(struct rank_state *me)
{
    const struct peer_group *group = &me->plan.group;
    me->count = 0;
    for (int j = 0; j < group->jobs; j++)
        for (uint32_t s = 0; s < group->job[j].warps; s++)
            me->warps[me->count++] = (struct warp){.job = &group->job[j], .strand = s, .unit = s};
    me->left = me->count;
}

/* A group of the next messages of the list, in an order of this rank's, but in the list's for each
 * pair. */
static void launch(struct rank_state *me, int blocks)
{
    struct exchange list[2 * MESSAGES];
    struct peer_grid grid;
    int count = 0, end = me->next + 1 + (int)draw(12), rank = me->world.rank;
    for (int pass = 0; pass < 2; pass++)
        for (int i = me->next; i < end && i < MESSAGES; i++) {
            struct message *m = &messages[i];
            bool first = (m->from + m->to + rank) % 2 == 0;
            struct span sent = {BUFFER_SEND, (size_t)(uintptr_t)m->sent, m->bytes};
            struct span got = {BUFFER_RECV, (size_t)(uintptr_t)(m->received + AROUND), m->bytes};
            if (m->from == rank && first == (pass == 0))
                list[count++] = (struct exchange){.to = m->to, .from = -1, .send = sent};
            if (m->to == rank && first == (pass == 1))
                list[count++] = (struct exchange){.to = -1, .from = m->from, .recv = got};
        }
    me->next = end < MESSAGES ? end : MESSAGES;
    if (count == 0)
        return;
    me->plan.group.base = (struct peer_arguments){.world = me->world};
    assert_int_equal(peer_messages_plan(&me->plan, &grid, list, count, blocks), 0);
    assert_in_range(grid.blocks, 1, PEER_GRID_BLOCKS);
    make_warps(me);
}

/* Most warps try, beginning anywhere; whether one got further. */
static bool try_all(struct rank_state *me)
{
    bool moved = false;
    int begin = me->count ? (int)draw((uint64_t)me->count) : 0;
    for (int i = 0; i < me->count; i++)
        if (draw(4))
            moved |= step(me, &me->warps[(begin + i) % me->count]);
    return moved;
}

static void run_list(int size, int blocks)
{
    int idle = 0;
    for (int r = 0; r < size; r++)
        ranks[r].next = ranks[r].count = ranks[r].left = 0;
    for (;;) {
        bool over = true;
        struct rank_state *me = &ranks[draw((uint64_t)size)];
        idle = try_all(me) ? 0 : idle + 1;
        while (me->left == 0 && me->next < MESSAGES)
            launch(me, blocks);
        for (int r = 0; r < size; r++)
            over &= ranks[r].left == 0 && ranks[r].next == MESSAGES;
        if (over)
            return;
        assert_true(idle < 10000); /* else all wait for each other */
    }
}

static size_t draw_bytes(void)
{
    static const size_t limits[] = {1, 130, 500, 5000, 70000, 300000};
    return draw(limits[draw(sizeof limits / sizeof *limits)]);
}

static void test_groups(void **state)
{
    (void)state;
    for (int size = 2; size <= PEER_GPUS; size++) {
        open_world(size);
        set_counts(size, UINT32_MAX - 3 * PEER_DEPTH); /* they soon wrap around */
        for (int turn = 0; turn < 6; turn++) {
            for (int i = 0; i < MESSAGES; i++)
                make_message(&messages[i], (int)draw((uint64_t)size), (int)draw((uint64_t)size),
                             draw_bytes());
            run_list(size, turn % 3); /* the default, and few strands, whose rings are short */
            for (int i = 0; i < MESSAGES; i++)
                check_message(&messages[i]);
        }
        close_world(size);
    }
}

/* ---- Lengths that differ ---- */

static void launch_one(struct rank_state *me, struct exchange x)
{
    struct peer_grid grid;
    me->plan.group.base = (struct peer_arguments){.world = me->world};
    assert_int_equal(peer_messages_plan(&me->plan, &grid, &x, 1, 1), 0);
    make_warps(me);
}

/* Both go on until the receiver sees it, whichever unit that is in. */
static void send_wrong(size_t sent, size_t received)
{
    struct message a, b;
    open_world(2);
    make_message(&a, 0, 1, sent);
    make_message(&b, 0, 1, received);
    launch_one(&ranks[0], (struct exchange){
                              .to = 1, .from = -1, .send = {BUFFER_SEND, (uintptr_t)a.sent, sent}});
    launch_one(&ranks[1],
               (struct exchange){.to = -1,
                                 .from = 0,
                                 .recv = {BUFFER_RECV, (uintptr_t)b.received + AROUND, received}});
    contradiction.received = 0;
    for (int i = 0; i < 100000 && contradiction.received == 0; i++)
        for (int r = 0; r < 2; r++)
            if (ranks[r].left)
                step(&ranks[r], &ranks[r].warps[draw((uint64_t)ranks[r].count)]);
    assert_int_equal(contradiction.received, received + 1);
    assert_int_equal(contradiction.sent, sent);
    close_world(2);
    free(a.sent);
    free(a.received);
    free(b.sent);
    free(b.received);
}

static void test_lengths(void **state)
{
    (void)state;
    send_wrong(0, 1);
    send_wrong(1, 0);
    send_wrong(119, 120);
    send_wrong(480, 481);
    send_wrong(200000, 199999);
    for (int i = 0; i < 100; i++) {
        size_t sent = draw_bytes(), received = draw_bytes();
        if (sent != received)
            send_wrong(sent, received);
    }
}

/* Of more bytes than a flag holds: the last lines differ. */
static void test_long(void **state)
{
    (void)state;
    const uint64_t bytes = (uint64_t)5 << 32;
    for (uint64_t less = 1; less < (uint64_t)1 << 33; less = 3 * less + 1) {
        uint32_t last = peer_message_lines(bytes - less) - 1;
        assert_true(peer_flag_contradicts(peer_line_flag(7, bytes, last),
                                          peer_line_flag(7, bytes - less, last)));
    }
    assert_false(peer_flag_contradicts(peer_line_flag(7, 5, 0), peer_line_flag(7, 5, 0)));
    assert_false(
        peer_flag_contradicts(peer_line_flag(7, 5, 0), peer_line_flag(7 + PEER_DEPTH, 6, 0)));
}

/* ---- Plans ---- */

/* Every rank sends much to every other and to itself, and receives it. */
static int make_mesh(struct exchange *list, int size, size_t bytes, int times)
{
    int count = 0;
    for (int r = 0; r < times * size; r++) {
        size_t at = (size_t)count;
        list[count++] =
            (struct exchange){.to = r % size, .from = -1, .send = {BUFFER_SEND, at, bytes}};
        list[count++] =
            (struct exchange){.to = -1, .from = r % size, .recv = {BUFFER_RECV, at + 1, bytes}};
    }
    return count;
}

static void check_jobs(const struct peer_messages *x, const struct peer_grid *grid, int count)
{
    int block = 0, listed = 0;
    for (int j = 0; j < x->group.jobs; j++) {
        const struct peer_job *job = &x->group.job[j];
        int copies = job->kind == PEER_JOB_OWN ? 2 : 1;
        assert_int_equal(job->block, block);
        assert_true(job->warps >= 1);
        assert_true((int)job->warps <= (job->end - job->block) * grid->threads / 32);
        assert_int_equal(job->first, listed);
        assert_true(job->kind == PEER_JOB_OWN ||
                    job->warps <= peer_strands_most(x->group.base.world.size));
        for (int i = 1; i < job->count; i++)
            assert_true(x->messages[job->first + i].at > x->messages[job->first + i - 1].at);
        listed += copies * job->count;
        block = job->end;
    }
    assert_int_equal(listed, count);
    assert_int_equal(block, grid->blocks);
    assert_true(grid->blocks <= PEER_GRID_BLOCKS);
    assert_true(grid->threads <= 32 * PEER_BLOCK_WARPS && grid->threads % 32 == 0);
}

static void test_plans(void **state)
{
    (void)state;
    static struct exchange list[PEER_MESSAGES_MOST + 2];
    struct peer_messages *x = malloc(sizeof *x);
    struct peer_grid grid;
    assert_non_null(x);
    for (int size = 2; size <= PEER_GPUS; size++)
        for (size_t bytes = 0; bytes <= (size_t)1 << 33; bytes = 3 * bytes + 1)
            for (int times = 1; times < 3; times++) {
                struct peer_world world = {.rank = (int)draw((uint64_t)size), .size = size};
                int count = make_mesh(list, size, bytes, times);
                x->group.base = (struct peer_arguments){.world = world};
                assert_int_equal(peer_messages_plan(x, &grid, list, count, 0), 0);
                check_jobs(x, &grid, count);
                assert_int_equal(x->group.jobs, 2 * size - 1);
            }
    struct peer_world two = {.rank = 0, .size = 2};
    for (int i = 0; i < PEER_MESSAGES_MOST + 1; i++)
        list[i] = (struct exchange){.to = 1, .from = -1, .send = {BUFFER_SEND, (size_t)i, 1}};
    x->group.base = (struct peer_arguments){.world = two};
    assert_int_equal(peer_messages_plan(x, &grid, list, PEER_MESSAGES_MOST, 0), 0);
    assert_int_equal(x->group.base.kernel, PEER_CUDA_MESSAGES_MANY);
    assert_int_equal(peer_messages_plan(x, &grid, list, PEER_MESSAGES_FEW, 0), 0);
    assert_int_equal(x->group.base.kernel, PEER_CUDA_MESSAGES_FEW);
    assert_int_equal(peer_messages_plan(x, &grid, list, PEER_MESSAGES_MOST + 1, 0), 1);
    free(x);
}

/* No grid has more blocks than the communicator's limit, and both sides of a channel the same strands. */
static void test_limited_plans(void **state)
{
    (void)state;
    static struct exchange list[PEER_MESSAGES_MOST];
    struct peer_messages *x = malloc(sizeof *x);
    struct peer_grid grid;
    assert_non_null(x);
    for (int size = 2; size <= PEER_GPUS; size++)
        for (int most = peer_messages_blocks_least(size); most <= PEER_GRID_BLOCKS + 1; most++) {
            struct peer_world world = {.size = size, .most_blocks = most};
            uint32_t strands = 0;
            int count = make_mesh(list, size, (size_t)1 << 30, 1);
            for (world.rank = 0; world.rank < size; world.rank++) {
                x->group.base = (struct peer_arguments){.world = world};
                assert_int_equal(peer_messages_plan(x, &grid, list, count, 0), 0);
                check_jobs(x, &grid, count);
                assert_true(grid.blocks <= most && x->group.strands > 0);
                assert_true(world.rank == 0 || x->group.strands == strands);
                strands = x->group.strands;
            }
        }
    free(x);
}

/* Channels and counts lie apart, and in their part of the scratch. */
static void test_places(void **state)
{
    (void)state;
    assert_true(peer_sent_at(PEER_GPUS - 1, PEER_STRANDS) <= PEER_AT_RECEIVED);
    assert_true(peer_received_at(PEER_GPUS - 1, PEER_STRANDS) <= PEER_AT_RINGS);
    for (int size = 2; size <= PEER_GPUS; size++) {
        uint32_t strands = peer_strands_most(size);
        uint64_t end = PEER_AT_RINGS;
        for (int from = 0; from < size; from++) {
            if (from == 1)
                continue;
            assert_int_equal(peer_ring_at(from, 1, size, 0), end);
            end = peer_ring_at(from, 1, size, strands);
        }
        assert_true(end <= PEER_SCRATCH_BYTES);
    }
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_places),        cmocka_unit_test(test_plans),
        cmocka_unit_test(test_limited_plans), cmocka_unit_test(test_long),
        cmocka_unit_test(test_groups),        cmocka_unit_test(test_lengths),
    };
    seed = argc > 1 ? strtoull(argv[1], NULL, 10) : (uint64_t)time(NULL);
    printf("seed %llu\n", (unsigned long long)seed);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
