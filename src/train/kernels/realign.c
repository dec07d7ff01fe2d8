/* See realign.h. A row that moves right overwrites only rows behind it, so that the last goes first. */
#include "train/kernels/realign.h"

#include <string.h>

static void realign_right(const struct realign *pass)
{
    for (size_t row = pass->rows; row-- > 0;) {
        float *to = pass->matrix + row * (pass->columns + 1);
        memmove(to + 1, pass->matrix + row * pass->columns, pass->columns * sizeof *to);
        *to = 1;
    }
}

static void realign_left(const struct realign *pass)
{
    for (size_t row = 0; row < pass->rows; row++)
        memmove(pass->matrix + row * pass->columns, pass->matrix + row * (pass->columns + 1) + 1,
                pass->columns * sizeof *pass->matrix);
}

void realign(const struct realign *pass)
{
    if (pass->right)
        realign_right(pass);
    else
        realign_left(pass);
}
