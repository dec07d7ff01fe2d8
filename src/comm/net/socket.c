/* Nonblocking TCP sockets. Nagle's delay is off: what is sent is a whole message. */
#include "comm/net/socket.h"

#include "base/status.h"
#include "device/backoff.h"

#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

enum { BACKLOG = 1024, SPARE_FILES = 64 };

static alnico_status_t fail(const char *call, const struct net_address *address, int error)
{
    char text[NET_ADDRESS_TEXT];
    error_set(ALNICO_ERROR_SYSTEM, "%s %s: %s", call, net_address_print(address, text),
              strerror(error));
    errno = error;
    return ALNICO_ERROR_SYSTEM;
}

static alnico_status_t close_failed(int fd, const char *call, const struct net_address *address)
{
    int error = errno;
    if (fd >= 0)
        close(fd);
    return fail(call, address, error);
}

static int open_socket(int family)
{
    return socket(family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, IPPROTO_TCP);
}

static void set_option(int fd, int level, int option)
{
    const int on = 1;
    setsockopt(fd, level, option, &on, sizeof on);
}

alnico_status_t net_listen(const struct net_address *at, struct net_address *out, int *result)
{
    struct sockaddr_storage address;
    socklen_t bytes = net_address_to_system(at, &address);
    int fd = open_socket(address.ss_family);
    if (fd >= 0)
        set_option(fd, SOL_SOCKET, SO_REUSEADDR); /* connections of an ended job may linger */
    if (fd < 0 || bind(fd, (struct sockaddr *)&address, bytes) != 0 || listen(fd, BACKLOG) != 0)
        return close_failed(fd, "cannot listen at", at);
    bytes = sizeof address;
    if (getsockname(fd, (struct sockaddr *)&address, &bytes) != 0)
        return close_failed(fd, "cannot listen at", at);
    net_address_from_system(&address, out);
    *result = fd;
    return ALNICO_SUCCESS;
}

int net_accept(int listener, struct net_address *from)
{
    struct sockaddr_storage address = {0};
    socklen_t bytes = sizeof address;
    int fd = accept4(listener, (struct sockaddr *)&address, &bytes, SOCK_NONBLOCK | SOCK_CLOEXEC);
    if (fd < 0)
        return -1;
    set_option(fd, IPPROTO_TCP, TCP_NODELAY);
    net_address_from_system(&address, from);
    return fd;
}

alnico_status_t net_connect(const struct net_address *to, int *result)
{
    struct sockaddr_storage address;
    socklen_t bytes = net_address_to_system(to, &address);
    int fd = open_socket(address.ss_family);
    if (fd >= 0)
        set_option(fd, IPPROTO_TCP, TCP_NODELAY);
    if (fd < 0 || (connect(fd, (struct sockaddr *)&address, bytes) != 0 && errno != EINPROGRESS))
        return close_failed(fd, "cannot connect to", to);
    *result = fd;
    return ALNICO_SUCCESS;
}

alnico_status_t net_connected(int fd, const struct net_address *to)
{
    struct pollfd ready = {.fd = fd, .events = POLLOUT};
    int error = 0;
    socklen_t bytes = sizeof error;
    if (poll(&ready, 1, 0) == 0)
        return ALNICO_PENDING;
    if (getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &bytes) != 0)
        error = errno;
    return error ? fail("cannot connect to", to, error) : ALNICO_SUCCESS;
}

/* What a call on a socket has left to do. `moved` is its result. */
static alnico_status_t judge(ssize_t moved, size_t *bytes, const char *call)
{
    if (moved > 0) {
        *bytes -= (size_t)moved;
        return *bytes ? ALNICO_PENDING : ALNICO_SUCCESS;
    }
    if (moved < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR))
        return ALNICO_PENDING;
    return error_set(ALNICO_ERROR_SYSTEM, "%s: %s", call,
                     moved == 0 ? "the other side closed the connection" : strerror(errno));
}

alnico_status_t net_send_some(int fd, const char **data, size_t *bytes)
{
    if (*bytes == 0)
        return ALNICO_SUCCESS;
    ssize_t moved = send(fd, *data, *bytes, MSG_NOSIGNAL | MSG_DONTWAIT);
    alnico_status_t status = judge(moved, bytes, "send");
    *data += moved > 0 ? moved : 0;
    return status;
}

alnico_status_t net_receive_some(int fd, char **data, size_t *bytes)
{
    if (*bytes == 0)
        return ALNICO_SUCCESS;
    ssize_t moved = recv(fd, *data, *bytes, MSG_DONTWAIT);
    alnico_status_t status = judge(moved, bytes, "recv");
    *data += moved > 0 ? moved : 0;
    return status;
}

alnico_status_t net_peek(int fd, void *data, size_t bytes)
{
    ssize_t there = recv(fd, data, bytes, MSG_DONTWAIT | MSG_PEEK);
    return bytes ? judge(there, &bytes, "recv") : ALNICO_SUCCESS;
}

/* About so many files are open: the next one's number. */
alnico_status_t net_allow_files(size_t count)
{
    struct rlimit limit;
    int next = open("/", O_PATH | O_CLOEXEC);
    if (getrlimit(RLIMIT_NOFILE, &limit) != 0)
        return error_set(ALNICO_ERROR_SYSTEM, "getrlimit: %s", strerror(errno));
    rlim_t needed = (next < 0 ? limit.rlim_cur : (rlim_t)next) + count + SPARE_FILES;
    if (next >= 0)
        close(next);
    if (limit.rlim_cur >= needed)
        return ALNICO_SUCCESS;
    limit.rlim_cur = limit.rlim_max;
    if (limit.rlim_max >= needed && setrlimit(RLIMIT_NOFILE, &limit) == 0)
        return ALNICO_SUCCESS;
    return error_set(
        ALNICO_ERROR_SYSTEM,
        "%zu connections need %llu open files, and the hard limit is %llu (ulimit -Hn)", count,
        (unsigned long long)needed, (unsigned long long)limit.rlim_max);
}

int net_milliseconds(int64_t end_ns, int most)
{
    int64_t left = end_ns - backoff_now_ns();
    if (left <= 0)
        return 0;
    return left / 1000000 >= most ? most : (int)(left / 1000000) + 1;
}

/* False at the deadline. */
static bool wait_for(int fd, short events, int64_t end_ns)
{
    struct pollfd ready = {.fd = fd, .events = events};
    int ms = net_milliseconds(end_ns, 1000);
    poll(&ready, 1, ms);
    return ms > 0;
}

static alnico_status_t late(const char *call)
{
    return error_set(ALNICO_ERROR_TIMEOUT, "%s: the deadline passed", call);
}

alnico_status_t net_send(int fd, const void *data, size_t bytes, int64_t end_ns)
{
    const char *from = data;
    alnico_status_t status;
    while ((status = net_send_some(fd, &from, &bytes)) == ALNICO_PENDING)
        if (!wait_for(fd, POLLOUT, end_ns))
            return late("send");
    return status;
}

alnico_status_t net_receive(int fd, void *data, size_t bytes, int64_t end_ns)
{
    char *to = data;
    alnico_status_t status;
    while ((status = net_receive_some(fd, &to, &bytes)) == ALNICO_PENDING)
        if (!wait_for(fd, POLLIN, end_ns))
            return late("recv");
    return status;
}
