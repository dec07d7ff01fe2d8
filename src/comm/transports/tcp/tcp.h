/* One rank's state of the TCP transport, under the rank's lock, and what its files offer each other:
 * the seam, the connections, the two sides of a message. */
#ifndef ALNICO_COMM_TRANSPORTS_TCP_TCP_H
#define ALNICO_COMM_TRANSPORTS_TCP_TCP_H

#include "comm/net/handshake.h"
#include "comm/transports/tcp/wire.h"
#include "comm/transports/transport.h"

#include <pthread.h>

enum message_state {
    SEND_QUEUED,  /* behind older ones */
    SEND_WRITING, /* all of it is in frames that are being written */
    SEND_OFFERED, /* the receiver has not asked for it */
    SEND_CLEARED, /* its fragments go out */
    RECEIVE_POSTED,
    RECEIVE_ARRIVES,
    ENDED
};

/* Either side of a message that is not over. */
struct message {
    struct message *next;
    char *buffer;
    size_t bytes;
    size_t framed; /* sends: bytes that have a frame; */
    size_t moved;  /* bytes that the connection took, or that have come */
    int peer;      /* for a receive also TRANSPORT_ANY, until something has come */
    uint32_t tag;
    enum message_state state;
    alnico_status_t status; /* once ENDED */
    uint32_t id;            /* this side's, and the other's */
    uint32_t other;
};

struct message_list {
    struct message *first, **end;
};

/* An unexpected message, whole or an offer. */
struct arrival {
    struct arrival *next;
    struct frame frame;
    size_t got;            /* bytes of a whole one so far */
    struct message *taker; /* the receive that gets it when it is complete */
    char data[];
};

/* A frame that waits for a connection, of those without data. */
struct note {
    struct note *next;
    struct frame frame;
};

/* A frame that is being written. */
struct outgoing {
    struct frame frame;
    struct message *message; /* whose bytes these are; NULL: nobody's any more */
    const char *data;        /* NULL: zeros in place of a fragment that was cancelled */
    char *own;               /* a copy of `data`, to be freed */
};

enum {
    LANES = TCP_CONNECTIONS_MOST,
    OUTGOING = 8,      /* frames written at once */
    STAGED = 16 << 10, /* bytes read at once besides what goes to its place */
    CREDIT_STEP = WINDOW_BYTES / 4
};

/* A connection. */
struct lane {
    int fd;          /* -1: closed */
    uint32_t number; /* which of several, the same on both sides */
    struct outgoing outgoing[OUTGOING];
    int count;
    size_t written; /* of the first one, its frame included */

    /* Where the data go that come now. */
    char *to;    /* NULL: nowhere */
    size_t left; /* bytes of them that have not come */
    size_t part; /* bytes of all of them */
    struct message *message;
    struct arrival *arrival;

    char *staged; /* STAGED bytes */
    size_t begin, end;
};

struct tcp_peer {
    struct lane lane[LANES]; /* by their numbers: of both sides the first is the same one */
    int lanes;
    struct message_list queue;            /* to be sent, in order */
    struct message_list offered, cleared; /* sends */
    struct message_list arrives;          /* receives of offers */
    struct arrival *arrivals, **arrivals_end;
    struct note *notes, **notes_end;
    size_t window; /* bytes of whole messages that may be sent; */
    size_t owed;   /* that have been received, of which the sender has not been told; */
    size_t kept;   /* and that are kept, or on their way, as this rank sees it */
    bool lost;     /* a connection broke */
    bool deaf;     /* it takes nothing more; what it has sent may still be there to be read */
    bool left;     /* the rank has said so */
    bool lied;     /* it sent what no honest rank does */
};

struct transport_tcp {
    struct transport base;
    struct tcp_options options;
    struct net_key key;
    pthread_mutex_t lock;
    int epoll;
    uint32_t next_id;
    unsigned looks; /* at single connections, since the last look at all */
    bool moved;     /* something came or went since this was cleared */
    struct message_list posted;
    struct message *spare;
    struct tcp_peer peer[];
};

static inline void list_clear(struct message_list *list)
{
    list->first = NULL;
    list->end = &list->first;
}

static inline void list_append(struct message_list *list, struct message *m)
{
    m->next = NULL;
    *list->end = m;
    list->end = &m->next;
}

static inline void list_prepend(struct message_list *list, struct message *m)
{
    m->next = list->first;
    list->first = m;
    if (!m->next)
        list->end = &m->next;
}

static inline void list_unlink(struct message_list *list, struct message **link)
{
    struct message *m = *link;
    *link = m->next;
    if (list->end == &m->next)
        list->end = link;
}

static inline bool list_remove(struct message_list *list, struct message *m)
{
    for (struct message **link = &list->first; *link; link = &(*link)->next)
        if (*link == m) {
            list_unlink(list, link);
            return true;
        }
    return false;
}

/* The message of this side's number; NULL: none. */
static inline struct message *list_find(struct message_list *list, uint32_t id)
{
    struct message *m = list->first;
    while (m && m->id != id)
        m = m->next;
    return m;
}

static inline void message_end(struct message *m, alnico_status_t status)
{
    m->state = ENDED;
    m->status = status;
}

/* 0 is nobody's. */
static inline uint32_t tcp_new_id(struct transport_tcp *t)
{
    t->next_id += !t->next_id;
    return t->next_id++;
}

/* ---- mesh.c: creation ---- */

/* A transport without connections, for tests and the mesh. Errors: MEMORY, SYSTEM. */
alnico_status_t tcp_prepare(int rank, int size, const struct tcp_options *options,
                            struct transport_tcp **out);

/* Adds a connection to a rank, in the order of the numbers; `fd` is the transport's then. Errors: MEMORY,
 * SYSTEM, ARGUMENT (too many). */
alnico_status_t tcp_add_lane(struct transport_tcp *t, int rank, uint32_t number, int fd);

/* Connects to all other ranks but those left out (collective). `status` is how this rank has fared. */
alnico_status_t tcp_connect(struct transport_tcp *t, struct rendezvous *r, alnico_status_t status);

void tcp_free(struct transport_tcp *t);

/* ---- write.c: the sender's side ---- */

/* A message that fits into the connection at once. False: it did not. */
bool tcp_send_now(struct transport_tcp *t, struct tcp_peer *p, const struct message *m,
                  struct outgoing *rest, size_t *written);

/* A message of any size, which goes on in tcp_send_flush. `rest` is what tcp_send_now left, or NULL. */
void tcp_send_begin(struct transport_tcp *t, struct message *m, const struct outgoing *rest,
                    size_t written);

/* Writes to a rank what its connections take. */
void tcp_send_flush(struct transport_tcp *t, struct tcp_peer *p);
void tcp_send_cancel(struct transport_tcp *t, struct message *m);

/* A frame without data, before the next message. No memory: the rank is lost. */
void tcp_send_note(struct tcp_peer *p, enum frame_kind kind, uint32_t id, uint32_t at);

/* Whether all is written, and the kernel has been told that it came. */
bool tcp_send_is_over(const struct tcp_peer *p);

/* Frames about a message, from the receiver. */
void tcp_send_clear(struct tcp_peer *p, const struct frame *f);
void tcp_send_mismatch(struct tcp_peer *p, const struct frame *f);

/* ---- read.c: bytes that come ---- */

/* Reads what has come from a rank, or from all. */
void tcp_read_peer(struct transport_tcp *t, int rank);
void tcp_read_all(struct transport_tcp *t);

/* The data that come go nowhere: their receive is over. */
void tcp_read_forget(struct tcp_peer *p, const struct message *m);

/* ---- receive.c: matching ---- */

/* A frame that begins or changes a message. False if it lies. */
bool tcp_receive_frame(struct transport_tcp *t, int rank, struct lane *lane, const struct frame *f);

/* All data of the lane's frame have come. */
void tcp_receive_end(struct tcp_peer *p, struct lane *lane);

void tcp_receive_post(struct transport_tcp *t, struct message *m);
void tcp_receive_cancel(struct transport_tcp *t, struct message *m);
void tcp_receive_forget(struct tcp_peer *p);

/* A connection of the rank is broken, for a reason that is logged at debug level. */
void tcp_lose(struct transport_tcp *t, struct tcp_peer *p, const char *why);

#endif
