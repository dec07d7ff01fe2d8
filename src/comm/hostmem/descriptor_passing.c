/* One datagram a descriptor: the sender's token, and the descriptor beside it. Only poll blocks. */
#include "comm/hostmem/descriptor_passing.h"

#include "base/status.h"
#include "device/backoff.h"

#include <errno.h>
#include <poll.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

enum {
    PREFIX = offsetof(struct sockaddr_un, sun_path),
    LOOK_MS = 50 /* between looks at what wakes nobody */
};

alnico_status_t descriptor_error(const char *call)
{
    alnico_status_t status = errno == ENOMEM ? ALNICO_ERROR_MEMORY : ALNICO_ERROR_SYSTEM;
    return error_set(status, "%s: %s", call, strerror(errno));
}

static alnico_status_t peer_error(const char *call, const struct descriptor_peer *peer)
{
    char text[48];
    snprintf(text, sizeof text, "%s rank %d", call, peer->name);
    return descriptor_error(text);
}

static alnico_status_t peer_ended(const struct descriptor_peer *peer)
{
    return error_set(ALNICO_ERROR_TIMEOUT, "rank %d did not come: its process has ended",
                     peer->name);
}

/* An address without a name makes the kernel choose a free one. */
static alnico_status_t bind_anywhere(int opened, struct descriptor_address *own)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    socklen_t length = sizeof address;
    if (bind(opened, (const struct sockaddr *)&address, sizeof address.sun_family) != 0)
        return descriptor_error("bind");
    if (getsockname(opened, (struct sockaddr *)&address, &length) != 0)
        return descriptor_error("getsockname");
    if (getrandom(own->token, sizeof own->token, 0) != sizeof own->token)
        return descriptor_error("getrandom");
    if (length <= PREFIX || length - PREFIX > sizeof own->name)
        return error_set(ALNICO_ERROR_SYSTEM, "bind: a name of %u bytes", (unsigned)length);
    own->bytes = (uint8_t)(length - PREFIX);
    memcpy(own->name, address.sun_path, own->bytes);
    return ALNICO_SUCCESS;
}

alnico_status_t descriptor_open(int *opened, struct descriptor_address *own)
{
    memset(own, 0, sizeof *own);
    *opened = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (*opened < 0)
        return descriptor_error("socket");
    alnico_status_t status = bind_anywhere(*opened, own);
    if (status != ALNICO_SUCCESS) {
        close(*opened);
        *opened = -1;
    }
    return status;
}

static socklen_t address_of(const struct descriptor_peer *peer, struct sockaddr_un *out)
{
    *out = (struct sockaddr_un){.sun_family = AF_UNIX};
    memcpy(out->sun_path, peer->address->name, peer->address->bytes);
    return (socklen_t)(PREFIX + peer->address->bytes);
}

/* Received without room for them, the strangers' descriptors are closed by the kernel. */
static void discard_all(int socket)
{
    char byte;
    while (recv(socket, &byte, sizeof byte, MSG_DONTWAIT | MSG_TRUNC) >= 0 || errno == EINTR)
        ;
}

alnico_status_t descriptor_expect(int socket, const struct descriptor_peer *from)
{
    struct sockaddr_un address;
    socklen_t length = address_of(from, &address);
    if (connect(socket, (const struct sockaddr *)&address, length) != 0)
        return errno == ECONNREFUSED && process_ends(from->process, PROCESS_DYING_MS)
                   ? peer_ended(from)
                   : peer_error("connect to", from);
    discard_all(socket);
    return ALNICO_SUCCESS;
}

alnico_status_t descriptor_send(int socket, const struct descriptor_address *own,
                                const struct descriptor_peer *to, int descriptor)
{
    _Alignas(struct cmsghdr) char room[CMSG_SPACE(sizeof(int))] = {0};
    struct sockaddr_un address;
    struct iovec part = {(void *)own->token, sizeof own->token};
    struct msghdr message = {.msg_name = &address,
                             .msg_namelen = address_of(to, &address),
                             .msg_iov = &part,
                             .msg_iovlen = 1,
                             .msg_control = room,
                             .msg_controllen = sizeof room};
    struct cmsghdr *control = CMSG_FIRSTHDR(&message);
    control->cmsg_level = SOL_SOCKET;
    control->cmsg_type = SCM_RIGHTS;
    control->cmsg_len = CMSG_LEN(sizeof(int));
    memcpy(CMSG_DATA(control), &descriptor, sizeof descriptor);
    if (sendmsg(socket, &message, MSG_NOSIGNAL) == sizeof own->token)
        return ALNICO_SUCCESS;
    return errno == ECONNREFUSED && process_ends(to->process, PROCESS_DYING_MS)
               ? peer_ended(to)
               : peer_error("sendmsg to", to);
}

static int left_ms(int64_t end_ns)
{
    int64_t left = end_ns - backoff_now_ns();
    return left <= 0 ? 0 : left > 60000000000 ? 60000 : (int)(left / 1000000) + 1;
}

/* True once the other side has closed its socket: it gave up, or its process has ended. */
static bool is_closed(const struct descriptor_peer *peer)
{
    struct sockaddr_un address;
    socklen_t length = address_of(peer, &address);
    int probe = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    bool closed = probe >= 0 && connect(probe, (const struct sockaddr *)&address, length) != 0 &&
                  errno == ECONNREFUSED;
    if (probe >= 0)
        close(probe);
    return closed;
}

/* Until a message is there. What a rank sent before it ended or gave up is there when that is
 * seen. */
static alnico_status_t await(int socket, int pidfd, const struct descriptor_peer *from,
                             int64_t end_ns)
{
    struct pollfd polls[] = {{.fd = socket, .events = POLLIN}, {.fd = pidfd, .events = POLLIN}};
    for (int left = 1; left > 0;) {
        left = left_ms(end_ns);
        poll(polls, 2, left > LOOK_MS ? LOOK_MS : left);
        if (polls[0].revents)
            return ALNICO_SUCCESS;
        bool ended = process_ended(from->process, pidfd);
        if (!ended && !is_closed(from))
            continue;
        if (poll(polls, 1, 0) == 1)
            return ALNICO_SUCCESS;
        return ended ? peer_ended(from)
                     : error_set(ALNICO_ERROR_TIMEOUT,
                                 "rank %d gave up before it sent a descriptor", from->name);
    }
    return error_set(ALNICO_ERROR_TIMEOUT, "rank %d sent no descriptor in time", from->name);
}

static alnico_status_t take(int socket, const struct descriptor_peer *from, int *descriptor)
{
    _Alignas(struct cmsghdr) char room[CMSG_SPACE(sizeof(int))] = {0};
    uint64_t token[2];
    struct iovec part = {token, sizeof token};
    struct msghdr message = {
        .msg_iov = &part, .msg_iovlen = 1, .msg_control = room, .msg_controllen = sizeof room};
    ssize_t got = recvmsg(socket, &message, MSG_CMSG_CLOEXEC | MSG_DONTWAIT);
    if (got < 0)
        return peer_error("recvmsg from", from);
    const struct cmsghdr *control = CMSG_FIRSTHDR(&message);
    if (!control || control->cmsg_level != SOL_SOCKET || control->cmsg_type != SCM_RIGHTS ||
        control->cmsg_len != CMSG_LEN(sizeof(int)))
        return error_set(ALNICO_ERROR_SYSTEM,
                         "too many open files for the descriptor that rank %d sends", from->name);
    memcpy(descriptor, CMSG_DATA(control), sizeof *descriptor);
    if (got == sizeof token && memcmp(token, from->address->token, sizeof token) == 0)
        return ALNICO_SUCCESS;
    close(*descriptor);
    *descriptor = -1;
    return error_set(ALNICO_ERROR_SYSTEM, "a stranger answers in the place of rank %d", from->name);
}

alnico_status_t descriptor_receive(int socket, const struct descriptor_peer *from, int64_t end_ns,
                                   int *descriptor)
{
    *descriptor = -1;
    int pidfd = process_open(from->process);
    alnico_status_t status = await(socket, pidfd, from, end_ns);
    if (pidfd >= 0)
        close(pidfd);
    return status == ALNICO_SUCCESS ? take(socket, from, descriptor) : status;
}
