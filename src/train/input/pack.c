/*
 * Making packed files: batches of records are filled by several threads and written in order. See
 * packed_file.h.
 */
#include "base/status.h"
#include "train/input/packed_file.h"

#include <errno.h>
#include <omp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { BATCH_BYTES = 1 << 26, BATCH_MOST = 4096 };

struct packing {
    const struct pack_options *options;
    struct source parts[PACKED_PARTS];
    char path[1024]; /* until it is whole */
    FILE *file;
    uint8_t *batch;
    size_t batch_records, record;
    size_t done, all;
};

static alnico_status_t file_error(const struct packing *packing, const char *doing)
{
    return error_set(ALNICO_ERROR_SYSTEM, "%s: %s it: %s", packing->path, doing, strerror(errno));
}

static alnico_status_t record_fill(const struct source *source, size_t index, uint8_t *out)
{
    struct packed_record *record = (void *)out;
    TRY(source_read(source, index, NULL, record->labels + source->info.labels, record->labels));
    record->checksum = packed_checksum(record->labels, packed_content_bytes(&source->info));
    return ALNICO_SUCCESS;
}

/* Some records from `first` on; the first error by its number, whichever thread finds one. */
static alnico_status_t batch_fill(struct packing *packing, const struct source *source,
                                  size_t first, size_t count)
{
    alnico_status_t status = ALNICO_SUCCESS;
    size_t failed = count;
    char detail[512] = "";
    memset(packing->batch, 0, count * packing->record);
#pragma omp parallel for schedule(dynamic) num_threads(packing->options->threads)
    for (size_t i = 0; i < count; i++) {
        const alnico_status_t one =
            record_fill(source, first + i, packing->batch + i * packing->record);
#pragma omp critical
        if (one != ALNICO_SUCCESS && i < failed) {
            failed = i;
            status = one;
            snprintf(detail, sizeof detail, "%s", alnico_error_detail());
        }
    }
    return status == ALNICO_SUCCESS ? status : error_set(status, "%s", detail);
}

static alnico_status_t part_write(struct packing *packing, const struct source *source)
{
    const struct pack_options *options = packing->options;
    for (size_t first = 0, count; first < source->info.images; first += count) {
        const size_t left = source->info.images - first;
        count = left < packing->batch_records ? left : packing->batch_records;
        TRY(batch_fill(packing, source, first, count));
        if (fwrite(packing->batch, packing->record, count, packing->file) != count)
            return file_error(packing, "writing");
        packing->done += count;
        if (options->progress)
            options->progress(options->context, packing->done, packing->all);
    }
    return ALNICO_SUCCESS;
}

static alnico_status_t header_write(struct packing *packing)
{
    static const uint8_t zeros[PACKED_HEADER_BYTES - sizeof(struct packed_header)];
    const uint64_t images[PACKED_PARTS] = {packing->parts[0].info.images,
                                           packing->parts[1].info.images};
    struct packed_header header;
    packed_header_fill(&packing->parts[0].info, images, packing->options->source, &header);
    if (fwrite(&header, sizeof header, 1, packing->file) != 1 ||
        fwrite(zeros, sizeof zeros, 1, packing->file) != 1)
        return file_error(packing, "writing");
    return ALNICO_SUCCESS;
}

static alnico_status_t file_finish(struct packing *packing)
{
    const bool written = fflush(packing->file) == 0 && fsync(fileno(packing->file)) == 0;
    const alnico_status_t status = written ? ALNICO_SUCCESS : file_error(packing, "writing");
    fclose(packing->file);
    packing->file = NULL;
    TRY(status);
    return rename(packing->path, packing->options->path) == 0 ? ALNICO_SUCCESS
                                                              : file_error(packing, "moving");
}

static alnico_status_t parts_open(struct packing *packing)
{
    const struct pack_options *options = packing->options;
    struct source_setup setup = {.classes = options->classes, .seed = options->seed, .train = true};
    TRY(source_open(options->source, &setup, &packing->parts[0]));
    setup.train = false;
    if (!options->train_only)
        TRY(source_open(options->source, &setup, &packing->parts[1]));
    packing->all = packing->parts[0].info.images + packing->parts[1].info.images;
    packing->record = packed_record_bytes(&packing->parts[0].info);
    packing->batch_records = BATCH_BYTES / packing->record + 1;
    if (packing->batch_records > BATCH_MOST)
        packing->batch_records = BATCH_MOST;
    packing->batch = malloc(packing->batch_records * packing->record);
    return packing->batch ? ALNICO_SUCCESS
                          : error_set(ALNICO_ERROR_MEMORY, "no memory for %zu records of %zu bytes",
                                      packing->batch_records, packing->record);
}

static alnico_status_t file_make(struct packing *packing)
{
    const char *path = packing->options->path;
    const int length = snprintf(packing->path, sizeof packing->path, "%s.part", path);
    if (length < 0 || (size_t)length >= sizeof packing->path)
        return error_set(ALNICO_ERROR_ARGUMENT, "%.100s...: the path is longer than %zu bytes",
                         path, sizeof packing->path - sizeof ".part");
    packing->file = fopen(packing->path, "wb");
    if (!packing->file)
        return file_error(packing, "making");
    alnico_status_t status = header_write(packing);
    for (size_t i = 0; i < PACKED_PARTS && status == ALNICO_SUCCESS; i++)
        status = part_write(packing, &packing->parts[i]);
    if (status == ALNICO_SUCCESS)
        status = file_finish(packing);
    if (packing->file)
        fclose(packing->file);
    if (status != ALNICO_SUCCESS)
        unlink(packing->path);
    return status;
}

alnico_status_t pack(const struct pack_options *options)
{
    struct packing packing = {.options = options};
    alnico_status_t status = parts_open(&packing);
    if (status == ALNICO_SUCCESS)
        status = file_make(&packing);
    free(packing.batch);
    for (size_t i = 0; i < PACKED_PARTS; i++)
        source_close(&packing.parts[i]);
    return status;
}
