/* Shifts and flips of images. See augment.h. */
#include "train/input/augment.h"

#include <stdlib.h>
#include <string.h>

enum { MOST_SHIFT = 2 };

struct augment_move augment_draw(uint64_t bits)
{
    const uint64_t range = 2 * MOST_SHIFT + 1;
    return (struct augment_move){.down = (int)(bits % range) - MOST_SHIFT,
                                 .right = (int)((bits >> 16) % range) - MOST_SHIFT,
                                 .flip = bits >> 63};
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
