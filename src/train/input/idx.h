/* One IDX file of bytes, gzip or plain, read whole into memory and checked. Any thread. */
#ifndef ALNICO_TRAIN_INPUT_IDX_H
#define ALNICO_TRAIN_INPUT_IDX_H

#include <alnico/alnico.h>

#include <stdint.h>

/* `count` items of height x width bytes (1 x 1 for labels), row by row; owned by the struct. */
struct idx {
    char path[512];
    uint8_t *bytes;
    size_t count, height, width;
};

/* Reads directory/name, or directory/name.gz if that does not exist. `dimensions` is 1 for labels
 * or 3 for images. Errors: ARGUMENT (missing, not IDX of bytes with that many dimensions, empty,
 * truncated, damaged, or longer than its header says: with the file's name), MEMORY. On error *out
 * is empty. */
alnico_status_t idx_read(const char *directory, const char *name, int dimensions, struct idx *out);

/* Frees the bytes; an empty or zeroed struct is fine. */
void idx_finish(struct idx *idx);

#endif
