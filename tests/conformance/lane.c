/* The communicators: two of all ranks on the inline stream, one of half the ranks, two of all ranks
 * on one stream, and one on another stream whose ranks are in reverse order. */
#include "tests/conformance/crew.h"

#include "tests/conformance/generate.h"
#include "tests/conformance/operations.h"

#ifdef ALNICO_HAVE_MPI
#include <alnico/mpi.h>
#endif

#include <string.h>

/* Which thread of a batch's calls on a lane. */
static const int turns[LANES] = {[LANE_WORLD] = 0,  [LANE_TWIN] = 1,   [LANE_HALF] = 2,
                                 [LANE_STREAM] = 3, [LANE_SHARED] = 3, [LANE_REVERSED] = 4};

bool lane_exists(const struct crew *crew, int lane)
{
    return !crew->options->single || crew->ops->streams[lane] < 0;
}

int lane_thread(int lane, int threads)
{
    return turns[lane] % threads;
}

/* ---- Making them ---- */

static void *stream_of(struct crew *crew, int lane)
{
    int number = crew->ops->streams[lane];
    if (number < 0)
        return NULL;
    if (!crew->streams[number])
        crew->streams[number] = crew->ops->stream_create(crew->site);
    return crew->streams[number];
}

static void make_world(struct crew *crew, struct lane *lane)
{
    if (crew->ops->world) {
        lane->comm = crew->ops->world(crew->rank, lane->stream);
        return;
    }
#ifdef ALNICO_HAVE_MPI
    if (crew->options->mpi) {
        REQUIRE_STATUS(
            alnico_comm_create_mpi(MPI_COMM_WORLD, crew->ops->device, lane->stream, &lane->comm),
            ALNICO_SUCCESS);
        return;
    }
#endif
    REQUIRE_STATUS(
        alnico_comm_create(&crew->rank->bootstrap, crew->ops->device, lane->stream, &lane->comm),
        ALNICO_SUCCESS);
}

static void make(struct crew *crew, int name)
{
    struct lane *lane = &crew->lanes[name];
    alnico_comm_t world = crew->lanes[LANE_WORLD].comm;
    int rank = crew->rank->rank;
    *lane = (struct lane){.stream = stream_of(crew, name)};
    if (name == LANE_WORLD)
        make_world(crew, lane);
    else if (name == LANE_HALF)
        REQUIRE_STATUS(alnico_comm_split(world, rank % 2, 0, lane->stream, &lane->comm),
                       ALNICO_SUCCESS);
    else if (name == LANE_REVERSED)
        REQUIRE_STATUS(alnico_comm_split(world, 0, -rank, lane->stream, &lane->comm),
                       ALNICO_SUCCESS);
    else
        REQUIRE_STATUS(alnico_comm_duplicate(world, lane->stream, &lane->comm), ALNICO_SUCCESS);
}

static void list_ranks(struct crew *crew, int name)
{
    struct lane *lane = &crew->lanes[name];
    int size = crew->rank->size, step = name == LANE_HALF ? 2 : 1;
    for (int r = name == LANE_HALF ? crew->rank->rank % 2 : 0; r < size; r += step)
        lane->ranks[lane->size++] = name == LANE_REVERSED ? size - 1 - r : r;
    REQUIRE(alnico_comm_size(lane->comm) == lane->size);
    REQUIRE(lane->ranks[alnico_comm_rank(lane->comm)] == crew->rank->rank);
}

void lanes_open(struct crew *crew)
{
    for (int i = 0; i < LANES; i++) {
        if (!lane_exists(crew, i))
            continue;
        make(crew, i);
        list_ranks(crew, i);
        if (crew->ops->lane_open)
            crew->ops->lane_open(crew->site, i, crew->lanes[i].comm);
    }
}

void lanes_close(struct crew *crew)
{
    for (int i = LANES - 1; i >= 0; i--) {
        struct lane *lane = &crew->lanes[i];
        if (!lane_exists(crew, i))
            continue;
        if (crew->ops->lane_close)
            crew->ops->lane_close(crew->site, i, lane->comm);
        alnico_comm_destroy(lane->comm);
    }
    for (int i = 0; i < LANES; i++) {
        if (crew->streams[i])
            crew->ops->stream_destroy(crew->streams[i]);
        crew->streams[i] = NULL;
    }
}

/* ---- Algorithms ---- */

static alnico_status_t force(const struct crew *crew, struct lane *lane,
                             alnico_collective_t collective, const char *name)
{
    alnico_status_t status =
        crew->ops->force && *name
            ? crew->ops->force(lane->comm, collective, name)
            : alnico_comm_set_algorithm(lane->comm, collective, *name ? name : NULL);
    if (status == ALNICO_SUCCESS)
        strcpy(lane->forced[collective], name);
    return status;
}

alnico_status_t lane_force(struct crew *crew, const struct trial *trial)
{
    alnico_collective_t collective = operations[trial->operation].collective;
    struct lane *lane = &crew->lanes[trial->lane];
    const char *name = trial->algorithm;
    const struct algorithm *first = way_at(crew->options, trial->operation, 0);
    if (!*name && crew->ops->only)
        name = first ? first->name : "dissemination"; /* a barrier's, which has no buffers */
    if (strcmp(lane->forced[collective], name) == 0)
        return ALNICO_SUCCESS;
    alnico_status_t status = force(crew, lane, collective, name);
    if (status == ALNICO_ERROR_UNSUPPORTED && lane_may_refuse(crew, trial))
        status = *lane->forced[collective] ? force(crew, lane, collective, "") : ALNICO_SUCCESS;
    return status;
}

bool lane_may_refuse(const struct crew *crew, const struct trial *trial)
{
    const struct backend *backend = NULL;
    int collective = (int)operations[trial->operation].collective;
    if (crew->ops->only)
        return true;
    return *trial->algorithm &&
           backend_algorithm_named((int)crew->ops->device, collective, trial->algorithm,
                                   &backend) &&
           (crew->ops->staged || strcmp(backend->name, "host") != 0);
}
