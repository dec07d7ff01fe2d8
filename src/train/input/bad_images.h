/* Images that cannot be read and are left out: as many as may be, another in the place of each. Any
 * number of threads reads at once. */
#ifndef ALNICO_TRAIN_INPUT_BAD_IMAGES_H
#define ALNICO_TRAIN_INPUT_BAD_IMAGES_H

#include "train/input/source.h"

struct bad_images;

/* Leaves out at most so many images of a source, whose address stays. Errors: MEMORY, with *out NULL. */
alnico_status_t bad_images_create(const struct source *source, size_t most,
                                  struct bad_images **out);
void bad_images_destroy(struct bad_images *bad);

/* source_read, but an image that cannot be read is noted in the log, and the next that can be takes
 * its place: the same one whenever this is asked for. Errors: source_read's, when too many cannot. */
alnico_status_t bad_images_read(struct bad_images *bad, size_t index,
                                const struct source_crop *crop, void *pixels, int32_t *labels);

size_t bad_images_count(struct bad_images *bad);

#endif
