/* The receiver's side of messages over TCP: matches what comes with posted receives, keeps what is
 * unexpected, and asks for offers. Under the rank's lock. */
#include "comm/transports/tcp/tcp.h"

#include <stdlib.h>
#include <string.h>

/* The oldest posted receive that fits, as its place in the list; at the end: none. */
static struct message **find_posted(struct transport_tcp *t, int from, uint32_t tag)
{
    struct message **link = &t->posted.first;
    for (; *link; link = &(*link)->next)
        if ((*link)->tag == tag && ((*link)->peer == from || (*link)->peer == TRANSPORT_ANY))
            break;
    return link;
}

static struct message *take_posted(struct transport_tcp *t, int from, uint32_t tag)
{
    struct message **link = find_posted(t, from, tag), *m = *link;
    if (!m)
        return NULL;
    list_unlink(&t->posted, link);
    m->peer = from;
    return m;
}

/* An offer meets its receive, which is in no list. */
static void ask(struct transport_tcp *t, struct tcp_peer *p, struct message *m,
                const struct frame *offer)
{
    if (m->bytes != offer->bytes) {
        tcp_send_note(p, FRAME_MISMATCH, offer->id, 0);
        message_end(m, ALNICO_ERROR_MISMATCH);
        return;
    }
    m->state = RECEIVE_ARRIVES;
    m->id = tcp_new_id(t);
    m->other = offer->id;
    m->moved = 0;
    list_append(&p->arrives, m);
    tcp_send_note(p, FRAME_CLEAR, offer->id, m->id);
}

static struct arrival *keep(struct tcp_peer *p, const struct frame *f)
{
    struct arrival *a = malloc(sizeof *a + (f->kind == FRAME_WHOLE ? f->bytes : 0));
    if (!a) {
        p->lost = true;
        return NULL;
    }
    *a = (struct arrival){.frame = *f};
    *p->arrivals_end = a;
    p->arrivals_end = &a->next;
    return a;
}

static void drop(struct tcp_peer *p, struct arrival *a)
{
    struct arrival **link = &p->arrivals;
    while (*link != a)
        link = &(*link)->next;
    *link = a->next;
    if (p->arrivals_end == &a->next)
        p->arrivals_end = link;
    free(a);
}

static void begin_data(struct lane *lane, char *to, size_t bytes)
{
    lane->to = to;
    lane->left = lane->part = bytes;
}

static void end_whole(struct tcp_peer *p, struct message *m, const struct frame *f)
{
    p->owed += f->bytes + WHOLE_COST;
    if (m)
        message_end(m, m->bytes == f->bytes ? ALNICO_SUCCESS : ALNICO_ERROR_MISMATCH);
}

static bool begin_whole(struct transport_tcp *t, int rank, struct lane *lane, const struct frame *f)
{
    struct tcp_peer *p = &t->peer[rank];
    p->kept += f->bytes + WHOLE_COST;
    if (p->kept > WINDOW_BYTES)
        return false;
    struct message *m = take_posted(t, rank, f->at);
    struct arrival *a = m ? NULL : keep(p, f);
    if (m && (m->bytes != f->bytes || f->bytes == 0)) {
        begin_data(lane, NULL, f->bytes);
        end_whole(p, m, f);
    } else if (m) {
        m->state = RECEIVE_ARRIVES;
        m->moved = 0;
        m->id = m->other = 0;
        lane->message = m;
        begin_data(lane, m->buffer, f->bytes);
    } else if (a) {
        lane->arrival = f->bytes ? a : NULL;
        begin_data(lane, a->data, f->bytes);
    }
    return true;
}

static void begin_offer(struct transport_tcp *t, int rank, const struct frame *f)
{
    struct message *m = take_posted(t, rank, f->at);
    if (m)
        ask(t, &t->peer[rank], m, f);
    else
        keep(&t->peer[rank], f);
}

/* A fragment of a receive that was cancelled goes nowhere. */
static bool begin_fragment(struct tcp_peer *p, struct lane *lane, const struct frame *f)
{
    struct message *m = list_find(&p->arrives, f->id);
    begin_data(lane, NULL, f->bytes);
    if (!m)
        return true;
    if (f->at > m->bytes || f->bytes > m->bytes - f->at || (f->bytes == 0 && m->bytes))
        return false;
    lane->message = m;
    lane->to = m->buffer + f->at;
    if (f->bytes == 0)
        tcp_receive_end(p, lane);
    return true;
}

static bool take_arrival(struct transport_tcp *t, int rank, struct message *m);

/* An offer that is withdrawn: its receive, if it has one, is the oldest for its tag and waits on. */
static void withdraw(struct transport_tcp *t, int rank, const struct frame *f)
{
    struct tcp_peer *p = &t->peer[rank];
    for (struct arrival *a = p->arrivals; a; a = a->next)
        if (a->frame.kind == FRAME_OFFER && a->frame.id == f->id) {
            drop(p, a);
            return;
        }
    for (struct message *m = p->arrives.first; m; m = m->next) {
        if (m->other != f->id)
            continue;
        list_remove(&p->arrives, m);
        tcp_read_forget(p, m);
        m->state = RECEIVE_POSTED;
        if (!take_arrival(t, rank, m))
            list_prepend(&t->posted, m);
        return;
    }
}

static bool take_credit(struct tcp_peer *p, const struct frame *f)
{
    if (f->bytes > WINDOW_BYTES - p->window)
        return false;
    p->window += f->bytes;
    return true;
}

bool tcp_receive_frame(struct transport_tcp *t, int rank, struct lane *lane, const struct frame *f)
{
    struct tcp_peer *p = &t->peer[rank];
    switch ((enum frame_kind)f->kind) {
    case FRAME_WHOLE:
        return begin_whole(t, rank, lane, f);
    case FRAME_OFFER:
        begin_offer(t, rank, f);
        return true;
    case FRAME_CLEAR:
        tcp_send_clear(p, f);
        return true;
    case FRAME_DATA:
        return begin_fragment(p, lane, f);
    case FRAME_MISMATCH:
        tcp_send_mismatch(p, f);
        return true;
    case FRAME_WITHDRAWN:
        withdraw(t, rank, f);
        return true;
    case FRAME_CREDIT:
        return take_credit(p, f);
    default:
        p->left = true;
        return true;
    }
}

static void end_arrival(struct tcp_peer *p, struct arrival *a)
{
    struct message *m = a->taker;
    a->got = a->frame.bytes;
    if (!m)
        return;
    if (m->bytes == a->frame.bytes && m->bytes)
        memcpy(m->buffer, a->data, m->bytes);
    end_whole(p, m, &a->frame);
    drop(p, a);
}

static void end_fragment(struct tcp_peer *p, struct message *m, size_t bytes)
{
    m->moved += bytes;
    if (m->moved < m->bytes)
        return;
    list_remove(&p->arrives, m);
    tcp_read_forget(p, m);
    message_end(m, ALNICO_SUCCESS);
}

void tcp_receive_end(struct tcp_peer *p, struct lane *lane)
{
    struct message *m = lane->message;
    struct arrival *a = lane->arrival;
    const struct frame whole = {.kind = FRAME_WHOLE, .bytes = (uint32_t)lane->part};
    lane->message = NULL;
    lane->arrival = NULL;
    lane->to = NULL;
    if (a)
        end_arrival(p, a);
    else if (m && m->id)
        end_fragment(p, m, lane->part);
    else if (m)
        end_whole(p, m, &whole);
}

/* Gives the receive the oldest unexpected message of its tag, if there is one. One that has not come
 * whole yet follows when it has. */
static bool take_arrival(struct transport_tcp *t, int rank, struct message *m)
{
    struct tcp_peer *p = &t->peer[rank];
    struct arrival *a = p->arrivals;
    while (a && (a->frame.at != m->tag || a->taker))
        a = a->next;
    if (!a)
        return false;
    m->peer = rank;
    if (a->frame.kind == FRAME_OFFER) {
        ask(t, p, m, &a->frame);
        drop(p, a);
        return true;
    }
    m->state = RECEIVE_ARRIVES;
    m->id = m->other = 0;
    a->taker = m;
    if (a->got == a->frame.bytes)
        end_arrival(p, a);
    return true;
}

void tcp_receive_post(struct transport_tcp *t, struct message *m)
{
    bool any = m->peer == TRANSPORT_ANY, taken = false;
    int first = any ? 0 : m->peer, last = any ? t->base.size - 1 : m->peer;
    for (int i = first; i <= last && !taken; i++) {
        taken = t->peer[i].arrivals && take_arrival(t, i, m);
        if (taken && (t->peer[i].notes || t->peer[i].owed >= CREDIT_STEP))
            tcp_send_flush(t, &t->peer[i]);
    }
    if (!taken)
        list_append(&t->posted, m);
}

void tcp_receive_cancel(struct transport_tcp *t, struct message *m)
{
    if (m->state == RECEIVE_POSTED)
        list_remove(&t->posted, m);
    if (m->state != RECEIVE_ARRIVES)
        return;
    struct tcp_peer *p = &t->peer[m->peer];
    bool whole = false;
    for (int i = 0; i < p->lanes; i++)
        whole |= p->lane[i].message == m && !m->id;
    list_remove(&p->arrives, m);
    for (struct arrival *a = p->arrivals; a; a = a->next)
        if (a->taker == m)
            a->taker = NULL;
    if (whole) /* what is left of it is read and forgotten */
        p->owed += m->bytes + WHOLE_COST;
    tcp_read_forget(p, m);
}

void tcp_receive_forget(struct tcp_peer *p)
{
    while (p->arrivals)
        drop(p, p->arrivals);
}
