/* See checkpoint_file.h. A file is a header and the values. */
#include "train/trainer/checkpoint_file.h"

#include "base/replace.h"
#include "base/status.h"
#include "train/graph/memory_plan.h"
#include "train/optimizers/optimizer.h"

#include <errno.h>
#include <inttypes.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <zlib.h>

enum { MAGIC_BYTES = 8 };

static const char magic[MAGIC_BYTES + 1] = "ALNCKPT3";

struct header {
    char magic[MAGIC_BYTES];
    uint64_t checksum;       /* CRC-32 of the header with 0 here, and of the values */
    struct checkpoint state; /* in the file without its pointer */
};

enum { HEADER_BYTES = offsetof(struct header, state.values) };

size_t checkpoint_rank(const struct checkpoint *checkpoint, int rank)
{
    return (1 + checkpoint->states) * checkpoint->parameters +
           (size_t)rank * (checkpoint->statistics + checkpoint->extra);
}

size_t checkpoint_count(const struct checkpoint *checkpoint)
{
    return checkpoint_rank(checkpoint, (int)checkpoint->run.ranks);
}

static uint64_t checksum_of(const struct header *header, const float *values, size_t count)
{
    struct header blank = *header;
    blank.checksum = 0;
    uLong sum = crc32_z(0, (const Bytef *)&blank, HEADER_BYTES);
    return crc32_z(sum, (const Bytef *)values, count * sizeof *values);
}

static alnico_status_t system_error(const char *path, const char *what)
{
    return error_set(ALNICO_ERROR_SYSTEM, "checkpoint %s: %s: %s", path, what, strerror(errno));
}

/* The replacement's error, for a checkpoint. */
static alnico_status_t replacement_error(alnico_status_t status)
{
    return status == ALNICO_SUCCESS ? status
                                    : error_set(status, "checkpoint %s", alnico_error_detail());
}

alnico_status_t checkpoint_try(const char *path)
{
    return replacement_error(replacement_try(path, REPLACEMENT_REGULAR));
}

alnico_status_t checkpoint_write(const char *path, const struct checkpoint *checkpoint)
{
    struct header header = {.state = *checkpoint};
    struct replacement replacement;
    const size_t count = checkpoint_count(checkpoint);
    memcpy(header.magic, magic, MAGIC_BYTES);
    header.checksum = checksum_of(&header, checkpoint->values, count);
    TRY(replacement_error(replacement_begin(path, REPLACEMENT_REGULAR, &replacement)));
    fwrite(&header, HEADER_BYTES, 1, replacement.file);
    fwrite(checkpoint->values, sizeof *checkpoint->values, count, replacement.file);
    return replacement_error(replacement_finish(&replacement));
}

/* Compares the header's sizes with the file's. */
static alnico_status_t size_check(const char *path, const struct header *header, uint64_t bytes)
{
    const struct checkpoint *state = &header->state;
    const uint64_t most = (uint64_t)1 << 40, ranks = state->run.ranks;
    const bool sane = state->parameters < most && state->states <= OPTIMIZER_STATES && ranks >= 1 &&
                      ranks < 1 << 20 && state->statistics < most / ranks &&
                      state->extra < most / ranks;
    const uint64_t expected = sane ? HEADER_BYTES + sizeof(float) * checkpoint_count(state) : 0;
    if (sane && bytes == expected)
        return ALNICO_SUCCESS;
    return error_set(ALNICO_ERROR_ARGUMENT,
                     "checkpoint %s: it has %" PRIu64 " bytes, expected %" PRIu64
                     ": truncated or damaged",
                     path, bytes, expected);
}

static alnico_status_t header_read(const char *path, FILE *file, struct header *header)
{
    struct stat about;
    if (fstat(fileno(file), &about) != 0)
        return system_error(path, "cannot be read");
    const bool whole = fread(header, HEADER_BYTES, 1, file) == 1;
    if (!whole && ferror(file))
        return system_error(path, "cannot be read");
    if (!whole || memcmp(header->magic, magic, MAGIC_BYTES - 1) != 0)
        return error_set(ALNICO_ERROR_ARGUMENT, "checkpoint %s: %s", path,
                         whole ? "it is no checkpoint of this program" : "truncated");
    if (header->magic[MAGIC_BYTES - 1] != magic[MAGIC_BYTES - 1])
        return error_set(ALNICO_ERROR_ARGUMENT, "checkpoint %s: it is of version %c, not %c", path,
                         header->magic[MAGIC_BYTES - 1], magic[MAGIC_BYTES - 1]);
    return size_check(path, header, (uint64_t)about.st_size);
}

static alnico_status_t values_read(const char *path, FILE *file, const struct header *header,
                                   struct checkpoint *out)
{
    const size_t count = checkpoint_count(out);
    out->values = malloc((count + 1) * sizeof *out->values);
    if (!out->values)
        return error_set(ALNICO_ERROR_MEMORY, "checkpoint %s: no memory for %zu numbers", path,
                         count);
    if (fread(out->values, sizeof *out->values, count, file) != count)
        return error_set(ALNICO_ERROR_ARGUMENT, "checkpoint %s: truncated", path);
    const uint64_t sum = checksum_of(header, out->values, count);
    if (sum == header->checksum)
        return ALNICO_SUCCESS;
    return error_set(ALNICO_ERROR_ARGUMENT,
                     "checkpoint %s: its checksum is %08" PRIx64 ", expected %08" PRIx64
                     ": it is damaged",
                     path, sum, header->checksum);
}

static alnico_status_t file_read(const char *path, FILE *file, struct checkpoint *out)
{
    struct header header = {.checksum = 0};
    TRY(header_read(path, file, &header));
    *out = header.state;
    out->values = NULL;
    out->run.model[sizeof out->run.model - 1] = out->run.data[sizeof out->run.data - 1] = '\0';
    out->run.optimizer[sizeof out->run.optimizer - 1] = '\0';
    out->run.strategy[sizeof out->run.strategy - 1] = '\0';
    return values_read(path, file, &header, out);
}

alnico_status_t checkpoint_read(const char *path, struct checkpoint *out)
{
    *out = (struct checkpoint){0};
    FILE *file = fopen(path, "rbe");
    if (!file)
        return system_error(path, "cannot be opened");
    const alnico_status_t status = file_read(path, file, out);
    fclose(file);
    if (status != ALNICO_SUCCESS)
        checkpoint_free(out);
    return status;
}

void checkpoint_free(struct checkpoint *checkpoint)
{
    free(checkpoint->values);
    checkpoint->values = NULL;
}

static alnico_status_t name_compare(const char *path, const char *what, const char *saved,
                                    const char *here)
{
    if (strcmp(saved, here) == 0)
        return ALNICO_SUCCESS;
    return error_set(ALNICO_ERROR_ARGUMENT, "checkpoint %s: it is of %s %s, not %s", path, what,
                     saved, here);
}

static const char *precision_text(uint64_t precision)
{
    return precision < PRECISIONS ? precision_name((enum precision)precision) : "unknown";
}

alnico_status_t checkpoint_compare(const char *path, const struct checkpoint_run *saved,
                                   const struct checkpoint_run *run)
{
    const struct {
        const char *what;
        uint64_t saved, here;
    } rows[] = {
        {"image height", saved->height, run->height},
        {"image width", saved->width, run->width},
        {"channels", saved->channels, run->channels},
        {"classes", saved->classes, run->classes},
        {"batch", saved->batch, run->batch},
        {"number of ranks", saved->ranks, run->ranks},
        {"seed", saved->seed, run->seed},
    };
    TRY(name_compare(path, "model", saved->model, run->model));
    TRY(name_compare(path, "data", saved->data, run->data));
    TRY(name_compare(path, "optimizer", saved->optimizer, run->optimizer));
    TRY(name_compare(path, "strategy", saved->strategy, run->strategy));
    TRY(name_compare(path, "precision", precision_text(saved->precision),
                     precision_text(run->precision)));
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (rows[i].saved != rows[i].here)
            return error_set(ALNICO_ERROR_ARGUMENT,
                             "checkpoint %s: it is of %s %" PRIu64 ", not %" PRIu64, path,
                             rows[i].what, rows[i].saved, rows[i].here);
    if (saved->layout != run->layout)
        return error_set(ALNICO_ERROR_ARGUMENT,
                         "checkpoint %s: its parameters stand in another order than %s's here",
                         path, run->model);
    return ALNICO_SUCCESS;
}
