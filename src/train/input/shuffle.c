/* Shuffling. See shuffle.h. */
#include "train/input/shuffle.h"

#include "base/status.h"
#include "train/base/random.h"

#include <stdlib.h>

static size_t block_count(const struct shuffle *shuffle)
{
    return (shuffle->count + shuffle->block - 1) / shuffle->block;
}

static void in_order(uint32_t *out, size_t count)
{
    for (size_t i = 0; i < count; i++)
        out[i] = (uint32_t)i;
}

alnico_status_t shuffle_create(size_t count, size_t block, struct shuffle *out)
{
    *out = (struct shuffle){.count = count, .block = block};
    out->order = calloc(count, sizeof *out->order);
    if (block)
        out->blocks = calloc(block_count(out), sizeof *out->blocks);
    if (!out->order || (block && !out->blocks))
        return error_set(ALNICO_ERROR_MEMORY, "no memory for the order of %zu images", count);
    in_order(out->order, count);
    return ALNICO_SUCCESS;
}

void shuffle_free(struct shuffle *shuffle)
{
    free(shuffle->order);
    free(shuffle->blocks);
    *shuffle = (struct shuffle){0};
}

/* Fisher and Yates. */
static void permute(uint32_t *order, size_t count, uint64_t *state)
{
    for (size_t i = count; i > 1; i--) {
        const size_t j = random_next(state) % i;
        const uint32_t other = order[j];
        order[j] = order[i - 1];
        order[i - 1] = other;
    }
}

/* The images of the blocks, one block behind the other. */
static void write_blocks(struct shuffle *shuffle)
{
    uint32_t *out = shuffle->order;
    for (size_t b = 0; b < block_count(shuffle); b++) {
        const size_t first = shuffle->blocks[b] * shuffle->block, rest = shuffle->count - first;
        for (size_t i = 0; i < shuffle->block && i < rest; i++)
            *out++ = (uint32_t)(first + i);
    }
}

void shuffle_draw(struct shuffle *shuffle, uint64_t state)
{
    shuffle->expected = 0;
    if (!shuffle->block) {
        in_order(shuffle->order, shuffle->count);
        permute(shuffle->order, shuffle->count, &state);
        return;
    }
    const size_t window = SHUFFLE_WINDOW * shuffle->block;
    in_order(shuffle->blocks, block_count(shuffle));
    permute(shuffle->blocks, block_count(shuffle), &state);
    write_blocks(shuffle);
    for (size_t at = 0; at < shuffle->count; at += window)
        permute(shuffle->order + at, shuffle->count - at < window ? shuffle->count - at : window,
                &state);
}

/* A short block moves those behind it, so that a window may end in one more. */
static void expect_window(const struct shuffle *shuffle, size_t window, const struct source *source)
{
    for (size_t b = window * SHUFFLE_WINDOW;
         b <= (window + 1) * SHUFFLE_WINDOW && b < block_count(shuffle); b++) {
        const size_t first = shuffle->blocks[b] * shuffle->block, rest = shuffle->count - first;
        source->ops->expect(source->self, first, rest < shuffle->block ? rest : shuffle->block);
    }
}

void shuffle_expect(struct shuffle *shuffle, size_t from, size_t to, const struct source *source)
{
    const size_t window = SHUFFLE_WINDOW * shuffle->block;
    if (!shuffle->block || !source->ops->expect)
        return;
    if (shuffle->expected < from / window)
        shuffle->expected = from / window;
    for (; shuffle->expected < to / window + 2; shuffle->expected++)
        expect_window(shuffle, shuffle->expected, source);
}
