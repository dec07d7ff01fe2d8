/*
 * What the strategy allreduce takes to average gradients over the ranks, by codec, without a
 * network: random numbers, announced bucket by bucket. benchmarks/compression runs it over a slow
 * link.
 *
 * mpiexec -n 2 gradient_exchange [--codecs none,int8,topk:0.01] [--numbers N] [--bucket N]
 *                                [--repeat N] [--stream]
 *
 * Prints for each codec the median seconds of the slowest rank, the bytes that rank 0 sends, and how
 * much faster than the first codec that is.
 */
#include "tools/common/program.h"
#include "tools/common/ranks.h"
#include "train/base/random.h"
#include "train/strategies/buckets.h"
#include "train/strategies/strategy.h"

#include <getopt.h>
#include <stdlib.h>
#include <string.h>

struct settings {
    char *codecs;
    size_t numbers, bucket; /* AlexNet's parameters; numbers of a bucket */
    int repeat;
    bool stream;
};

static alnico_status_t call_nothing(void *context)
{
    (void)context;
    return ALNICO_SUCCESS;
}

static alnico_status_t call_mark(void *context, enum phase ended)
{
    (void)context;
    (void)ended;
    return ALNICO_SUCCESS;
}

static float *numbers_make(size_t count)
{
    float *numbers = malloc(count * sizeof *numbers);
    uint64_t state = random_stream(1, (uint64_t)program_rank());
    if (!numbers)
        program_fail("no memory for %zu numbers", count);
    for (size_t i = 0; i < count; i++) /* most are small */
        numbers[i] = (float)((2 * random_unit(&state) - 1) * random_unit(&state));
    return numbers;
}

/* Seconds until all gradients are averaged on all ranks. */
static double exchange_once(const struct buckets *buckets, void *strategy, void *stream)
{
    program_barrier();
    double seconds = -seconds_now();
    for (size_t i = 0; i < buckets->count; i++)
        program_check(strategy_allreduce.advance(strategy, buckets->ends[i]), "advance");
    program_check(strategy_allreduce.finish(strategy), "finish");
    program_check(alnico_stream_synchronize(stream), "alnico_stream_synchronize");
    seconds += seconds_now();
    program_slowest(&seconds, 1);
    return seconds;
}

static int by_size(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double exchange_median(const struct settings *settings, const struct strategy_setup *setup,
                              const struct buckets *buckets, const float *numbers, size_t *sent)
{
    double *seconds = calloc((size_t)settings->repeat, sizeof *seconds);
    void *strategy;
    program_check(strategy_allreduce.create(setup, &strategy), "create");
    for (int i = -1; i < settings->repeat; i++) {
        memcpy(setup->arenas->gradients, numbers, settings->numbers * sizeof *numbers);
        const double once = exchange_once(buckets, strategy, setup->stream);
        if (i >= 0)
            seconds[i] = once;
    }
    *sent = strategy_allreduce.sent(strategy);
    strategy_allreduce.destroy(strategy);
    qsort(seconds, (size_t)settings->repeat, sizeof *seconds, by_size);
    const double median = seconds[settings->repeat / 2];
    free(seconds);
    return median;
}

static void codecs_measure(const struct settings *settings, struct strategy_setup *setup,
                           const struct buckets *buckets)
{
    const float *numbers = numbers_make(settings->numbers);
    char *rest = settings->codecs;
    double first = 0;
    for (const char *text = strsep(&rest, ","); text; text = strsep(&rest, ",")) {
        size_t sent;
        program_check(codec_parse(text, &setup->codec), "codec_parse");
        const double seconds = exchange_median(settings, setup, buckets, numbers, &sent);
        first = first > 0 ? first : seconds;
        if (program_rank() == 0)
            printf("%-12s %8.4f s  %8.3f MB sent  %6.2f times as fast\n", text, seconds,
                   1e-6 * (double)sent, first / seconds);
    }
    free((void *)numbers);
}

static void run(const struct settings *settings)
{
    alnico_stream_t stream = NULL;
    alnico_comm_t comm;
    struct buckets buckets;
    float *gradients = malloc(settings->numbers * sizeof *gradients);
    if (!gradients)
        program_fail("no memory for %zu gradients", settings->numbers);
    if (settings->stream)
        program_check(alnico_stream_create(&stream), "alnico_stream_create");
    program_check(program_comm(ALNICO_DEVICE_CPU, stream, &comm), "alnico_comm_create");
    program_check(buckets_of_size(settings->numbers, settings->bucket, &buckets),
                  "buckets_of_size");
    const struct arenas arenas = {.gradients = gradients};
    struct strategy_setup setup = {.comm = comm,
                                   .device = device_find(ALNICO_DEVICE_CPU),
                                   .stream = stream,
                                   .arenas = &arenas,
                                   .count = settings->numbers,
                                   .type = ALNICO_FLOAT32,
                                   .wire = ALNICO_FLOAT32,
                                   .ends = buckets.ends,
                                   .buckets = buckets.count,
                                   .calls = {.update = call_nothing, .mark = call_mark}};
    codecs_measure(settings, &setup, &buckets);
    buckets_free(&buckets);
    alnico_comm_destroy(comm);
    alnico_stream_destroy(stream);
    free(gradients);
}

int main(int argc, char **argv)
{
    static const struct option options[] = {
        {"codecs", required_argument, NULL, 'c'}, {"numbers", required_argument, NULL, 'n'},
        {"bucket", required_argument, NULL, 'b'}, {"repeat", required_argument, NULL, 'r'},
        {"stream", no_argument, NULL, 's'},       {0}};
    static char codecs[] = "none,bf16,int8,topk:0.01";
    struct settings settings = {codecs, 62378344, 1 << 20, 5, false};
    int option;
    program_start();
    while ((option = getopt_long(argc, argv, "", options, NULL)) != -1)
        if (option == 'c')
            settings.codecs = optarg;
        else if (option == 'n')
            settings.numbers = strtoull(optarg, NULL, 10);
        else if (option == 'b')
            settings.bucket = strtoull(optarg, NULL, 10);
        else if (option == 'r')
            settings.repeat = atoi(optarg);
        else if (option == 's')
            settings.stream = true;
        else
            return EXIT_USAGE;
    program_ranks_open();
    if (!settings.numbers || !settings.bucket || settings.repeat < 1)
        program_refuse("expected --numbers, --bucket and --repeat above 0");
    run(&settings);
    program_ranks_close();
    return 0;
}
