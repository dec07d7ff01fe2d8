/*
 * What travels on a connection: frames of 16 bytes, some with data behind them. Messages and offers
 * of a rank come in the order of their sending, on the first connection; fragments on any. All is in
 * the sender's byte order: the handshake's purpose tells hosts of another order apart.
 */
#ifndef ALNICO_COMM_TRANSPORTS_TCP_WIRE_H
#define ALNICO_COMM_TRANSPORTS_TCP_WIRE_H

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum frame_kind {
    FRAME_WHOLE = 1, /* a message: tag, bytes; its data follow */
    FRAME_OFFER,     /* a message that the receiver is to ask for: tag, bytes, id of the sender's */
    FRAME_CLEAR,     /* the receiver asks: id of the sender's, `at` is the id for the fragments */
    FRAME_DATA,      /* a fragment: id as in CLEAR, at which byte, how many; they follow */
    FRAME_MISMATCH,  /* the receiver expects another size: id of the sender's */
    FRAME_WITHDRAWN, /* the sender takes an offer back: its id */
    FRAME_CREDIT,    /* so many bytes of whole messages have been received */
    FRAME_LEAVE,     /* the rank's last frame: it destroys its end */
    FRAME_KINDS
};

struct frame {
    uint8_t kind, zero[3];
    uint32_t bytes;
    uint32_t at; /* tag, offset, or an id */
    uint32_t id;
};

enum {
    EAGER_MOST = 256 << 10,  /* bytes of a whole message: larger ones are offered */
    FRAGMENT_MOST = 1 << 20, /* bytes of a fragment */
    WHOLE_COST = 128,        /* of a whole message, besides its bytes, for who keeps it */
    WINDOW_BYTES = 1 << 20   /* whole messages on their way between two ranks, or kept */
};

/* Whether no honest rank sends such a frame, whatever came before. */
static inline bool frame_lies(const struct frame *f)
{
    const uint32_t most = f->kind == FRAME_WHOLE    ? EAGER_MOST
                          : f->kind == FRAME_OFFER  ? INT_MAX
                          : f->kind == FRAME_DATA   ? FRAGMENT_MOST
                          : f->kind == FRAME_CREDIT ? WINDOW_BYTES
                                                    : 0;
    return f->kind < FRAME_WHOLE || f->kind >= FRAME_KINDS || f->zero[0] || f->zero[1] ||
           f->zero[2] || f->bytes > most;
}

#endif
