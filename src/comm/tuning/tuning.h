/* The choice of an algorithm: a table of rows, built in or from a file, and the steps that follow
 * from it for one communicator. docs/tuning.md is the manual. Communicators read it when they are
 * made, on the caller's thread; tuning_choose runs in every call. */
#ifndef ALNICO_COMM_TUNING_TUNING_H
#define ALNICO_COMM_TUNING_TUNING_H

#include "comm/backends/backend.h"

enum {
    DEVICES = ALNICO_DEVICE_CUDA + 1,
    ALGORITHM_NAME_BYTES = 32,
    BACKEND_NAME_BYTES = 16,
    CHUNK_BYTES_LEAST = 1024, /* the most is INT_MAX, which MPI counts with */
    TUNING_BLOCKS_MOST = 1024,
    TUNING_ROWS_MOST = 4096
};

/* Modes of a call, which some rows ask for; a sum of these. */
enum {
    MODE_REGISTERED = 1, /* its buffers are registered */
    MODE_CAPTURED = 2,   /* a graph is being captured on its stream */
    MODES = 4
};

/* Names of devices by their number; NULL after the last. */
extern const char *const tuning_devices[];

/* Holds for one collective and device and up to so many ranks, hosts and bytes; the first row that
 * fits counts. Bytes are those of the vector, or of one rank's block; 0 where ranks do not know
 * each other's counts (call_bytes). INT_MAX and SIZE_MAX mean any. It has no pointers, so that
 * ranks can send it to each other. */
struct tuning_row {
    int collective, device;
    int ranks, hosts;
    size_t bytes;
    unsigned modes; /* holds only for calls that have these */
    char backend[BACKEND_NAME_BYTES], algorithm[ALGORITHM_NAME_BYTES];
    size_t chunk_bytes; /* a larger message is cut into chunks of this size */
    int blocks;         /* of a kernel's grid; 0: as many as the backend takes by itself */
};

/* The contents of a file. No rows: there is none. */
struct tuning {
    struct tuning_row *rows;
    int count;
    char *machines; /* the file's description of where it was measured, a JSON array; NULL: none */
};

/* The built-in rows, behind those of a file; for every device that a build has, the last fits
 * everything. */
extern const struct tuning_row tuning_builtin[];
extern const int tuning_builtin_count;

/* The row before `rows[index]` that fits all that it fits, so that it can never be chosen; -1:
 * none. A row of another backend hides one on the CPU only: elsewhere it may not have the type or
 * operation. */
int tuning_shadow(const struct tuning_row *rows, int index);

void tuning_finish(struct tuning *tuning);

/* Reads and checks a file. Errors: ARGUMENT (it cannot be read, or is damaged: with its name, the
 * line and the key), MEMORY. On error *out is empty. */
alnico_status_t tuning_file_read(const char *path, struct tuning *out);

/* Parses a text of `length` bytes, with a NUL behind them; `name` is what messages call
 * it. */
alnico_status_t tuning_file_parse(const char *name, const char *text, size_t length,
                                  struct tuning *out);

/* Replaces the file at once, or leaves it as it is. Errors: SYSTEM, MEMORY. */
alnico_status_t tuning_file_write(const char *path, const struct tuning *tuning);

/* For messages of up to `bytes` bytes; without a backend: behind the last step. */
struct tuning_step {
    size_t bytes;
    struct choice choice;
};

/* In the order of the rows, for every mode of a call; one fits every size. */
struct tuning_steps {
    struct tuning_step *of[COLLECTIVES][MODES];
    bool captured_same[COLLECTIVES][MODES]; /* the rows of a captured call are the same ones */
};

/* The steps of a file's rows (NULL: none), and behind them of the built-in ones, for this device and
 * so many ranks on so many hosts. Errors: UNSUPPORTED (no row fits), MEMORY. */
alnico_status_t tuning_steps_init(struct tuning_steps *out, const struct tuning *tuning, int device,
                                  int ranks, int hosts);

/* One step for every size and mode of one collective: for measuring it. */
void tuning_steps_force(struct tuning_steps *steps, int collective, const struct choice *only);

void tuning_steps_finish(struct tuning_steps *steps);

/* The first step that fits, and the next one that does: NULL if there is none. */
const struct tuning_step *tuning_choose(const struct tuning_steps *steps,
                                        alnico_collective_t collective, unsigned modes,
                                        size_t bytes);
const struct tuning_step *tuning_next(const struct tuning_step *step, size_t bytes);

/* Whether a call of the modes and bytes gets the choice of `step` also while a graph is captured. */
bool tuning_same_captured(const struct tuning_steps *steps, alnico_collective_t collective,
                          unsigned modes, size_t bytes, const struct tuning_step *step);

#endif
