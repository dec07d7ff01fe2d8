/* The format of packed files: a header of PACKED_HEADER_BYTES, then the records of the training part
 * and of the test part, all of one length, so that any can be found by its number. Numbers are as
 * the machine has them that wrote the file. The source packed reads it, alnico-pack writes it. Any
 * thread. */
#ifndef ALNICO_TRAIN_INPUT_PACKED_FILE_H
#define ALNICO_TRAIN_INPUT_PACKED_FILE_H

#include "train/input/source.h"

enum { PACKED_VERSION = 1, PACKED_HEADER_BYTES = 4096, PACKED_PARTS = 2 };

#define PACKED_MAGIC "ALNICO-P"
#define PACKED_ORDER UINT32_C(0x01020304)

/* At the file's first byte; zeros follow. */
struct packed_header {
    char magic[8];  /* PACKED_MAGIC, without its zero */
    uint32_t order; /* PACKED_ORDER, as the writer's machine has it */
    uint32_t version;
    uint32_t checksum;             /* CRC-32 of the header with 0 here */
    uint32_t type;                 /* enum source_type */
    uint64_t images[PACKED_PARTS]; /* of the training part and the test part */
    uint64_t height, width, channels, classes, labels;
    uint64_t augment, augments;
    double mean, deviation;
    char source[256]; /* what it was packed from */
};

/* A record: its CRC-32 from the labels on, and 0; labels; pixels; zeros up to a multiple of 8. */
struct packed_record {
    uint32_t checksum, zero;
    int32_t labels[];
};

/* Bytes of a record, and of what its checksum is of. */
size_t packed_record_bytes(const struct data_info *info);
size_t packed_content_bytes(const struct data_info *info);

uint32_t packed_checksum(const void *bytes, size_t count);

/* The header of a file with images like `info`'s, its checksum included. */
void packed_header_fill(const struct data_info *info, const uint64_t images[PACKED_PARTS],
                        const char *source, struct packed_header *out);

/* Writes what a header of a file of `bytes` bytes says of its images; info->images is the training
 * part's. Errors: ARGUMENT: another format, endianness or version, damaged, impossible numbers, or
 * a file that is cut or longer than that. */
alnico_status_t packed_header_read(const struct packed_header *header, const char *path,
                                   size_t bytes, struct data_info *info);

/* How the packed file is made. */
struct pack_options {
    const char *source; /* as source_open takes it */
    const char *path;   /* made whole beside its place, and then moved there */
    size_t classes;     /* 0: as the source says */
    uint64_t seed;      /* of images that are made up */
    int threads;
    bool train_only;                                         /* no test part */
    void (*progress)(void *context, size_t done, size_t of); /* now and then; NULL: none */
    void *context;
};

/* Errors: as the source's; SYSTEM: the file cannot be written. On errors nothing is left. */
alnico_status_t pack(const struct pack_options *options);

#endif
