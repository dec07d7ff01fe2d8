/*
 * Vote: whether all ranks of a host want the same thing in one of their calls, without a wait for those that
 * come late. Ranks vote by one word that all map. A rank that does not want it says so and goes on. One
 * that does waits a little for the others, and may give up: the word decides, in one atomic step, whether
 * all had come before.
 *
 * Votes have numbers that grow, equal on all ranks; a rank may leave any out, of which then nothing comes. The
 * word is that of the newest vote that anybody has come to. One that all came to stays until all have left it; any
 * other may be replaced, so that whoever finds a later number knows that its vote has failed. What a rank
 * posts beside the word is read by the others between the last one's coming and their leaving.
 */
#ifndef ALNICO_COMM_COMMUNICATOR_VOTE_H
#define ALNICO_COMM_COMMUNICATOR_VOTE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

enum { VOTE_RANKS = 8 };

/* Zero at first. */
struct vote {
    _Atomic uint64_t word;
};

/* One rank's part in one vote. */
struct ballot {
    struct vote *vote;
    uint64_t number; /* from 1, below 2^40 */
    int rank, size;
};

enum vote_outcome { VOTE_OPEN, VOTE_ALL, VOTE_FAILED };

/* A vote is free once all have left the one before: this rank may post and come to it. */
bool vote_is_free(const struct ballot *ballot);

/* This rank wants it, having posted; or does not. After vote_is_free. */
void vote_join(const struct ballot *ballot);
void vote_refuse(const struct ballot *ballot);

enum vote_outcome vote_look(const struct ballot *ballot);

/* Makes an open vote fail; returns the outcome, which may be VOTE_ALL. */
enum vote_outcome vote_give_up(const struct ballot *ballot);

/* After VOTE_ALL: this rank has read what the others have posted. */
void vote_leave(const struct ballot *ballot);

#endif
