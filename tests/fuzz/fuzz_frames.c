/* Any bytes as what another rank sends over TCP: the connection breaks, or messages come as they were
 * announced; receives write nothing beyond their buffers, and what nobody receives is bounded. The first
 * bytes say which receives wait. */
#include "comm/transports/tcp/tcp.h"
#include "tests/fuzz/fuzz.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { RECEIVES = 4, BYTES = 20000, TAGS = 4 };

static struct transport_tcp *make(int *other)
{
    const struct tcp_options options = {.connections = 1};
    struct transport_tcp *t;
    int ends[2];
    FUZZ_REQUIRE(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, ends) == 0);
    FUZZ_REQUIRE(tcp_prepare(0, 2, &options, &t) == ALNICO_SUCCESS);
    FUZZ_REQUIRE(tcp_add_lane(t, 1, 0, ends[0]) == ALNICO_SUCCESS);
    *other = ends[1];
    return t;
}

static void drain(int fd)
{
    char text[4096];
    while (read(fd, text, sizeof text) > 0)
        ;
}

static void check_kept(const struct transport_tcp *t)
{
    size_t kept = 0;
    for (const struct arrival *a = t->peer[1].arrivals; a; a = a->next)
        kept += a->frame.kind == FRAME_WHOLE ? a->frame.bytes + WHOLE_COST : 0;
    FUZZ_REQUIRE(kept <= WINDOW_BYTES && t->peer[1].window <= WINDOW_BYTES);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const size_t lengths[] = {0, 5, 300, BYTES};
    struct input in = {data, size};
    struct transfer transfers[RECEIVES], send;
    char *buffers[RECEIVES];
    int other;
    struct transport_tcp *t = make(&other);
    struct transport *base = &t->base;
    for (int i = 0; i < RECEIVES; i++) {
        int what = next(&in);
        size_t bytes = lengths[what % 4];
        buffers[i] = malloc(bytes + 1);
        FUZZ_REQUIRE(buffers[i]);
        FUZZ_REQUIRE(base->ops->irecv(base, what & 64 ? TRANSPORT_ANY : 1,
                                      (uint32_t)(what / 4 % TAGS), buffers[i], bytes,
                                      &transfers[i]) == ALNICO_SUCCESS);
    }
    FUZZ_REQUIRE(base->ops->isend(base, 1, 1, buffers[0], 0, &send) == ALNICO_SUCCESS);
    while (in.left && !t->peer[1].lost) {
        ssize_t n = write(other, in.data, in.left);
        in.data += n > 0 ? n : 0;
        in.left -= n > 0 ? (size_t)n : 0;
        tcp_read_peer(t, 1);
        check_kept(t);
        drain(other);
    }
    for (int i = 0; i < RECEIVES; i++) {
        if (base->ops->test(base, &transfers[i]) == ALNICO_PENDING || transfers[i].word[0])
            base->ops->cancel(base, &transfers[i]);
        free(buffers[i]);
    }
    base->ops->cancel(base, &send);
    base->broken = true;
    close(other);
    base->ops->destroy(base);
    return 0;
}
