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
        map->most = map->first[h + 1] > map->most ? map->first[h + 1] : map->most;
        map->first[h + 1] += map->first[h];
    }
    map->ordered = true;
    for (int r = 0; r < size; r++) {
        map->rank[map->first[map->host[r]] + map->place[r]] = r;
        map->ordered &= r == 0 || map->host[r] >= map->host[r - 1];
    }
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

void seat_apart(const struct shape *shape, int apart, int *to, int *from)
{
    int count = seat_count(shape, seat_host(shape, shape->rank));
    int seat = seat_of(shape, shape->rank);
    *to = (seat + apart) % count;
    *from = (seat - apart + count) % count;
}

bool seat_meet(const struct shape *shape, int i, int k, int *apart, int *to, int *from)
{
    *apart = i * EXCHANGES + k + 1;
    if (k == EXCHANGES || *apart >= seat_count(shape, seat_host(shape, shape->rank)))
        return false;
    seat_apart(shape, *apart, to, from);
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

int seat_host_beyond(const struct shape *shape, int distance)
{
    int hosts = seat_hosts(shape);
    return (seat_host(shape, shape->rank) + hosts + distance) % hosts;
}

/* Where a host's ranks begin in the order of hosts. */
static int first_rank(const struct shape *shape, int host)
{
    return shape->map ? shape->map->first[host] : host * shape->size;
}

int seat_ranks(const struct shape *shape, int host, int hosts)
{
    int end = host + hosts, all = seat_hosts(shape), wrapped = end > all ? end - all : 0;
    return first_rank(shape, end - wrapped) - first_rank(shape, host) + first_rank(shape, wrapped);
}

int seat_group_rank(const struct shape *shape, int host, int seat, int j)
{
    int fewest = seat_fewest(shape), member = seat + j * fewest;
    return seat < fewest && member < seat_count(shape, host) ? seat_rank(shape, host, member) : -1;
}

int seat_group_most(const struct shape *shape)
{
    return shape->map ? (shape->map->most + shape->map->fewest - 1) / shape->map->fewest : 1;
}

int rank_runs(const struct shape *shape)
{
    if (shape->map && !shape->map->ordered)
        return shape->size;
    return 1 + (seat_host(shape, shape->rank) > 0);
}

bool rank_run(const struct shape *shape, int index, struct rank_run *out)
{
    int begin = first_rank(shape, seat_host(shape, shape->rank)), behind = shape->size - begin;
    if (index >= rank_runs(shape))
        return false;
    if (shape->map && !shape->map->ordered)
        *out = (struct rank_run){shape->map->rank[(begin + index) % shape->size], index, 1};
    else
        *out = index ? (struct rank_run){0, behind, begin} : (struct rank_run){begin, 0, behind};
    return true;
}
