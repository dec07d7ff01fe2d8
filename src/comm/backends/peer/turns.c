/*
 * When a rank may write to a buffer again. All ranks number turns of lines, and pieces in stages
 * and slots, alike, and a number names its buffer. What was written for number n may be overwritten
 * once its readers have finished n; n + LINE_SETS, n + STAGES or n + SLOTS comes to the same
 * buffer. There are three ways to know, the first two for nothing:
 *
 * - we wrote nothing there, or so long ago that we know it;
 * - a collective in which we heard from everybody: who begins a turn has finished the one before;
 * - the word `finished` of each reader. Of broadcasts and reduces, in which ranks may run ahead of
 *   each other, that bounds by how much; one look lasts for several turns.
 *
 * A rank says what it has finished only with every fourth part of the buffers: all who wait look at
 * that word, and with many of them each change of it costs more than the work of a turn. The wait
 * still ends. Of all ranks take one whose operation no other's is behind: the others have finished
 * the numbers before its own, n, so they have said n - buffers / 4 or more, and it writes where n -
 * buffers was.
 */
#include "comm/backends/peer/area.h"

_Static_assert((int)LEASES >= (int)LINE_SETS && (int)LEASES >= (int)STAGES &&
                   (int)LEASES >= (int)SLOTS,
               "each buffer has its lease");

static const uint64_t buffers[] = {[TURNS] = LINE_SETS, [PIECES] = STAGES, [FLOWS] = SLOTS};

static uint64_t finished_by(const struct peer *peer, int rank, enum peer_count which)
{
    return atomic_load_explicit(&part_of(peer, rank)->finished[which].value, memory_order_acquire);
}

static alnico_status_t ask_everybody(struct peer_run *run, enum peer_count which, uint64_t number)
{
    struct peer *peer = run->peer;
    for (; run->index < peer->size - 1; run->index++) {
        uint64_t finished = finished_by(peer, rank_at(peer, run->index), which);
        if (finished < number)
            return ALNICO_PENDING;
        if (finished < run->least)
            run->least = finished;
    }
    peer->counts[which].known = run->least;
    run->least = UINT64_MAX;
    run->index = 0;
    return ALNICO_SUCCESS;
}

static alnico_status_t ask(struct peer *peer, enum peer_count which, const struct lease *lease)
{
    struct lease *asked = &peer->counts[which].asked;
    if (asked->reader != lease->reader || asked->number < lease->number)
        *asked = (struct lease){finished_by(peer, lease->reader, which), lease->reader};
    return asked->number < lease->number ? ALNICO_PENDING : ALNICO_SUCCESS;
}

alnico_status_t peer_reuse(struct peer_run *run, enum peer_count which)
{
    struct count *count = &run->peer->counts[which];
    const struct lease *lease = &count->leases[(count->now + 1) % buffers[which]];
    if (lease->number <= count->known)
        return ALNICO_SUCCESS;
    if (lease->reader == EVERYBODY)
        return ask_everybody(run, which, lease->number);
    return ask(run->peer, which, lease);
}

uint64_t peer_begin_next(const struct peer_run *run, enum peer_count which, bool written,
                         int reader)
{
    struct count *count = &run->peer->counts[which];
    uint64_t number = ++count->now;
    if (written)
        count->leases[number % buffers[which]] = (struct lease){number, reader};
    return number;
}

void peer_all_began(const struct peer_run *run, enum peer_count which, uint64_t number)
{
    struct count *count = &run->peer->counts[which];
    if (count->known < number - 1)
        count->known = number - 1;
}

static uint64_t tells_every(enum peer_count which)
{
    return buffers[which] < 4 ? 1 : buffers[which] / 4;
}

/* The order: what we read of others comes before they write there again. */
void peer_finish(const struct peer_run *run, enum peer_count which, uint64_t number)
{
    if (number % tells_every(which) == 0)
        atomic_store_explicit(&own_part(run)->finished[which].value, number, memory_order_release);
}
