/* Cells and bytes of a channel. Bytes of one cell are contiguous: where they would run over the end
 * of the ring, its rest is skipped, and freed together with them. */
#include "comm/transports/shm/channel.h"

#include <assert.h>
#include <string.h>

enum {
    LINE = 64,
    DEMOTE_LIMIT = 1024 /* bytes; measured: more of them arrive later for it */
};

_Static_assert(sizeof(struct cell) == 2 * LINE, "a cell is two cache lines");
_Static_assert(sizeof(struct channel) ==
                   2 * LINE + CHANNEL_OFFERS * sizeof(uint32_t) + CHANNEL_SHARES * LINE,
               "the reader's lines, the offers', and one for each that may be shared");

size_t channel_bytes(const struct channel_shape *shape)
{
    return sizeof(struct channel) + (size_t)shape->cells * sizeof(struct cell) + shape->bytes;
}

void channel_open(struct channel_end *end, void *memory, const struct channel_shape *shape)
{
    struct channel *channel = memory;
    *end = (struct channel_end){
        .channel = channel, .cells = (struct cell *)(channel + 1), .shape = *shape};
    end->bytes = (char *)(end->cells + shape->cells);
}

static bool in_ring(const struct cell *cell)
{
    return cell->kind == CELL_FRAGMENT || (cell->kind == CELL_WHOLE && cell->bytes > CELL_INLINE);
}

/* Bytes of a cell that its reader reads. */
static size_t extent(const struct cell *header)
{
    return header->kind == CELL_WHOLE && !in_ring(header)
               ? offsetof(struct cell, body) + header->bytes
               : offsetof(struct cell, body) + sizeof header->body.offer;
}

static bool has_cell(struct channel_end *end)
{
    if (end->cell - end->cells_taken < end->shape.cells)
        return true;
    end->cells_taken = atomic_load_explicit(&end->channel->cells_taken, memory_order_acquire);
    return end->cell - end->cells_taken < end->shape.cells;
}

static bool has_bytes(struct channel_end *end, uint32_t span)
{
    if (end->byte + span - end->bytes_taken <= end->shape.bytes)
        return true;
    end->bytes_taken = atomic_load_explicit(&end->channel->bytes_taken, memory_order_acquire);
    return end->byte + span - end->bytes_taken <= end->shape.bytes;
}

/* Reserves room in the ring of bytes. */
static bool reserve(struct channel_end *end, uint32_t bytes, uint32_t *at, uint32_t *span)
{
    uint32_t need = (bytes + LINE - 1) / LINE * LINE, size = end->shape.bytes;
    *at = end->byte & (size - 1);
    uint32_t skip = *at + need > size ? size - *at : 0;
    *span = skip + need;
    if (skip)
        *at = 0;
    return has_bytes(end, *span);
}

/* A hint that moves lines just written to the cache that cores share, nearer to the reader, where
 * there is such an instruction. */
static void demote(const char *lines, size_t bytes)
{
#if defined(__x86_64__)
    for (size_t at = 0; at < bytes; at += LINE)
        __asm__ volatile("cldemote (%0)" : : "r"(lines + at) : "memory");
#else
    (void)lines;
    (void)bytes;
#endif
}

bool channel_write(struct channel_end *end, const struct cell *header, const void *data)
{
    uint32_t at = 0, span = 0;
    if (!has_cell(end) || (in_ring(header) && !reserve(end, header->bytes, &at, &span)))
        return false;
    assert(!in_ring(header) || header->bytes <= channel_limit(&end->shape));
    struct cell *cell = &end->cells[end->cell & (end->shape.cells - 1)];
    cell->kind = header->kind;
    cell->offer = header->offer;
    cell->tag = header->tag;
    cell->bytes = header->bytes;
    if (in_ring(header)) {
        memcpy(end->bytes + at, data, header->bytes);
        if (header->bytes <= DEMOTE_LIMIT)
            demote(end->bytes + at, header->bytes);
        cell->body.data.at = at;
        cell->body.data.span = span;
        cell->body.data.word = header->body.data.word;
        end->byte += span;
    } else if (header->kind == CELL_OFFER) {
        cell->body.offer.address = header->body.offer.address;
        cell->body.offer.word = header->body.offer.word;
    } else if (header->bytes) {
        memcpy(cell->body.inlined, data, header->bytes);
    }
    end->cell++;
    /* Release: whoever sees the stamp sees the cell and its bytes. */
    atomic_store_explicit(&cell->stamp, end->cell, memory_order_release);
    demote((const char *)cell, extent(header));
    return true;
}

const char *channel_data(const struct channel_end *end, const struct cell *cell)
{
    return in_ring(cell) ? end->bytes + cell->body.data.at : cell->body.inlined;
}

/* Release: the reader has read what the writer may now overwrite. */
void channel_pop(struct channel_end *end, const struct cell *cell)
{
    if (in_ring(cell)) {
        end->byte += cell->body.data.span;
        atomic_store_explicit(&end->channel->bytes_taken, end->byte, memory_order_release);
    }
    end->cell++;
    atomic_store_explicit(&end->channel->cells_taken, end->cell, memory_order_release);
}
