/* The ways at a size, the rows that name the best of them, and the merge of new rows with old ones.
 * Called by alnico-tune; the unit test gives it times of its own. */
#include "tools/tune/rows.h"

#include "base/status.h"

#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    CHUNK_FIRST = 4 << 10,
    CHUNK_LAST = 1 << 20,
    CHUNK_QUICK_FIRST = 8 << 10,
    CHUNK_UNCUT = 64 << 10, /* where the algorithm does not cut: for another one that is forced */
    CHUNK_GPU_FIRST = 128 << 10, /* a copy and a flag in each direction for every chunk */
    CHUNK_GPU_LAST = 2 << 20
};

bool tune_cuts(const struct tune_way *way, size_t bytes)
{
    return way->algorithm->round && way->chunk_bytes < bytes;
}

bool tune_same_way(const struct tune_way *a, const struct tune_way *b, size_t bytes)
{
    return a->algorithm == b->algorithm && a->blocks == b->blocks &&
           (a->chunk_bytes == b->chunk_bytes || (!tune_cuts(a, bytes) && !tune_cuts(b, bytes)));
}

static int find_way(const struct tune_size *size, const struct tune_way *way)
{
    for (int i = 0; i < size->count; i++)
        if (tune_same_way(&size->ways[i], way, size->bytes))
            return i;
    return -1;
}

void tune_add_way(struct tune_size *size, struct tune_way way)
{
    if (size->count < TUNE_WAYS && find_way(size, &way) < 0)
        size->ways[size->count++] = way;
}

static void add_chunks(struct tune_size *size, struct tune_way way, int device, bool quick)
{
    bool gpu = device == ALNICO_DEVICE_CUDA;
    size_t first = gpu ? CHUNK_GPU_FIRST : quick ? CHUNK_QUICK_FIRST : CHUNK_FIRST;
    for (size_t chunk = first; chunk <= (gpu ? CHUNK_GPU_LAST : CHUNK_LAST);
         chunk *= gpu || quick ? 4 : 2) {
        way.chunk_bytes = way.algorithm->round ? chunk : CHUNK_UNCUT;
        tune_add_way(size, way);
    }
}

/* Grids of the kernels of a backend that has some. */
static void add_blocks(struct tune_size *size, struct tune_way way)
{
    static const int blocks[] = {1, 2, 4, 8, 16, 24, 32, 48, 64};
    way.chunk_bytes = CHUNK_UNCUT;
    for (size_t i = 0; i < sizeof blocks / sizeof *blocks; i++) {
        way.blocks = blocks[i];
        tune_add_way(size, way);
    }
}

void tune_add_all(struct tune_size *size, int device, int collective, bool quick)
{
    const struct backend *b;
    const struct algorithm *a;
    for (int i = 0; (a = backend_algorithm_at(device, collective, i, &b)); i++) {
        struct tune_way way = {.backend = b->name, .algorithm = a};
        add_chunks(size, way, device, quick);
        bool grids = strcmp(b->name, "peer") == 0 || strcmp(b->name, "shared") == 0;
        if (device == ALNICO_DEVICE_CUDA && grids && !quick)
            add_blocks(size, way);
    }
}

double tune_time(const struct tune_size *size, const struct tune_way *way)
{
    int i = find_way(size, way);
    return i < 0 || size->time_us[i] < 0 ? INFINITY : size->time_us[i];
}

const struct tune_way *tune_best(const struct tune_size *size)
{
    const struct tune_way *best = NULL;
    for (int i = 0; i < size->count; i++)
        if (size->time_us[i] >= 0 && (!best || size->time_us[i] < tune_time(size, best)))
            best = &size->ways[i];
    return best;
}

/* The way that goes on at this size: the one so far or, if that was never cut yet, the same without
 * cutting here either. */
static struct tune_way go_on(const struct tune_size *size, struct tune_way way, size_t before)
{
    struct tune_way whole = way;
    if (tune_cuts(&way, before))
        return way;
    while (whole.chunk_bytes < size->bytes && whole.chunk_bytes < CHUNK_LAST)
        whole.chunk_bytes *= 2;
    return tune_time(size, &whole) < tune_time(size, &way) ? whole : way;
}

static bool is_near(const struct tune_size *size, const struct tune_way *way, double margin)
{
    return tune_time(size, way) <= tune_time(size, tune_best(size)) * (1 + margin);
}

/* The reach of a way from size `from` on: the first size that it is not near the best of. *way
 * becomes what it is in the end. */
static int reach(const struct tune_size *sizes, int count, int from, double margin,
                 struct tune_way *way)
{
    int i = from;
    for (; i < count; i++) {
        struct tune_way next = i > from ? go_on(&sizes[i], *way, sizes[i - 1].bytes) : *way;
        if (!is_near(&sizes[i], &next, margin))
            break;
        *way = next;
    }
    return i;
}

/* The way that goes furthest, and of those the fastest at size `from`. Returns how far. */
static int go_far(const struct tune_size *sizes, int count, int from, double margin,
                  struct tune_way *out)
{
    const struct tune_size *size = &sizes[from];
    int furthest = from;
    double time = INFINITY;
    for (int i = 0; i < size->count; i++) {
        struct tune_way way = size->ways[i];
        int end = reach(sizes, count, from, margin, &way);
        if (end < furthest || (end == furthest && tune_time(size, &size->ways[i]) >= time))
            continue;
        furthest = end;
        time = tune_time(size, &size->ways[i]);
        *out = way;
    }
    return furthest;
}

int tune_choose_rows(const struct tune_size *sizes, int count, double margin,
                     const struct tuning_row *like, struct tuning_row *rows)
{
    int made = 0;
    for (int i = 0; i < count;) {
        struct tune_way way = *tune_best(&sizes[i]);
        struct tuning_row *row = &rows[made++];
        i = go_far(sizes, count, i, margin, &way);
        *row = *like;
        row->bytes = i < count ? sizes[i - 1].bytes : SIZE_MAX;
        row->chunk_bytes = way.chunk_bytes;
        row->blocks = way.blocks;
        snprintf(row->backend, sizeof row->backend, "%s", way.backend);
        snprintf(row->algorithm, sizeof row->algorithm, "%s", way.algorithm->name);
    }
    return made;
}

static int compare_rows(const void *left, const void *right)
{
    const struct tuning_row *a = left, *b = right;
    if (a->collective != b->collective)
        return a->collective - b->collective;
    if (a->device != b->device)
        return a->device - b->device;
    if (a->hosts != b->hosts)
        return a->hosts < b->hosts ? -1 : 1;
    if (a->ranks != b->ranks)
        return a->ranks < b->ranks ? -1 : 1;
    if (a->modes != b->modes)
        return a->modes > b->modes ? -1 : 1;
    return (a->bytes > b->bytes) - (a->bytes < b->bytes);
}

static bool same_place(const struct tuning_row *a, const struct tuning_row *b)
{
    return a->collective == b->collective && a->device == b->device && a->ranks == b->ranks &&
           a->hosts == b->hosts;
}

alnico_status_t tune_merge(struct tuning *tuning, const struct tuning_row *rows, int count)
{
    size_t most = (size_t)tuning->count + (size_t)count;
    struct tuning_row *all = calloc(most + 1, sizeof *all);
    if (!all)
        return error_set(ALNICO_ERROR_MEMORY, "no memory for a tuning table of %zu rows", most);
    int kept = 0, used = 0;
    for (int i = 0; i < tuning->count; i++)
        if (count == 0 || !same_place(&tuning->rows[i], rows))
            all[kept++] = tuning->rows[i];
    for (int i = 0; i < count; i++)
        all[kept++] = rows[i];
    qsort(all, (size_t)kept, sizeof *all, compare_rows);
    for (int i = 0; i < kept; i++) {
        all[used] = all[i];
        used += tuning_shadow(all, used) < 0;
    }
    if (used > TUNING_ROWS_MOST) {
        free(all);
        return error_set(ALNICO_ERROR_ARGUMENT, "the table would have %d rows, and may have %d",
                         used, TUNING_ROWS_MOST);
    }
    free(tuning->rows);
    tuning->rows = all;
    tuning->count = used;
    return ALNICO_SUCCESS;
}
