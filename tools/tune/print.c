/* Tables of times and rows on stdout. Rank 0's main thread only. */
#include "tools/tune/measure.h"

#include <limits.h>
#include <stdint.h>
#include <stdio.h>

/* A way is as good as the fastest if it is no slower than this. */
static const double near_share = 1.03, near_us = 0.2;

/* Columns that say more than the CPU needs. */
static bool has_modes(const struct tuner *t)
{
    return t->device->modes > 1;
}

static const char *mode_text(unsigned modes)
{
    static const char *const names[MODES] = {"eager", "registered", "graph", "graph registered"};
    return names[modes];
}

/* "host ring, 8192", "host ring, whole", "peer one_shot, 8 blocks". */
static const char *way_text(const struct tune_way *way, size_t bytes, char *text, size_t room)
{
    if (way->blocks)
        snprintf(text, room, "%s %s, %d blocks", way->backend, way->algorithm->name, way->blocks);
    else if (tune_cuts(way, bytes))
        snprintf(text, room, "%s %s, %zu", way->backend, way->algorithm->name, way->chunk_bytes);
    else
        snprintf(text, room, "%s %s, whole", way->backend, way->algorithm->name);
    return text;
}

void tune_print_head(const struct tuner *t)
{
    printf("%s\n", t->operation->name);
    printf("%11s", "bytes");
    if (has_modes(t))
        printf("  %-16s", "mode");
    printf("  %-36s %11s  %-36s %11s  %5s\n", "fastest (backend algorithm, chunk)", "us",
           "in force", "us", "ratio");
}

void tune_print_size(const struct tuner *t, unsigned modes, const struct tune_size *size)
{
    char best_text[96], old_text[96];
    struct tune_way old = tune_way_in_force(t, modes, size);
    const struct tune_way *best = tune_best(size);
    double time = tune_time(size, best), before = tune_time(size, &old);
    printf("%11zu", size->bytes);
    if (has_modes(t))
        printf("  %-16s", mode_text(modes));
    printf("  %-36s %11.2f  %-36s %11.2f  %5.2f\n",
           way_text(best, size->bytes, best_text, sizeof best_text), time,
           way_text(&old, size->bytes, old_text, sizeof old_text), before, time / before);
    fflush(stdout);
}

static void print_bound(size_t value, bool any)
{
    if (any)
        printf("  %11s", "any");
    else
        printf("  %11zu", value);
}

void tune_print_rows(const struct tuner *t, const struct tuning_row *rows, int count)
{
    printf("\n  %11s  %11s  %11s  %-8s %-20s %11s", "ranks up to", "hosts up to", "bytes up to",
           "backend", "algorithm", "chunk bytes");
    if (has_modes(t))
        printf("  %6s  %s", "blocks", "calls");
    printf("\n");
    for (const struct tuning_row *row = rows; row < rows + count; row++) {
        print_bound((size_t)row->ranks, row->ranks == INT_MAX);
        print_bound((size_t)row->hosts, row->hosts == INT_MAX);
        print_bound(row->bytes, row->bytes == SIZE_MAX);
        printf("  %-8s %-20s %11zu", row->backend, row->algorithm, row->chunk_bytes);
        if (has_modes(t))
            printf("  %6d  %s", row->blocks, mode_text(row->modes));
        printf("\n");
    }
}

int tune_print_comparison(const struct tuner *t)
{
    int slow = 0, all = 0;
    for (unsigned modes = 0; modes < t->device->modes; modes++)
        for (int i = 0; i < t->count; i++) {
            const struct tune_size *size = &t->sizes[modes][i];
            struct tune_way way = tune_way_in_force(t, modes, size);
            double time = tune_time(size, &way), best = tune_time(size, tune_best(size));
            all++;
            if (time <= best * near_share || time <= best + near_us)
                continue;
            slow++;
            printf("%11zu  %s: %.2f us, and %.2f are possible\n", size->bytes, mode_text(modes),
                   time, best);
        }
    printf("\nThe table in force is within 3 %% or 0.2 us of the fastest way in %d of %d cases.\n",
           all - slow, all);
    return slow;
}
