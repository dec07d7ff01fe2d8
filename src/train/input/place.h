/* Places of sources as a user writes them: a path, and behind it perhaps the size of the images. Any
 * thread. */
#ifndef ALNICO_TRAIN_INPUT_PLACE_H
#define ALNICO_TRAIN_INPUT_PLACE_H

#include <stdbool.h>
#include <stddef.h>

enum { PLACE_BYTES = 1024 };

/* PATH, PATH@SIZE or PATH@SIZE+MARGIN; an @ that no size follows belongs to the path. */
struct place {
    char path[PLACE_BYTES];
    size_t size;   /* 0: none */
    size_t margin; /* SIZE_MAX: none */
};

/* False for a path that is empty or too long, and for no text. */
bool place_parse(const char *text, struct place *out);

#endif
