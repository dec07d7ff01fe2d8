/* Placing buffers of memory that live for a while in one allocation. Used by
 * graph/memory_plan.c. */
#ifndef ALNICO_TRAIN_GRAPH_PLACEMENT_H
#define ALNICO_TRAIN_GRAPH_PLACEMENT_H

#include <stddef.h>

struct buffer {
    size_t bytes;
    size_t from, to; /* lives at these times and those between */
    size_t *place;   /* where its offset goes */
};

/* Places all buffers, so that no two that live at one time overlap; sorts the array. Returns the
 * bytes of the allocation. The largest come first, each at the lowest free place (as in Pisarchyk
 * and Lee 2020, "Efficient memory management for deep neural net inference"); or those that live
 * the longest, where that takes less. */
size_t buffers_place(struct buffer *buffers, size_t count);

/* The most bytes that live at one of the times 0 .. times - 1. */
size_t buffers_least(const struct buffer *buffers, size_t count, size_t times);

#endif
