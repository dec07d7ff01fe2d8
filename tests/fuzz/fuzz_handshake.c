/* Any bytes at either side of a handshake, or in between two right ones: a stranger never gets in, and
 * sides that both get in agree on who they are. */
#include "comm/net/handshake.h"
#include "tests/fuzz/fuzz.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const struct net_key key = {{1, 2, 3}};
static const struct net_address nowhere = {.version = 4};

static struct net_handshake begin(int fd, bool connects)
{
    struct net_handshake h;
    const struct net_identity mine = {
        .purpose = NET_MESSAGES, .rank = connects, .size = 2, .number = 5, .tag = 77};
    FUZZ_REQUIRE(net_handshake_begin(&h, fd, connects, &key, &mine, &nowhere) == ALNICO_SUCCESS);
    return h;
}

static void open_pair(int pair[2])
{
    FUZZ_REQUIRE(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, pair) == 0);
}

static void meet_stranger(bool connects, const uint8_t *data, size_t size)
{
    int pair[2];
    open_pair(pair);
    struct net_handshake h = begin(pair[0], connects);
    FUZZ_REQUIRE(net_handshake_step(&h, NULL, NULL) == ALNICO_PENDING);
    size = size < 4096 ? size : 4096;
    FUZZ_REQUIRE(write(pair[1], data, size) == (ssize_t)size);
    net_handshake_step(&h, NULL, NULL);
    shutdown(pair[1], SHUT_WR);
    alnico_status_t status = net_handshake_step(&h, NULL, NULL);
    FUZZ_REQUIRE(status == ALNICO_ERROR_MISMATCH || status == ALNICO_ERROR_SYSTEM);
    close(pair[0]);
    close(pair[1]);
}

/* Passes on what has come, each byte with the next one of the input added. */
static void pass_on(int from, int to, struct input *in, bool *changed)
{
    char data[512];
    ssize_t got = read(from, data, sizeof data);
    for (ssize_t i = 0; i < got; i++) {
        int add = next(in);
        data[i] = (char)(data[i] + add);
        *changed |= add != 0;
    }
    if (got > 0)
        FUZZ_REQUIRE(write(to, data, (size_t)got) == got);
}

/* All but the verdict is proven. */
static void meet_through(struct input *in)
{
    int left[2], right[2];
    bool forth = false, back = false;
    open_pair(left);
    open_pair(right);
    struct net_handshake c = begin(left[0], true), l = begin(right[0], false);
    alnico_status_t one = ALNICO_PENDING, other = ALNICO_PENDING;
    for (int i = 0; i < 6; i++) {
        one = one == ALNICO_PENDING ? net_handshake_step(&c, NULL, NULL) : one;
        pass_on(left[1], right[1], in, &forth);
        other = other == ALNICO_PENDING ? net_handshake_step(&l, NULL, NULL) : other;
        pass_on(right[1], left[1], in, &back);
    }
    FUZZ_REQUIRE(other != ALNICO_SUCCESS || !forth);
    FUZZ_REQUIRE(one != ALNICO_SUCCESS || other == ALNICO_SUCCESS);
    FUZZ_REQUIRE(forth || back || (one == ALNICO_SUCCESS && other == ALNICO_SUCCESS));
    if (one == ALNICO_SUCCESS)
        FUZZ_REQUIRE(c.theirs.rank == 0 && c.theirs.tag == 77 && l.theirs.rank == 1);
    for (int i = 0; i < 2; i++) {
        close(left[i]);
        close(right[i]);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct input in = {data, size};
    int way = next(&in) % 3;
    if (way < 2)
        meet_stranger(way == 1, in.data, in.left);
    else
        meet_through(&in);
    return 0;
}
