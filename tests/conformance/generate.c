/* The table and the random batches. */
#include "tests/conformance/generate.h"

#include "base/datatype.h"
#include "comm/tuning/tuning.h"
#include "tests/conformance/operations.h"
#include "tests/conformance/site.h"
#include "tests/support/reference.h"

#include <string.h>

enum { TABLE_TRIALS = 4, STICKY = 64 /* batches with the same algorithms */ };

/* ---- What both share ---- */

const struct algorithm *way_at(const struct options *options, int operation, int way)
{
    const struct site_ops *site = options->site;
    const struct backend *backend;
    const struct algorithm *algorithm;
    for (int i = 0; (algorithm = backend_algorithm_at(
                         (int)site->device, (int)operations[operation].collective, i, &backend));
         i++)
        if ((!site->only || strcmp(backend->name, site->only) == 0) && way-- == 0)
            break;
    return algorithm;
}

static int ways(const struct options *options, int operation)
{
    int number = 0;
    while (way_at(options, operation, number))
        number++;
    return number;
}

/* Way 0 is the table's choice. */
static void set_way(const struct options *options, struct trial *trial, int way)
{
    if (way)
        strcpy(trial->algorithm, way_at(options, trial->operation, way - 1)->name);
}

/* On the inline stream only, without threads. */
static int lane_by(const struct options *options, uint64_t random)
{
    return (int)(random % (uint64_t)(options->single ? LANE_STREAM : LANES));
}

/* Elements, so that no buffer is larger than `bytes`. */
static uint64_t most(const struct trial *trial, int ranks, size_t bytes)
{
    const struct operation *o = &operations[trial->operation];
    uint64_t blocks = (uint64_t)(o->messages ? 2 * MESSAGES_MOST : o->counts ? 2 * ranks : ranks);
    uint64_t element = o->messages ? 8 : datatype_bytes((alnico_datatype_t)trial->type);
    return bytes / blocks / element;
}

static bool takes_nan(const struct trial *trial)
{
    return operations[trial->operation].reduces &&
           !datatype_is_integer((alnico_datatype_t)trial->type);
}

/* ---- The table ---- */

void table_init(struct table *table, const struct options *options, int ranks)
{
    *table = (struct table){.options = options, .ranks = ranks};
    table->operation = options->only < 0 ? 0 : options->only;
}

static bool is_over(const struct table *t)
{
    return !operations[t->operation].name ||
           (t->options->only >= 0 && t->operation != t->options->only);
}

/* Counts up one digit; true if it begins again. */
static bool carry(int *digit, int end)
{
    *digit = *digit + 1 < end ? *digit + 1 : 0;
    return *digit == 0;
}

static void step(struct table *t)
{
    const struct operation *o = &operations[t->operation];
    t->turn++;
    do {
        if (carry(&t->nonblocking, 2) && carry(&t->place, operation_places(t->operation)) &&
            carry(&t->op, o->reduces ? OPS : 1) &&
            carry(&t->type, o->reads || o->messages ? DATATYPES : 1) &&
            carry(&t->way, ways(t->options, t->operation) + 1))
            t->operation++;
    } while (o->reduces && !is_over(t) &&
             !op_supports((alnico_op_t)t->op, (alnico_datatype_t)t->type));
}

static void take_turns(const struct table *t, struct trial *trial)
{
    static const uint64_t counts[] = {1, 0, 2, 3, 5, 8, 17, 31, 64, 100, 257, 1000, 5003};
    uint64_t random = reference_random(t->options->seed, t->turn, (uint64_t)t->ranks);
    uint64_t limit = most(trial, t->ranks, 64 << 10);
    const struct operation *o = &operations[t->operation];
    trial->count = counts[t->turn % (sizeof counts / sizeof *counts)];
    trial->count = trial->count < limit ? trial->count : limit;
    trial->lane = lane_by(t->options, random);
    trial->pattern = o->counts || o->messages ? (int)((random >> 8) % PATTERNS) : 0;
    trial->layout = o->at || o->messages ? (int)((random >> 16) % LAYOUTS) : 0;
    trial->root = o->rooted ? (random >> 24) % (uint64_t)t->ranks : 0;
    trial->messages = o->messages ? (random >> 32) % MESSAGES_MOST : 0;
    trial->offset = (random >> 40) % 4;
    trial->late = random >> 44 & 1;
    trial->nan = takes_nan(trial) && (random >> 46) % 4 == 0;
    trial->registered = trial->place != PLACE_MIXED && random >> 45 & 1;
    trial->salt = random % 1000003;
}

static void take(const struct table *t, struct trial *trial)
{
    trial->operation = t->operation;
    trial->type = t->type;
    trial->op = t->op;
    trial->place = t->place;
    trial->ending =
        t->nonblocking ? END_WAIT + (int)(t->turn / 2 % (ENDS - END_WAIT)) : END_BLOCKING;
    set_way(t->options, trial, t->way);
    take_turns(t, trial);
}

bool table_next(struct table *t, struct batch *out)
{
    *out = (struct batch){.ranks = t->ranks, .threads = 1};
    for (; !is_over(t) && out->number < TABLE_TRIALS; step(t))
        if ((t->turn + (uint64_t)t->ranks) % t->options->every == 0)
            take(t, &out->trial[out->number++]);
    return out->number > 0;
}

/* ---- Random ---- */

struct draw {
    uint64_t seed, a, b;
};

static uint64_t draw(struct draw *d, uint64_t below)
{
    return reference_random(d->seed, d->a, d->b++) % below;
}

/* Small ones dominate; one in many is cut into chunks. */
static uint64_t draw_count(struct draw *d, const struct trial *trial, int ranks, bool host)
{
    uint64_t kind = draw(d, 256), count = draw(d, 17), limit = most(trial, ranks, 256 << 10);
    if (kind >= 160)
        count = draw(d, 300);
    if (kind >= 230)
        count = draw(d, 5000);
    if (kind >= 254)
        count = draw(d, 1 << 20);
    if (kind == 255)
        limit = most(trial, ranks, host && draw(d, 8) == 0 ? 4 << 20 : 1 << 20);
    return kind < 8 ? 0 : count < limit ? count : limit;
}

static void draw_kind(struct draw *d, const struct options *options, struct trial *trial)
{
    const struct operation *o;
    trial->operation =
        options->only >= 0 ? options->only : (int)draw(d, (uint64_t)operations_count());
    o = &operations[trial->operation];
    do {
        trial->type = (int)draw(d, DATATYPES);
        trial->op = o->reduces ? (int)draw(d, OPS) : 0;
    } while (o->reduces && !op_supports((alnico_op_t)trial->op, (alnico_datatype_t)trial->type));
    trial->place = (int)draw(d, (uint64_t)operation_places(trial->operation));
    trial->ending = draw(d, 2) ? (int)draw(d, ENDS) : END_BLOCKING;
    trial->late = trial->ending ? draw(d, 2) : 0;
}

static void draw_trial(struct draw *d, const struct options *options, int ranks,
                       struct trial *trial)
{
    const struct operation *o;
    bool host = options->site->device == ALNICO_DEVICE_CPU;
    draw_kind(d, options, trial);
    o = &operations[trial->operation];
    trial->lane = lane_by(options, draw(d, LANES));
    trial->messages = o->messages ? draw(d, draw(d, 2) ? 4 : MESSAGES_MOST + 1) : 0;
    trial->root = o->rooted ? draw(d, (uint64_t)ranks) : 0;
    trial->pattern = o->counts || o->messages ? (int)draw(d, PATTERNS) : 0;
    trial->layout = o->at || o->messages ? (int)draw(d, LAYOUTS) : 0;
    trial->offset = draw(d, 4) ? 0 : draw(d, 8);
    trial->registered = !host && trial->place != PLACE_MIXED && draw(d, 2);
    trial->nan = takes_nan(trial) && draw(d, 4) == 0;
    trial->count = draw_count(d, trial, ranks, host);
    trial->salt = draw(d, 1000003);
    uint64_t sticky = reference_random(options->seed, d->a / STICKY,
                                       (uint64_t)(trial->operation * LANES + trial->lane));
    if (sticky % 3)
        set_way(options, trial,
                (int)(sticky / 3 % (uint64_t)(ways(options, trial->operation) + 1)));
}

void random_batch(const struct options *options, int ranks, uint64_t index, struct batch *out)
{
    struct draw d = {options->seed + (uint64_t)ranks, index, 0};
    bool cpu = options->site->device == ALNICO_DEVICE_CPU;
    bool threads = cpu && !options->single && draw(&d, 4) == 0;
    *out = (struct batch){.ranks = ranks, .threads = threads ? 2 + (int)draw(&d, 2) : 1};
    out->number = 1 + (int)draw(&d, TRIALS);
    for (int i = 0; i < out->number; i++)
        draw_trial(&d, options, ranks, &out->trial[i]);
}
