/* Ranks on GPUs, as threads: a seat is a rank's GPU, stream, communicator and areas; a case is one
 * allreduce, checked on the host against the reference, between poisoned margins, and bit by bit
 * against rank 0. */
#ifndef ALNICO_TESTS_GPU_SUPPORT_SEATS_H
#define ALNICO_TESTS_GPU_SUPPORT_SEATS_H

#include "tests/gpu/support/gpu.h"
#include "tests/support/ranks.h"

enum { SEATS_MOST = 8, SEAT_MARGIN = 256, SEAT_POISON = 0x5a };

/* Ends the process with the place unless the library's call succeeds. */
#define OK(call) REQUIRE_STATUS((call), ALNICO_SUCCESS)

/* What all inputs are made from. */
extern uint64_t seats_seed;

struct seat {
    struct rank *rank;
    cudaStream_t stream;
    alnico_comm_t comm;
    char *send, *recv, *host; /* `room` bytes each, the first two on the GPU */
    size_t room;
};

/* Rank r takes GPU r. The algorithm is forced; NULL: by the table. */
void seat_open(struct seat *s, struct rank *rank, size_t room, const char *algorithm);
void seat_close(struct seat *s);

struct one {
    size_t count, at; /* elements, and elements before them */
    alnico_datatype_t type;
    alnico_op_t op;
    bool in_place, nonblocking;
    uint64_t salt; /* equal on all ranks */
};

/* Puts the input into an area of `room` bytes on the GPU; starts the call from one to another;
 * checks the result in one (all ranks at the same time). */
void seat_put(struct seat *s, const struct one *c, char *area);
alnico_status_t seat_begin(struct seat *s, const struct one *c, const char *from, char *to,
                           alnico_request_t *request);
void seat_check(struct seat *s, const struct one *c, const char *area);

/* All of these, with the wait. */
void seat_run(struct seat *s, const struct one *c, char *from, char *to);

/* Ends the process, naming the case. */
void seat_complain(const struct seat *s, const struct one *c, const char *text);

#endif
