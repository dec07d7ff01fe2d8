/* See cliques.h. A list under a lock. */
#include "integrations/nccl/cliques.h"

#include <stdlib.h>
#include <string.h>

struct clique {
    struct clique *next;
    struct clique_key key;
    uint64_t number;
    int members, leaving;
    ncclComm_t left; /* first of those that leave */
};

static struct {
    pthread_mutex_t lock;
    struct clique *first;
    uint64_t count; /* so far */
} cliques = {.lock = PTHREAD_MUTEX_INITIALIZER};

static struct clique *find(const struct clique_key *key)
{
    for (struct clique *c = cliques.first; c; c = c->next)
        if (memcmp(&c->key.id, &key->id, sizeof key->id) == 0 && c->key.parent == key->parent &&
            c->key.split == key->split && c->key.color == key->color)
            return c;
    return NULL;
}

static struct clique *add(const struct clique_key *key)
{
    struct clique *clique = calloc(1, sizeof *clique);
    if (!clique)
        return NULL;
    clique->key = *key;
    clique->number = ++cliques.count;
    clique->next = cliques.first;
    cliques.first = clique;
    return clique;
}

ncclResult_t clique_join(ncclComm_t comm, const struct clique_key *key)
{
    pthread_mutex_lock(&cliques.lock);
    struct clique *clique = find(key);
    if (!clique)
        clique = add(key);
    if (clique)
        clique->members++;
    comm->clique = clique;
    pthread_mutex_unlock(&cliques.lock);
    return clique ? ncclSuccess : fail(ncclSystemError, "no memory for a communicator");
}

uint64_t clique_number(ncclComm_t comm)
{
    return comm->clique->number;
}

static void forget(struct clique *clique)
{
    struct clique **link = &cliques.first;
    while (*link != clique)
        link = &(*link)->next;
    *link = clique->next;
    free(clique);
}

/* All communicators of the clique, once every one has left. */
static ncclComm_t take_left(struct clique *clique)
{
    if (clique->leaving < clique->members)
        return NULL;
    ncclComm_t left = clique->left;
    forget(clique);
    return left;
}

ncclComm_t clique_leave(ncclComm_t comm)
{
    pthread_mutex_lock(&cliques.lock);
    struct clique *clique = comm->clique;
    comm->next_leaving = clique->left;
    clique->left = comm;
    clique->leaving++;
    ncclComm_t left = take_left(clique);
    pthread_mutex_unlock(&cliques.lock);
    return left;
}

ncclComm_t clique_drop(ncclComm_t comm)
{
    pthread_mutex_lock(&cliques.lock);
    comm->clique->members--;
    ncclComm_t left = take_left(comm->clique);
    pthread_mutex_unlock(&cliques.lock);
    return left;
}
