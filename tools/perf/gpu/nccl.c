/* NCCL as a peer: its communicator and windows. Main thread. */
#include "tools/perf/gpu/nccl.h"

#include "tools/common/program.h"
#include "tools/common/ranks.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void nccl_must(ncclResult_t result, const char *what)
{
    if (result != ncclSuccess)
        program_fail("%.*s: %s: %s", (int)strcspn(what, "("), what, ncclGetErrorString(result),
                     ncclGetLastError(NULL));
}

struct nccl_peer *nccl_peer_open(int rank, int ranks)
{
    struct nccl_peer *peer = calloc(1, sizeof *peer);
    ncclUniqueId id;
    if (!peer)
        program_fail("no memory for an NCCL communicator");
    if (rank == 0)
        NCCL_MUST(ncclGetUniqueId(&id));
    program_broadcast(&id, sizeof id, 0);
    NCCL_MUST(ncclCommInitRank(&peer->comm, ranks, id, rank));
    return peer;
}

void nccl_peer_close(struct nccl_peer *peer)
{
    if (!peer)
        return;
    NCCL_MUST(ncclCommDestroy(peer->comm));
    free(peer);
}

#if NCCL_HAS_WINDOWS
static void open_window(struct nccl_peer *peer, void *memory, size_t bytes)
{
    int i = 0;
    while (i < WINDOWS && peer->of[i])
        i++;
    if (i == WINDOWS)
        program_fail("more than %d NCCL windows", WINDOWS);
    NCCL_MUST(ncclCommWindowRegister(peer->comm, memory, bytes, &peer->window[i],
                                     NCCL_WIN_COLL_SYMMETRIC));
    peer->of[i] = memory;
    if (!peer->window[i])
        fprintf(stderr, "alnico-perf: NCCL gives no symmetric window here; nccl-symmetric measures "
                        "plain calls on its memory\n");
}

static void close_window(struct nccl_peer *peer, const void *memory)
{
    for (int i = 0; i < WINDOWS; i++) {
        if (peer->of[i] != memory)
            continue;
        if (peer->window[i])
            NCCL_MUST(ncclCommWindowDeregister(peer->comm, peer->window[i]));
        peer->of[i] = NULL;
    }
}
#endif

void *nccl_peer_alloc(struct nccl_peer *peer, size_t bytes, bool window)
{
    void *memory = NULL;
    NCCL_MUST(ncclMemAlloc(&memory, bytes));
#if NCCL_HAS_WINDOWS
    if (window)
        open_window(peer, memory, bytes);
#else
    (void)peer;
    (void)window;
#endif
    return memory;
}

void nccl_peer_free(struct nccl_peer *peer, void *memory)
{
    if (!memory)
        return;
#if NCCL_HAS_WINDOWS
    if (peer)
        close_window(peer, memory);
#else
    (void)peer;
#endif
    NCCL_MUST(ncclMemFree(memory));
}

const char *nccl_peer_version(void)
{
    static char text[32];
    int code = 0;
    NCCL_MUST(ncclGetVersion(&code));
    snprintf(text, sizeof text, "%d.%d.%d", code / 10000, code / 100 % 100, code % 100);
    return text;
}
