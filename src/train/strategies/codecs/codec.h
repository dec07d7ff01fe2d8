/*
 * [SEAM codec] How gradients travel in fewer bytes: each codec turns float32 numbers into an encoded
 * form and the sum of several such forms into numbers again, on the CPU and on GPUs with the same
 * bits. A resident fills one struct codec_ops. Strategies call codec_encode and codec_decode in the
 * order of their stream.
 *
 * A number that is not finite stays so: after decoding it, or its whole block, is not finite.
 */
#ifndef ALNICO_TRAIN_STRATEGIES_CODECS_CODEC_H
#define ALNICO_TRAIN_STRATEGIES_CODECS_CODEC_H

#include "train/kernels/codec_pass.h"

#include "device/device.h"

struct train_gpu;

/* How encoded gradients become their mean on all ranks. */
enum codec_exchange {
    CODEC_REDUCED,  /* the encoded form is numbers of `type`: an allreduce adds them */
    CODEC_SHARDED,  /* an alltoall, each rank adds up a shard and encodes it, an allgather */
    CODEC_GATHERED, /* an allgather, each rank adds up all */
};

struct codec_ops {
    const char *name, *about; /* "int8"; one line of help */
    enum codec_exchange exchange;
    alnico_datatype_t type; /* of the encoded numbers; UINT32 if they are none */
    bool shares;            /* the name is followed by a share of the numbers, as in topk:0.01 */
    bool residual;          /* error feedback: what was not sent is added to the next gradients */

    /* Of the encoded form, a multiple of the type's. */
    size_t (*bytes)(size_t count, size_t keep);

    /* On the CPU, on the calling thread and OpenMP's. encode makes `encoded` of values (and the
     * residual); decode makes values[i] = factor * (the parts' numbers i, added in their order).
     * Optional, all: the numbers travel as they are. scratch: bytes of memory that both need;
     * optional: none. */
    void (*encode)(void *pass);
    void (*decode)(void *pass);
    size_t (*scratch)(const struct codec_pass *pass);

    /* The same on a GPU's stream; a cudaError_t. NULL in builds without GPUs. */
    int (*gpu_encode)(const struct train_gpu *gpu, const struct codec_pass *pass);
    int (*gpu_decode)(const struct train_gpu *gpu, const struct codec_pass *pass);
    size_t (*gpu_scratch)(const struct codec_pass *pass);
};

extern const struct codec_ops codec_none, codec_bf16, codec_fp16, codec_int8, codec_topk;

/* The residents, ended by NULL. */
extern const struct codec_ops *const codecs_all[];

/* A codec as an option names it. */
struct codec {
    const struct codec_ops *ops;
    double share; /* of the numbers that are sent, above 0 to 1 */
};

/* "none", "int8", "topk:0.01", ... Errors: ARGUMENT (no such name, a share that is missing, that the
 * codec does not have, or that is not above 0 and up to 1). */
alnico_status_t codec_parse(const char *text, struct codec *out);

/* Whether it is a codec that changes something: neither NULL nor none. */
static inline bool codec_encodes(const struct codec *codec)
{
    return codec->ops && codec->ops != &codec_none;
}

/* How many of `count` numbers travel: the share of them, rounded, at least 1 unless there are none;
 * and the bytes that these take. */
size_t codec_keep(const struct codec *codec, size_t count);
size_t codec_bytes(const struct codec *codec, size_t count);

/* Bytes of the device that a rank of so many takes for each gradient, about: its encoded form, those
 * that it adds up, and the residual. */
size_t codec_held(const struct codec *codec, int ranks);

/* A device and its stream, with what launching needs. */
struct codec_place {
    const struct device_ops *device;
    void *stream;
    int multiprocessors; /* of a GPU */
    bool programmatic;   /* it has programmatic launch */
};

/* Fills a place for the calling thread's device and makes its kernels ready. Errors: UNSUPPORTED (a
 * device that this build has no codecs for), SYSTEM. */
alnico_status_t codec_place_make(const struct device_ops *device, void *stream,
                                 struct codec_place *out);

/* Bytes of scratch that passes of up to this count, keep and parts need. */
size_t codec_scratch(const struct codec *codec, const struct codec_place *place,
                     const struct codec_pass *pass);

/* Enqueue on the place's stream; inline they are done on return. The pass, with all that it points
 * to, stays until the stream has run it. Errors: SYSTEM (a launch that failed). */
alnico_status_t codec_encode(const struct codec *codec, const struct codec_place *place,
                             struct codec_pass *pass);
alnico_status_t codec_decode(const struct codec *codec, const struct codec_place *place,
                             struct codec_pass *pass);

#endif
