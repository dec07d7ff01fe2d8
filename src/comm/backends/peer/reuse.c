/*
 * Completion counters: when a rank may write to a buffer again. All ranks number epochs of lines, and
 * pieces in stages and slots, alike, and a number names its buffer: n + LINE_SETS, n + STAGES or
 * n + SLOTS comes to the same one. What was written for number n may be overwritten once its readers
 * have finished n. There are three ways to know, the first two for nothing:
 *
 * - we wrote nothing there, or so long ago that we know it;
 * - a collective in which every rank sent us something: a rank that begins an epoch has finished the
 *   one before;
 * - the word `finished` of each reader. It bounds how far ranks run ahead in broadcasts and reduces;
 *   one look lasts for several epochs.
 *
 * A rank updates its word only every fourth part of the buffers: all who wait poll that word, and with
 * many of them each change costs more than the work of an epoch. The wait still ends. Of all ranks
 * take one that no other's operation is behind: the others have finished the numbers before its own,
 * n, so their words say n - buffers / 4 or more, and it writes where n - buffers was.
 */
#include "comm/backends/peer/area.h"

_Static_assert((int)BUFFERS_MOST >= (int)LINE_SETS && (int)BUFFERS_MOST >= (int)STAGES &&
                   (int)BUFFERS_MOST >= (int)SLOTS,
               "each buffer has its entry");

static const uint64_t buffers[] = {
    [LINE_EPOCHS] = LINE_SETS, [STAGE_PIECES] = STAGES, [SLOT_PIECES] = SLOTS};

static uint64_t finished_by(const struct peer *peer, int rank, enum peer_sequence which)
{
    return atomic_load_explicit(&part_of(peer, rank)->finished[which].value, memory_order_acquire);
}

static alnico_status_t ask_everybody(struct peer_run *run, enum peer_sequence which,
                                     uint64_t number)
{
    struct peer *peer = run->peer;
    for (; run->index < peer->size - 1; run->index++) {
        uint64_t finished = finished_by(peer, rank_at(peer, run->index), which);
        if (finished < number)
            return ALNICO_PENDING;
        if (finished < run->least)
            run->least = finished;
    }
    peer->sequences[which].known = run->least;
    run->least = UINT64_MAX;
    run->index = 0;
    return ALNICO_SUCCESS;
}

static alnico_status_t ask(struct peer *peer, enum peer_sequence which,
                           const struct written *written)
{
    struct written *asked = &peer->sequences[which].asked;
    if (asked->reader != written->reader || asked->number < written->number)
        *asked = (struct written){finished_by(peer, written->reader, which), written->reader};
    return asked->number < written->number ? ALNICO_PENDING : ALNICO_SUCCESS;
}

alnico_status_t peer_reuse(struct peer_run *run, enum peer_sequence which)
{
    struct sequence *sequence = &run->peer->sequences[which];
    const struct written *written = &sequence->written[(sequence->now + 1) % buffers[which]];
    if (written->number <= sequence->known)
        return ALNICO_SUCCESS;
    if (written->reader == EVERYBODY)
        return ask_everybody(run, which, written->number);
    return ask(run->peer, which, written);
}

uint64_t peer_begin_next(const struct peer_run *run, enum peer_sequence which, bool written,
                         int reader)
{
    struct sequence *sequence = &run->peer->sequences[which];
    uint64_t number = ++sequence->now;
    if (written)
        sequence->written[number % buffers[which]] = (struct written){number, reader};
    return number;
}

void peer_all_began(const struct peer_run *run, enum peer_sequence which, uint64_t number)
{
    struct sequence *sequence = &run->peer->sequences[which];
    if (sequence->known < number - 1)
        sequence->known = number - 1;
}

static uint64_t reports_every(enum peer_sequence which)
{
    return buffers[which] < 4 ? 1 : buffers[which] / 4;
}

/* Release: what we read of others comes before they write there again. */
void peer_finish(const struct peer_run *run, enum peer_sequence which, uint64_t number)
{
    if (number % reports_every(which) == 0)
        atomic_store_explicit(&own_part(run)->finished[which].value, number, memory_order_release);
}
