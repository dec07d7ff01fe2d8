/* Every algorithm of every collective, for many rank counts, roots, lengths, strides and layouts of
 * blocks, in place and not: right, and within the rules of algorithm.h. */
#include "tests/unit/algorithms/symbolic.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* What a rank has on one side: the table in algorithm.h. INPUT: a vector that begins as the
 * input. */
enum side { NONE, OWN, ALL, VECTOR, INPUT };

/* Whose number tells the length of a block of a vector form. */
enum key { EQUAL, SENDER, RECEIVER, BOTH };

enum { ROOTED = 1, REDUCES = 2, SEND_AT_ROOT = 4, RECV_AT_ROOT = 8 };

struct form {
    const char *name;
    const struct algorithm *const *list;
    enum side send, recv;
    enum key key;
    int flags;
};

static const struct form forms[] = {
    {"allreduce", algorithms_allreduce, NONE, INPUT, EQUAL, REDUCES},
    {"reduce", algorithms_reduce, VECTOR, VECTOR, EQUAL, ROOTED | REDUCES | RECV_AT_ROOT},
    {"broadcast", algorithms_broadcast, NONE, INPUT, EQUAL, ROOTED},
    {"allgather", algorithms_allgather, OWN, ALL, EQUAL, 0},
    {"allgatherv", algorithms_allgatherv, OWN, ALL, SENDER, 0},
    {"gather", algorithms_gather, OWN, ALL, EQUAL, ROOTED | RECV_AT_ROOT},
    {"gatherv", algorithms_gatherv, OWN, ALL, SENDER, ROOTED | RECV_AT_ROOT},
    {"scatter", algorithms_scatter, ALL, OWN, EQUAL, ROOTED | SEND_AT_ROOT},
    {"scatterv", algorithms_scatterv, ALL, OWN, RECEIVER, ROOTED | SEND_AT_ROOT},
    {"reduce_scatter", algorithms_reduce_scatter, ALL, OWN, EQUAL, REDUCES},
    {"reduce_scatterv", algorithms_reduce_scatterv, ALL, OWN, RECEIVER, REDUCES},
    {"alltoall", algorithms_alltoall, ALL, ALL, EQUAL, 0},
    {"alltoallv", algorithms_alltoallv, ALL, ALL, BOTH, 0},
    {"barrier", algorithms_barrier, NONE, NONE, EQUAL, 0},
};
enum { FORMS = sizeof forms / sizeof *forms };

struct plan {
    const struct form *form;
    const struct algorithm *algorithm;
    int size, root;
    size_t count, gap; /* of equal blocks; the most elements of the others */
    int lengths;       /* 0: random; 1: only one block has any */
    bool backwards;    /* the blocks of a vector form lie in falling order, with gaps */
    bool in_place;
    const struct host_map *map;
};

/* The blocks of one side of one rank. */
struct layout {
    size_t *counts, *at; /* of the blocks */
    size_t elements;
    uint64_t *memory; /* NULL: the rank does not have this side, or has it in the other */
};

struct place {
    struct layout send, recv;
};

/* ---- Lengths and layouts ---- */

static bool is_vector(const struct plan *plan)
{
    return plan->form->key != EQUAL;
}

static size_t length(const struct plan *plan, int from, int to)
{
    enum key key = plan->form->key;
    int a = key == RECEIVER ? 0 : from, b = key == SENDER ? 0 : to;
    if (key == EQUAL)
        return plan->count;
    if (plan->lengths == 1)
        return a + b == plan->size / 2 ? plan->count : 0;
    return symbolic_token(a, b, 77) % (plan->count + 1);
}

static bool has_side(const struct plan *plan, int rank, bool sends)
{
    const struct form *form = plan->form;
    bool at_root = form->flags & (sends ? SEND_AT_ROOT : RECV_AT_ROOT);
    return (sends ? form->send : form->recv) != NONE && (!at_root || rank == plan->root);
}

static int blocks_of(const struct plan *plan, bool sends)
{
    return (sends ? plan->form->send : plan->form->recv) == ALL ? plan->size : 1;
}

static void lay_out(const struct plan *plan, int rank, bool sends, struct layout *out)
{
    int blocks = blocks_of(plan, sends);
    size_t next = 0, gap = is_vector(plan) ? plan->backwards : plan->gap;
    *out = (struct layout){.counts = calloc((size_t)blocks, sizeof(size_t)),
                           .at = calloc((size_t)blocks, sizeof(size_t))};
    assert_true(out->counts && out->at);
    for (int i = 0; i < blocks && has_side(plan, rank, sends); i++) {
        int b = plan->backwards ? blocks - 1 - i : i, other = blocks == 1 ? rank : b;
        out->counts[b] = sends ? length(plan, rank, other) : length(plan, other, rank);
        out->at[b] = next;
        out->elements = next + out->counts[b];
        next = out->elements + gap;
    }
}

/* ---- Contents ---- */

static void fill(const struct plan *plan, int rank, bool sends, struct layout *layout)
{
    enum side side = sends ? plan->form->send : plan->form->recv;
    bool tokens = sends || (side == INPUT && (!(plan->form->flags & ROOTED) || rank == plan->root));
    layout->memory = malloc((layout->elements + 1) * sizeof(uint64_t));
    assert_non_null(layout->memory);
    for (size_t i = 0; i < layout->elements; i++)
        layout->memory[i] = SYMBOLIC_FOREIGN;
    for (int b = 0; b < blocks_of(plan, sends); b++)
        for (size_t e = 0; e < layout->counts[b]; e++)
            layout->memory[layout->at[b] + e] =
                tokens ? symbolic_token(rank, b, e) : SYMBOLIC_NOTHING;
}

/* Element e of block b that a rank is to receive. */
static uint64_t expected(const struct plan *plan, int rank, int b, size_t e)
{
    const struct form *form = plan->form;
    int which = form->send == ALL ? rank : 0; /* of the sender's blocks */
    uint64_t sum = 0;
    if (!(form->flags & REDUCES))
        return symbolic_token(form->recv == ALL ? b : plan->root, which, e);
    for (int r = 0; r < plan->size; r++)
        sum += symbolic_token(r, which, e);
    return sum;
}

/* How many elements are not as they must be. */
static size_t count_wrong(const struct plan *plan, int rank, const struct layout *layout,
                          const uint64_t *recv)
{
    size_t wrong = 0;
    for (int b = 0; b < blocks_of(plan, false); b++)
        for (size_t e = 0; e < layout->counts[b]; e++)
            wrong += recv[layout->at[b] + e] != expected(plan, rank, b, e);
    return wrong;
}

/* ---- One case ---- */

static struct shape shape_of(const struct plan *plan, int rank, const struct place *place)
{
    struct shape shape = {.rank = rank,
                          .size = plan->size,
                          .root = plan->root,
                          .map = plan->map,
                          .count = plan->form->send == NONE && plan->form->recv == NONE
                                       ? 1
                                       : length(plan, rank, rank),
                          .stride = plan->count + plan->gap};
    if (is_vector(plan) && plan->form->send == ALL && has_side(plan, rank, true)) {
        shape.send_counts = place->send.counts;
        shape.send_at = place->send.at;
    }
    if (is_vector(plan) && plan->form->recv == ALL && has_side(plan, rank, false)) {
        shape.recv_counts = place->recv.counts;
        shape.recv_at = place->recv.at;
    }
    return shape;
}

/* The larger side holds the smaller one, where the own block is; of a reduce each is the whole
 * vector. */
static void put_in_place(const struct plan *plan, int rank, struct place *place, uint64_t **send,
                         uint64_t **recv)
{
    if (plan->form->recv == OWN) {
        *recv = *send + place->send.at[rank];
        return;
    }
    size_t at = plan->form->recv == ALL ? place->recv.at[rank] : 0;
    memcpy(*recv + at, *send, place->send.elements * sizeof **send);
    *send = *recv + at;
}

static void begin_rank(const struct plan *plan, int rank, struct place *place,
                       struct symbolic_rank *out)
{
    lay_out(plan, rank, true, &place->send);
    lay_out(plan, rank, false, &place->recv);
    fill(plan, rank, true, &place->send);
    fill(plan, rank, false, &place->recv);
    uint64_t *send = place->send.memory, *recv = place->recv.memory;
    if (plan->in_place && has_side(plan, rank, true) && has_side(plan, rank, false))
        put_in_place(plan, rank, place, &send, &recv);
    *out = (struct symbolic_rank){.shape = shape_of(plan, rank, place),
                                  .buffer = {send, recv, NULL},
                                  .elements = {place->send.elements, place->recv.elements, 0},
                                  .keeps_recv = plan->form->list == algorithms_broadcast &&
                                                rank == plan->root};
}

static void give_back(struct layout *layout)
{
    free(layout->counts);
    free(layout->at);
    free(layout->memory);
}

/* Returns how many elements are wrong. */
static size_t end_rank(const struct plan *plan, int rank, struct place *place,
                       const struct symbolic_rank *ran)
{
    const uint64_t *recv = ran->buffer[BUFFER_RECV];
    size_t wrong = has_side(plan, rank, false) ? count_wrong(plan, rank, &place->recv, recv) : 0;
    give_back(&place->send);
    give_back(&place->recv);
    return wrong;
}

/* Returns what is wrong, or NULL. */
static const char *run(const struct plan *plan)
{
    size_t size = (size_t)plan->size, wrong = 0;
    struct place *places = calloc(size, sizeof *places);
    struct symbolic_rank *ranks = calloc(size, sizeof *ranks);
    assert_true(places && ranks);
    for (int rank = 0; rank < plan->size; rank++)
        begin_rank(plan, rank, &places[rank], &ranks[rank]);
    const char *complaint =
        symbolic_run(plan->algorithm, ranks, plan->size, plan->form->list == algorithms_barrier);
    for (int rank = 0; rank < plan->size; rank++)
        wrong += end_rank(plan, rank, &places[rank], &ranks[rank]);
    free(places);
    free(ranks);
    return complaint ? complaint : wrong ? "wrong elements" : NULL;
}

static void prove(const struct plan *plan)
{
    const char *complaint = run(plan);
    if (complaint)
        fail_msg("%s %s, %d ranks, %d hosts of at least %d, root %d, %zu elements, gap %zu, "
                 "lengths %d%s%s: %s",
                 plan->form->name, plan->algorithm->name, plan->size,
                 plan->map ? plan->map->hosts : 1, plan->map ? plan->map->fewest : plan->size,
                 plan->root, plan->count, plan->gap, plan->lengths,
                 plan->backwards ? ", backwards" : "", plan->in_place ? ", in place" : "",
                 complaint);
}

/* ---- All cases ---- */

static bool can_be_in_place(const struct form *form)
{
    return form->send != NONE && !(form->send == ALL && form->recv == ALL);
}

static void prove_ways(struct plan plan)
{
    bool vector = is_vector(&plan), cut = !vector && !plan.algorithm->whole;
    for (int in_place = 0; in_place <= can_be_in_place(plan.form); in_place++) {
        plan.in_place = in_place;
        for (int way = 0; way < (vector ? 4 : cut ? 2 : 1); way++) {
            plan.lengths = vector ? way / 2 : 0;
            plan.backwards = vector && way % 2;
            plan.gap = vector ? 0 : 3 * (size_t)way;
            prove(&plan);
        }
    }
}

static void prove_roots(struct plan plan)
{
    int last = plan.form->flags & ROOTED ? plan.size - 1 : 0;
    for (int root = 0; root <= last; root++) {
        plan.root = root;
        if (plan.size <= 9 || root <= 1 || root == plan.size / 2 || root == last)
            prove_ways(plan);
    }
}

static void prove_counts(struct plan plan)
{
    size_t p = (size_t)plan.size, counts[] = {0, 1, 2, p - 1, p, p + 1, 1000};
    bool blocks = plan.form->send == ALL || plan.form->recv == ALL;
    size_t most = blocks ? 100000 / (p * p) : 40000 / p;
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
        plan.count = counts[i];
        if (counts[i] <= 2 || counts[i] <= most)
            prove_roots(plan);
    }
}

static void test_every_algorithm_is_right(void **state)
{
    (void)state;
    static const int more[] = {64, 65, 127, 130};
    for (int f = 0; f < FORMS; f++)
        for (int i = 0; forms[f].list[i]; i++) {
            struct plan plan = {.form = &forms[f], .algorithm = forms[f].list[i]};
            for (plan.size = 1; plan.size <= 40; plan.size++)
                prove_counts(plan);
            for (size_t m = 0; m < sizeof more / sizeof *more; m++) {
                plan.size = more[m];
                prove_counts(plan);
            }
        }
}

/* Ranks on hosts of `base` ranks and some of `more` above that: host by host, in turns, or anyhow. */
enum order { BLOCKS, TURNS, ANYHOW, ORDERS };

static struct host_map *make_map(int hosts, int base, int more, enum order order)
{
    int left[8], size = 0, made = 0;
    uint64_t identities[64];
    for (int h = 0; h < hosts; h++)
        size += left[h] = base + (h % 2 ? more : 0);
    for (int turn = 0; made < size; turn++) {
        uint64_t draw = order == ANYHOW ? symbolic_token(turn, 0, 5) : (uint64_t)turn;
        int host = (int)(draw % (uint64_t)hosts);
        for (int taken = 0; left[host] && (order == BLOCKS || taken == 0); taken++) {
            identities[made++] = (uint64_t)(100 - host);
            left[host]--;
        }
    }
    struct host_map *map = host_map_create(identities, size);
    assert_non_null(map);
    assert_int_equal(map->hosts, hosts);
    assert_int_equal(map->fewest, hosts > 1 && more < 0 ? base + more : base);
    assert_int_equal(map->most, hosts > 1 && more > 0 ? base + more : base);
    assert_true(map->ordered || (order != BLOCKS && hosts > 1));
    return map;
}

static void prove_map(struct plan plan)
{
    size_t p = (size_t)plan.size, counts[] = {0, 1, p - 1, 2 * p + 1};
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
        plan.count = counts[i];
        prove_roots(plan);
    }
}

/* Whether an algorithm asks where ranks are. */
static bool is_hierarchical(const struct algorithm *algorithm)
{
    return strncmp(algorithm->name, "hierarchical", 12) == 0;
}

static void test_hierarchical_algorithms_are_right_on_all_hosts(void **state)
{
    (void)state;
    static const int mores[] = {-1, 0, 1, 7};
    for (int i = 0; i < 5 * 5 * 4 * ORDERS; i++) {
        int hosts = i % 5 + 1, base = i / 5 % 5 + 1, more = mores[i / 25 % 4];
        if (base + more == 0 || (more == 7 && base > 2))
            continue;
        struct host_map *map = make_map(hosts, base, more, (enum order)(i / 100));
        for (int f = 0; f < FORMS; f++)
            for (int a = 0; forms[f].list[a]; a++)
                if (is_hierarchical(forms[f].list[a]))
                    prove_map((struct plan){.form = &forms[f],
                                            .algorithm = forms[f].list[a],
                                            .size = map->first[hosts],
                                            .map = map});
        free(map);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_algorithm_is_right),
        cmocka_unit_test(test_hierarchical_algorithms_are_right_on_all_hosts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
