/*
 * A one-way channel in shared memory, from one rank to another: a ring of cells, two cache lines
 * each, and a ring of bytes for what does not fit into a cell. One writer, one reader, no locks: a
 * cell is there when its stamp is the number of cells written so far. Large messages are offered: a
 * word for each offer says how far the two sides are. The shared memory begins zeroed. Each side
 * has one thread at a time.
 */
#ifndef ALNICO_COMM_TRANSPORTS_SHM_CHANNEL_H
#define ALNICO_COMM_TRANSPORTS_SHM_CHANNEL_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    CELL_INLINE = 112, /* bytes that a cell itself carries: processors fetch lines in pairs */
    /* By far more than all operations of a communicator that are in flight have at once. */
    CHANNEL_OFFERS = 1024,
    CHANNEL_SHARES = 16 /* the first ones, which both sides may copy */
};

enum cell_kind {
    CELL_WHOLE,   /* a whole message, its bytes inline or in the ring */
    CELL_OFFER,   /* the header of a message whose bytes are at the sender's address */
    CELL_FRAGMENT /* the next bytes of an offer that the reader asked for */
};

/* The states of an offer, in the low bits of its word; above them is the offer's number, so that a
 * late word about an old one changes nothing. */
enum offer_state {
    OFFER_OPEN,      /* the writer's buffer is valid, and the reader may claim it */
    OFFER_CLAIMED,   /* the reader copies from the buffer */
    OFFER_CLEAR,     /* the reader asks for fragments */
    OFFER_DONE,      /* the reader has all bytes */
    OFFER_MISMATCH,  /* the reader expects another size */
    OFFER_REFUSED,   /* the reader has given up */
    OFFER_WITHDRAWN, /* the writer has */
    OFFER_SHARED,    /* both sides copy */
    OFFER_NUMBER = 8 /* the number's unit */
};

struct cell {
    _Atomic uint32_t stamp; /* released last */
    uint8_t kind, padding;
    uint16_t offer;
    uint32_t tag;
    uint32_t bytes; /* of the message or fragment */
    union {
        char inlined[CELL_INLINE]; /* a whole message of at most CELL_INLINE bytes */
        struct {
            uint32_t at, span; /* where in the ring of bytes, and how much of it to free */
            uint32_t word;     /* a fragment's offer */
        } data;
        struct {
            uint64_t address;
            uint32_t word;
        } offer;
    } body;
};

/* An offer's copy by both sides, in pieces that each takes as it comes. The reader sets it up
 * before the offer is shared. */
struct share {
    _Alignas(64) uint64_t address; /* the reader's buffer */
    uint32_t pieces, piece_bytes;
    _Atomic uint32_t next;    /* the first that nobody has taken, or beyond the last */
    _Atomic uint32_t written; /* how many the writer has copied */
    /* The number, from 1, of one that the writer took and may not copy; 0: none. */
    _Atomic uint32_t refused;
};

/* In the segment; cells and bytes follow. */
struct channel {
    _Alignas(64) _Atomic uint32_t cells_taken; /* by the reader, as bytes_taken */
    _Atomic uint32_t bytes_taken;
    _Alignas(64) _Atomic uint32_t offers[CHANNEL_OFFERS];
    struct share shares[CHANNEL_SHARES];
    _Alignas(64) _Atomic uint32_t whole; /* the reader asks for short offers as whole messages */
};

/* The size of each channel of a segment: powers of two, the bytes at least 1024. */
struct channel_shape {
    uint32_t cells, bytes;
};

size_t channel_bytes(const struct channel_shape *shape);

/* The most that goes into the ring of bytes at once: it always fits once the ring is empty. */
static inline size_t channel_limit(const struct channel_shape *shape)
{
    return shape->bytes / 2;
}

struct channel_end {
    struct channel *channel;
    struct cell *cells;
    char *bytes;
    struct channel_shape shape;
    uint32_t cell, byte;               /* written or read so far; they wrap around */
    uint32_t cells_taken, bytes_taken; /* the writer's last look */
};

void channel_open(struct channel_end *end, void *memory, const struct channel_shape *shape);

/* The writer: appends a cell with the header's kind, offer, tag, bytes and body. `data`, if not
 * NULL, has header->bytes bytes, at most channel_limit, which go along. False if there is no room
 * now. */
bool channel_write(struct channel_end *end, const struct cell *header, const void *data);

/* The reader: the next cell, or NULL. */
static inline const struct cell *channel_peek(const struct channel_end *end)
{
    const struct cell *cell = &end->cells[end->cell & (end->shape.cells - 1)];
    return atomic_load_explicit(&cell->stamp, memory_order_acquire) == end->cell + 1 ? cell : NULL;
}

/* The bytes that came with a whole message or a fragment; valid until channel_pop. */
const char *channel_data(const struct channel_end *end, const struct cell *cell);

/* The reader is done with the next cell and its bytes. */
void channel_pop(struct channel_end *end, const struct cell *cell);

#endif
