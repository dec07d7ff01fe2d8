/*
 * Allreduces of random sizes, types, operations and algorithms, blocking or not, in place or not,
 * on communicators of all ranks, of some, and on a stream, of which a few are in flight at a time.
 * Small sizes dominate. Some results are checked. Communicators are made and destroyed meanwhile.
 * One thread a rank.
 */
#include "tests/soak/soak.h"

#include "base/datatype.h"
#include "comm/tuning/tuning.h"
#include "tests/support/cases.h"
#include "tests/support/ranks.h"
#include "tests/support/reference.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
    SLOTS = 4,
    COUNT_MOST = 1 << 16,
    BYTES_MOST = COUNT_MOST * 8,
    AGREE_EVERY = 256, /* operations from one common look at the clock to the next */
    CHANGE_EVERY = 1024,
    RENEW_EVERY = 8192,
    /* One in so many, and at first, until all memory has been used once. */
    LARGE = 1024,
    LARGE_FIRST = 16,
    BACKGROUND = 64, /* nonblocking or on a stream: threads take turns then, which is slow */
    BACKGROUND_FIRST = 8
};

static const size_t growth_most = 1 << 20;

enum place_name { PLACE_WORLD, PLACE_TWIN, PLACE_PART, PLACE_STREAM, PLACES };

/* A communicator and which ranks of the world are its. */
struct place {
    alnico_comm_t comm;
    alnico_stream_t stream;
    int ranks[64], size;
};

/* An operation in flight, or the next one's buffers. */
struct slot {
    bool busy, checked, background;
    alnico_request_t request;
    const struct place *place;
    size_t count;
    alnico_datatype_t type;
    alnico_op_t op;
    uint64_t seed;
    char *send, *recv;
};

struct run {
    const struct soak *soak;
    int rank, size;
    struct place place[PLACES];
    struct slot slot[SLOTS];
    uint64_t done;
    double start;
    size_t resident; /* bytes after SOAK_SETTLED operations */
};

static uint64_t draw(const struct run *run, uint64_t what, uint64_t below)
{
    return reference_random(run->soak->seed, run->done, what) % below;
}

/* ---- Communicators ---- */

static void make_place(struct run *run, struct place *place, enum place_name name)
{
    alnico_comm_t world = run->place[PLACE_WORLD].comm;
    int divisor = name == PLACE_PART ? 2 : 1;
    *place = (struct place){0};
    for (int r = run->rank % divisor; r < run->size; r += divisor)
        place->ranks[place->size++] = r;
    if (name == PLACE_STREAM)
        REQUIRE_STATUS(alnico_stream_create(&place->stream), ALNICO_SUCCESS);
    if (name == PLACE_PART)
        REQUIRE_STATUS(alnico_comm_split(world, run->rank % 2, 0, NULL, &place->comm),
                       ALNICO_SUCCESS);
    else
        REQUIRE_STATUS(alnico_comm_duplicate(world, place->stream, &place->comm), ALNICO_SUCCESS);
}

static void drop_place(struct place *place)
{
    alnico_comm_destroy(place->comm);
    alnico_stream_destroy(place->stream);
}

static int places(const struct run *run)
{
    return run->soak->streams ? PLACES : PLACE_STREAM;
}

/* ---- One operation ---- */

static void check(const struct run *run, const struct slot *s)
{
    char text[128];
    const struct place *p = s->place;
    size_t wrong = reference_check(s->recv, s->count, s->type, s->op, s->seed, p->ranks, p->size,
                                   text, sizeof text);
    if (wrong)
        fprintf(stderr, "rank %d, seed %llu, %zu %s, %s: %zu wrong, %s\n", run->rank,
                (unsigned long long)s->seed, s->count, datatype_name(s->type), op_name(s->op),
                wrong, text);
    REQUIRE(wrong == 0);
}

static void finish(const struct run *run, struct slot *s)
{
    bool done = false;
    if (!s->busy)
        return;
    s->busy = false;
    switch (s->request ? s->seed % 3 : 3) {
    case 0:
        REQUIRE_STATUS(alnico_wait(&s->request), ALNICO_SUCCESS);
        REQUIRE_STATUS(alnico_stream_synchronize(s->place->stream), ALNICO_SUCCESS);
        break;
    case 1:
        REQUIRE_STATUS(alnico_request_synchronize(&s->request), ALNICO_SUCCESS);
        break;
    case 2:
        while (!done)
            REQUIRE_STATUS(alnico_test(&s->request, &done), ALNICO_SUCCESS);
        break;
    default:
        REQUIRE_STATUS(alnico_synchronize(s->place->comm), ALNICO_SUCCESS);
    }
    REQUIRE(!s->request);
    if (s->checked)
        check(run, s);
}

static void finish_all(struct run *run)
{
    for (int i = 0; i < SLOTS; i++)
        finish(run, &run->slot[i]);
}

static bool is_settling(const struct run *run)
{
    return run->done < SOAK_SETTLED;
}

static size_t draw_count(const struct run *run)
{
    if (draw(run, 1, is_settling(run) ? LARGE_FIRST : LARGE) == 0)
        return 1 + draw(run, 2, COUNT_MOST);
    return draw(run, 3, 16) ? 1 + draw(run, 4, 64) : draw(run, 5, 4096);
}

static void describe(const struct run *run, struct slot *s)
{
    s->background = draw(run, 17, is_settling(run) ? BACKGROUND_FIRST : BACKGROUND) == 0;
    s->place = &run->place[draw(run, 6, s->background ? (uint64_t)places(run) : PLACE_STREAM)];
    s->count = draw_count(run);
    s->type = (alnico_datatype_t)draw(run, 7, DATATYPES);
    s->op = (alnico_op_t)draw(run, 8, OPS);
    if (!op_supports(s->op, s->type))
        s->op = ALNICO_SUM;
    s->checked = draw(run, 9, 16) == 0;
    s->seed = reference_random(run->soak->seed, run->done, 10);
    s->busy = true;
}

static void begin(struct run *run, struct slot *s)
{
    describe(run, s);
    bool in_place = draw(run, 11, 2);
    bool nonblocking = s->background && (!s->place->stream || draw(run, 12, 2));
    const void *send = in_place ? ALNICO_IN_PLACE : s->send;
    if (s->checked)
        reference_fill(in_place ? s->recv : s->send, s->count, s->type, s->op, s->seed, run->rank);
    if (nonblocking) {
        REQUIRE_STATUS(
            alnico_iallreduce(send, s->recv, s->count, s->type, s->op, s->place->comm, &s->request),
            ALNICO_SUCCESS);
        return;
    }
    REQUIRE_STATUS(alnico_allreduce(send, s->recv, s->count, s->type, s->op, s->place->comm),
                   ALNICO_SUCCESS);
    if (!s->place->stream)
        finish(run, s);
}

/* ---- Now and then ---- */

/* Of all backends on the CPU, or NULL: the table's choice. */
static const struct algorithm *draw_algorithm(const struct run *run)
{
    int count = 0;
    while (backend_algorithm_at(ALNICO_DEVICE_CPU, ALNICO_ALLREDUCE, count, NULL))
        count++;
    return backend_algorithm_at(ALNICO_DEVICE_CPU, ALNICO_ALLREDUCE,
                                (int)draw(run, 13, (uint64_t)count + 1), NULL);
}

static void change_algorithm(struct run *run)
{
    alnico_comm_t comm = run->place[draw(run, 14, (uint64_t)places(run))].comm;
    const struct algorithm *algorithm = draw_algorithm(run);
    finish_all(run);
    if (!algorithm || !cases_force(comm, algorithm))
        REQUIRE_STATUS(alnico_comm_set_algorithm(comm, ALNICO_ALLREDUCE, NULL), ALNICO_SUCCESS);
}

static void renew_place(struct run *run)
{
    enum place_name name = (enum place_name)(1 + draw(run, 15, (uint64_t)places(run) - 1));
    finish_all(run);
    drop_place(&run->place[name]);
    make_place(run, &run->place[name], name);
}

/* What the process has in memory, its shared pages too. */
static size_t resident_bytes(void)
{
    long pages = 0;
    FILE *file = fopen("/proc/self/statm", "r");
    REQUIRE(file && fscanf(file, "%*d %ld", &pages) == 1);
    fclose(file);
    return (size_t)pages * (size_t)sysconf(_SC_PAGESIZE);
}

static void check_memory(const struct run *run)
{
    size_t now = resident_bytes();
    size_t growth = run->resident && now > run->resident ? now - run->resident : 0;
    double seconds = ranks_seconds() - run->start;
    printf("rank %d: %llu operations in %.1f s, %zu KB resident after %d, %zu KB more at the end\n",
           run->rank, (unsigned long long)run->done, seconds, run->resident >> 10, SOAK_SETTLED,
           growth >> 10);
    fflush(stdout);
    REQUIRE(ranks_sanitized() || growth < growth_most);
}

/* Any rank's clock ends the run of all. */
static bool is_over(const struct run *run)
{
    bool measured = ranks_sanitized() || run->done >= 2 * SOAK_SETTLED;
    uint8_t over = measured && ranks_seconds() - run->start > run->soak->seconds;
    alnico_comm_t world = run->place[PLACE_WORLD].comm;
    REQUIRE_STATUS(
        alnico_allreduce(ALNICO_IN_PLACE, &over, 1, ALNICO_UINT8, ALNICO_LOGICAL_OR, world),
        ALNICO_SUCCESS);
    return over || run->done >= run->soak->operations;
}

/* ---- The whole ---- */

static void begin_run(struct run *run, alnico_comm_t world)
{
    struct place *whole = &run->place[PLACE_WORLD];
    run->rank = alnico_comm_rank(world);
    run->size = whole->size = alnico_comm_size(world);
    run->start = ranks_seconds();
    REQUIRE(run->size <= (int)(sizeof whole->ranks / sizeof *whole->ranks));
    whole->comm = world;
    for (int r = 0; r < run->size; r++)
        whole->ranks[r] = r;
    for (int i = 1; i < places(run); i++)
        make_place(run, &run->place[i], (enum place_name)i);
    for (int i = 0; i < SLOTS; i++) {
        run->slot[i].send = malloc(BYTES_MOST);
        run->slot[i].recv = malloc(BYTES_MOST);
        REQUIRE(run->slot[i].send && run->slot[i].recv);
        memset(run->slot[i].send, 1, BYTES_MOST);
        memset(run->slot[i].recv, 1, BYTES_MOST);
    }
}

static void end_run(struct run *run)
{
    for (int i = 1; i < places(run); i++)
        drop_place(&run->place[i]);
    for (int i = 0; i < SLOTS; i++) {
        free(run->slot[i].send);
        free(run->slot[i].recv);
    }
}

void soak_body(alnico_comm_t world, const struct soak *soak)
{
    struct run run = {.soak = soak};
    begin_run(&run, world);
    for (bool over = false; !over; run.done++) {
        struct slot *slot = &run.slot[draw(&run, 16, SLOTS)];
        finish(&run, slot);
        begin(&run, slot);
        if (run.done == SOAK_SETTLED)
            run.resident = resident_bytes();
        if (run.done % (is_settling(&run) ? CHANGE_EVERY / 16 : CHANGE_EVERY) == 0)
            change_algorithm(&run);
        if (run.done % (is_settling(&run) ? RENEW_EVERY / 16 : RENEW_EVERY) == 0)
            renew_place(&run);
        over = run.done % AGREE_EVERY == 0 && is_over(&run);
    }
    finish_all(&run);
    check_memory(&run);
    end_run(&run);
}
