/*
 * See bucket_exchange.h. Reduced codecs go by an allreduce of 2 (p - 1) / p bytes a byte. Sharded ones,
 * whose sum has to be made of decoded numbers, by an alltoall of shards and an allgather of their
 * means: as many, of the encoded form, and every rank decodes the same bytes. Gathered ones by an
 * allgather of p - 1 bytes a byte. Where rank 0 alone wants the mean, it gathers all encoded forms.
 */
#include "train/strategies/bucket_exchange.h"

#include "base/datatype.h"
#include "base/status.h"

#include <stdint.h>
#include <stdlib.h>

struct bucket_exchange {
    struct strategy_setup setup;
    struct codec codec;
    struct codec_place place;
    alnico_datatype_t type; /* of what travels */
    enum { WAY_REDUCED, WAY_SHARDED, WAY_GATHERED, WAY_ROOTED } way;
    int rank, size;
    char *encoded, *received; /* of all buckets; NULL: none */
    float *residual;          /* as many as gradients; NULL: none */
    void *scratch;
    size_t *counts, *own; /* words of each rank's shard; of this rank's, once for each rank */
    size_t sent;
    alnico_registration_t registrations[2];
};

/* The words that encoded forms travel as, unless they are numbers of a type. */
enum { WORD = sizeof(uint32_t), ALIGNMENT = 64 };

static const struct codec_ops *wire_codec(const struct strategy_setup *setup)
{
    return setup->wire == setup->type      ? &codec_none
           : setup->wire == ALNICO_FLOAT16 ? &codec_fp16
                                           : &codec_bf16;
}

static alnico_status_t types_check(const struct strategy_setup *setup)
{
    const bool narrow = setup->wire == ALNICO_FLOAT16 || setup->wire == ALNICO_BFLOAT16;
    const bool plain = !codec_encodes(&setup->codec);
    if (!plain && setup->type != ALNICO_FLOAT32)
        return error_set(ALNICO_ERROR_ARGUMENT,
                         "codec %s of gradients of datatype %d, expected "
                         "float32",
                         setup->codec.ops->name, (int)setup->type);
    if (!plain || setup->wire == setup->type ||
        (narrow && setup->type == ALNICO_FLOAT32 && setup->device->kind == ALNICO_DEVICE_CPU))
        return ALNICO_SUCCESS;
    return error_set(ALNICO_ERROR_ARGUMENT,
                     "strategies: gradients of datatype %d cannot travel as datatype %d on "
                     "device %s",
                     (int)setup->type, (int)setup->wire, setup->device->name);
}

/* ---- Shards ---- */

/* The first number of a rank's shard: whole blocks, as many for each but the last ones. */
static size_t shard_first(const struct bucket_exchange *self, const struct bucket *bucket, int rank)
{
    const size_t blocks = (bucket->count + CODEC_BLOCK - 1) / CODEC_BLOCK;
    const size_t each = (blocks + (size_t)self->size - 1) / (size_t)self->size * CODEC_BLOCK;
    return (size_t)rank < (bucket->count + each - 1) / each ? (size_t)rank * each : bucket->count;
}

static size_t shard_count(const struct bucket_exchange *self, const struct bucket *bucket, int rank)
{
    return shard_first(self, bucket, rank + 1) - shard_first(self, bucket, rank);
}

static size_t shard_bytes(const struct bucket_exchange *self, const struct bucket *bucket, int rank)
{
    return codec_bytes(&self->codec, shard_count(self, bucket, rank));
}

static void shards_count(struct bucket_exchange *self, const struct bucket *bucket)
{
    for (int r = 0; r < self->size; r++) {
        self->counts[r] = shard_bytes(self, bucket, r) / WORD;
        self->own[r] = shard_bytes(self, bucket, self->rank) / WORD;
    }
}

/* ---- The ways ---- */

static size_t size_of(const struct bucket_exchange *self)
{
    return (size_t)self->size;
}

static alnico_status_t reduced_send(struct bucket_exchange *self, struct bucket *bucket)
{
    self->sent +=
        2 * (size_of(self) - 1) * bucket->count * datatype_bytes(self->type) / size_of(self);
    return alnico_iallreduce(ALNICO_IN_PLACE, bucket->data, bucket->count, self->type,
                             ALNICO_AVERAGE, self->setup.comm, &bucket->request);
}

static alnico_status_t gathered_send(struct bucket_exchange *self, struct bucket *bucket)
{
    const size_t bytes = codec_bytes(&self->codec, bucket->count);
    self->sent += (size_of(self) - 1) * bytes;
    return alnico_iallgather(bucket->data, bucket->received, bytes / WORD, self->type,
                             self->setup.comm, &bucket->request);
}

/* On rank 0 its own form is among them. */
static alnico_status_t rooted_send(struct bucket_exchange *self, struct bucket *bucket)
{
    const size_t bytes = codec_bytes(&self->codec, bucket->count);
    self->sent += self->rank > 0 ? bytes : 0;
    return alnico_igather(bucket->data, bucket->received, bytes / datatype_bytes(self->type),
                          self->type, 0, self->setup.comm, &bucket->request);
}

static alnico_status_t sharded_send(struct bucket_exchange *self, struct bucket *bucket)
{
    shards_count(self, bucket);
    for (int r = 0; r < self->size; r++)
        self->sent += r == self->rank ? 0 : self->counts[r] * WORD;
    return alnico_ialltoallv(bucket->data, self->counts, NULL, bucket->received, self->own, NULL,
                             self->type, self->setup.comm, &bucket->request);
}

static alnico_status_t gathered_begin(struct bucket_exchange *self, const struct bucket *bucket)
{
    const size_t bytes = codec_bytes(&self->codec, bucket->count);
    return alnico_allgather(bucket->data, bucket->received, bytes / WORD, self->type,
                            self->setup.comm);
}

static alnico_status_t rooted_begin(struct bucket_exchange *self, const struct bucket *bucket)
{
    const size_t bytes = codec_bytes(&self->codec, bucket->count);
    return alnico_gather(bucket->data, bucket->received, bytes / datatype_bytes(self->type),
                         self->type, 0, self->setup.comm);
}

static alnico_status_t sharded_begin(struct bucket_exchange *self, const struct bucket *bucket)
{
    shards_count(self, bucket);
    TRY(alnico_alltoallv(bucket->data, self->counts, NULL, bucket->received, self->own, NULL,
                         self->type, self->setup.comm));
    return alnico_allgatherv(ALNICO_IN_PLACE, self->own[0], bucket->data, self->counts, NULL,
                             self->type, self->setup.comm);
}

static alnico_status_t sharded_fold(struct bucket_exchange *self, struct bucket *bucket)
{
    TRY(strategy_wait(&self->setup, &bucket->request));
    TRY(codec_decode(&self->codec, &self->place, &bucket->sum));
    TRY(codec_encode(&self->codec, &self->place, &bucket->shard));
    shards_count(self, bucket);
    self->sent += (size_of(self) - 1) * self->own[0] * WORD;
    return alnico_iallgatherv(ALNICO_IN_PLACE, self->own[0], bucket->data, self->counts, NULL,
                              self->type, self->setup.comm, &bucket->request);
}

static const struct {
    alnico_status_t (*send)(struct bucket_exchange *, struct bucket *);
    alnico_status_t (*fold)(struct bucket_exchange *, struct bucket *); /* NULL: nothing to do */
    /* The first calls block: whatever they need is made then, and not in a step. NULL: it needs
     * nothing. */
    alnico_status_t (*begin)(struct bucket_exchange *, const struct bucket *);
} ways[] = {[WAY_REDUCED] = {.send = reduced_send},
            [WAY_SHARDED] = {sharded_send, sharded_fold, sharded_begin},
            [WAY_GATHERED] = {.send = gathered_send, .begin = gathered_begin},
            [WAY_ROOTED] = {.send = rooted_send, .begin = rooted_begin}};

/* The bytes that travel mean nothing. */
static alnico_status_t buckets_begin(struct bucket_exchange *self, struct bucket *buckets)
{
    if (!self->setup.buckets || !ways[self->way].begin)
        return ALNICO_SUCCESS;
    return ways[self->way].begin(self, buckets_largest(&self->setup, buckets));
}

struct bucket *buckets_largest(const struct strategy_setup *setup, struct bucket *buckets)
{
    struct bucket *largest = buckets;
    for (size_t i = 1; i < setup->buckets; i++)
        if (buckets[i].count > largest->count)
            largest = &buckets[i];
    return largest;
}

alnico_status_t buckets_pump(const struct strategy_setup *setup, struct bucket *buckets,
                             size_t count)
{
    bool done;
    for (size_t i = 0; strategy_is_inline(setup) && i < count; i++)
        if (buckets[i].request)
            TRY(alnico_test(&buckets[i].request, &done));
    return ALNICO_SUCCESS;
}

alnico_status_t bucket_exchange_send(struct bucket_exchange *self, struct bucket *bucket)
{
    bucket->folded = !ways[self->way].fold;
    TRY(codec_encode(&self->codec, &self->place, &bucket->encode));
    return ways[self->way].send(self, bucket);
}

alnico_status_t bucket_exchange_fold(struct bucket_exchange *self, struct bucket *bucket)
{
    if (bucket->folded)
        return ALNICO_SUCCESS;
    bucket->folded = true;
    return ways[self->way].fold(self, bucket);
}

alnico_status_t bucket_exchange_join(struct bucket_exchange *self, struct bucket *bucket)
{
    TRY(strategy_wait(&self->setup, &bucket->request));
    return self->way == WAY_ROOTED && self->rank > 0
               ? ALNICO_SUCCESS
               : codec_decode(&self->codec, &self->place, &bucket->decode);
}

size_t bucket_exchange_take_sent(struct bucket_exchange *self)
{
    const size_t sent = self->sent;
    self->sent = 0;
    return sent;
}

float *bucket_exchange_residual(struct bucket_exchange *self)
{
    return self->residual;
}

/* ---- Making ---- */

static size_t aligned(size_t bytes)
{
    return (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
}

/* Room that a bucket needs for what the other ranks send: the same on all ranks that need any. */
static size_t received_bytes(const struct bucket_exchange *self, const struct bucket *bucket)
{
    if (self->way == WAY_SHARDED)
        return aligned(size_of(self) * shard_bytes(self, bucket, 0));
    if (self->way == WAY_GATHERED || (self->way == WAY_ROOTED && self->rank == 0))
        return aligned(size_of(self) * codec_bytes(&self->codec, bucket->count));
    return 0;
}

static alnico_status_t memory_register(struct bucket_exchange *self, size_t encoded,
                                       size_t received)
{
    char *memory[] = {self->encoded, self->received};
    const size_t bytes[] = {encoded, received};
    for (int i = 0; i < 2 && self->way != WAY_ROOTED; i++)
        if (bytes[i]) {
            const alnico_status_t status = alnico_comm_register(self->setup.comm, memory[i],
                                                                bytes[i], &self->registrations[i]);
            if (status != ALNICO_ERROR_UNSUPPORTED)
                TRY(status);
        }
    return ALNICO_SUCCESS;
}

/* Allocates for all buckets; a codec that leaves the numbers as they are needs nothing. */
static alnico_status_t memory_make(struct bucket_exchange *self, const struct bucket *buckets)
{
    const struct device_ops *device = self->setup.device;
    const size_t residual = self->setup.count * sizeof *self->residual;
    size_t encoded = 0, received = 0;
    for (size_t i = 0; i < self->setup.buckets; i++) {
        encoded += aligned(codec_bytes(&self->codec, buckets[i].count));
        received += received_bytes(self, &buckets[i]);
    }
    TRY(device->alloc(encoded + 1, (void **)&self->encoded));
    if (received)
        TRY(device->alloc(received, (void **)&self->received));
    if (self->codec.ops->residual) {
        TRY(device->alloc(residual + 1, (void **)&self->residual));
        TRY(device->clear(self->residual, residual, self->setup.stream));
    }
    return memory_register(self, encoded, received);
}

static void passes_make(struct bucket_exchange *self, struct bucket *bucket)
{
    const struct arenas *arenas = self->setup.arenas;
    const bool gathered = self->way == WAY_GATHERED || self->way == WAY_ROOTED;
    const bool scaled = self->setup.device->kind != ALNICO_DEVICE_CPU;
    const size_t first = shard_first(self, bucket, self->rank);
    float *values = (float *)arenas->gradients + bucket->begin;
    const struct codec_pass whole = {.values = values,
                                     .count = bucket->count,
                                     .keep = codec_keep(&self->codec, bucket->count),
                                     .encoded = bucket->data,
                                     .parts = 1,
                                     .stride = codec_bytes(&self->codec, bucket->count),
                                     .factor = 1,
                                     .residual =
                                         self->residual ? self->residual + bucket->begin : NULL,
                                     .scale = scaled ? &arenas->control[CONTROL_LOSS_SCALE] : NULL};
    bucket->encode = bucket->decode = bucket->shard = whole;
    if (gathered) {
        bucket->decode.encoded = bucket->received;
        bucket->decode.parts = size_of(self);
        bucket->decode.factor = 1.0f / (float)self->size;
    }
    bucket->shard.values = values + first;
    bucket->shard.count = bucket->shard.keep = shard_count(self, bucket, self->rank);
    bucket->shard.encoded = bucket->data + codec_bytes(&self->codec, first);
    bucket->sum = bucket->shard;
    bucket->sum.encoded = bucket->received;
    bucket->sum.parts = size_of(self);
    bucket->sum.stride = shard_bytes(self, bucket, self->rank);
    bucket->sum.factor = 1.0f / (float)self->size;
}

static alnico_status_t scratch_make(struct bucket_exchange *self, struct bucket *buckets)
{
    size_t most = 0;
    for (size_t i = 0; i < self->setup.buckets; i++) {
        const size_t bytes = codec_scratch(&self->codec, &self->place, &buckets[i].decode);
        most = bytes > most ? bytes : most;
    }
    if (most)
        TRY(self->setup.device->alloc(most, &self->scratch));
    for (size_t i = 0; i < self->setup.buckets; i++)
        buckets[i].encode.scratch = buckets[i].decode.scratch = self->scratch;
    return ALNICO_SUCCESS;
}

static alnico_status_t encoded_make(struct bucket_exchange *self, struct bucket *buckets)
{
    TRY(codec_place_make(self->setup.device, self->setup.stream, &self->place));
    TRY(memory_make(self, buckets));
    char *encoded = self->encoded, *received = self->received;
    for (size_t i = 0; i < self->setup.buckets; i++) {
        struct bucket *bucket = &buckets[i];
        if (bucket->count > INT32_MAX)
            return error_set(ALNICO_ERROR_ARGUMENT,
                             "strategies: bucket %zu has %zu gradients, expected fewer than "
                             "2^31 with codec %s",
                             i, bucket->count, self->codec.ops->name);
        bucket->data = encoded;
        bucket->received = received;
        encoded += aligned(codec_bytes(&self->codec, bucket->count));
        received = received ? received + received_bytes(self, bucket) : NULL;
        passes_make(self, bucket);
    }
    return scratch_make(self, buckets);
}

/* The gradients themselves travel. */
static alnico_status_t plain_make(struct bucket_exchange *self, struct bucket *buckets)
{
    const size_t width = datatype_bytes(self->setup.type);
    char *arena = self->setup.arenas->gradients;
    self->type = self->setup.type;
    self->place = (struct codec_place){.device = self->setup.device, .stream = self->setup.stream};
    for (size_t i = 0; i < self->setup.buckets; i++)
        buckets[i].data = arena + buckets[i].begin * width;
    if (!self->setup.count)
        return ALNICO_SUCCESS;
    const alnico_status_t status = alnico_comm_register(
        self->setup.comm, arena, self->setup.count * width, &self->registrations[0]);
    return status == ALNICO_ERROR_UNSUPPORTED ? ALNICO_SUCCESS : status;
}

static alnico_status_t bucket_exchange_make(struct bucket_exchange *self, enum bucket_target target,
                                            struct bucket *buckets)
{
    const struct strategy_setup *setup = &self->setup;
    self->codec =
        codec_encodes(&setup->codec) ? setup->codec : (struct codec){wire_codec(setup), 1};
    self->type = self->codec.ops->type;
    self->way = target == BUCKETS_TO_ROOT                     ? WAY_ROOTED
                : self->codec.ops->exchange == CODEC_SHARDED  ? WAY_SHARDED
                : self->codec.ops->exchange == CODEC_GATHERED ? WAY_GATHERED
                                                              : WAY_REDUCED;
    self->rank = alnico_comm_rank(setup->comm);
    self->size = alnico_comm_size(setup->comm);
    self->counts = calloc(2 * size_of(self), sizeof *self->counts);
    if (!self->counts)
        return error_set(ALNICO_ERROR_MEMORY, "strategies: no memory");
    self->own = self->counts + self->size;
    return self->codec.ops->encode ? encoded_make(self, buckets) : plain_make(self, buckets);
}

void bucket_exchange_destroy(struct bucket_exchange *self)
{
    if (!self)
        return;
    for (int i = 0; i < 2; i++)
        if (self->registrations[i])
            alnico_comm_deregister(self->setup.comm, self->registrations[i]);
    void *const all[] = {self->encoded, self->received, self->residual, self->scratch};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        self->setup.device->free(all[i]);
    free(self->counts);
    free(self);
}

alnico_status_t bucket_exchange_create(const struct strategy_setup *setup,
                                       enum bucket_target target, struct bucket *buckets,
                                       struct bucket_exchange **out)
{
    *out = NULL;
    TRY(types_check(setup));
    if (!setup->comm)
        return ALNICO_SUCCESS;
    struct bucket_exchange *self = calloc(1, sizeof *self);
    if (!self)
        return error_set(ALNICO_ERROR_MEMORY, "strategies: no memory");
    self->setup = *setup;
    alnico_status_t status = bucket_exchange_make(self, target, buckets);
    if (status == ALNICO_SUCCESS)
        status = buckets_begin(self, buckets);
    if (status != ALNICO_SUCCESS)
        bucket_exchange_destroy(self);
    else
        *out = self;
    return status;
}
