/* The sender's side of messages over TCP. Frames go out in writes of several; a small message is one
 * write. A large one is offered, and its fragments go out when the receiver asks, on whichever
 * connection has room. Under the rank's lock. */
#include "comm/transports/tcp/tcp.h"

#include <errno.h>
#include <linux/sockios.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/uio.h>

static const char zeros[4096];

void tcp_send_note(struct tcp_peer *p, enum frame_kind kind, uint32_t id, uint32_t at)
{
    struct note *note = malloc(sizeof *note);
    if (!note) {
        p->lost = true;
        return;
    }
    *note = (struct note){.frame = {.kind = (uint8_t)kind, .id = id, .at = at}};
    *p->notes_end = note;
    p->notes_end = &note->next;
}

static struct frame take_note(struct tcp_peer *p)
{
    struct note *note = p->notes;
    struct frame frame = note->frame;
    p->notes = note->next;
    if (!p->notes)
        p->notes_end = &p->notes;
    free(note);
    return frame;
}

static bool fits_whole(const struct tcp_peer *p, const struct message *m)
{
    return m->bytes <= EAGER_MOST && m->bytes + WHOLE_COST <= p->window;
}

static struct outgoing frame_whole(struct tcp_peer *p, struct message *m)
{
    p->window -= m->bytes + WHOLE_COST;
    return (struct outgoing){
        .frame = {.kind = FRAME_WHOLE, .bytes = (uint32_t)m->bytes, .at = m->tag},
        .message = m,
        .data = m->buffer};
}

/* The oldest message of the queue, whole or as an offer. */
static struct outgoing frame_message(struct tcp_peer *p)
{
    struct message *m = p->queue.first;
    list_unlink(&p->queue, &p->queue.first);
    if (fits_whole(p, m)) {
        m->state = SEND_WRITING;
        m->framed = m->bytes;
        return frame_whole(p, m);
    }
    m->state = SEND_OFFERED;
    list_append(&p->offered, m);
    return (struct outgoing){
        .frame = {.kind = FRAME_OFFER, .bytes = (uint32_t)m->bytes, .at = m->tag, .id = m->id}};
}

static struct outgoing frame_fragment(struct tcp_peer *p)
{
    struct message *m = p->cleared.first;
    size_t left = m->bytes - m->framed, part = left < FRAGMENT_MOST ? left : FRAGMENT_MOST;
    struct outgoing o = {.frame = {.kind = FRAME_DATA,
                                   .bytes = (uint32_t)part,
                                   .at = (uint32_t)m->framed,
                                   .id = m->other},
                         .message = m,
                         .data = m->buffer + m->framed};
    m->framed += part;
    if (m->framed == m->bytes) {
        list_unlink(&p->cleared, &p->cleared.first);
        m->state = SEND_WRITING;
    }
    return o;
}

static struct outgoing frame_credit(struct tcp_peer *p)
{
    struct frame frame = {.kind = FRAME_CREDIT, .bytes = (uint32_t)p->owed};
    p->kept -= p->owed;
    p->owed = 0;
    return (struct outgoing){.frame = frame};
}

/* The next frame for a lane, of which the first carries all but fragments. False: there is none. */
static bool next_frame(struct tcp_peer *p, bool first, struct outgoing *out)
{
    if (first && p->notes)
        *out = (struct outgoing){.frame = take_note(p)};
    else if (first && p->owed >= CREDIT_STEP)
        *out = frame_credit(p);
    else if (first && p->queue.first)
        *out = frame_message(p);
    else if (p->cleared.first)
        *out = frame_fragment(p);
    else
        return false;
    return true;
}

static size_t data_of(const struct outgoing *o)
{
    return o->frame.kind == FRAME_WHOLE || o->frame.kind == FRAME_DATA ? o->frame.bytes : 0;
}

static size_t size_of(const struct outgoing *o)
{
    return sizeof o->frame + data_of(o);
}

/* Fills `parts` with what is left of a frame after `skip` bytes, of zeros only some; how many. */
static int gather(struct outgoing *o, size_t skip, struct iovec *parts)
{
    int count = 0;
    if (skip < sizeof o->frame)
        parts[count++] = (struct iovec){(char *)&o->frame + skip, sizeof o->frame - skip};
    size_t past = skip < sizeof o->frame ? 0 : skip - sizeof o->frame, left = data_of(o) - past;
    if (left && o->data)
        parts[count++] = (struct iovec){(char *)o->data + past, left};
    else if (left)
        parts[count++] = (struct iovec){(char *)zeros, left < sizeof zeros ? left : sizeof zeros};
    return count;
}

static ssize_t write_parts(int fd, struct iovec *parts, int count)
{
    struct msghdr header = {.msg_iov = parts, .msg_iovlen = (size_t)count};
    ssize_t n;
    do
        n = sendmsg(fd, &header, MSG_NOSIGNAL | MSG_DONTWAIT);
    while (n < 0 && errno == EINTR);
    return n;
}

/* A frame is written. */
static void retire(struct outgoing *o)
{
    struct message *m = o->message;
    free(o->own);
    if (!m)
        return;
    m->moved += data_of(o);
    if (m->state == SEND_WRITING && m->moved == m->bytes)
        message_end(m, ALNICO_SUCCESS);
}

static void advance_lane(struct lane *lane, size_t n)
{
    int done = 0;
    lane->written += n;
    while (done < lane->count && lane->written >= size_of(&lane->outgoing[done])) {
        lane->written -= size_of(&lane->outgoing[done]);
        retire(&lane->outgoing[done++]);
    }
    lane->count -= done;
    memmove(lane->outgoing, lane->outgoing + done, (size_t)lane->count * sizeof *lane->outgoing);
}

static bool is_full(int error)
{
    return error == EAGAIN || error == EWOULDBLOCK || error == ENOBUFS || error == ENOMEM;
}

/* A connection that takes nothing more is not closed here: what the other side sent before it ended, such
 * as whom it went on with, may be unread, and reading finds the end. */
static void note_failure(struct tcp_peer *p)
{
    p->deaf |= !is_full(errno);
}

/* False when the lane takes no more now. */
static bool flush_lane(struct transport_tcp *t, struct tcp_peer *p, struct lane *lane)
{
    struct iovec parts[2 * OUTGOING];
    int count = 0;
    size_t bytes = 0;
    while (lane->count < OUTGOING && next_frame(p, lane == p->lane, &lane->outgoing[lane->count]))
        lane->count++;
    for (int i = 0; i < lane->count; i++) {
        count += gather(&lane->outgoing[i], i ? 0 : lane->written, &parts[count]);
        if (!lane->outgoing[i].data && data_of(&lane->outgoing[i]))
            break;
    }
    for (int i = 0; i < count; i++)
        bytes += parts[i].iov_len;
    if (count == 0)
        return false;
    ssize_t n = write_parts(lane->fd, parts, count);
    if (n < 0)
        note_failure(p);
    if (n <= 0)
        return false;
    t->moved = true;
    advance_lane(lane, (size_t)n);
    return (size_t)n == bytes;
}

void tcp_send_flush(struct transport_tcp *t, struct tcp_peer *p)
{
    for (int i = 0; i < p->lanes && !p->lost; i++)
        while (p->lane[i].fd >= 0 && !p->deaf && flush_lane(t, p, &p->lane[i]))
            ;
}

bool tcp_send_now(struct transport_tcp *t, struct tcp_peer *p, const struct message *m,
                  struct outgoing *rest, size_t *written)
{
    struct iovec parts[2];
    struct lane *lane = p->lane;
    struct message copy = *m;
    *written = 0;
    rest->frame.kind = 0;
    if (p->lost || p->deaf || p->lanes == 0 || lane->count || p->notes || p->queue.first ||
        !fits_whole(p, m))
        return false;
    *rest = frame_whole(p, &copy);
    ssize_t n = write_parts(lane->fd, parts, gather(rest, 0, parts));
    if (n < 0)
        note_failure(p);
    *written = n > 0 ? (size_t)n : 0;
    t->moved |= n > 0;
    return *written == size_of(rest);
}

void tcp_send_begin(struct transport_tcp *t, struct message *m, const struct outgoing *rest,
                    size_t written)
{
    struct tcp_peer *p = &t->peer[m->peer];
    m->id = tcp_new_id(t);
    if (rest->frame.kind == 0) {
        list_append(&p->queue, m);
        tcp_send_flush(t, p);
        return;
    }
    m->state = SEND_WRITING;
    m->framed = m->bytes;
    p->lane->outgoing[0] = *rest;
    p->lane->outgoing[0].message = m;
    p->lane->count = 1;
    p->lane->written = written;
}

void tcp_send_clear(struct tcp_peer *p, const struct frame *f)
{
    struct message *m = list_find(&p->offered, f->id);
    if (!m)
        return; /* withdrawn meanwhile */
    list_remove(&p->offered, m);
    m->other = f->at;
    m->state = SEND_CLEARED;
    list_append(&p->cleared, m);
}

void tcp_send_mismatch(struct tcp_peer *p, const struct frame *f)
{
    struct message *m = list_find(&p->offered, f->id);
    if (!m)
        return;
    list_remove(&p->offered, m);
    message_end(m, ALNICO_ERROR_MISMATCH);
}

/* What has begun goes on without the user's buffer: a whole message from a copy, as if it had been
 * written before, and a fragment as zeros, since its receiver hears that the offer is withdrawn. No
 * memory for a copy: the rank is lost. */
static void detach(struct tcp_peer *p, struct outgoing *o)
{
    o->message = NULL;
    if (o->frame.kind == FRAME_DATA || o->frame.bytes == 0) {
        o->data = NULL;
        return;
    }
    o->own = malloc(o->frame.bytes);
    if (o->own)
        memcpy(o->own, o->data, o->frame.bytes);
    else
        p->lost = true;
    o->data = o->own;
}

void tcp_send_cancel(struct transport_tcp *t, struct message *m)
{
    struct tcp_peer *p = &t->peer[m->peer];
    if (m->state == SEND_QUEUED)
        list_remove(&p->queue, m);
    if (m->state == SEND_OFFERED)
        list_remove(&p->offered, m);
    if (m->state == SEND_CLEARED)
        list_remove(&p->cleared, m);
    bool offered = m->state == SEND_OFFERED || m->state == SEND_CLEARED;
    for (int i = 0; i < p->lanes; i++)
        for (int k = 0; k < p->lane[i].count; k++) {
            struct outgoing *o = &p->lane[i].outgoing[k];
            if (o->message != m)
                continue;
            offered |= o->frame.kind == FRAME_DATA;
            detach(p, o);
        }
    if (!offered || p->lost)
        return;
    tcp_send_note(p, FRAME_WITHDRAWN, m->id, 0);
    tcp_send_flush(t, p);
}

bool tcp_send_is_over(const struct tcp_peer *p)
{
    bool over = p->lanes == 0 || p->lane[0].fd < 0 || !p->notes;
    for (int i = 0; i < p->lanes; i++) {
        int left = 0;
        over &= p->lane[i].fd < 0 ||
                (p->lane[i].count == 0 && ioctl(p->lane[i].fd, SIOCOUTQ, &left) == 0 && left == 0);
    }
    return over;
}
