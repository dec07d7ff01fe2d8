/* Map of a communicator's hosts, and common parts of hierarchical algorithms. Pure functions, but for
 * the map's memory. */
#include "comm/algorithms/algorithm.h"

#include <stdlib.h>

/* The host of a rank among those that ranks below it are on, or a new one. Neighbours are mostly on
 * one host. */
static int find_host(const struct host_map *map, const uint64_t *identities, int rank)
{
    if (rank && identities[rank] == identities[rank - 1])
        return map->host[rank - 1];
    int host = 0;
    while (host < map->hosts && identities[map->rank[host]] != identities[rank])
        host++;
    return host;
}

/* Numbers the hosts, and counts each one's ranks in `first`; `rank` holds their first ranks. */
static void number_hosts(struct host_map *map, const uint64_t *identities, int size)
{
    for (int r = 0; r < size; r++) {
        int host = map->host[r] = find_host(map, identities, r);
        if (host == map->hosts)
            map->rank[map->hosts++] = r;
        map->place[r] = map->first[host + 1]++;
    }
}

struct host_map *host_map_create(const uint64_t *identities, int size)
{
    struct host_map *map = calloc(1, sizeof *map + (4 * (size_t)size + 1) * sizeof(int));
    if (!map)
        return NULL;
    map->host = (int *)(map + 1);
    map->place = map->host + size;
    map->rank = map->place + size;
    map->first = map->rank + size;
    number_hosts(map, identities, size);
    map->fewest = size;
    for (int h = 0; h < map->hosts; h++) {
        map->fewest = map->first[h + 1] < map->fewest ? map->first[h + 1] : map->fewest;
        map->first[h + 1] += map->first[h];
    }
    for (int r = 0; r < size; r++)
        map->rank[map->first[map->host[r]] + map->place[r]] = r;
    return map;
}

int seat_hosts(const struct shape *shape)
{
    return shape->map ? shape->map->hosts : 1;
}

int seat_fewest(const struct shape *shape)
{
    return shape->map ? shape->map->fewest : shape->size;
}

int seat_host(const struct shape *shape, int rank)
{
    return shape->map ? shape->map->host[rank] : 0;
}

int seat_count(const struct shape *shape, int host)
{
    return shape->map ? shape->map->first[host + 1] - shape->map->first[host] : shape->size;
}

/* The place of the host's seat 0. */
static int first_place(const struct shape *shape, int host)
{
    if (host != seat_host(shape, shape->root))
        return 0;
    return shape->map ? shape->map->place[shape->root] : shape->root;
}

int seat_of(const struct shape *shape, int rank)
{
    int host = seat_host(shape, rank), count = seat_count(shape, host);
    int place = shape->map ? shape->map->place[rank] : rank;
    return (place - first_place(shape, host) + count) % count;
}

int seat_rank(const struct shape *shape, int host, int seat)
{
    int place = (seat + first_place(shape, host)) % seat_count(shape, host);
    return shape->map ? shape->map->rank[shape->map->first[host] + place] : place;
}

int seat_peer(const struct shape *shape, int seat)
{
    return seat_rank(shape, seat_host(shape, shape->rank), seat);
}

struct span seat_part(const struct shape *shape, int parts, int seat)
{
    return seat < parts ? block_span(shape->count, parts, seat, seat + 1)
                        : (struct span){BUFFER_RECV, shape->count, 0};
}

int seat_rounds(const struct shape *shape)
{
    return (seat_count(shape, seat_host(shape, shape->rank)) + EXCHANGES - 2) / EXCHANGES;
}

bool seat_meet(const struct shape *shape, int i, int k, int *apart, int *to, int *from)
{
    int host = seat_host(shape, shape->rank), count = seat_count(shape, host);
    int seat = seat_of(shape, shape->rank);
    *apart = i * EXCHANGES + k + 1;
    if (k == EXCHANGES || *apart >= count)
        return false;
    *to = (seat + *apart) % count;
    *from = (seat - *apart + count) % count;
    return true;
}

struct shape seat_between(const struct shape *shape, size_t count)
{
    return (struct shape){.rank = seat_host(shape, shape->rank),
                          .size = seat_hosts(shape),
                          .root = seat_host(shape, shape->root),
                          .count = count,
                          .stride = count};
}

static void shift(const struct span at[BUFFERS], struct span *span)
{
    span->at += at[span->in].at;
    span->in = at[span->in].in;
}

void seat_translate(const struct shape *shape, const struct span at[BUFFERS], struct exchange *out)
{
    int seat = seat_of(shape, shape->rank);
    out->to = out->to < 0 ? -1 : seat_rank(shape, out->to, seat);
    out->from = out->from < 0 ? -1 : seat_rank(shape, out->from, seat);
    shift(at, &out->send);
    shift(at, &out->recv);
}
