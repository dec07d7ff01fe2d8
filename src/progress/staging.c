/* Staging memory, its ring and its chunks. */
#include "progress/staging.h"

#include "base/status.h"

#include <stdlib.h>

static alnico_status_t fill(struct staging *s)
{
    const struct device_ops *device = s->device;
    void *memory;
    TRY(device->pinned_alloc(STAGING_BYTES, &memory));
    s->memory = memory;
    for (int i = 0; i < STAGING_CHUNKS; i++) {
        s->chunks[i] = s->memory + STAGING_RING_BYTES + (size_t)i * STAGING_CHUNK_BYTES;
        TRY(gate_init(&s->copied[i], device));
    }
    TRY(device->stream_create(&s->out));
    return device->stream_create(&s->in);
}

alnico_status_t staging_create(const struct device_ops *device, struct staging **out)
{
    struct staging *s = calloc(1, sizeof *s);
    *out = NULL;
    if (!s)
        return error_set(ALNICO_ERROR_MEMORY, "no memory for staging");
    s->device = device;
    s->device_index = device->current ? device->current() : 0;
    alnico_status_t status = fill(s);
    if (status == ALNICO_SUCCESS)
        *out = s;
    else
        staging_destroy(s);
    return status;
}

/* The streams' last copies may be those of an operation that failed. */
void staging_destroy(struct staging *s)
{
    if (!s)
        return;
    void *streams[] = {s->out, s->in};
    for (int i = 0; i < 2; i++)
        if (streams[i]) {
            s->device->stream_synchronize(streams[i]);
            s->device->stream_destroy(streams[i]);
        }
    for (int i = 0; i < STAGING_CHUNKS; i++)
        if (s->copied[i].device)
            gate_finish(&s->copied[i]);
    s->device->pinned_free(s->memory);
    free(s);
}

static struct region *region_at(struct staging *s, unsigned number)
{
    return &s->regions[number % STAGING_REGIONS];
}

static void forget_old(struct staging *s)
{
    while (s->oldest != s->next &&
           atomic_load_explicit(&region_at(s, s->oldest)->over, memory_order_acquire))
        s->oldest++;
    if (s->oldest == s->next)
        s->head = 0;
}

/* Room after the newest region, or at the begin of the ring. The head never reaches the oldest region:
 * a head before it means that the regions in use wrap around. */
static bool find_room(const struct staging *s, size_t room, size_t *at)
{
    *at = s->head;
    if (s->oldest == s->next)
        return room <= STAGING_RING_BYTES;
    size_t tail = s->regions[s->oldest % STAGING_REGIONS].begin;
    if (s->head < tail)
        return s->head + room < tail;
    if (s->head + room <= STAGING_RING_BYTES)
        return true;
    *at = 0;
    return room < tail;
}

char *staging_take(struct staging *s, size_t bytes, unsigned *number)
{
    size_t room = (bytes / 64 + 1) * 64, at;
    forget_old(s);
    if (s->next - s->oldest == STAGING_REGIONS || !find_room(s, room, &at))
        return NULL;
    *number = s->next++;
    struct region *region = region_at(s, *number);
    region->begin = at;
    atomic_store_explicit(&region->over, false, memory_order_relaxed);
    s->head = at + room;
    return s->memory + at;
}

void staging_give(struct staging *s, unsigned number)
{
    atomic_store_explicit(&region_at(s, number)->over, true, memory_order_release);
}

static int enter(const struct staging *s)
{
    int before = s->device->current ? s->device->current() : s->device_index;
    if (before != s->device_index)
        s->device->enter(s->device_index);
    return before;
}

static void leave(const struct staging *s, int before)
{
    if (before != s->device_index)
        s->device->enter(before);
}

/* The polling thread may be on another device, and goes back there. */
alnico_status_t staging_enqueue(struct staging *s, void *dst, const void *src, size_t bytes,
                                void *stream)
{
    int before = enter(s);
    alnico_status_t status = s->device->copy(dst, src, bytes, stream);
    leave(s, before);
    return status;
}

alnico_status_t staging_mark_after(struct staging *s, struct gate *copied, void *stream,
                                   alnico_status_t enqueued)
{
    int before = enter(s);
    gate_close(copied);
    alnico_status_t status = gate_open_on(copied, stream);
    leave(s, before);
    return enqueued != ALNICO_SUCCESS ? enqueued : status;
}
