/*
 * Exchanges: how a bucket of gradients becomes the mean over the ranks, on all of them or on rank 0,
 * by the codec that it travels in. Each bucket is sent, folded and joined, in this order; all ranks
 * do so with all buckets in one order. On the CPU's inline stream folding and joining wait, on other
 * streams they enqueue. Called by the strategies allreduce and server.
 */
#ifndef ALNICO_TRAIN_STRATEGIES_BUCKET_EXCHANGE_H
#define ALNICO_TRAIN_STRATEGIES_BUCKET_EXCHANGE_H

#include "train/strategies/strategy.h"

struct bucket_exchange;

struct bucket {
    char name[32];            /* of its span */
    size_t begin, count;      /* elements */
    alnico_request_t request; /* NULL: not sent, or done */
    bool folded;
    char *data, *received; /* encoded: its own form, later the mean's; the other ranks' */
    /* Encoding the bucket; decoding and adding up a shard of all ranks, and encoding the mean;
     * decoding the mean. They stay while a stream works on them. */
    struct codec_pass encode, sum, shard, decode;
};

/* Who gets the mean. */
enum bucket_target { BUCKETS_TO_ALL, BUCKETS_TO_ROOT };

/* Collective. The setup, with a communicator, is copied. The buckets are the caller's to free.
 * Errors: ARGUMENT (types that cannot be, a bucket that is too large for the codec), MEMORY, SYSTEM. */
alnico_status_t bucket_exchange_create(const struct strategy_setup *setup,
                                       enum bucket_target target, struct bucket *buckets,
                                       struct bucket_exchange **out);

/* Lets the first `count` buckets' messages proceed where nobody else does: on the inline stream. */
alnico_status_t buckets_pump(const struct strategy_setup *setup, struct bucket *buckets,
                             size_t count);

/* Of setup->buckets > 0. The first call of an operation carries it and blocks: whatever the
 * operation needs is made then, since nonblocking calls make nothing, and it needs most. */
struct bucket *buckets_largest(const struct strategy_setup *setup, struct bucket *buckets);

void bucket_exchange_destroy(
    struct bucket_exchange *exchange); /* collective; joins nothing; NULL is fine */

alnico_status_t bucket_exchange_send(struct bucket_exchange *exchange, struct bucket *bucket);
alnico_status_t bucket_exchange_fold(struct bucket_exchange *exchange, struct bucket *bucket);
alnico_status_t bucket_exchange_join(struct bucket_exchange *exchange, struct bucket *bucket);

/* Bytes that this rank has sent since the last call, by algorithms that send the least. */
size_t bucket_exchange_take_sent(struct bucket_exchange *exchange);

/* As many numbers as there are gradients; NULL with codecs without a residual. */
float *bucket_exchange_residual(struct bucket_exchange *exchange);

#endif
