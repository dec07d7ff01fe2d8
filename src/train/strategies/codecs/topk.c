/*
 * Codec topk: of a range the `keep` numbers of the largest |x|, of equal ones those of the lower
 * index, as pairs of index and value by rising index. Error feedback (Stich, Cordonnier, Jaggi 2018):
 * a number that is not sent stays in the residual, to the bit, and is added to the next gradient; one
 * that is not finite is sent or dropped. See codec.h.
 *
 * The choice is exact: a radix select over the bits of |x|, in digits of 11, 10 and 10 bits. It
 * looks at candidates only, numbers that reach a bound from a sample, which a mask of bits marks
 * while the residual is added. Where too few or too many reach it, all numbers are candidates.
 */
#include "train/strategies/codecs/codec.h"

#include "base/float16.h"
#include "base/vectorised.h"
#include "train/strategies/codecs/share.h"
#ifdef ALNICO_HAVE_CUDNN
#include "train/kernels/cuda/codec.h"
#endif

#include <string.h>

enum { DIGIT = 1 << 11, WORD = 64 };

/* The numbers to choose from, `stride` floats apart, with their indices unless these are 0, 1, ... */
struct source {
    const float *values;
    const uint32_t *indices;
    size_t stride, count;
};

/* What is chosen: all above the bits, and the first `ties` of those equal to them. */
struct bound {
    uint32_t bits;
    size_t ties;
};

static inline uint32_t magnitude(float x)
{
    return bits32(x) & 0x7fffffff;
}

static size_t topk_bytes(size_t count, size_t keep)
{
    (void)count;
    return keep * sizeof(struct codec_pair);
}

/* ---- Choosing ---- */

/* Counts the digits at `shift` of those numbers whose bits above it are `prefix`. */
static void digits_count(const struct source *source, unsigned shift, uint32_t digits,
                         uint32_t prefix, size_t *counts)
{
#pragma omp parallel if (source->count > CODEC_SHARE_LEAST)
    {
        uint32_t mine[DIGIT] = {0};
        const struct codec_share share = codec_share(source->count, CODEC_SHARE_LINE);
        for (size_t i = share.begin; i < share.begin + share.count; i++) {
            const uint32_t bits = magnitude(source->values[i * source->stride]) >> shift;
            mine[bits % digits] += bits / digits == prefix;
        }
#pragma omp critical(codec_topk_digits)
        for (uint32_t digit = 0; digit < digits; digit++)
            counts[digit] += mine[digit];
    }
}

static struct bound bound_find(const struct source *source, size_t keep)
{
    static const struct {
        unsigned shift;
        uint32_t digits;
    } passes[] = {{20, 1 << 11}, {10, 1 << 10}, {0, 1 << 10}};
    struct bound bound = {0, keep};
    for (size_t p = 0; p < sizeof passes / sizeof *passes; p++) {
        size_t counts[DIGIT] = {0};
        uint32_t digit = passes[p].digits - 1;
        digits_count(source, passes[p].shift, passes[p].digits, bound.bits, counts);
        for (; counts[digit] < bound.ties; digit--)
            bound.ties -= counts[digit];
        bound.bits = bound.bits * passes[p].digits + digit;
    }
    return bound;
}

/* ---- Candidates ---- */

static inline float corrected(float value, float residual, float inverse)
{
    return value * inverse + residual;
}

/* Bits that a few more numbers reach than are wanted, and all that are not finite; 0: all do. */
static uint32_t bound_guess(const struct codec_pass *pass, float inverse)
{
    const size_t rank = codec_sample_rank(pass->count, pass->keep);
    float sample[CODEC_SAMPLE];
    if (!rank)
        return 0;
    for (uint32_t i = 0; i < CODEC_SAMPLE; i++) {
        const size_t at = codec_sample_at(i, pass->count);
        sample[i] = corrected(pass->values[at], pass->residual[at], inverse);
    }
    const uint32_t bits = bound_find(&(struct source){sample, NULL, 1, CODEC_SAMPLE}, rank).bits;
    return bits < CODEC_INFINITE ? bits : CODEC_INFINITE;
}

/* Bit i of the word: whether flag i is 1, of 64 bytes that are 0 or 1. */
static inline uint64_t word_of(const uint8_t *flags)
{
    uint64_t word = 0;
    for (unsigned i = 0; i < WORD / 8; i++) {
        uint64_t eight;
        memcpy(&eight, flags + i * 8, sizeof eight);
        word |= (eight * UINT64_C(0x0102040810204080) >> 56) << i * 8;
    }
    return word;
}

/* Adds the gradient to the residual and marks what reaches the bound. The count is a multiple of 64,
 * but at the end of the range. */
VECTORISED static void residual_add(float *residual, const float *values, size_t count,
                                    float inverse, uint32_t bound, uint64_t *mask)
{
    uint8_t flags[WORD] = {0};
    for (size_t at = 0; at < count; at += WORD, residual += WORD, values += WORD) {
        const size_t length = count - at < WORD ? count - at : WORD;
        memset(flags + length, 0, WORD - length);
#pragma omp simd
        for (size_t i = 0; i < length; i++) {
            residual[i] = corrected(values[i], residual[i], inverse);
            flags[i] = magnitude(residual[i]) >= bound;
        }
        mask[at / WORD] = word_of(flags);
    }
}

VECTORISED static size_t bits_count(const uint64_t *mask, size_t words)
{
    size_t sum = 0;
    for (size_t i = 0; i < words; i++)
        sum += (size_t)__builtin_popcountll(mask[i]);
    return sum;
}

/* The marked numbers, of words that begin at number `at`. */
static void candidates_copy(const float *residual, const uint64_t *mask, size_t words, size_t at,
                            struct codec_pair *out)
{
    for (size_t w = 0; w < words; w++, at += WORD)
        for (uint64_t word = mask[w]; word; word &= word - 1) {
            const size_t index = at + (size_t)__builtin_ctzll(word);
            *out++ = (struct codec_pair){(uint32_t)index, residual[index]};
        }
}

struct scratch {
    uint64_t *mask;
    struct codec_pair *candidates;
};

static size_t words_of(size_t count)
{
    return (count + WORD - 1) / WORD;
}

static struct scratch scratch_of(const struct codec_pass *pass)
{
    uint64_t *mask = pass->scratch;
    return (struct scratch){mask, (struct codec_pair *)(mask + words_of(pass->count))};
}

static size_t topk_scratch(const struct codec_pass *pass)
{
    return words_of(pass->count) * sizeof(uint64_t) +
           codec_candidates(pass->count, pass->keep) * sizeof(struct codec_pair);
}

/* Brings the residual up to date. Returns the candidates. */
static struct source source_make(const struct codec_pass *pass, float inverse)
{
    const struct scratch s = scratch_of(pass);
    const uint32_t guess = bound_guess(pass, inverse);
    const size_t words = words_of(pass->count), room = codec_candidates(pass->count, pass->keep);
    size_t found = 0;
#pragma omp parallel if (pass->count > CODEC_SHARE_LEAST)
    {
        const struct codec_share share = codec_share(words, 1);
        const size_t at = share.begin * WORD, rest = at < pass->count ? pass->count - at : 0;
        residual_add(pass->residual + at, pass->values + at,
                     share.count * WORD < rest ? share.count * WORD : rest, inverse, guess,
                     s.mask + share.begin);
        const size_t mine = bits_count(s.mask + share.begin, share.count);
#pragma omp atomic
        found += mine;
#pragma omp barrier
        if (found >= pass->keep && found <= room)
            candidates_copy(pass->residual, s.mask + share.begin, share.count, at,
                            s.candidates + bits_count(s.mask, share.begin));
    }
    if (found < pass->keep || found > room)
        return (struct source){pass->residual, NULL, 1, pass->count};
    return (struct source){&s.candidates->value, &s.candidates->index, 2, found};
}

/* ---- Encoding and decoding ---- */

static void chosen_send(const struct codec_pass *pass, const struct source *source,
                        struct bound bound, float scale)
{
    struct codec_pair *out = pass->encoded;
    for (size_t i = 0; i < source->count; i++) {
        const float value = source->values[i * source->stride];
        const uint32_t bits = magnitude(value);
        const bool sent = bits > bound.bits || (bits == bound.bits && bound.ties > 0);
        if (!sent && bits < CODEC_INFINITE)
            continue;
        const size_t index = source->indices ? source->indices[i * source->stride] : i;
        pass->residual[index] = 0;
        if (!sent)
            continue;
        bound.ties -= bits == bound.bits;
        *out++ = (struct codec_pair){(uint32_t)index, value * scale};
    }
}

static void topk_encode(void *argument)
{
    const struct codec_pass *pass = argument;
    const float scale = pass->scale ? *pass->scale : 1;
    const struct source source = source_make(pass, 1 / scale);
    chosen_send(pass, &source, bound_find(&source, pass->keep), scale);
}

/* The first pair of an index that is not below. */
static const struct codec_pair *pair_find(const struct codec_pair *pairs, size_t count,
                                          size_t index)
{
    while (count) {
        const size_t half = count / 2;
        const bool below = pairs[half].index < index;
        pairs = below ? pairs + half + 1 : pairs;
        count = below ? count - half - 1 : half;
    }
    return pairs;
}

static void pairs_add(const struct codec_pass *pass, size_t begin, size_t end)
{
    for (size_t part = 0; part < pass->parts; part++) {
        const struct codec_pair *first =
            (const struct codec_pair *)((const char *)pass->encoded + part * pass->stride);
        const struct codec_pair *pair = pair_find(first, pass->keep, begin);
        for (; pair < first + pass->keep && pair->index < end; pair++)
            pass->values[pair->index] += pair->value;
    }
}

/* The sum of all parts first, so that a factor is applied once: in pieces that stay in a cache. */
static void topk_decode(void *argument)
{
    enum { PIECE = 4096 };
    const struct codec_pass *pass = argument;
#pragma omp parallel for schedule(static) if (pass->count > CODEC_SHARE_LEAST)
    for (size_t piece = 0; piece < (pass->count + PIECE - 1) / PIECE; piece++) {
        const size_t begin = piece * PIECE,
                     end = begin + PIECE < pass->count ? begin + PIECE : pass->count;
        memset(pass->values + begin, 0, (end - begin) * sizeof *pass->values);
        pairs_add(pass, begin, end);
        for (size_t i = begin; pass->factor != 1 && i < end; i++)
            pass->values[i] *= pass->factor;
    }
}

const struct codec_ops codec_topk = {
    .name = "topk",
    .about = "a share of the numbers, the largest, as pairs of index and value",
    .exchange = CODEC_GATHERED,
    .type = ALNICO_UINT32,
    .shares = true,
    .residual = true,
    .bytes = topk_bytes,
    .encode = topk_encode,
    .decode = topk_decode,
    .scratch = topk_scratch,
#ifdef ALNICO_HAVE_CUDNN
    .gpu_encode = train_topk_encode,
    .gpu_decode = train_topk_decode,
    .gpu_scratch = train_topk_scratch,
#endif
};
