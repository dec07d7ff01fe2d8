/* Shared copy: two processes copy a message together. Both take pieces from one counter; the receiver
 * reads its pieces from the sender's memory, and a sender that waits writes its own to the
 * receiver's. Under the rank's lock. */
#include "comm/transports/shm/shm.h"

#include "device/backoff.h"

#include <sys/uio.h>

enum {
    SHARE_FROM = 192 << 10, /* bytes; measured: below it the second rank may come too late */
    PIECE_MOST = 256 << 10, /* measured: smaller ones cost as much as they share out better */
    PAGE = 4 << 10,
    SETTLE_NS = 200000000 /* by far longer than a piece takes */
};

typedef ssize_t transfer_call(pid_t, const struct iovec *, unsigned long, const struct iovec *,
                              unsigned long, unsigned long);

static bool transfer_all(transfer_call *call, int pid, char *here, uint64_t there, size_t bytes)
{
    while (bytes) {
        struct iovec local = {here, bytes}, remote = {(void *)(uintptr_t)there, bytes};
        ssize_t got = call(pid, &local, 1, &remote, 1, 0);
        if (got <= 0)
            return false;
        here += got;
        there += (uint64_t)got;
        bytes -= (size_t)got;
    }
    return true;
}

bool read_process(int pid, char *to, uint64_t from, size_t bytes)
{
    return transfer_all(process_vm_readv, pid, to, from, bytes);
}

/* The next piece that nobody has taken; false if there is none. */
static bool take_piece(struct share *share, uint32_t *piece)
{
    if (atomic_load_explicit(&share->next, memory_order_relaxed) >= share->pieces)
        return false;
    *piece = atomic_fetch_add_explicit(&share->next, 1, memory_order_acq_rel);
    return *piece < share->pieces;
}

static size_t piece_at(const struct share *share, uint32_t piece)
{
    return (size_t)piece * share->piece_bytes;
}

static size_t piece_bytes(const struct share *share, const struct message *m, uint32_t piece)
{
    size_t left = m->bytes - piece_at(share, piece);
    return left < share->piece_bytes ? left : share->piece_bytes;
}

/* Then the other rank has a copy of its own to make. */
static bool sends_too(const struct transport_shm *t)
{
    for (int i = 0; i < t->base.size; i++)
        if (t->peer[i].offers)
            return true;
    return false;
}

bool share_suits(const struct transport_shm *t, const struct shm_peer *p, const struct message *m)
{
    return p->shares && m->bytes >= SHARE_FROM && m->bytes >= p->direct_from && !sends_too(t);
}

static void set_up(struct share *share, const struct message *m)
{
    size_t bytes = (m->bytes / 2 + PAGE - 1) / PAGE * PAGE;
    if (bytes > PIECE_MOST)
        bytes = PIECE_MOST;
    share->address = (uintptr_t)m->buffer;
    share->piece_bytes = (uint32_t)bytes;
    share->pieces = (uint32_t)((m->bytes + bytes - 1) / bytes);
    atomic_store_explicit(&share->next, 0, memory_order_relaxed);
    atomic_store_explicit(&share->written, 0, memory_order_relaxed);
    atomic_store_explicit(&share->refused, 0, memory_order_relaxed);
}

/* The next piece for the receiver: one that the sender may not copy, or that nobody has taken. */
static bool next_piece(struct message *m, struct share *share)
{
    uint32_t piece, refused = atomic_exchange_explicit(&share->refused, 0, memory_order_acq_rel);
    if (refused)
        m->unread = refused;
    else if (take_piece(share, &piece))
        m->unread = piece + 1;
    else
        return false;
    m->taken++;
    return true;
}

/* A piece that cannot be read is tried again at the next poll; if it never can, the sender is gone. */
static void read_pieces(struct shm_peer *p, struct message *m, struct share *share)
{
    while (m->unread || next_piece(m, share)) {
        uint32_t piece = m->unread - 1;
        size_t at = piece_at(share, piece);
        if (!read_process(p->pid, m->buffer + at, m->address + at, piece_bytes(share, m, piece)))
            return;
        m->unread = 0;
        m->read++;
    }
}

bool share_begin(struct transport_shm *t, struct shm_peer *p, struct message *m,
                 const struct cell *cell)
{
    struct channel *channel = p->in.channel;
    struct share *share = &channel->shares[cell->offer];
    m->offer = cell->offer;
    m->word = cell->body.offer.word;
    if (!offer_move(channel, m->offer, m->word, OFFER_OPEN, OFFER_CLAIMED))
        return false;
    set_up(share, m); /* not before: the place may be another offer's by now */
    m->address = cell->body.offer.address;
    m->taken = m->read = m->unread = 0;
    if (!offer_move(channel, m->offer, m->word, OFFER_CLAIMED, OFFER_SHARED))
        return false;
    m->state = RECEIVE_SHARED;
    share_advance(t, p, m);
    return true;
}

/* If the sender has withdrawn the offer meanwhile, that is seen at the next look. */
void share_advance(struct transport_shm *t, struct shm_peer *p, struct message *m)
{
    struct channel *channel = p->in.channel;
    struct share *share = &channel->shares[m->offer];
    read_pieces(p, m, share);
    if (m->read + atomic_load_explicit(&share->written, memory_order_acquire) == share->pieces &&
        offer_move(channel, m->offer, m->word, OFFER_SHARED, OFFER_DONE)) {
        calibrate_end(t, p, m, COPY_DIRECTLY);
        message_end(m, ALNICO_SUCCESS);
    }
}

struct settlement {
    const struct transport_shm *t;
    const struct message *m;
    const struct share *share;
    uint32_t taken; /* pieces, by both sides */
};

/* Whether the sender copies none of the pieces that were taken, or has ended. */
static enum wait look_for_settled(void *context)
{
    const struct settlement *s = context;
    uint32_t refused = atomic_load_explicit(&s->share->refused, memory_order_acquire) != 0;
    uint32_t written = atomic_load_explicit(&s->share->written, memory_order_acquire);
    bool settled = s->m->taken + written + refused >= s->taken;
    return settled || segment_gone(&s->t->segment, s->m->peer) ? WAIT_DONE : WAIT_IDLE;
}

/* A sender stopped in its system call has copied by then, and only could not say so. One stopped
 * between taking a piece and the call, some hundred nanoseconds, would still write it later. */
void share_cancel(struct transport_shm *t, struct message *m)
{
    struct channel *channel = t->peer[m->peer].in.channel;
    struct share *share = &channel->shares[m->offer];
    uint32_t taken = atomic_exchange_explicit(&share->next, share->pieces, memory_order_acq_rel);
    struct settlement s = {t, m, share, taken < share->pieces ? taken : share->pieces};
    wait_until(look_for_settled, &s, backoff_now_ns() + SETTLE_NS, false);
    offer_move(channel, m->offer, m->word, OFFER_SHARED, OFFER_REFUSED);
}

void share_write(struct shm_peer *p, const struct message *m)
{
    struct share *share = &p->out.channel->shares[m->offer];
    uint32_t piece;
    while (p->writes && take_piece(share, &piece)) {
        size_t at = piece_at(share, piece);
        p->writes = transfer_all(process_vm_writev, p->pid, m->buffer + at, share->address + at,
                                 piece_bytes(share, m, piece));
        if (p->writes)
            atomic_fetch_add_explicit(&share->written, 1, memory_order_release);
        else
            atomic_store_explicit(&share->refused, piece + 1, memory_order_release);
    }
}
