/* The machine of symbolic.h: ranks post whole rounds, a message moves when both its sides are
 * posted. */
#include "tests/unit/algorithms/symbolic.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { OPEN_MOST = 64, WORDS = 3 /* up to 192 ranks */ };

struct open {
    struct exchange x;
    bool sending, receiving, combines;
    uint64_t *arrival; /* where a message for a reduction goes */
};

struct pointer_cache {
    uint64_t word[WORDS];
};

struct symbolic_state {
    int round, count;
    bool posted;
    struct open open[OPEN_MOST];
    uint64_t *arrivals;
    size_t room;
    struct pointer_cache known, told; /* ranks heard of; what the messages of this round say */
};

struct machine {
    const struct algorithm *algorithm;
    struct symbolic_rank *ranks;
    int size;
    jmp_buf broken;
};

static char complaint[160];

uint64_t symbolic_token(int rank, int b, size_t e)
{
    uint64_t x = ((uint64_t)rank << 20 ^ (uint64_t)b) << 32 ^ e;
    x += 0x9e3779b97f4a7c15u;
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
    x = (x ^ x >> 27) * 0x94d049bb133111ebu;
    return x ^ x >> 31;
}

/* Gives up if a rank breaks a rule. */
static void expect(struct machine *m, int rank, bool good, const char *rule)
{
    if (good)
        return;
    snprintf(complaint, sizeof complaint, "rank %d, round %d: %s", rank,
             m->ranks[rank].state->round, rule);
    longjmp(m->broken, 1);
}

/* ---- Spans ---- */

static uint64_t *start(const struct symbolic_rank *r, struct span span)
{
    return r->buffer[span.in] + span.at;
}

static bool overlap(const struct symbolic_rank *r, struct span a, struct span b)
{
    const uint64_t *first = start(r, a), *second = start(r, b);
    return a.len && b.len && first < second + b.len && second < first + a.len;
}

static bool same(const struct symbolic_rank *r, struct span a, struct span b)
{
    return start(r, a) == start(r, b) && a.len == b.len;
}

static bool inside(const struct symbolic_rank *r, struct span span)
{
    size_t room = r->elements[span.in];
    return span.len == 0 || (span.at <= room && span.len <= room - span.at);
}

static void check_read(struct machine *m, int rank, struct span span)
{
    const struct symbolic_rank *r = &m->ranks[rank];
    const uint64_t *from = start(r, span);
    bool nothing = false, foreign = false;
    for (size_t i = 0; i < span.len; i++) {
        nothing |= from[i] == SYMBOLIC_NOTHING;
        foreign |= from[i] == SYMBOLIC_FOREIGN;
    }
    expect(m, rank, !nothing, "reads what is not there yet");
    expect(m, rank, !foreign, "reads what is not the operation's");
}

static void check_write(struct machine *m, int rank, struct span span)
{
    const struct symbolic_rank *r = &m->ranks[rank];
    const uint64_t *to = start(r, span);
    bool foreign = false;
    for (size_t i = 0; i < span.len; i++)
        foreign |= to[i] == SYMBOLIC_FOREIGN;
    expect(m, rank, span.in != BUFFER_SEND, "writes SEND");
    expect(m, rank, span.in != BUFFER_RECV || !r->keeps_recv, "writes a RECV that is kept");
    expect(m, rank, !foreign, "writes what is not the operation's");
}

/* ---- Posting a round ---- */

static bool is_local(const struct exchange *x, int rank)
{
    return x->to == rank && x->from == rank;
}

static void check_exchange(struct machine *m, int rank, const struct exchange *x)
{
    const struct symbolic_rank *r = &m->ranks[rank];
    bool local = is_local(x, rank);
    expect(m, rank, x->to < m->size && x->from < m->size, "names a rank that there is not");
    expect(m, rank, x->to >= 0 || x->from >= 0, "exchanges with nobody");
    expect(m, rank, local || (x->to != rank && x->from != rank), "sends to itself");
    expect(m, rank, !local || x->send.len == x->recv.len, "copies unequal lengths");
    if (x->to >= 0) {
        expect(m, rank, inside(r, x->send), "sends from outside its buffer");
        check_read(m, rank, x->send);
    }
    if (x->from < 0)
        return;
    expect(m, rank, inside(r, x->recv), "receives outside its buffer");
    if (local && !x->reduce && same(r, x->send, x->recv))
        return;
    check_write(m, rank, x->recv);
    if (x->reduce)
        check_read(m, rank, x->recv);
    expect(m, rank, x->to < 0 || (x->reduce && !local) || !overlap(r, x->send, x->recv),
           "overwrites what it sends");
}

/* A copy onto itself writes nothing. */
static bool writes(const struct symbolic_rank *r, const struct exchange *x)
{
    bool still = is_local(x, r->shape.rank) && !x->reduce && same(r, x->send, x->recv);
    return x->from >= 0 && !still;
}

static void check_independent(struct machine *m, int rank, const struct exchange *a,
                              const struct exchange *b)
{
    const struct symbolic_rank *r = &m->ranks[rank];
    bool clash = writes(r, a) && b->to >= 0 && overlap(r, a->recv, b->send);
    clash |= writes(r, b) && a->to >= 0 && overlap(r, b->recv, a->send);
    clash |= writes(r, a) && writes(r, b) && overlap(r, a->recv, b->recv);
    expect(m, rank, !clash, "exchanges of one round depend on each other");
}

static void combine(uint64_t *into, const uint64_t *what, size_t count, bool add)
{
    for (size_t i = 0; i < count; i++)
        into[i] = add ? into[i] + what[i] : what[i];
}

static void take_room(struct machine *m, int rank, struct open *open, size_t *used)
{
    struct symbolic_state *s = m->ranks[rank].state;
    open->arrival = s->arrivals + *used;
    *used += open->x.recv.len;
    expect(m, rank, *used <= s->room, "more arrives than is announced");
}

static void post(struct machine *m, int rank)
{
    struct symbolic_rank *r = &m->ranks[rank];
    struct symbolic_state *s = r->state;
    int most = r->shape.messages ? OPEN_MOST : EXCHANGES;
    size_t used = 0;
    struct exchange x;
    s->count = 0;
    for (int k = 0; m->algorithm->round(&r->shape, s->round, k, &x); k++) {
        expect(m, rank, k < most, "too many exchanges in one round");
        check_exchange(m, rank, &x);
        for (int other = 0; other < k; other++)
            check_independent(m, rank, &s->open[other].x, &x);
        bool local = is_local(&x, rank);
        struct open *open = &s->open[s->count++];
        *open = (struct open){.x = x,
                              .sending = !local && x.to >= 0 && x.send.len,
                              .receiving = !local && x.from >= 0 && x.recv.len};
        open->combines = open->receiving && x.reduce;
        if (open->combines)
            take_room(m, rank, open, &used);
    }
    for (int k = 0; k < s->count; k++)
        if (is_local(&s->open[k].x, rank) && writes(r, &s->open[k].x))
            combine(start(r, s->open[k].x.recv), start(r, s->open[k].x.send), s->open[k].x.recv.len,
                    s->open[k].x.reduce);
    s->told = s->known;
    s->posted = true;
}

/* ---- Messages ---- */

/* The first message between two ranks that one of them still sends, or awaits. */
static struct open *first_open(struct machine *m, int rank, int other, bool sends)
{
    struct symbolic_state *s = m->ranks[rank].state;
    for (int k = 0; s->posted && k < s->count; k++) {
        struct open *open = &s->open[k];
        if (sends ? open->sending && open->x.to == other : open->receiving && open->x.from == other)
            return open;
    }
    return NULL;
}

static bool deliver(struct machine *m, int from, int to)
{
    struct open *sent = first_open(m, from, to, true), *got = first_open(m, to, from, false);
    if (!sent || !got)
        return false;
    struct symbolic_rank *a = &m->ranks[from], *b = &m->ranks[to];
    expect(m, to, sent->x.send.len == got->x.recv.len, "a message of another length");
    uint64_t *target = got->combines ? got->arrival : start(b, got->x.recv);
    combine(target, start(a, sent->x.send), got->x.recv.len, false);
    for (int w = 0; w < WORDS; w++)
        b->state->known.word[w] |= a->state->told.word[w];
    sent->sending = got->receiving = false;
    return true;
}

static bool receive_all(struct machine *m, int rank)
{
    struct symbolic_state *s = m->ranks[rank].state;
    bool moved = false;
    for (int k = 0; k < s->count; k++)
        if (s->open[k].receiving)
            moved |= deliver(m, s->open[k].x.from, rank);
    return moved;
}

/* The round is over when all its messages have moved. */
static bool end_round(struct machine *m, int rank)
{
    struct symbolic_rank *r = &m->ranks[rank];
    struct symbolic_state *s = r->state;
    for (int k = 0; k < s->count; k++)
        if (s->open[k].sending || s->open[k].receiving)
            return false;
    for (int k = 0; k < s->count; k++)
        if (s->open[k].combines)
            combine(start(r, s->open[k].x.recv), s->open[k].arrival, s->open[k].x.recv.len, true);
    s->posted = false;
    s->round++;
    return true;
}

static bool step(struct machine *m, int rank)
{
    struct symbolic_state *s = m->ranks[rank].state;
    if (s->round == m->algorithm->rounds(&m->ranks[rank].shape))
        return false;
    bool moved = !s->posted;
    if (!s->posted)
        post(m, rank);
    moved |= receive_all(m, rank);
    return end_round(m, rank) || moved;
}

/* ---- The whole ---- */

static void *make(size_t count, size_t bytes)
{
    void *memory = calloc(count + 1, bytes);
    assert_non_null(memory);
    return memory;
}

static void begin(struct machine *m, bool barrier)
{
    for (int rank = 0; rank < m->size; rank++) {
        struct symbolic_rank *r = &m->ranks[rank];
        const struct algorithm *a = m->algorithm;
        struct symbolic_state *s = r->state = make(1, sizeof *s);
        s->room = a->arrivals ? a->arrivals(&r->shape) : r->shape.count;
        s->arrivals = make(s->room, sizeof *s->arrivals);
        s->known.word[rank / 64] = (uint64_t)1 << rank % 64;
        r->elements[BUFFER_WORK] = a->work ? a->work(&r->shape) : 0;
        r->buffer[BUFFER_WORK] = make(r->elements[BUFFER_WORK], sizeof(uint64_t));
        for (size_t i = 0; barrier && i < r->elements[BUFFER_WORK]; i++)
            r->buffer[BUFFER_WORK][i] = symbolic_token(rank, 0, i); /* whatever it says */
    }
}

static void finish(struct machine *m)
{
    for (int rank = 0; rank < m->size; rank++) {
        struct symbolic_rank *r = &m->ranks[rank];
        free(r->state->arrivals);
        free(r->state);
        free(r->buffer[BUFFER_WORK]);
    }
}

static void check_end(struct machine *m, bool barrier)
{
    for (int rank = 0; rank < m->size; rank++) {
        struct symbolic_rank *r = &m->ranks[rank];
        struct symbolic_state *s = r->state;
        expect(m, rank, s->round == m->algorithm->rounds(&r->shape), "waits for ever");
        for (int other = 0; barrier && other < m->size; other++)
            expect(m, rank, s->known.word[other / 64] >> other % 64 & 1, "has not heard of all");
    }
}

static void run(struct machine *m)
{
    for (bool moved = true; moved;) {
        moved = false;
        for (int rank = 0; rank < m->size; rank++)
            while (step(m, rank))
                moved = true;
    }
}

const char *symbolic_run(const struct algorithm *algorithm, struct symbolic_rank *ranks, int size,
                         bool barrier)
{
    struct machine m = {.algorithm = algorithm, .ranks = ranks, .size = size};
    assert_true(size <= 64 * WORDS);
    begin(&m, barrier);
    complaint[0] = '\0';
    if (setjmp(m.broken) == 0) {
        run(&m);
        check_end(&m, barrier);
    }
    finish(&m);
    return complaint[0] ? complaint : NULL;
}
