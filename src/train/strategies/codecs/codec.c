/* The table of codecs, their names in options, and how their passes start. See codec.h. */
#include "train/strategies/codecs/codec.h"

#include "base/number.h"
#include "base/status.h"
#ifdef ALNICO_HAVE_CUDNN
#include "train/kernels/cuda/codec.h"
#include "train/kernels/cuda/launch.h"
#endif

#include <string.h>

const struct codec_ops codec_none = {.name = "none",
                                     .about = "float32, as it is",
                                     .exchange = CODEC_REDUCED,
                                     .type = ALNICO_FLOAT32};

const struct codec_ops *const codecs_all[] = {&codec_none, &codec_bf16, &codec_fp16,
                                              &codec_int8, &codec_topk, NULL};

/* The row that the text begins with the name of, ended or followed by a colon. */
static const struct codec_ops *row_find(const char *text)
{
    const size_t length = strcspn(text, ":");
    for (size_t i = 0; codecs_all[i]; i++)
        if (strlen(codecs_all[i]->name) == length && !memcmp(codecs_all[i]->name, text, length))
            return codecs_all[i];
    return NULL;
}

alnico_status_t codec_parse(const char *text, struct codec *out)
{
    const struct codec_ops *ops = row_find(text);
    const char *colon = strchr(text, ':');
    if (!ops)
        return error_set(ALNICO_ERROR_ARGUMENT, "codec '%s' is not known", text);
    *out = (struct codec){.ops = ops, .share = 1};
    if (!ops->shares)
        return colon ? error_set(ALNICO_ERROR_ARGUMENT, "codec '%s': %s takes no share", text,
                                 ops->name)
                     : ALNICO_SUCCESS;
    if (colon && number_real(colon + 1, 0, 1, &out->share) && out->share > 0)
        return ALNICO_SUCCESS;
    return error_set(ALNICO_ERROR_ARGUMENT,
                     "codec '%s': expected a share above 0 and up to 1, as in %s:0.01", text,
                     ops->name);
}

size_t codec_keep(const struct codec *codec, size_t count)
{
    if (!codec->ops->shares)
        return count;
    const double wanted = codec->share * (double)count + 0.5;
    const size_t keep = wanted < (double)count ? (size_t)wanted : count;
    return keep || !count ? keep : 1;
}

size_t codec_bytes(const struct codec *codec, size_t count)
{
    return codec->ops->bytes ? codec->ops->bytes(count, codec_keep(codec, count))
                             : count * sizeof(float);
}

size_t codec_held(const struct codec *codec, int ranks)
{
    static const size_t many = 1 << 20;
    if (!codec_encodes(codec))
        return 0;
    const size_t forms = codec->ops->exchange == CODEC_REDUCED   ? 1
                         : codec->ops->exchange == CODEC_SHARDED ? 2
                                                                 : 1 + (size_t)ranks;
    return (forms * codec_bytes(codec, many) + many - 1) / many +
           (codec->ops->residual ? sizeof(float) : 0);
}

size_t codec_scratch(const struct codec *codec, const struct codec_place *place,
                     const struct codec_pass *pass)
{
    size_t (*const scratch)(const struct codec_pass *) =
        place->device->kind == ALNICO_DEVICE_CPU ? codec->ops->scratch : codec->ops->gpu_scratch;
    return scratch ? scratch(pass) : 0;
}

#ifdef ALNICO_HAVE_CUDNN
static alnico_status_t cuda_status(int error, const char *what)
{
    return error ? error_set(ALNICO_ERROR_SYSTEM, "%s: CUDA: %s", what, train_codec_error(error))
                 : ALNICO_SUCCESS;
}

static alnico_status_t gpu_run(const struct codec_ops *ops, const struct codec_place *place,
                               int (*run)(const struct train_gpu *, const struct codec_pass *),
                               const struct codec_pass *pass)
{
    const struct train_gpu gpu = {.multiprocessors = place->multiprocessors,
                                  .programmatic = place->programmatic,
                                  .stream = place->stream};
    return run && pass->count ? cuda_status(run(&gpu, pass), ops->name) : ALNICO_SUCCESS;
}

static alnico_status_t gpu_make(struct codec_place *place)
{
    return cuda_status(train_codec_load(&place->multiprocessors, &place->programmatic), "codecs");
}
#else
static alnico_status_t gpu_run(const struct codec_ops *ops, const struct codec_place *place,
                               int (*run)(const struct train_gpu *, const struct codec_pass *),
                               const struct codec_pass *pass)
{
    (void)run, (void)pass;
    return error_set(ALNICO_ERROR_UNSUPPORTED, "%s: no codecs for device %s in this build",
                     ops->name, place->device->name);
}

static alnico_status_t gpu_make(struct codec_place *place)
{
    return error_set(ALNICO_ERROR_UNSUPPORTED, "no codecs for device %s in this build",
                     place->device->name);
}
#endif

alnico_status_t codec_place_make(const struct device_ops *device, void *stream,
                                 struct codec_place *out)
{
    *out = (struct codec_place){.device = device, .stream = stream};
    return device->kind == ALNICO_DEVICE_CPU ? ALNICO_SUCCESS : gpu_make(out);
}

static alnico_status_t cpu_run(const struct codec_place *place, void (*run)(void *),
                               struct codec_pass *pass)
{
    return run && pass->count ? alnico_stream_enqueue(place->stream, run, pass) : ALNICO_SUCCESS;
}

alnico_status_t codec_encode(const struct codec *codec, const struct codec_place *place,
                             struct codec_pass *pass)
{
    return place->device->kind == ALNICO_DEVICE_CPU
               ? cpu_run(place, codec->ops->encode, pass)
               : gpu_run(codec->ops, place, codec->ops->gpu_encode, pass);
}

alnico_status_t codec_decode(const struct codec *codec, const struct codec_place *place,
                             struct codec_pass *pass)
{
    return place->device->kind == ALNICO_DEVICE_CPU
               ? cpu_run(place, codec->ops->decode, pass)
               : gpu_run(codec->ops, place, codec->ops->gpu_decode, pass);
}
