/* See cudnn/engine_cache.h: remembering. The search is in cudnn/engine_search.c. */
#include "train/kernels/cudnn/engine_cache.h"

#include "base/json.h"
#include "base/log.h"
#include "base/replace.h"
#include "base/status.h"
#include "train/kernels/cudnn/engine_search.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>
#include <zlib.h>

enum { TEXT_BYTES = 128, NO_ENGINE = -1, FILE_BYTES_MOST = 1 << 30 };

/* Five minutes: a search of another process takes less. */
enum { LOCK_TRIES = 6000, LOCK_TRY_MS = 50 };

/* A convolution that was asked for. */
struct remembered {
    char text[TEXT_BYTES];
    struct engine_choice choice; /* engine NO_ENGINE: there is none for it */
    char why[512];               /* the error's detail then */
    struct cudnn_bag bag;
};

struct engine_cache {
    struct cudnn_handle handle;
    struct engine_options options;
    struct remembered *items;
    size_t count, capacity;
    struct engine_search search;
    cJSON *file;    /* everything that the file held when it was read last */
    cJSON *section; /* of this GPU, versions and options, inside */
    cJSON *found;   /* what this process searched, as in a section */
    int lock;   /* the file, locked from the first search until engine_cache_save; -1: it is not */
    bool tried; /* whether locking it was tried, and it was not unlocked since */
};

static alnico_status_t file_parse(struct engine_cache *cache)
{
    const char *path = cache->options.file;
    char *text = NULL;
    size_t length = 0;
    cJSON_Delete(cache->file);
    cache->file = cache->section = NULL;
    if (path && access(path, F_OK) == 0)
        TRY(json_file_text(path, FILE_BYTES_MOST, &text, &length));
    const alnico_status_t status =
        length ? json_parse(path, text, length, &cache->file) : ALNICO_SUCCESS;
    free(text);
    TRY(status);
    if (!cache->file)
        cache->file = cJSON_CreateObject();
    if (cJSON_IsObject(cache->file))
        return ALNICO_SUCCESS;
    return error_set(ALNICO_ERROR_ARGUMENT, "plan file '%s': expected an object", path);
}

/* Finds or makes the part of the file that is for here. */
static alnico_status_t file_section(struct engine_cache *cache)
{
    struct cudaDeviceProp properties;
    int device;
    char key[400];
    TRY(CUDA(cudaGetDevice, &device));
    TRY(CUDA(cudaGetDeviceProperties, &properties, device));
    const struct engine_options *options = &cache->options;
    char version[64] = "";
    if (options->gemms)
        snprintf(version, sizeof version, ", cuBLAS %zu%s",
                 cache->handle.library->cublasLtGetVersion(), options->gemms == 2 ? " first" : "");
    snprintf(key, sizeof key, "%s, cuDNN %zu%s%s%s%s", properties.name,
             cache->handle.library->cudnnGetVersion(), version,
             options->deterministic ? ", deterministic" : "", options->tf32 ? ", TF32" : "",
             options->thorough ? ", thorough" : "");
    cache->section = cJSON_GetObjectItemCaseSensitive(cache->file, key);
    if (!cJSON_IsObject(cache->section)) {
        cJSON_DeleteItemFromObjectCaseSensitive(cache->file, key);
        cache->section = cJSON_AddObjectToObject(cache->file, key);
    }
    return cache->section ? ALNICO_SUCCESS : error_set(ALNICO_ERROR_MEMORY, "plan file: no memory");
}

static alnico_status_t file_load(struct engine_cache *cache)
{
    TRY(file_parse(cache));
    return file_section(cache);
}

/* Others may replace the file while its lock is waited for. */
static bool is_there(int file, const char *path)
{
    struct stat held, there;
    return fstat(file, &held) == 0 && stat(path, &there) == 0 && held.st_dev == there.st_dev &&
           held.st_ino == there.st_ino;
}

/* The file, locked or, where that is not possible, only opened; -1: it cannot be written. */
static int file_lock(const char *path)
{
    const struct timespec pause = {.tv_nsec = LOCK_TRY_MS * 1000000L};
    for (int i = 0; i < LOCK_TRIES; i++) {
        const int file = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
        if (file < 0)
            return -1;
        const bool locked = flock(file, LOCK_EX | LOCK_NB) == 0;
        if (locked ? is_there(file, path) : errno != EWOULDBLOCK)
            return file;
        close(file);
        if (!locked)
            nanosleep(&pause, NULL);
    }
    errno = ETIMEDOUT;
    return -1;
}

static void file_unlock(struct engine_cache *cache)
{
    if (cache->lock >= 0)
        close(cache->lock);
    cache->lock = -1;
    cache->tried = false;
}

/* Before the first search: ranks that search the same wait for the first of them, and find it in
 * the file, so that all choose alike. */
static alnico_status_t file_take(struct engine_cache *cache)
{
    const char *path = cache->options.file;
    if (!path || cache->tried)
        return ALNICO_SUCCESS;
    cache->tried = true;
    cache->lock = file_lock(path);
    if (cache->lock >= 0)
        return file_load(cache);
    log_write(LOG_WARNING, "plan file '%s': %s: what is searched is not kept", path,
              strerror(errno));
    return ALNICO_SUCCESS;
}

/* Adds what was found to what the file holds by now. */
static alnico_status_t file_merge(struct engine_cache *cache)
{
    const cJSON *entry;
    TRY(file_load(cache));
    cJSON_ArrayForEach(entry, cache->found)
    {
        cJSON_DeleteItemFromObjectCaseSensitive(cache->section, entry->string);
        cJSON_AddItemToObject(cache->section, entry->string, cJSON_Duplicate(entry, true));
    }
    char *text = cJSON_Print(cache->file);
    if (!text)
        return error_set(ALNICO_ERROR_MEMORY, "plan file: no memory");
    const alnico_status_t status = replacement_text(cache->options.file, REPLACEMENT_REGULAR, text);
    cJSON_free(text);
    return status == ALNICO_SUCCESS ? status
                                    : error_set(status, "plan file %s", alnico_error_detail());
}

void engine_cache_save(struct engine_cache *cache)
{
    search_release(&cache->search);
    if (cache->lock >= 0 && cJSON_GetArraySize(cache->found) > 0 &&
        file_merge(cache) != ALNICO_SUCCESS)
        log_write(LOG_WARNING, "%s: what was searched is not kept", alnico_error_detail());
    file_unlock(cache);
}

static void remembered_clear(struct engine_cache *cache, struct remembered *item)
{
    gemm_destroy(&cache->handle, item->choice.gemm);
    item->choice.gemm = NULL;
    cudnn_bag_clear(cache->handle.library, &item->bag);
}

static alnico_status_t gemm_find(const struct engine_cache *cache,
                                 const struct convolution *convolution, const char *text,
                                 struct remembered *item)
{
    if (!gemm_possible(convolution))
        return error_set(ALNICO_ERROR_UNSUPPORTED, "plan file: %s is no product", item->text);
    TRY(search_gemm(&cache->search, convolution, &item->choice.gemm));
    TRY(gemm_restore(&cache->handle, item->choice.gemm, text, &item->choice.workspace));
    return item->choice.workspace <= cache->options.workspace_most
               ? ALNICO_SUCCESS
               : error_set(ALNICO_ERROR_UNSUPPORTED, "workspace");
}

/* CRC-32 of a plan and what it is for: cuDNN does not tell the shapes of a plan from a text. */
static uint32_t engine_sum(const struct engine_cache *cache, const struct remembered *item,
                           const char *plan)
{
    const char *const texts[] = {cache->section->string, item->text, plan};
    uLong sum = crc32_z(0, NULL, 0);
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
        sum = crc32_z(sum, (const Bytef *)texts[i], strlen(texts[i]) + 1);
    return (uint32_t)sum;
}

static bool file_find(struct engine_cache *cache, const struct convolution *convolution,
                      struct remembered *item)
{
    const cJSON *entry = cJSON_GetObjectItemCaseSensitive(cache->section, item->text);
    const char *plan = cJSON_GetStringValue(cJSON_GetObjectItem(entry, "plan"));
    const char *gemm = cJSON_GetStringValue(cJSON_GetObjectItem(entry, "product"));
    const double engine = cJSON_GetNumberValue(cJSON_GetObjectItem(entry, "engine"));
    const double us = cJSON_GetNumberValue(cJSON_GetObjectItem(entry, "us"));
    const double sum = cJSON_GetNumberValue(cJSON_GetObjectItem(entry, "sum"));
    const char *why = cJSON_GetStringValue(cJSON_GetObjectItem(entry, "why"));
    if (why && engine == NO_ENGINE) {
        item->choice.engine = NO_ENGINE;
        snprintf(item->why, sizeof item->why, "%s", why);
        return true;
    }
    if ((!plan && !gemm) || !(engine >= 0) || !(us >= 0))
        return false;
    if (!gemm && sum != engine_sum(cache, item, plan))
        return false;
    item->choice.engine = (int64_t)engine;
    item->choice.us = us;
    if ((gemm ? gemm_find(cache, convolution, gemm, item)
              : search_restore(&cache->search, plan, &item->bag, &item->choice)) == ALNICO_SUCCESS)
        return true;
    remembered_clear(cache, item);
    return false;
}

/* A plan without a text form is searched again the next time. */
static void file_add(struct engine_cache *cache, const struct remembered *item)
{
    char gemm[GEMM_TEXT_BYTES];
    const struct engine_choice *choice = &item->choice;
    const bool none = choice->engine == NO_ENGINE;
    char *plan = none || choice->gemm ? NULL : search_text(&cache->search, choice);
    if (!plan && !none && !choice->gemm)
        return;
    cJSON *entry = cJSON_AddObjectToObject(cache->found, item->text);
    cJSON_AddNumberToObject(entry, "engine", (double)choice->engine);
    if (none) {
        cJSON_AddStringToObject(entry, "why", item->why);
        return;
    }
    cJSON_AddNumberToObject(entry, "us", choice->us);
    cJSON_AddNumberToObject(entry, "workspace", (double)choice->workspace);
    if (plan) {
        cJSON_AddStringToObject(entry, "plan", plan);
        cJSON_AddNumberToObject(entry, "sum", engine_sum(cache, item, plan));
    } else {
        gemm_text(choice->gemm, gemm);
        cJSON_AddStringToObject(entry, "product", gemm);
    }
    free(plan);
}

static alnico_status_t items_reserve(struct engine_cache *cache)
{
    if (cache->count < cache->capacity)
        return ALNICO_SUCCESS;
    const size_t capacity = cache->capacity ? 2 * cache->capacity : 64;
    struct remembered *items = realloc(cache->items, capacity * sizeof *items);
    if (!items)
        return error_set(ALNICO_ERROR_MEMORY, "cuDNN kernels: no memory");
    cache->items = items;
    cache->capacity = capacity;
    return ALNICO_SUCCESS;
}

/* Fills an item by searching. That there is no engine is a result, too; in a file only where memory
 * was no reason. */
static alnico_status_t item_search(struct engine_cache *cache,
                                   const struct convolution *convolution,
                                   const struct convolution_memory *memory, struct remembered *item)
{
    const alnico_status_t status =
        search_run(&cache->search, convolution, memory, &item->bag, &item->choice);
    if (status != ALNICO_SUCCESS) {
        cudnn_bag_clear(cache->handle.library, &item->bag);
        if (status != ALNICO_ERROR_UNSUPPORTED)
            return status;
        item->choice = (struct engine_choice){.engine = NO_ENGINE};
        snprintf(item->why, sizeof item->why, "%s", alnico_error_detail());
    }
    if (status == ALNICO_SUCCESS || !cache->search.starved)
        file_add(cache, item);
    return ALNICO_SUCCESS;
}

static alnico_status_t remembered_take(const struct remembered *item, struct engine_choice *out)
{
    if (item->choice.engine == NO_ENGINE)
        return error_set(ALNICO_ERROR_UNSUPPORTED, "%s", item->why);
    *out = item->choice;
    return ALNICO_SUCCESS;
}

alnico_status_t engine_run(const struct cudnn_handle *handle, const struct engine_choice *choice,
                           const struct convolution_memory *memory, cudnnBackendDescriptor_t pack,
                           void *workspace)
{
    if (choice->gemm)
        return gemm_run(handle, choice->gemm, memory, workspace, choice->workspace);
    return cudnn_status(handle->library->cudnnBackendExecute(handle->cudnn, choice->plan, pack),
                        "cudnnBackendExecute");
}

alnico_status_t engine_find(struct engine_cache *cache, const struct convolution *convolution,
                            const struct convolution_memory *memory, struct engine_choice *out)
{
    struct remembered item = {.text = ""};
    convolution_text(convolution, item.text, sizeof item.text);
    for (size_t i = 0; i < cache->count; i++)
        if (strcmp(cache->items[i].text, item.text) == 0)
            return remembered_take(&cache->items[i], out);
    TRY(items_reserve(cache));
    if (!file_find(cache, convolution, &item)) {
        TRY(file_take(cache));
        if (!file_find(cache, convolution, &item))
            TRY(item_search(cache, convolution, memory, &item));
        else if (cJSON_GetArraySize(cache->found) == 0)
            file_unlock(cache); /* whoever waits for it, too, need not wait for this process */
    }
    cache->items[cache->count++] = item;
    return remembered_take(&item, out);
}

void engine_cache_close(struct engine_cache *cache)
{
    if (!cache)
        return;
    for (size_t i = 0; i < cache->count; i++)
        remembered_clear(cache, &cache->items[i]);
    search_close(&cache->search);
    file_unlock(cache);
    cJSON_Delete(cache->file);
    cJSON_Delete(cache->found);
    free(cache->items);
    free(cache);
}

alnico_status_t engine_cache_open(const struct cudnn_handle *handle,
                                  const struct engine_options *options, struct engine_cache **out)
{
    *out = NULL;
    struct engine_cache *cache = calloc(1, sizeof *cache);
    if (!cache)
        return error_set(ALNICO_ERROR_MEMORY, "cuDNN kernels: no memory");
    cache->handle = *handle;
    cache->options = *options;
    cache->found = cJSON_CreateObject();
    cache->lock = -1;
    alnico_status_t status = search_open(handle, options, &cache->search);
    if (status == ALNICO_SUCCESS)
        status = file_load(cache);
    if (status != ALNICO_SUCCESS)
        engine_cache_close(cache);
    else
        *out = cache;
    return status;
}
