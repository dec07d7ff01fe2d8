/* What ranks send each other in a move of a split network. Forward, a rank's box of the tensor read is
 * sent in pieces to the ranks that read them; backward, their gradients come back and are added. Made
 * from the network alone, alike on all ranks. Used by the replica. Any thread. */
#ifndef ALNICO_TRAIN_GRAPH_MOVES_H
#define ALNICO_TRAIN_GRAPH_MOVES_H

#include "train/graph/part.h"

struct move_message {
    int peer;
    struct box box; /* of the whole tensor */
};

struct move {
    struct box held, made, kept; /* of the tensor read, of the one made, of both */
    struct box margins[4];       /* of the one made, beyond the ends of the image; may be empty */
    /* By peer. To and from the same peer there is at most one each. */
    struct move_message *sends, *receives;
    size_t send_count, receive_count;
};

/* The move of a node of kind OPERATION_MOVE, for a batch of so many images on all ranks. Errors:
 * MEMORY. */
alnico_status_t move_create(const struct network *network, size_t node, size_t batch,
                            struct move *out);
void move_destroy(struct move *move);

/* Numbers sent and received. */
size_t move_sends(const struct move *move);
size_t move_receives(const struct move *move);

#endif
