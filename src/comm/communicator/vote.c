/* The word: who has come, who has left, whether somebody refused or gave up, and the vote's number. */
#include "comm/communicator/vote.h"

enum { LEFT = VOTE_RANKS, FAILED = 2 * VOTE_RANKS, NUMBER = 24 };

static uint64_t all_of(const struct ballot *b)
{
    return (1u << b->size) - 1;
}

static uint64_t number_of(uint64_t word)
{
    return word >> NUMBER;
}

static bool has_failed(uint64_t word)
{
    return word >> FAILED & 1;
}

static bool have_all_come(const struct ballot *b, uint64_t word)
{
    return !has_failed(word) && (word & all_of(b)) == all_of(b);
}

/* Acquire: what the others posted before they came is there. */
static uint64_t load(const struct ballot *b)
{
    return atomic_load_explicit(&b->vote->word, memory_order_acquire);
}

bool vote_is_free(const struct ballot *b)
{
    uint64_t word = load(b);
    return number_of(word) >= b->number || !have_all_come(b, word) ||
           (word >> LEFT & all_of(b)) == all_of(b);
}

/* Adds bits to the vote's word, which it begins if need be. Release: this rank's post is there before it
 * has come. */
static void add(const struct ballot *b, uint64_t bits)
{
    uint64_t word = load(b), next;
    do {
        if (number_of(word) > b->number)
            return;
        next = (number_of(word) == b->number ? word : b->number << NUMBER) | bits;
    } while (!atomic_compare_exchange_weak_explicit(&b->vote->word, &word, next,
                                                    memory_order_acq_rel, memory_order_acquire));
}

void vote_join(const struct ballot *b)
{
    add(b, 1u << b->rank);
}

void vote_refuse(const struct ballot *b)
{
    add(b, 1u << FAILED);
}

static enum vote_outcome outcome_of(const struct ballot *b, uint64_t word)
{
    if (number_of(word) != b->number || has_failed(word))
        return VOTE_FAILED;
    return have_all_come(b, word) ? VOTE_ALL : VOTE_OPEN;
}

enum vote_outcome vote_look(const struct ballot *b)
{
    return outcome_of(b, load(b));
}

enum vote_outcome vote_give_up(const struct ballot *b)
{
    uint64_t word = load(b);
    while (outcome_of(b, word) == VOTE_OPEN)
        if (atomic_compare_exchange_weak_explicit(&b->vote->word, &word, word | 1u << FAILED,
                                                  memory_order_acq_rel, memory_order_acquire))
            return VOTE_FAILED;
    return outcome_of(b, word);
}

/* Release: the posts are read before they may be written again. */
void vote_leave(const struct ballot *b)
{
    atomic_fetch_or_explicit(&b->vote->word, 1u << (LEFT + b->rank), memory_order_release);
}
