/* Names, choice and drawing of moves, and shifts and flips. See augment.h. */
#include "train/input/augment.h"

#include "base/status.h"
#include "train/base/random.h"

#include <stdlib.h>
#include <string.h>

enum { MOST_SHIFT = 2 };

/* In the order of their bits. */
static const char *const names[] = {"none", "shift", "flip", "crop", NULL};

/* The bit of the name that *text begins with, ended or followed by a comma; 0: none. */
static unsigned parse_way(const char **text)
{
    const size_t length = strcspn(*text, ",");
    for (unsigned i = 0; names[i]; i++)
        if (strlen(names[i]) == length && !memcmp(names[i], *text, length)) {
            *text += length;
            return 1U << i;
        }
    return 0;
}

bool augment_parse(const char *text, unsigned *out)
{
    unsigned ways = 0, way;
    if (strcmp(text, "default") == 0) {
        *out = AUGMENT_DEFAULT;
        return true;
    }
    do {
        way = parse_way(&text);
        if (!way || ways & (way | AUGMENT_NONE) || (ways && way == AUGMENT_NONE))
            return false;
        ways |= way;
    } while (*text++ == ',');
    *out = ways;
    return true;
}

alnico_status_t augment_choose(const struct data_info *info, unsigned wanted, unsigned *out)
{
    const unsigned ways = wanted == AUGMENT_DEFAULT ? info->augment : wanted & ~AUGMENT_NONE;
    *out = ways;
    for (unsigned i = 0; names[i]; i++)
        if (ways & ~info->augments & 1U << i)
            return error_set(ALNICO_ERROR_ARGUMENT,
                             "augmentation '%s', which the source's images %s", names[i],
                             info->labels > 1          ? "with a label a pixel do not take"
                             : 1U << i == AUGMENT_CROP ? "have nothing around them for"
                                                       : "do not take");
    return ALNICO_SUCCESS;
}

struct augment_move augment_draw(unsigned ways, uint64_t state)
{
    const uint64_t bits = state, range = 2 * MOST_SHIFT + 1;
    struct augment_move move = {.crop = {0.5, 0.5}};
    if (ways & AUGMENT_SHIFT) {
        move.down = (int)(bits % range) - MOST_SHIFT;
        move.right = (int)((bits >> 16) % range) - MOST_SHIFT;
    }
    move.flip = ways & AUGMENT_FLIP && bits >> 63;
    if (ways & AUGMENT_CROP)
        move.crop.down = random_unit(&state), move.crop.right = random_unit(&state);
    return move;
}

/* out[x] = in[x + right] over a row's pixels, black where there is none. */
static void shift_row(const char *in, size_t row, size_t pixel, int right, char *out)
{
    const size_t moved = (size_t)abs(right) * pixel;
    const size_t edge = moved < row ? moved : row, rest = row - edge;
    if (right >= 0) {
        memcpy(out, in + edge, rest);
        memset(out + rest, 0, edge);
    } else {
        memcpy(out + edge, in, rest);
        memset(out, 0, edge);
    }
}

static void mirror_row(char *row, size_t width, size_t pixel)
{
    for (size_t left = 0, right = width - 1; left < right; left++, right--)
        for (size_t i = 0; i < pixel; i++) {
            const char other = row[left * pixel + i];
            row[left * pixel + i] = row[right * pixel + i];
            row[right * pixel + i] = other;
        }
}

void augment_apply(const struct data_info *info, const struct augment_move *move, const void *in,
                   void *out)
{
    const size_t pixel = source_pixel(info), row = info->width * pixel;
    const int height = (int)info->height;
    char *to = out;
    for (int y = 0; y < height; y++, to += row) {
        const int from = y + move->down;
        if (from < 0 || from >= height)
            memset(to, 0, row);
        else
            shift_row((const char *)in + (size_t)from * row, row, pixel, move->right, to);
        if (move->flip)
            mirror_row(to, info->width, pixel);
    }
}
