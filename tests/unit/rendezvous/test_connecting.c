/* Ranks that have met and connect over TCP: one that dies or fails meanwhile, the key of their
 * connections, and the limit of open files. Ranks are processes, which meet by a tree. */
#include "base/status.h"
#include "comm/rendezvous/id.h"
#include "comm/rendezvous/tree.h"
#include "comm/transports/tcp/tcp.h"
#include "tests/support/forks.h"
#include "tests/support/ranks.h"

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cmocka.h>

enum { RANKS = 5, VICTIM = 3, MOST_S = 20 };

/* The exchanges of a rank, which something happens after. */
struct watched {
    struct rendezvous base;
    struct rendezvous *tree;
    int calls;
    void (*after)(struct watched *w, char *all, size_t bytes);
    char *copy; /* of the addresses */
    size_t bytes;
    struct net_key rendezvous_key;
};

/* The first exchange is an agreement, the second has the addresses. */
static alnico_status_t watch(void *context, const void *mine, void *all, size_t bytes)
{
    struct watched *w = context;
    alnico_status_t status = rendezvous_gather(w->tree, mine, all, bytes);
    w->base.failed = w->tree->failed;
    if (++w->calls == 2 && status == ALNICO_SUCCESS) {
        w->bytes = (size_t)w->base.size * bytes;
        w->copy = malloc(w->bytes);
        memcpy(w->copy, all, w->bytes);
        if (w->after)
            w->after(w, all, bytes);
    }
    return status;
}

static alnico_status_t look(void *context)
{
    return rendezvous_look(((struct watched *)context)->tree);
}

static alnico_status_t tell(void *context, alnico_status_t status)
{
    return rendezvous_fail(((struct watched *)context)->tree, status);
}

/* Connects all ranks; the caller destroys the tree. */
static alnico_status_t connect_ranks(struct rank *rank, struct watched *w, struct tree **tree,
                                     struct transport **out)
{
    struct tree_options options = {
        .rank = rank->rank, .size = rank->size, .timeout = 100, .interface = "", .who = "test"};
    const struct tcp_options tcp = {.interface = "127.0.0.1"};
    const alnico_id_t id = ranks_share_id(rank);
    REQUIRE_STATUS(id_read(&id, &options.place), ALNICO_SUCCESS);
    w->rendezvous_key = options.place.key;
    REQUIRE_STATUS(tree_create(&options, tree), ALNICO_SUCCESS);
    w->tree = tree_rendezvous(*tree);
    w->base = *w->tree;
    w->base.allgather = watch;
    w->base.look = look;
    w->base.fail = tell;
    w->base.context = w;
    return transport_tcp_create(&w->base, &tcp, out);
}

static void finish(struct watched *w, struct tree *tree)
{
    free(w->copy);
    tree_destroy(tree);
}

static void die(struct watched *w, char *all, size_t bytes)
{
    (void)w, (void)all, (void)bytes;
    raise(SIGKILL);
}

/* Ranks 0 and 4 wait for the victim to connect. */
static void death_body(struct rank *rank)
{
    struct watched w = {.after = rank->rank == VICTIM ? die : NULL};
    struct transport *t;
    struct tree *tree;
    double before = ranks_seconds();
    REQUIRE_STATUS(connect_ranks(rank, &w, &tree, &t), ALNICO_ERROR_TIMEOUT);
    ranks_require_detail("rank 3 did not come");
    REQUIRE(ranks_seconds() - before < MOST_S);
    finish(&w, tree);
}

static void rank_that_dies_is_named_at_once(void **state)
{
    (void)state;
    forks_run_victim(RANKS, VICTIM, SIGKILL, death_body, NULL);
}

/* Nobody listens where rank 4 is said to be. */
static void misdirect(struct watched *w, char *all, size_t bytes)
{
    (void)w;
    ((struct net_address *)(void *)(all + 4 * bytes))->port = 1;
}

static void failure_body(struct rank *rank)
{
    struct watched w = {.after = rank->rank == VICTIM ? misdirect : NULL};
    struct transport *t;
    struct tree *tree;
    double before = ranks_seconds();
    REQUIRE_STATUS(connect_ranks(rank, &w, &tree, &t), ALNICO_ERROR_SYSTEM);
    ranks_require_detail("rank 3: no connection to rank 4: ");
    REQUIRE(ranks_seconds() - before < MOST_S);
    finish(&w, tree);
}

static void rank_that_cannot_connect_is_named_at_once(void **state)
{
    (void)state;
    forks_run(RANKS, 1, failure_body, NULL);
}

static void key_body(struct rank *rank)
{
    struct watched w = {0};
    struct transport *t;
    struct tree *tree;
    REQUIRE_STATUS(connect_ranks(rank, &w, &tree, &t), ALNICO_SUCCESS);
    const struct net_key *key = &((struct transport_tcp *)t)->key;
    REQUIRE(w.copy && !memmem(w.copy, w.bytes, key->bytes, sizeof key->bytes));
    REQUIRE(!memmem(w.copy, w.bytes, w.rendezvous_key.bytes, sizeof w.rendezvous_key.bytes));
    forks_barrier(rank);
    t->ops->destroy(t);
    finish(&w, tree);
}

static void key_of_the_connections_is_not_sent(void **state)
{
    (void)state;
    forks_run(3, 1, key_body, NULL);
}

enum { FEW = 40, ENOUGH = 500 };

static void set_limit(rlim_t soft, rlim_t hard)
{
    const struct rlimit limit = {soft, hard};
    REQUIRE(setrlimit(RLIMIT_NOFILE, &limit) == 0);
}

static void limit_body(struct rank *rank)
{
    struct watched w = {0};
    struct transport *t;
    struct tree *tree;
    if (rank->rank == 1)
        set_limit(FEW, FEW);
    REQUIRE_STATUS(connect_ranks(rank, &w, &tree, &t), ALNICO_ERROR_SYSTEM);
    ranks_require_detail("rank 1: 2 connections need ");
    ranks_require_detail("the hard limit is 40 (ulimit -Hn)");
    finish(&w, tree);
}

static void raised_body(struct rank *rank)
{
    struct watched w = {0};
    struct transport *t;
    struct tree *tree;
    struct rlimit limit;
    set_limit(FEW, ENOUGH);
    REQUIRE_STATUS(connect_ranks(rank, &w, &tree, &t), ALNICO_SUCCESS);
    REQUIRE(getrlimit(RLIMIT_NOFILE, &limit) == 0 && limit.rlim_cur == ENOUGH);
    forks_barrier(rank);
    t->ops->destroy(t);
    finish(&w, tree);
}

static void files_are_allowed_or_the_limit_named(void **state)
{
    (void)state;
    forks_run(3, 1, limit_body, NULL);
    forks_run(3, 1, raised_body, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rank_that_dies_is_named_at_once),
        cmocka_unit_test(rank_that_cannot_connect_is_named_at_once),
        cmocka_unit_test(key_of_the_connections_is_not_sent),
        cmocka_unit_test(files_are_allowed_or_the_limit_named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
