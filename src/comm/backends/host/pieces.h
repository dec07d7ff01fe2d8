/*
 * A long allreduce of memory that the host does not reach, where chunks are to be smaller than what
 * is worth a copy: pieces of the message are copied to pinned memory, reduced there by a pipeline
 * each, and copied back, a few at once. One message of a communicator at a time has its pieces. The
 * host backend polls it.
 */
#ifndef ALNICO_COMM_BACKENDS_HOST_PIECES_H
#define ALNICO_COMM_BACKENDS_HOST_PIECES_H

#include "comm/backends/host/pipeline.h"

struct pieces;

/* For messages through `staging`, which it does not own. Errors: MEMORY. */
alnico_status_t pieces_create(struct staging *staging, struct pieces **out);
void pieces_destroy(struct pieces *pieces); /* NULL is fine */

/* Whether the chunks of a pipeline with staging, after pipeline_begin, are better cut out of
 * pieces. */
bool pieces_suit(const struct pipeline *whole);

/* Cuts the message that `whole` describes, which stays as it is until the end; sends nothing yet.
 * Nothing of the message before is under way. */
void pieces_begin(struct pieces *pieces, const struct pipeline *whole);

/* As pipeline_poll and pipeline_cancel. */
alnico_status_t pieces_poll(struct pieces *pieces, bool *moved);
void pieces_cancel(struct pieces *pieces);

#endif
