/* Bytes that come over TCP: frames through a small buffer, the data behind them to their place. Under
 * the rank's lock. */
#include "comm/transports/tcp/tcp.h"

#include "base/log.h"

#include <errno.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

enum {
    VISITS = 64,
    EVENTS = 64,
    BEHIND =
        64 /* bytes read behind many that go to their place: the next frame, and little to copy */
};

void tcp_lose(struct transport_tcp *t, struct tcp_peer *p, const char *why)
{
    if (!p->left)
        log_write(p->lied ? LOG_WARNING : LOG_DEBUG, "rank %d: the connection to rank %d broke: %s",
                  t->base.rank, (int)(p - t->peer), why);
    p->lost = true;
    t->moved = true;
    for (int i = 0; i < p->lanes; i++)
        if (p->lane[i].fd >= 0) {
            close(p->lane[i].fd);
            p->lane[i].fd = -1;
        }
}

void tcp_read_forget(struct tcp_peer *p, const struct message *m)
{
    for (int i = 0; i < p->lanes; i++)
        if (p->lane[i].message == m) {
            p->lane[i].message = NULL;
            p->lane[i].to = NULL;
        }
}

/* So many bytes of the data have come to their place. */
static void take(struct tcp_peer *p, struct lane *lane, size_t bytes)
{
    lane->left -= bytes;
    if (lane->to)
        lane->to += bytes;
    if (lane->left == 0)
        tcp_receive_end(p, lane);
}

/* Frames and data in the buffer. False if a frame lies, or there is no memory for what it brings: that
 * one stays, and nothing is read behind it. */
static bool parse(struct transport_tcp *t, int rank, struct lane *lane)
{
    struct tcp_peer *p = &t->peer[rank];
    for (;;) {
        size_t staged = lane->end - lane->begin;
        if (lane->left && staged) {
            size_t bytes = staged < lane->left ? staged : lane->left;
            if (lane->to)
                memcpy(lane->to, lane->staged + lane->begin, bytes);
            lane->begin += bytes;
            take(p, lane, bytes);
            continue;
        }
        struct frame frame;
        if (lane->left || staged < sizeof frame)
            return true;
        memcpy(&frame, lane->staged + lane->begin, sizeof frame);
        lane->begin += sizeof frame;
        p->lied = frame_lies(&frame) || !tcp_receive_frame(t, rank, lane, &frame);
        if (p->lied || p->lost)
            return false;
    }
}

/* What is left in the buffer, less than a frame, goes to its front. */
static void make_room(struct lane *lane)
{
    size_t staged = lane->end - lane->begin;
    if (staged && lane->begin)
        memmove(lane->staged, lane->staged + lane->begin, staged);
    lane->begin = 0;
    lane->end = staged;
}

static ssize_t read_some(struct lane *lane, size_t *asked)
{
    struct iovec parts[2];
    size_t count = 0;
    *asked = 0;
    make_room(lane);
    if (lane->to && lane->left)
        parts[count++] = (struct iovec){lane->to, lane->left};
    size_t room = count && lane->left > STAGED ? BEHIND : STAGED - lane->end;
    parts[count++] = (struct iovec){lane->staged + lane->end, room};
    for (size_t i = 0; i < count; i++)
        *asked += parts[i].iov_len;
    struct msghdr header = {.msg_iov = parts, .msg_iovlen = count};
    ssize_t n;
    do
        n = recvmsg(lane->fd, &header, MSG_DONTWAIT);
    while (n < 0 && errno == EINTR);
    return n;
}

/* True if there may be more. */
static bool read_once(struct transport_tcp *t, int rank, struct lane *lane)
{
    struct tcp_peer *p = &t->peer[rank];
    size_t asked;
    ssize_t n = read_some(lane, &asked);
    if (n == 0 && p->left) {
        close(lane->fd);
        lane->fd = -1;
        return false;
    }
    if (n <= 0) {
        if (n == 0 || (errno != EAGAIN && errno != EWOULDBLOCK && errno != ENOMEM))
            tcp_lose(t, p, n ? strerror(errno) : "the other side closed it");
        return false;
    }
    size_t bytes = (size_t)n, direct = lane->to ? lane->left : 0;
    if (direct > bytes)
        direct = bytes;
    t->moved = true;
    lane->end += bytes - direct;
    if (direct)
        take(p, lane, direct);
    if (!parse(t, rank, lane)) {
        tcp_lose(t, p, p->lied ? "it sent what no rank sends" : "no memory");
        return false;
    }
    return bytes == asked;
}

static void answer(struct transport_tcp *t, struct tcp_peer *p)
{
    if (!p->lost && (p->notes || p->owed >= CREDIT_STEP || p->queue.first || p->cleared.first ||
                     (p->lanes && p->lane->count)))
        tcp_send_flush(t, p);
}

void tcp_read_peer(struct transport_tcp *t, int rank)
{
    struct tcp_peer *p = &t->peer[rank];
    bool all = p->arrives.first || rank == t->base.rank;
    for (int i = 0; i < p->lanes && !p->lost; i++) {
        struct lane *lane = &p->lane[i];
        int visits = i == 0 || all || lane->left ? VISITS : 0;
        while (visits-- && lane->fd >= 0 && read_once(t, rank, lane))
            ;
    }
    answer(t, p);
}

void tcp_read_all(struct transport_tcp *t)
{
    struct epoll_event events[EVENTS];
    int count = epoll_wait(t->epoll, events, EVENTS, 0);
    for (int i = 0; i < count; i++)
        tcp_read_peer(t, (int)events[i].data.u32);
    for (int i = 0; i < t->base.size; i++)
        answer(t, &t->peer[i]);
}
