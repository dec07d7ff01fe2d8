/* A connection carries a greeting, then one byte with the descriptor. Only poll blocks. */
#include "comm/hostmem/descriptor_passing.h"

#include "base/status.h"
#include "device/backoff.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <unistd.h>

enum { GREETING_MS = 1000 }; /* to wait for the greeting of a new connection */

struct greeting {
    uint64_t token[2];
    int32_t rank, padding;
};

alnico_status_t descriptor_error(const char *call)
{
    alnico_status_t status = errno == ENOMEM ? ALNICO_ERROR_MEMORY : ALNICO_ERROR_SYSTEM;
    return error_set(status, "%s: %s", call, strerror(errno));
}

int descriptor_left_ms(int64_t end_ns)
{
    int64_t left = end_ns - backoff_now_ns();
    return left <= 0 ? 0 : left > 60000000000 ? 60000 : (int)(left / 1000000) + 1;
}

static bool await(int descriptor, short events, int ms)
{
    struct pollfd poll_for = {.fd = descriptor, .events = events};
    return poll(&poll_for, 1, ms) == 1;
}

static bool is_same_user(int connection)
{
    struct ucred peer;
    socklen_t length = sizeof peer;
    return getsockopt(connection, SOL_SOCKET, SO_PEERCRED, &peer, &length) == 0 &&
           peer.uid == geteuid();
}

/* An address without a name makes the kernel choose a free one. */
static alnico_status_t listen_anywhere(int listener, int backlog, struct descriptor_address *target)
{
    struct sockaddr_un any = {.sun_family = AF_UNIX};
    socklen_t length = sizeof target->address;
    if (bind(listener, (const struct sockaddr *)&any, sizeof any.sun_family) != 0)
        return descriptor_error("bind");
    if (listen(listener, backlog) != 0)
        return descriptor_error("listen");
    if (getsockname(listener, (struct sockaddr *)&target->address, &length) != 0)
        return descriptor_error("getsockname");
    if (getrandom(target->token, sizeof target->token, 0) != sizeof target->token)
        return descriptor_error("getrandom");
    target->address_bytes = length;
    return ALNICO_SUCCESS;
}

alnico_status_t descriptor_listen(int backlog, int *listener, struct descriptor_address *target)
{
    *listener = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (*listener < 0)
        return descriptor_error("socket");
    alnico_status_t status = listen_anywhere(*listener, backlog, target);
    if (status != ALNICO_SUCCESS) {
        close(*listener);
        *listener = -1;
    }
    return status;
}

struct attempt {
    const struct descriptor_address *target;
    int connection, error;
};

/* EAGAIN: the backlog is full. */
static enum wait try_connect(void *context)
{
    struct attempt *a = context;
    const struct sockaddr *address = (const struct sockaddr *)&a->target->address;
    a->error = connect(a->connection, address, a->target->address_bytes) == 0 ? 0 : errno;
    return a->error == EAGAIN || a->error == EINTR ? WAIT_IDLE : WAIT_DONE;
}

static alnico_status_t reach(const struct descriptor_address *target, int rank, int64_t end_ns,
                             int connection)
{
    struct attempt a = {target, connection, 0};
    char call[32];
    if (!wait_until(try_connect, &a, end_ns, true))
        return error_set(ALNICO_ERROR_TIMEOUT, "rank %d takes no connection", rank);
    snprintf(call, sizeof call, "connect to rank %d", rank);
    errno = a.error;
    if (a.error)
        return descriptor_error(call);
    if (!is_same_user(connection))
        return error_set(ALNICO_ERROR_SYSTEM, "rank %d runs as another user", rank);
    return ALNICO_SUCCESS;
}

static alnico_status_t greet(const struct descriptor_address *target, int rank, int own_rank,
                             int64_t end_ns, int connection)
{
    struct greeting greeting = {.rank = own_rank};
    char call[32];
    memcpy(greeting.token, target->token, sizeof greeting.token);
    TRY(reach(target, rank, end_ns, connection));
    if (send(connection, &greeting, sizeof greeting, MSG_NOSIGNAL) == sizeof greeting)
        return ALNICO_SUCCESS;
    snprintf(call, sizeof call, "send to rank %d", rank);
    return descriptor_error(call);
}

alnico_status_t descriptor_connect(const struct descriptor_address *target, int rank, int own_rank,
                                   int64_t end_ns, int *connection)
{
    *connection = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (*connection < 0)
        return descriptor_error("socket");
    alnico_status_t status = greet(target, rank, own_rank, end_ns, *connection);
    if (status != ALNICO_SUCCESS) {
        close(*connection);
        *connection = -1;
    }
    return status;
}

/* Whether the other side is the same user and shows the token. */
static bool is_welcome(int connection, const struct descriptor_address *target, int64_t end_ns,
                       int *rank)
{
    struct greeting greeting;
    int left = descriptor_left_ms(end_ns), patience = left < GREETING_MS ? left : GREETING_MS;
    if (!is_same_user(connection) || !await(connection, POLLIN, patience) ||
        recv(connection, &greeting, sizeof greeting, MSG_DONTWAIT) != sizeof greeting ||
        memcmp(greeting.token, target->token, sizeof greeting.token) != 0)
        return false;
    *rank = greeting.rank;
    return true;
}

/* The connection is gone again. Other errors, as too many open files, would come again. */
static bool is_passing(int error)
{
    return error == EAGAIN || error == EINTR || error == ECONNABORTED;
}

alnico_status_t descriptor_accept(int listener, const struct descriptor_address *target,
                                  int64_t end_ns, int *connection, int *rank)
{
    for (int left = 1; left > 0;) {
        left = descriptor_left_ms(end_ns);
        if (!await(listener, POLLIN, left))
            continue;
        *connection = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
        if (*connection < 0 && !is_passing(errno))
            return descriptor_error("accept4");
        if (*connection < 0)
            continue;
        if (is_welcome(*connection, target, end_ns, rank))
            return ALNICO_SUCCESS;
        close(*connection);
    }
    *connection = -1;
    return error_set(ALNICO_ERROR_TIMEOUT, "a rank did not connect in time");
}

bool descriptor_send(int connection, int descriptor)
{
    _Alignas(struct cmsghdr) char room[CMSG_SPACE(sizeof(int))] = {0};
    char byte = 1;
    struct iovec part = {&byte, 1};
    struct msghdr message = {
        .msg_iov = &part, .msg_iovlen = 1, .msg_control = room, .msg_controllen = sizeof room};
    struct cmsghdr *control = CMSG_FIRSTHDR(&message);
    control->cmsg_level = SOL_SOCKET;
    control->cmsg_type = SCM_RIGHTS;
    control->cmsg_len = CMSG_LEN(sizeof(int));
    memcpy(CMSG_DATA(control), &descriptor, sizeof descriptor);
    return sendmsg(connection, &message, MSG_NOSIGNAL) == 1;
}

bool descriptor_receive(int connection, int64_t end_ns, int *descriptor)
{
    _Alignas(struct cmsghdr) char room[CMSG_SPACE(sizeof(int))] = {0};
    char byte;
    struct iovec part = {&byte, 1};
    struct msghdr message = {
        .msg_iov = &part, .msg_iovlen = 1, .msg_control = room, .msg_controllen = sizeof room};
    while (!await(connection, POLLIN, descriptor_left_ms(end_ns)))
        if (descriptor_left_ms(end_ns) == 0)
            return false;
    if (recvmsg(connection, &message, MSG_CMSG_CLOEXEC | MSG_DONTWAIT) != 1)
        return false;
    const struct cmsghdr *control = CMSG_FIRSTHDR(&message);
    if (!control || control->cmsg_level != SOL_SOCKET || control->cmsg_type != SCM_RIGHTS ||
        control->cmsg_len != CMSG_LEN(sizeof(int)))
        return false;
    memcpy(descriptor, CMSG_DATA(control), sizeof *descriptor);
    return true;
}
