/* Ranks that meet in parts: each part has a rendezvous of its own, carried by that of all, so that the
 * parts need not make the same steps. On the caller's thread. */
#ifndef ALNICO_COMM_RENDEZVOUS_PARTS_H
#define ALNICO_COMM_RENDEZVOUS_PARTS_H

#include "comm/agree.h"

struct rendezvous_part {
    struct rendezvous base; /* of the part; its ranks are those of `members` */
    struct rendezvous *whole;
    const int *members;
    int *called; /* the members' ranks in the communicator that was called */
    char *blocks;
};

/* `members` are `count` ranks of `whole`, with this one at `place`. A collective call of all ranks, each
 * of one part, begins and ends together: between them a part exchanges at most PART_BYTES a rank at
 * once. Errors: MEMORY, on all ranks; the allgather's. */
enum { PART_BYTES = RENDEZVOUS_BYTES - 8 };
alnico_status_t rendezvous_part_begin(struct rendezvous_part *part, struct rendezvous *whole,
                                      const int *members, int count, int place);

/* Waits until all parts are done. Errors: the allgather's. */
alnico_status_t rendezvous_part_end(struct rendezvous_part *part);

#endif
