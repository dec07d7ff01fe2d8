/* The bytes of one call's buffers, before and after. Whatever is no block is poisoned and must stay
 * so: the margins, the gaps, and what the call does not write. */
#include "tests/conformance/crew.h"

#include "base/datatype.h"
#include "tests/conformance/operations.h"
#include "tests/support/reference.h"

#include <stdio.h>
#include <string.h>

enum { MARGIN = 192, FOR_POISON = 48, FOR_DATA };

/* ---- Data ---- */

static uint64_t seed_of(const struct plan *plan, const struct piece *piece)
{
    return plan_draw(plan, FOR_DATA, piece->data);
}

static size_t piece_bytes(const struct piece *piece)
{
    return piece->count * datatype_bytes(piece->type);
}

/* Any bits: what is only copied keeps them. */
static void fill_bits(char *to, size_t bytes, uint64_t seed)
{
    for (size_t at = 0; at < bytes; at += sizeof seed) {
        seed += 0x9e3779b97f4a7c15u;
        uint64_t word = (seed ^ seed >> 31) * 0xbf58476d1ce4e5b9u;
        word ^= word >> 29;
        memcpy(to + at, &word, bytes - at < sizeof word ? bytes - at : sizeof word);
    }
}

/* ---- NaN ---- */

static bool is_nan_input(const struct plan *plan, const struct piece *piece, int owner, size_t i)
{
    return plan->trial->nan && plan->operation->reduces && !datatype_is_integer(piece->type) &&
           reference_random(seed_of(plan, piece) + 1, (uint64_t)owner, i) % 16 == 0;
}

static bool is_nan_result(const struct plan *plan, const struct piece *piece, size_t i)
{
    bool any = false;
    for (int r = 0; r < plan->size; r++)
        any |= is_nan_input(plan, piece, r, i);
    return any;
}

/* The bits of infinity, above which are those of NaN, and of a quiet NaN; signs left out. */
static uint64_t infinity_bits(alnico_datatype_t type)
{
    return type == ALNICO_FLOAT16       ? 0x7c00
           : type == ALNICO_BFLOAT16    ? 0x7f80
           : type == ALNICO_FLOAT8_E4M3 ? 0x7e
           : type == ALNICO_FLOAT8_E5M2 ? 0x7c
           : type == ALNICO_FLOAT32     ? 0x7f800000
                                        : 0x7ff0000000000000;
}

static uint64_t nan_bits(alnico_datatype_t type)
{
    return type == ALNICO_FLOAT16       ? 0x7e00
           : type == ALNICO_BFLOAT16    ? 0x7fc0
           : type >= ALNICO_FLOAT8_E4M3 ? 0x7f
           : type == ALNICO_FLOAT32     ? 0x7fc00000
                                        : 0x7ff8000000000000;
}

static bool is_nan(const char *at, alnico_datatype_t type)
{
    uint64_t bits = 0, sign = (uint64_t)1 << (8 * datatype_bytes(type) - 1);
    memcpy(&bits, at, datatype_bytes(type)); /* little-endian */
    return (bits & ~sign) > infinity_bits(type);
}

static void put_nans(const struct plan *plan, char *to, const struct piece *piece)
{
    uint64_t bits = nan_bits(piece->type);
    size_t element = datatype_bytes(piece->type);
    for (size_t i = 0; i < piece->count; i++)
        if (is_nan_input(plan, piece, piece->owner, i))
            memcpy(to + i * element, &bits, element);
}

static void fill(const struct plan *plan, char *to, const struct piece *piece)
{
    uint64_t seed = seed_of(plan, piece);
    if (plan->operation->reduces)
        reference_fill(to, piece->count, piece->type, (alnico_op_t)plan->trial->op, seed,
                       piece->owner);
    if (plan->operation->reduces && plan->trial->nan)
        put_nans(plan, to, piece);
    if (!plan->operation->reduces)
        fill_bits(to, piece_bytes(piece), seed + (uint64_t)piece->owner * 0xd6e8feb86659fd93u);
}

/* ---- Before ---- */

static int reads_frame(const struct plan *plan)
{
    return plan->one ? 1 : 0;
}

static char *take(struct crew *crew, int i, int buffer, size_t bytes)
{
    const struct trial *trial = &crew->batch->trial[i];
    return trial->registered
               ? crew->ops->take_registered(crew->site, trial->lane, 2 * i + buffer, bytes)
               : crew->ops->take(crew->site, bytes);
}

/* The second buffer is not aligned as the first is. */
static void make_frame(struct crew *crew, int i, int buffer)
{
    struct entry *e = &crew->entries[i];
    struct frame *f = &e->frame[buffer];
    size_t offset = e->plan.trial->offset;
    offset =
        (buffer ? offset ^ offset >> 1 : offset) *
        (e->plan.operation->messages ? 8 : datatype_bytes((alnico_datatype_t)e->plan.trial->type));
    *f = (struct frame){.at = MARGIN + offset, .bytes = plan_bytes(&e->plan, buffer)};
    f->total = f->at + f->bytes + MARGIN;
    f->memory = take(crew, i, buffer, f->total);
    f->before = crew->ops->take_host(crew->site, f->total);
    f->after = crew->ops->take_host(crew->site, f->total);
    memset(f->before, (int)(plan_draw(&e->plan, FOR_POISON, (uint64_t)buffer) % 255 + 1), f->total);
    memset(f->after, 0, f->total);
    e->plan.buffer[buffer] = f->memory + f->at;
    e->put[buffer] = (struct copy){f->memory, f->before, f->total, 0};
    e->get[buffer] = (struct copy){f->after, f->memory, f->total, 0};
}

void frames_make(struct crew *crew, int i)
{
    struct entry *e = &crew->entries[i];
    const struct area *reads = &e->plan.reads;
    for (int buffer = 0; buffer < 2; buffer++)
        make_frame(crew, i, buffer);
    struct frame *f = &e->frame[reads_frame(&e->plan)];
    for (int b = 0; b < reads->number; b++)
        fill(&e->plan, f->before + f->at + reads->pieces[b].at, &reads->pieces[b]);
}

/* ---- Breaking what is right ---- */

static void spoil_bytes(struct crew *crew, char *bytes, size_t number)
{
    for (size_t i = 0; i < number; i++)
        bytes[i] = (char)(bytes[i] ^ 0x3f);
    crew->spoiled = number > 0;
}

/* A byte inside the area that no block has. */
static char *find_gap(const struct area *area, char *data)
{
    for (size_t at = 0; at < area->bytes; at++) {
        bool free = true;
        for (int b = 0; b < area->number; b++)
            free &=
                at < area->pieces[b].at || at >= area->pieces[b].at + piece_bytes(&area->pieces[b]);
        if (free)
            return data + at;
    }
    return NULL;
}

static void spoil(struct crew *crew, struct entry *e)
{
    struct frame *in = &e->frame[0], *out = &e->frame[1];
    const struct area *reads = &e->plan.reads, *writes = &e->plan.writes;
    switch (crew->options->sabotage) {
    case SABOTAGE_RESULT:
        if (writes->number)
            spoil_bytes(crew, out->after + out->at + writes->pieces[0].at,
                        piece_bytes(&writes->pieces[0]));
        break;
    case SABOTAGE_MARGIN:
        spoil_bytes(crew, out->after + out->at + out->bytes, 1);
        break;
    case SABOTAGE_GAP:
        if (find_gap(writes, out->after + out->at))
            spoil_bytes(crew, find_gap(writes, out->after + out->at), 1);
        break;
    case SABOTAGE_INPUT:
        if (!e->plan.one && reads->number)
            spoil_bytes(crew, in->after + in->at + reads->pieces[0].at,
                        piece_bytes(&reads->pieces[0]));
        break;
    default:
        break;
    }
}

/* ---- After ---- */

/* The number of wrong elements of a reduction, with a text about the first. */
static size_t count_wrong(const struct plan *plan, const struct piece *piece, const char *got,
                          char *text, size_t bytes)
{
    alnico_op_t op = (alnico_op_t)plan->trial->op;
    uint64_t seed = seed_of(plan, piece);
    size_t wrong = 0, element = datatype_bytes(piece->type);
    int ranks[RANKS_MOST], size = plan->size;
    for (int r = 0; r < size; r++)
        ranks[r] = r;
    if (!plan->trial->nan)
        return reference_check(got, piece->count, piece->type, op, seed, ranks, size, text, bytes);
    for (size_t i = 0; i < piece->count; i++) {
        char *first = wrong ? NULL : text;
        if (!is_nan_result(plan, piece, i))
            wrong += reference_check_part(got, i, i + 1, piece->type, op, seed, ranks, size, first,
                                          bytes);
        else if (!is_nan(got + i * element, piece->type) && wrong++ == 0)
            snprintf(text, bytes, "element %zu is a number where an input is NaN", i);
    }
    return wrong;
}

/* A result that is right as a reduction is what must stand there. */
static void expect_reduced(struct crew *crew, int i, const struct piece *piece)
{
    struct entry *e = &crew->entries[i];
    struct frame *f = &e->frame[1];
    char *got = f->after + f->at + piece->at, text[160];
    size_t wrong = count_wrong(&e->plan, piece, got, text, sizeof text);
    if (wrong)
        crew_fail(crew, i, "%zu of %zu elements are wrong; %s", wrong, piece->count, text);
    memcpy(f->before + f->at + piece->at, got, piece_bytes(piece));
}

static void expect(struct crew *crew, int i)
{
    struct entry *e = &crew->entries[i];
    struct frame *f = &e->frame[1];
    for (int b = 0; b < e->plan.writes.number; b++) {
        const struct piece *piece = &e->plan.writes.pieces[b];
        if (piece->owner == REDUCED)
            expect_reduced(crew, i, piece);
        else
            fill(&e->plan, f->before + f->at + piece->at, piece);
    }
}

/* "element 3 of block 1 of 40 elements of int32", or where else. */
static void describe(const struct area *area, size_t at, const struct frame *f, char *text,
                     size_t bytes)
{
    for (int b = 0; b < area->number && at >= f->at; b++) {
        const struct piece *p = &area->pieces[b];
        if (at - f->at < p->at || at - f->at >= p->at + piece_bytes(p))
            continue;
        snprintf(text, bytes, "in element %zu of block %d, which has %zu of %s from rank %d",
                 (at - f->at - p->at) / datatype_bytes(p->type), b, p->count,
                 datatype_name(p->type), p->owner);
        return;
    }
    snprintf(text, bytes, "%s",
             at < f->at               ? "before the buffer"
             : at >= f->at + f->bytes ? "behind the buffer"
                                      : "between the blocks");
}

static void compare(struct crew *crew, int i, int buffer)
{
    struct entry *e = &crew->entries[i];
    const struct frame *f = &e->frame[buffer];
    const struct area *area = buffer == 0 ? &e->plan.reads : &e->plan.writes;
    char where[160];
    size_t wrong = 0, first = f->total;
    if (memcmp(f->before, f->after, f->total) == 0)
        return;
    for (size_t at = f->total; at-- > 0;)
        if (f->before[at] != f->after[at]) {
            wrong++;
            first = at;
        }
    describe(area, first, f, where, sizeof where);
    crew_fail(crew, i,
              "%zu bytes of %s are wrong; the first, byte %zd of %zu, %s, is %#x and not %#x",
              wrong, buffer == 0 ? "send" : "recv", (ptrdiff_t)first - (ptrdiff_t)f->at, f->bytes,
              where, (unsigned char)f->after[first], (unsigned char)f->before[first]);
}

uint64_t frames_check(struct crew *crew, int i)
{
    struct entry *e = &crew->entries[i];
    if (crew->options->sabotage && !crew->spoiled && crew->rank->rank == 0)
        spoil(crew, e);
    if (!e->refused)
        expect(crew, i);
    compare(crew, i, 0);
    compare(crew, i, 1);
    return reference_hash(e->frame[1].after + e->frame[1].at, e->frame[1].bytes);
}
