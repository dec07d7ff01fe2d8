/* The collectives in one table: their names, and which blocks each reads and writes on a rank. */
#ifndef ALNICO_COMM_COLLECTIVES_H
#define ALNICO_COMM_COLLECTIVES_H

#include <alnico/alnico.h>

enum { COLLECTIVES = ALNICO_SENDRECV + 1 };

enum blocks_held { NO_BLOCK, OWN_BLOCK, ALL_BLOCKS };

/* The argument that may be ALNICO_IN_PLACE; of rooted ones at the root only. */
enum in_place { IN_PLACE_NEVER, IN_PLACE_SEND, IN_PLACE_RECV };

extern const struct collective {
    const char *name; /* "reduce_scatter" */
    enum blocks_held reads, writes;
    bool reads_at_root, writes_at_root; /* there only */
    bool reduces, rooted;
    bool vector; /* blocks have a count each */
    bool uneven; /* ranks do not know how long all blocks are */
    enum in_place in_place;
} collectives[COLLECTIVES];

/* The one of that name, or NULL. */
const struct collective *collective_find(const char *name);

#endif
