/* The collectives in one table: their names, and which blocks each reads and writes on a rank. */
#ifndef ALNICO_COMM_COLLECTIVES_H
#define ALNICO_COMM_COLLECTIVES_H

#include <alnico/alnico.h>

enum { COLLECTIVES = ALNICO_SENDRECV + 1 };

enum blocks_held { NO_BLOCK, OWN_BLOCK, ALL_BLOCKS };

extern const struct collective {
    const char *name; /* "reduce_scatter" */
    enum blocks_held reads, writes;
    bool reads_at_root, writes_at_root; /* there only */
    bool reduces, rooted;
    bool vector; /* blocks have a count each */
    bool uneven; /* ranks do not know how long all blocks are */
} collectives[COLLECTIVES];

#endif
