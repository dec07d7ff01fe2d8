/* Networks split over ranks, without communication: layouts are partitions, operations read the pixels
 * that their windows cover, moves bring them, and their backward way is the adjoint. */
#include "tests/train/cases.h"

#include "base/status.h"
#include "train/graph/moves.h"
#include "train/graph/split.h"
#include "train/graph/views.h"
#include "train/layers/window.h"
#include "train/models/models.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

enum { MOST_RANKS = 6, BATCH = 5 };

static uint64_t random_state;

static size_t between(size_t least, size_t most)
{
    return least + random_next(&random_state) % (most - least + 1);
}

static void success(alnico_status_t status)
{
    if (status != ALNICO_SUCCESS)
        fail_msg("%s", alnico_error_detail());
}

/* ---- Boxes and layouts ---- */

/* How many of the ranks hold an element. */
static size_t holders(const struct layout *layout, const size_t sizes[AXES], const size_t at[AXES])
{
    size_t count = 0;
    for (size_t rank = 0; rank < layout_ranks(layout); rank++) {
        const struct box box = layout_box(layout, sizes, rank);
        bool inside = true;
        for (enum axis axis = 0; axis < AXES; axis++)
            inside &= (ptrdiff_t)at[axis] >= box.from[axis] && (ptrdiff_t)at[axis] < box.to[axis];
        count += inside;
    }
    return count;
}

static void layouts_are_partitions(void **unused)
{
    (void)unused;
    for (int trial = 0; trial < 300; trial++) {
        struct layout layout = {.grain = (uint16_t)between(1, 4)};
        size_t sizes[AXES], at[AXES];
        for (enum axis axis = 0; axis < AXES; axis++) {
            layout.parts[axis] = (uint16_t)between(1, 3);
            sizes[axis] = between(1, 7);
        }
        for (at[0] = 0; at[0] < sizes[0]; at[0]++)
            for (at[1] = 0; at[1] < sizes[1]; at[1]++)
                for (at[2] = 0; at[2] < sizes[2]; at[2]++)
                    for (at[3] = 0; at[3] < sizes[3]; at[3]++)
                        assert_int_equal(holders(&layout, sizes, at), 1);
    }
}

static void parts_are_dealt_evenly(void **unused)
{
    (void)unused;
    const struct layout rows = {{1, 3, 1, 1}, 1}, hybrid = {{2, 2, 1, 1}, 1},
                        grains = {{1, 2, 1, 1}, 4};
    const size_t sizes[AXES] = {4, 10, 3, 2};
    const struct box middle = layout_box(&rows, sizes, 1), third = layout_box(&hybrid, sizes, 2),
                     coarse = layout_box(&grains, sizes, 1);
    assert_true(middle.from[AXIS_ROWS] == 3 && middle.to[AXIS_ROWS] == 6);
    assert_true(third.from[AXIS_IMAGES] == 2 && third.to[AXIS_IMAGES] == 4);
    assert_true(third.from[AXIS_ROWS] == 0 && third.to[AXIS_ROWS] == 5);
    assert_true(coarse.from[AXIS_ROWS] == 4 && coarse.to[AXIS_ROWS] == 10);
}

/* ---- What operations read ---- */

/* One operation of a window on an image. */
static struct network *window_network(enum operation_kind kind, size_t window, size_t stride,
                                      size_t pad, bool ceil)
{
    struct network *network;
    const struct operation operation = {.kind = kind,
                                        .name = "a",
                                        .in = {"input"},
                                        .filters = 1,
                                        .window = window,
                                        .stride = stride,
                                        .pad = pad,
                                        .ceil = ceil};
    success(network_create(between(window, 15), between(window, 15), 1, &network));
    success(network_append(network, &operation));
    success(network_append(network, &(struct operation)LOSS("a")));
    success(network_finish(network));
    return network;
}

/* The rows of the image that the windows of some output rows cover, by the plain loops' own walk. */
static void rows_covered(const struct network *network, ptrdiff_t from, ptrdiff_t to,
                         ptrdiff_t *first, ptrdiff_t *end)
{
    const struct node *node = &network->nodes[0];
    const struct layer_pass pass = {
        .node = node, .in = &network->tensors[0], .out = &network->tensors[1]};
    *first = PTRDIFF_MAX;
    *end = 0;
    for (ptrdiff_t i = from; i < to; i++)
        for (size_t r = 0; r < node->operation.window; r++)
            for (size_t c = 0; c < node->operation.window; c++) {
                size_t index;
                if (!window_pixel(&pass, 0, (size_t)i, 0, r, c, &index))
                    continue;
                const ptrdiff_t row = (ptrdiff_t)(index / network->tensors[0].width);
                *first = row < *first ? row : *first;
                *end = row + 1 > *end ? row + 1 : *end;
            }
}

static void windows_read_what_they_cover(void **unused)
{
    (void)unused;
    for (int trial = 0; trial < 400; trial++) {
        const bool pool = trial % 2;
        const size_t window = between(1, 7), pad = between(0, window - 1);
        struct network *network = window_network(pool ? OPERATION_MAX_POOL : OPERATION_CONVOLUTION,
                                                 window, between(1, 3), pad, pool && between(0, 1));
        const struct node *node = &network->nodes[0];
        const ptrdiff_t from = (ptrdiff_t)between(0, network->tensors[1].height - 1),
                        to = (ptrdiff_t)between((size_t)from + 1, network->tensors[1].height),
                        height = (ptrdiff_t)network->tensors[0].height;
        struct box box = {{0, from, 0, 0}, {1, to, 1, 1}};
        ptrdiff_t first, end;
        layers_all[node->operation.kind]->reads(node, &network->tensors[0], &box);
        rows_covered(network, from, to, &first, &end);
        assert_int_equal(box.from[AXIS_ROWS] > 0 ? box.from[AXIS_ROWS] : 0, first);
        assert_int_equal(box.to[AXIS_ROWS] < height ? box.to[AXIS_ROWS] : height, end);
        assert_int_equal(box.to[AXIS_ROWS] - box.from[AXIS_ROWS],
                         (to - from - 1) * (ptrdiff_t)node->operation.stride + (ptrdiff_t)window);
        network_destroy(network);
    }
}

/* ---- Moves ---- */

/* Numbers of a box. */
struct numbers {
    struct box box;
    int64_t *at;
};

static struct numbers numbers_make(const struct box *box)
{
    return (struct numbers){*box, calloc(box_elements(box) + 1, sizeof(int64_t))};
}

static int64_t *number_at(const struct numbers *n, const ptrdiff_t at[AXES])
{
    size_t index = 0;
    for (enum axis axis = 0; axis < AXES; axis++) {
        assert_true(at[axis] >= n->box.from[axis] && at[axis] < n->box.to[axis]);
        index = index * box_extent(&n->box, axis) + (size_t)(at[axis] - n->box.from[axis]);
    }
    return &n->at[index];
}

/* The next place of a box, in order; `at` begins as its first. */
static bool next(const struct box *box, ptrdiff_t at[AXES])
{
    for (enum axis axis = AXES; axis-- > 0;) {
        if (++at[axis] < box->to[axis])
            return true;
        at[axis] = box->from[axis];
    }
    return false;
}

static void numbers_add(const struct numbers *to, const struct numbers *from, const struct box *box)
{
    ptrdiff_t at[AXES];
    memcpy(at, box->from, sizeof at);
    if (box_elements(box))
        do
            *number_at(to, at) += *number_at(from, at);
        while (next(box, at));
}

static void numbers_random(const struct numbers *n)
{
    for (size_t i = 0; i < box_elements(&n->box); i++)
        n->at[i] = (int64_t)between(0, 200) - 100;
}

static int64_t product(const struct numbers *a, const struct numbers *b)
{
    int64_t sum = 0;
    for (size_t i = 0; i < box_elements(&a->box); i++)
        sum += a->at[i] * b->at[i];
    return sum;
}

/* A move of all ranks. */
struct moved {
    size_t ranks;
    struct move moves[MOST_RANKS];
    struct numbers held[MOST_RANKS], made[MOST_RANKS];
};

static const struct move_message *message_from(const struct move *move, int peer)
{
    for (size_t i = 0; i < move->receive_count; i++)
        if (move->receives[i].peer == peer)
            return &move->receives[i];
    fail_msg("rank %d sends what nobody receives", peer);
    return NULL;
}

/* Forward from what is held to what is made, or backward: what is sent is added there. */
static void carry_out(const struct moved *m, bool backward)
{
    size_t received = 0;
    for (size_t rank = 0; rank < m->ranks; rank++) {
        const struct move *move = &m->moves[rank];
        received += move->receive_count;
        numbers_add(backward ? &m->held[rank] : &m->made[rank],
                    backward ? &m->made[rank] : &m->held[rank], &move->kept);
        for (size_t i = 0; i < move->send_count; i++) {
            const struct move_message *t = &move->sends[i];
            assert_true(box_equal(&t->box, &message_from(&m->moves[t->peer], (int)rank)->box));
            numbers_add(backward ? &m->held[rank] : &m->made[t->peer],
                        backward ? &m->made[t->peer] : &m->held[rank], &t->box);
        }
    }
    for (size_t rank = 0; rank < m->ranks; rank++)
        received -= m->moves[rank].send_count;
    assert_int_equal(received, 0);
}

/* What a rank made of a tensor in which every number tells its place. */
static void check_made(const struct moved *m, const struct tensor *whole)
{
    const ptrdiff_t sizes[AXES] = {BATCH, (ptrdiff_t)whole->height, (ptrdiff_t)whole->width,
                                   (ptrdiff_t)whole->channels};
    for (size_t rank = 0; rank < m->ranks; rank++) {
        const struct box *box = &m->made[rank].box;
        ptrdiff_t at[AXES];
        memcpy(at, box->from, sizeof at);
        if (!box_elements(box))
            continue;
        do {
            int64_t expected = 1;
            for (enum axis axis = 0; axis < AXES; axis++)
                expected = expected * 64 + at[axis];
            for (enum axis axis = 0; axis < AXES; axis++)
                if (at[axis] < 0 || at[axis] >= sizes[axis])
                    expected = 0;
            assert_int_equal(*number_at(&m->made[rank], at), expected);
        } while (next(box, at));
    }
}

static void place_fill(const struct numbers *n)
{
    ptrdiff_t at[AXES];
    memcpy(at, n->box.from, sizeof at);
    if (box_elements(&n->box))
        do {
            *number_at(n, at) = 1;
            for (enum axis axis = 0; axis < AXES; axis++)
                *number_at(n, at) = *number_at(n, at) * 64 + at[axis];
        } while (next(&n->box, at));
}

/* <Mx, y> = <x, M^T y> */
static void check_adjoint(const struct moved *m)
{
    struct moved back = *m;
    int64_t forward = 0, backward = 0;
    for (size_t rank = 0; rank < m->ranks; rank++) {
        numbers_random(&m->held[rank]);
        memset(m->made[rank].at, 0, box_elements(&m->made[rank].box) * sizeof(int64_t));
        back.held[rank] = numbers_make(&m->held[rank].box);
        back.made[rank] = numbers_make(&m->made[rank].box);
        numbers_random(&back.made[rank]);
    }
    carry_out(m, false);
    carry_out(&back, true);
    for (size_t rank = 0; rank < m->ranks; rank++) {
        forward += product(&m->made[rank], &back.made[rank]);
        backward += product(&m->held[rank], &back.held[rank]);
        free(back.held[rank].at);
        free(back.made[rank].at);
    }
    assert_int_equal(forward, backward);
}

static void check_move(struct network *const networks[], size_t ranks, size_t node)
{
    const struct network *first = networks[0];
    struct moved m = {.ranks = ranks};
    for (size_t rank = 0; rank < ranks; rank++) {
        success(move_create(networks[rank], node, BATCH, &m.moves[rank]));
        m.held[rank] = numbers_make(&m.moves[rank].held);
        m.made[rank] = numbers_make(&m.moves[rank].made);
        place_fill(&m.held[rank]);
    }
    carry_out(&m, false);
    check_made(&m, &first->part->whole->tensors[first->part->tensors[node + 1].tensor]);
    check_adjoint(&m);
    for (size_t rank = 0; rank < ranks; rank++) {
        free(m.held[rank].at);
        free(m.made[rank].at);
        move_destroy(&m.moves[rank]);
    }
}

/* The rows that a rank's windows cover: a convolution's are all in its tensor where rows are split, a
 * pooling's begin with padding only; of the tensor fewer than a stride are left over. */
static void check_windows(const struct network *network)
{
    for (size_t i = 0; i < network->count; i++) {
        const struct node *node = &network->nodes[i];
        const struct tensor *in = &network->tensors[node->in[0]], *out = network_output(network, i);
        const struct operation *operation = &node->operation;
        const size_t tensor = network->part->tensors[i + 1].tensor;
        if (!layers_all[operation->kind]->reads || !operation->window || !out->height)
            continue;
        const size_t covered = (out->height - 1) * operation->stride + operation->window;
        assert_true(covered + operation->stride > in->height + node->pad_rows);
        assert_true(node->pad_rows <= operation->pad);
        if (operation->kind == OPERATION_CONVOLUTION &&
            network->part->layouts[tensor].parts[AXIS_ROWS] > 1)
            assert_true(node->pad_rows == 0 && covered <= in->height);
    }
}

/* The window of an output pixel along an axis, of the whole input; what is beyond it is left out. */
static void window_of(const struct network *network, size_t node, enum axis axis, ptrdiff_t at,
                      ptrdiff_t *from, ptrdiff_t *to)
{
    const struct network_part *part = network->part;
    const struct node *n = &network->nodes[node];
    const struct tensor *in = &part->whole->tensors[part->tensors[n->in[0]].tensor];
    const ptrdiff_t end = (ptrdiff_t)(axis == AXIS_ROWS ? in->height : in->width);
    const struct box out = part_box(network, node + 1, part->rank, BATCH);
    *from = (out.from[axis] + at) * (ptrdiff_t)n->operation.stride - (ptrdiff_t)n->operation.pad;
    *to = *from + (ptrdiff_t)n->operation.window;
    *from = *from > 0 ? *from : 0;
    *to = *to < end ? *to : end;
}

/* Whether the rank holds all that the window of an output pixel covers. */
static bool held_whole(const struct network *network, size_t node, const ptrdiff_t at[AXES])
{
    const size_t rank = network->part->rank, made = network->nodes[node].in[0];
    const struct box held = part_box(network, network->nodes[made - 1].in[0], rank, BATCH);
    bool whole = true;
    for (enum axis axis = AXIS_ROWS; axis <= AXIS_COLUMNS; axis++) {
        ptrdiff_t from, to;
        window_of(network, node, axis, at[axis], &from, &to);
        whole &= from >= held.from[axis] && to <= held.to[axis];
    }
    return whole;
}

/* A view's windows are those of the whole output, and all that they cover of the input is in it. */
static void check_view(const struct network *network, size_t node, const struct view *view,
                       const ptrdiff_t at[AXES])
{
    const struct node *n = &network->nodes[node];
    const struct tensor *in = &network->tensors[n->in[0]];
    for (enum axis axis = AXIS_ROWS; axis <= AXIS_COLUMNS; axis++) {
        const bool rows = axis == AXIS_ROWS;
        const ptrdiff_t stride = (ptrdiff_t)n->operation.stride,
                        end = (ptrdiff_t)(rows ? in->height : in->width),
                        pad = (ptrdiff_t)(rows ? n->pad_rows : n->pad_columns),
                        own = (ptrdiff_t)(rows ? view->pad_rows : view->pad_columns),
                        from = at[axis] * stride - pad, to = from + (ptrdiff_t)n->operation.window;
        assert_int_equal((at[axis] - view->out.from[axis]) * stride - own + view->in.from[axis],
                         from);
        assert_true(view->in.from[axis] >= 0 && view->in.to[axis] <= end);
        assert_true((from > 0 ? from : 0) >= view->in.from[axis] || own > 0);
        assert_true((to < end ? to : end) <= view->in.to[axis]);
    }
}

/* Views are a partition of what a rank makes: the interior needs what it holds only, and all that needs
 * more is border. */
static void check_views(const struct network *network, size_t node, const struct view *views,
                        size_t count)
{
    const struct box out = part_box(network, node + 1, network->part->rank, BATCH);
    struct box local = out;
    for (enum axis axis = 0; axis < AXES; axis++) {
        local.to[axis] -= local.from[axis];
        local.from[axis] = 0;
    }
    ptrdiff_t at[AXES] = {0};
    do {
        size_t within = 0;
        for (size_t i = 0; i < count; i++) {
            bool inside = true;
            for (enum axis axis = 0; axis < AXES; axis++)
                inside &= at[axis] >= views[i].out.from[axis] && at[axis] < views[i].out.to[axis];
            if (!inside)
                continue;
            within++;
            check_view(network, node, &views[i], at);
            assert_int_equal(held_whole(network, node, at), i == 0);
        }
        assert_int_equal(within, 1);
    } while (next(&local, at));
}

/* How many nodes of a rank have views. */
static size_t check_all_views(const struct network *network)
{
    size_t divided = 0;
    for (size_t node = 0; node < network->count; node++) {
        struct view views[VIEWS];
        const size_t count = views_make(network, node, BATCH, views);
        if (count) {
            struct move move;
            check_views(network, node, views, count);
            success(move_create(network, network->nodes[node].in[0] - 1, BATCH, &move));
            assert_int_equal(views_halo(network, node, BATCH), move_receives(&move));
            move_destroy(&move);
        }
        divided += count > 0;
        assert_true(count != 1 && count <= VIEWS);
    }
    return divided;
}

static size_t divided; /* nodes with views, of all ranks in all splits */

/* All moves of a network in one split. */
static size_t check_split(const struct network *whole, const struct split *split, size_t ranks)
{
    struct network *networks[MOST_RANKS] = {0};
    size_t moves = 0;
    for (size_t rank = 0; rank < ranks; rank++) {
        success(network_split(whole, split, rank, ranks, &networks[rank]));
        assert_int_equal(networks[rank]->count, networks[0]->count);
        check_windows(networks[rank]);
        divided += check_all_views(networks[rank]);
    }
    for (size_t node = 0; node < networks[0]->count; node++)
        if (networks[0]->nodes[node].operation.kind == OPERATION_MOVE) {
            check_move(networks, ranks, node);
            moves++;
        }
    for (size_t rank = 0; rank < ranks; rank++)
        network_destroy(networks[rank]);
    return moves;
}

static struct split split_of(const char *text)
{
    struct split split;
    success(split_parse(text, &split));
    return split;
}

static const struct {
    const char *text;
    size_t ranks;
} ways[] = {{"images=2", 2},         {"rows=2", 2},           {"columns=2", 2},
            {"rows=3", 3},           {"rows=2,columns=2", 4}, {"images=2,rows=2", 4},
            {"columns=2,rows=3", 6}, {"channels=3", 3}};

/* Whether a network's images or first operation have fewer pixels than parts, or it has fewer filters,
 * which may be refused. */
static bool too_small(const struct network *whole, const struct split *split)
{
    const struct tensor *in = &whole->tensors[0], *out = &whole->tensors[1];
    const size_t rows = split->ranges[0].parts[AXIS_ROWS],
                 columns = split->ranges[0].parts[AXIS_COLUMNS],
                 channels = split->ranges[0].parts[AXIS_CHANNELS];
    bool filters = false;
    for (size_t i = 0; i < whole->count && channels > 1; i++) {
        const struct operation *operation = &whole->nodes[i].operation;
        const bool has = layers_all[operation->kind]->channels == CHANNELS_FILTERS;
        if (has && operation->filters < channels)
            return true;
        filters |= has;
    }
    if (channels > 1)
        return !filters;
    return in->height < rows || out->height < rows || in->width < columns || out->width < columns;
}

static void moves_of_all_networks(void **unused)
{
    (void)unused;
    size_t moves = 0;
    for (size_t i = 0; i < NETWORK_CASES; i++) {
        struct network *whole = case_network(&network_cases[i]);
        for (size_t w = 0; w < sizeof ways / sizeof *ways; w++) {
            const struct split split = case_split(whole, ways[w].text);
            if (!too_small(whole, &split))
                moves += check_split(whole, &split, ways[w].ranks);
        }
        network_destroy(whole);
    }
    assert_true(moves > 100);
    assert_true(divided > 100);
}

/* A window, an upsampling that is cut, and the window again. */
static struct network *windows_network(void)
{
    const size_t window = between(1, 7);
    const bool pool = between(0, 1);
    struct operation first = {.kind = pool ? OPERATION_MAX_POOL : OPERATION_CONVOLUTION,
                              .name = "a",
                              .in = {"input"},
                              .filters = 2,
                              .window = window,
                              .stride = between(1, 3),
                              .pad = between(0, window - 1),
                              .ceil = pool && between(0, 1)};
    struct operation last = first;
    struct network *network;
    snprintf(last.name, sizeof last.name, "b");
    snprintf(last.in[0], sizeof last.in[0], "u");
    const struct operation operations[] = {first, UPSAMPLE("u", "a", 3, 1), last, LOSS("b")};
    success(network_create(between(24, 31), between(24, 31), 2, &network));
    for (size_t i = 0; i < sizeof operations / sizeof *operations; i++)
        success(network_append(network, &operations[i]));
    success(network_finish(network));
    return network;
}

static void moves_of_all_windows(void **unused)
{
    (void)unused;
    for (int trial = 0; trial < 150; trial++) {
        const size_t way = between(0, sizeof ways / sizeof *ways - 1);
        struct network *whole = windows_network();
        const struct split split = case_split(whole, ways[way].text);
        if (!too_small(whole, &split))
            check_split(whole, &split, ways[way].ranks);
        network_destroy(whole);
    }
}

/* Of 3x3 windows on 12 rows and columns, by four ranks: the last has one row of border and one column
 * before its interior, and nothing behind. */
static void borders_are_as_by_hand(void **unused)
{
    (void)unused;
    const struct operation operations[] = {CONVOLUTION("a", "input", 2, 3, 1, 1, false),
                                           CONVOLUTION("b", "a", 3, 3, 1, 1, false), LOSS("b")};
    const struct split split = split_of("rows=2,columns=2");
    struct network *whole, *part;
    struct view views[VIEWS];
    success(network_create(12, 12, 1, &whole));
    for (size_t i = 0; i < sizeof operations / sizeof *operations; i++)
        success(network_append(whole, &operations[i]));
    success(network_finish(whole));
    success(network_split(whole, &split, 3, 4, &part));
    assert_int_equal(views_make(part, 0, 1, views), 0);
    assert_int_equal(part->nodes[1].operation.kind, OPERATION_MOVE);
    assert_int_equal(views_make(part, 2, 1, views), 3);
    const struct view expected[] = {
        {{{0, 1, 1, 0}, {1, 6, 6, 3}}, {{0, 1, 1, 0}, {1, 8, 8, 2}}, 0, 0},
        {{{0, 0, 0, 0}, {1, 1, 6, 3}}, {{0, 0, 0, 0}, {1, 3, 8, 2}}, 0, 0},
        {{{0, 1, 0, 0}, {1, 6, 1, 3}}, {{0, 1, 0, 0}, {1, 8, 3, 2}}, 0, 0}};
    for (size_t i = 0; i < 3; i++)
        assert_memory_equal(&views[i], &expected[i], sizeof *views);
    network_destroy(part);
    network_destroy(whole);
}

/* ---- Split networks ---- */

/* A model on square images. */
static struct network *model_of(const char *name, size_t side, size_t channels)
{
    struct model model;
    struct network *network;
    assert_true(model_find(name, &model));
    success(model_network(&model, side, side, channels, 10, &network));
    return network;
}

/* The nodes of a rank's part that are moves. */
static size_t moves_count(const struct network *network)
{
    return network->count - network_number(network, network->count);
}

static void one_part_is_the_whole(void **unused)
{
    (void)unused;
    struct network *whole = model_of("resnet20", 16, 3), *part;
    const struct split split = split_of("rows=1");
    success(network_split(whole, &split, 0, 1, &part));
    assert_int_equal(part->count, whole->count);
    assert_int_equal(part->labels, whole->labels);
    assert_memory_equal(part->nodes, whole->nodes, whole->count * sizeof *whole->nodes);
    assert_memory_equal(part->tensors, whole->tensors, (whole->count + 1) * sizeof *whole->tensors);
    network_destroy(part);
    network_destroy(whole);
}

/* Only what reads beyond its rank's box, or another layout, is moved; what reads the same, once. */
static void few_moves(void **unused)
{
    (void)unused;
    static const struct {
        const char *model;
        size_t side, channels;
        const char *split;
        size_t moves;
    } cases[] = {
        {"resnet20", 32, 3, "rows=2", 18 + 1}, /* 3x3 convolutions but the first, and the pooling */
        {"resnet20", 32, 3, "images=2", 0},
        {"mesh:64", 64, 18, "rows=2",
         17}, /* convolutions but the first: 1x1 and upsampling need none */
        {"mesh:256", 256, 18, "columns=2", 17},
        {"cnn", 28, 1, "rows=2",
         3}, /* the second convolution and pooling (7 rows), the first dense layer */
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct network *whole = model_of(cases[i].model, cases[i].side, cases[i].channels), *part;
        const struct split split = split_of(cases[i].split);
        success(network_split(whole, &split, 1, 2, &part));
        assert_int_equal(moves_count(part), cases[i].moves);
        assert_int_equal(network_layout(part), network_layout(whole));
        network_destroy(part);
        network_destroy(whole);
    }
}

static void parameters_are_the_same(void **unused)
{
    (void)unused;
    struct network *whole = model_of("resnet20", 16, 3), *part;
    const struct split split = split_of("rows=2");
    float *numbers = calloc(2 * (whole->parameters + whole->statistics), sizeof *numbers);
    float *others = numbers + whole->parameters + whole->statistics;
    success(network_split(whole, &split, 1, 2, &part));
    network_initialize(whole, 7, numbers, numbers + whole->parameters);
    part_take(part, numbers, others);
    assert_int_equal(part->shared, whole->parameters);
    assert_memory_equal(numbers, others, whole->parameters * sizeof *numbers);
    free(numbers);
    network_destroy(part);
    network_destroy(whole);
}

/* Filters are on one rank each, all other parameters on all of them, before. What ranks give back is the
 * whole. */
static void filters_are_on_one_rank(void **unused)
{
    (void)unused;
    enum { RANKS = 3 };
    struct network *whole = model_of("cnn", 28, 1), *part;
    const struct split split = split_of("dense1:channels=3");
    const size_t count = whole->parameters;
    float *numbers = calloc(3 * count, sizeof *numbers), *taken = numbers + count,
          *back = taken + count;
    size_t own = 0, filled = 0;
    for (size_t i = 0; i < count; i++)
        numbers[i] = (float)i;
    for (size_t rank = 0; rank < RANKS; rank++) {
        success(network_split(whole, &split, rank, RANKS, &part));
        filled = part->shared;
        own += part->parameters - part->shared;
        part_take(part, numbers, taken);
        for (size_t i = 0; i < part->shared; i++) /* in the whole's order */
            assert_true(i == 0 || taken[i] > taken[i - 1]);
        part_give(part, taken, back, rank == 0);
        network_destroy(part);
    }
    assert_true(own > 0 && filled + own == count);
    assert_memory_equal(numbers, back, count * sizeof *numbers);
    free(numbers);
    network_destroy(whole);
}

static void ranges_hold_their_operations(void **unused)
{
    (void)unused;
    struct network *whole = model_of("resnet20", 32, 3), *part;
    const struct split split = split_of("rows=2@1.1..2");
    success(network_split(whole, &split, 0, 2, &part));
    for (size_t i = 0; i < whole->count; i++) {
        const char *name = whole->nodes[i].operation.name;
        const bool inside = name[0] == '1' || name[0] == '2';
        assert_int_equal(part->part->layouts[i + 1].parts[AXIS_ROWS], inside ? 2 : 1);
        assert_int_equal(part->part->layouts[i + 1].parts[AXIS_IMAGES], inside ? 1 : 2);
    }
    network_destroy(part);
    network_destroy(whole);
}

static void bad_splits_are_refused(void **unused)
{
    (void)unused;
    static const struct {
        const char *text, *message;
        size_t ranks;
    } cases[] = {
        {"dense1:channels=3", "channels=3 makes 3 parts", 2},
        {"channels=2", "expected nothing beside it but the names of operations", 2},
        {"dense1:images=2,channels=2", "expected nothing beside it", 4},
        {"pool1:channels=2", "has no filters, so it cannot be split by channels", 2},
        {"dense2:channels=11", "makes 10 channels, so that of 11 parts", 11},
        {"dense9:channels=2", "names no operations of the network", 2},
        {"dense1:channels=2@dense1", "expected parts of images, rows and columns", 2},
        {":channels=2", "expected parts of images, rows and columns", 2},
        {"", "expected parts of images, rows and columns", 1},
        {"rows", "expected parts of images, rows and columns", 1},
        {"rows=0", "expected parts of images, rows and columns", 1},
        {"rows=2,", "expected parts of images, rows and columns", 2},
        {"lines=2", "expected parts of images, rows and columns", 2},
        {"rows=2@", "expected parts of images, rows and columns", 2},
        {"rows=2@conv1..", "expected parts of images, rows and columns", 2},
        {"rows=2;", "expected parts of images, rows and columns", 2},
        {"rows=2", "makes 2 parts, expected one for each of the 3 ranks", 3},
        {"rows=2@conv9", "'conv9..conv9' names no operations", 2},
        {"rows=2@conv2..conv1", "'conv2..conv1' names no operations", 2},
        {"rows=2@conv1..dense1", "dense 'dense1' reads whole images", 2},
        {"rows=29", "'conv1' makes 28x28 pixels, so that of 29 x 1 parts some ranks", 29},
    };
    struct network *whole = model_of("cnn", 28, 1), *part = NULL;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct split split;
        alnico_status_t status = split_parse(cases[i].text, &split);
        if (status == ALNICO_SUCCESS)
            status = network_split(whole, &split, 0, cases[i].ranks, &part);
        assert_int_equal(status, ALNICO_ERROR_ARGUMENT);
        assert_null(part);
        if (!strstr(alnico_error_detail(), cases[i].message))
            fail_msg("'%s': %s", cases[i].text, alnico_error_detail());
    }
    network_destroy(whole);
}

static void losses_are_split_alike(void **unused)
{
    (void)unused;
    const struct operation operations[] = {CONVOLUTION("a", "input", 2, 3, 1, 1, true),
                                           AUXILIARY(OPERATION_SQUARED_ERROR, "x", "a", 1),
                                           RELU("r", "a"), LOSS("r")};
    struct network *whole, *part;
    const struct split split = split_of("rows=2@a..x");
    success(network_create(4, 4, 1, &whole));
    for (size_t i = 0; i < sizeof operations / sizeof *operations; i++)
        success(network_append(whole, &operations[i]));
    success(network_finish(whole));
    assert_int_equal(network_split(whole, &split, 0, 2, &part), ALNICO_ERROR_ARGUMENT);
    assert_non_null(strstr(alnico_error_detail(), "'x' and 'loss' are split in different ways"));
    network_destroy(whole);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(layouts_are_partitions),       cmocka_unit_test(parts_are_dealt_evenly),
        cmocka_unit_test(windows_read_what_they_cover), cmocka_unit_test(moves_of_all_networks),
        cmocka_unit_test(moves_of_all_windows),         cmocka_unit_test(borders_are_as_by_hand),
        cmocka_unit_test(one_part_is_the_whole),        cmocka_unit_test(few_moves),
        cmocka_unit_test(parameters_are_the_same),      cmocka_unit_test(filters_are_on_one_rank),
        cmocka_unit_test(ranges_hold_their_operations), cmocka_unit_test(bad_splits_are_refused),
        cmocka_unit_test(losses_are_split_alike),
    };
    random_state = test_seed();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
