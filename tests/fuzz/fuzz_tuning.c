/* Any bytes as a tuning file: refused with a line, or a table of which every row can be chosen, and
 * which survives being written and read again. */
#include "comm/tuning/tuning.h"
#include "tests/fuzz/fuzz.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void check_row(const struct tuning *t, int index)
{
    const struct tuning_row *row = &t->rows[index];
    const struct backend *backend = backend_find(row->backend, row->device);
    FUZZ_REQUIRE(row->collective >= 0 && row->collective < COLLECTIVES);
    FUZZ_REQUIRE(backend && backend_algorithm(backend, row->collective, row->algorithm));
    FUZZ_REQUIRE(row->ranks > 0 && row->hosts > 0 && row->bytes > 0);
    FUZZ_REQUIRE(row->chunk_bytes >= CHUNK_BYTES_LEAST && row->chunk_bytes <= INT_MAX);
    FUZZ_REQUIRE(tuning_shadow(t->rows, index) < 0);
}

static void check_steps(const struct tuning *t, int ranks, int hosts)
{
    struct tuning_steps steps;
    FUZZ_REQUIRE(tuning_steps_init(&steps, t, ALNICO_DEVICE_CPU, ranks, hosts) == ALNICO_SUCCESS);
    for (size_t bytes = 0; bytes < SIZE_MAX / 4; bytes = 3 * bytes + 1)
        FUZZ_REQUIRE(tuning_choose(&steps, ALNICO_ALLREDUCE, 0, bytes)->bytes >= bytes);
    tuning_steps_finish(&steps);
}

static void check_round_trip(const struct tuning *t)
{
    static char path[64];
    struct tuning again;
    snprintf(path, sizeof path, "/tmp/alnico-fuzz-tuning-%ld", (long)getpid());
    FUZZ_REQUIRE(tuning_file_write(path, t) == ALNICO_SUCCESS);
    FUZZ_REQUIRE(tuning_file_read(path, &again) == ALNICO_SUCCESS);
    unlink(path);
    FUZZ_REQUIRE(again.count == t->count);
    FUZZ_REQUIRE(memcmp(again.rows, t->rows, (size_t)t->count * sizeof *t->rows) == 0);
    tuning_finish(&again);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct tuning t;
    char *text = malloc(size + 1);
    FUZZ_REQUIRE(text);
    memcpy(text, data, size);
    text[size] = '\0';
    if (tuning_file_parse("fuzz", text, size, &t) == ALNICO_SUCCESS) {
        for (int i = 0; i < t.count; i++)
            check_row(&t, i);
        check_steps(&t, 1, 1);
        check_steps(&t, 16, 2);
        check_round_trip(&t);
    } else {
        FUZZ_REQUIRE(strncmp(alnico_error_detail(), "fuzz, line ", 11) == 0);
        FUZZ_REQUIRE(!t.rows && !t.machines && t.count == 0);
    }
    tuning_finish(&t);
    free(text);
    return 0;
}
