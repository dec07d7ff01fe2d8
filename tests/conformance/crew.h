/* A rank with all its communicators, and how it runs batches. */
#ifndef ALNICO_TESTS_CONFORMANCE_CREW_H
#define ALNICO_TESTS_CONFORMANCE_CREW_H

#include "comm/tuning/tuning.h"
#include "tests/conformance/options.h"
#include "tests/conformance/plan.h"
#include "tests/conformance/site.h"

/* A communicator, and which ranks of the world are its. */
struct lane {
    alnico_comm_t comm;
    void *stream;
    int ranks[RANKS_MOST], size;
    char forced[COLLECTIVES][ALGORITHM_BYTES]; /* algorithms; "": by the table */
};

/* A buffer between margins: where the call sees it, and the host's copies from before and after. */
struct frame {
    char *memory, *before, *after;
    size_t at, bytes, total; /* the data begin at `at` */
};

/* One call in flight. */
struct entry {
    struct plan plan;
    struct frame frame[2];
    struct copy put[2], get[2];
    alnico_request_t request[REQUESTS_MOST];
    bool refused;
};

/* What ranks tell each other after a batch. */
struct record {
    uint64_t hash[TRIALS];
    double begin[TRIALS], end[TRIALS];
    bool refused[TRIALS];
    bool over;
};

struct crew {
    struct rank *rank;
    const struct options *options;
    const struct site_ops *ops;
    void *site;
    void *streams[LANES];
    struct lane lanes[LANES];
    struct record *records; /* of all ranks */
    const struct batch *batch;
    struct entry entries[TRIALS];
    uint64_t calls, refused;
    double next_sign; /* of life, in ranks_seconds; 0: begin to count */
    bool spoiled;     /* what is to be broken was */
};

/* ---- lane.c ---- */

void lanes_open(struct crew *crew);
void lanes_close(struct crew *crew);

/* Whether this crew has the lane: without threads there is the inline stream only. */
bool lane_exists(const struct crew *crew, int lane);

/* The thread of a batch with so many that calls on a lane; lanes of one stream have the same. */
int lane_thread(int lane, int threads);

/* Forces the trial's algorithm on its lane (collective); where the communicator cannot have it, the
 * table's choice. */
alnico_status_t lane_force(struct crew *crew, const struct trial *trial);

/* Whether a call may be refused: a forced algorithm may, but for the host backend's on CPUs. */
bool lane_may_refuse(const struct crew *crew, const struct trial *trial);

/* ---- frame.c ---- */

/* Takes memory for both buffers of an entry and writes what stands there before the call. */
void frames_make(struct crew *crew, int i);

/* Compares what stands there after the call with what must; ends the process if it differs. Returns
 * the hash of the result. */
uint64_t frames_check(struct crew *crew, int i);

/* ---- play.c ---- */

/* Runs a batch (collective) and ends the process, with the batch as a text, if anything is wrong.
 * `over` of any rank is given to all. */
bool play(struct crew *crew, const struct batch *batch, bool over);

/* Ends the process with what is wrong with call i (-1: with the batch) and the command that repeats
 * it. */
_Noreturn void crew_fail(const struct crew *crew, int i, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* The command that repeats the batch. */
const char *crew_command(const struct options *options, const struct batch *batch, char *text,
                         size_t bytes);

#endif
