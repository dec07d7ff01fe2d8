/* See cudnn/engine_cache.h: remembering. The search is in cudnn_search.c. */
#include "train/kernels/cudnn/engine_cache.h"

#include "base/json.h"
#include "base/log.h"
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

enum { TEXT_BYTES = 128, NO_ENGINE = -1 };

/* Five minutes: a search of another process takes less. */
enum { LOCK_TRIES = 6000, LOCK_TRY_MS = 50 };

/* A convolution that was asked for. */
struct remembered {
    char text[TEXT_BYTES];
    struct plans_choice choice; /* engine NO_ENGINE: there is none for it */
    char why[512];              /* the error's detail then */
    struct cudnn_bag bag;
};

struct cudnn_plans {
    struct cudnn_handle handle;
    struct plans_options options;
    struct remembered *items;
    size_t count, capacity;
    struct search search;
    cJSON *file;    /* everything that the file held when it was read last */
    cJSON *section; /* of this GPU, versions and options, inside */
    cJSON *found;   /* what this process searched, as in a section */
    int lock;       /* the file, locked from the first search until plans_save; -1: it is not */
    bool tried;     /* whether locking it was tried, and it was not unlocked since */
};

/* ---- The file ---- */

static alnico_status_t file_read(const char *path, char **out, size_t *length)
{
    FILE *file = fopen(path, "rb");
    *out = NULL;
    if (!file)
        return errno == ENOENT
                   ? ALNICO_SUCCESS
                   : error_set(ALNICO_ERROR_ARGUMENT, "plan file '%s': %s", path, strerror(errno));
    size_t capacity = 1 << 16;
    *length = 0;
    for (char *text = malloc(capacity); text; text = realloc(text, capacity *= 2)) {
        *out = text;
        *length += fread(text + *length, 1, capacity - 1 - *length, file);
        text[*length] = '\0';
        if (*length < capacity - 1)
            break;
    }
    fclose(file);
    return *out ? ALNICO_SUCCESS : error_set(ALNICO_ERROR_MEMORY, "plan file: no memory");
}

static alnico_status_t file_parse(struct cudnn_plans *plans)
{
    const char *path = plans->options.file;
    char *text = NULL;
    size_t length = 0;
    cJSON_Delete(plans->file);
    plans->file = plans->section = NULL;
    if (path)
        TRY(file_read(path, &text, &length));
    const alnico_status_t status =
        text && length ? json_parse(path, text, length, &plans->file) : ALNICO_SUCCESS;
    free(text);
    TRY(status);
    if (!plans->file)
        plans->file = cJSON_CreateObject();
    if (cJSON_IsObject(plans->file))
        return ALNICO_SUCCESS;
    return error_set(ALNICO_ERROR_ARGUMENT, "plan file '%s': expected an object", path);
}

/* Finds or makes the part of the file that is for here. */
static alnico_status_t file_section(struct cudnn_plans *plans)
{
    struct cudaDeviceProp properties;
    int device;
    char key[400];
    TRY(gpu_status(cudaGetDevice(&device), "cudaGetDevice"));
    TRY(gpu_status(cudaGetDeviceProperties(&properties, device), "cudaGetDeviceProperties"));
    const struct plans_options *options = &plans->options;
    char products[64] = "";
    if (options->products)
        snprintf(products, sizeof products, ", cuBLAS %zu%s",
                 plans->handle.library->cublasLtGetVersion(),
                 options->products == 2 ? " first" : "");
    snprintf(key, sizeof key, "%s, cuDNN %zu%s%s%s%s", properties.name,
             plans->handle.library->cudnnGetVersion(), products,
             options->deterministic ? ", deterministic" : "", options->tf32 ? ", TF32" : "",
             options->thorough ? ", thorough" : "");
    plans->section = cJSON_GetObjectItemCaseSensitive(plans->file, key);
    if (!cJSON_IsObject(plans->section)) {
        cJSON_DeleteItemFromObjectCaseSensitive(plans->file, key);
        plans->section = cJSON_AddObjectToObject(plans->file, key);
    }
    return plans->section ? ALNICO_SUCCESS : error_set(ALNICO_ERROR_MEMORY, "plan file: no memory");
}

static alnico_status_t file_load(struct cudnn_plans *plans)
{
    TRY(file_parse(plans));
    return file_section(plans);
}

/* ---- Writing it ---- */

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
        const int file = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0666);
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

static void file_unlock(struct cudnn_plans *plans)
{
    if (plans->lock >= 0)
        close(plans->lock);
    plans->lock = -1;
    plans->tried = false;
}

/* Before the first search: ranks that search the same wait for the first of them, and find it in
 * the file, so that all choose alike. */
static alnico_status_t file_take(struct cudnn_plans *plans)
{
    const char *path = plans->options.file;
    if (!path || plans->tried)
        return ALNICO_SUCCESS;
    plans->tried = true;
    plans->lock = file_lock(path);
    if (plans->lock >= 0)
        return file_load(plans);
    log_write(LOG_WARNING, "plan file '%s': %s: what is searched is not kept", path,
              strerror(errno));
    return ALNICO_SUCCESS;
}

/* Under a name of its own, then in place of the file: no other process sees half of it. */
static alnico_status_t file_write(const struct cudnn_plans *plans, const char *text)
{
    const char *path = plans->options.file;
    char beside[4096];
    struct stat held;
    if ((size_t)snprintf(beside, sizeof beside, "%s.XXXXXX", path) >= sizeof beside)
        return error_set(ALNICO_ERROR_ARGUMENT, "plan file '%.64s...': the name is too long", path);
    const int file = mkstemp(beside);
    bool done = file >= 0 && fstat(plans->lock, &held) == 0 &&
                fchmod(file, held.st_mode & 0777) == 0 && dprintf(file, "%s\n", text) > 0;
    done = file >= 0 && close(file) == 0 && done;
    if (done && rename(beside, path) == 0)
        return ALNICO_SUCCESS;
    error_set(ALNICO_ERROR_SYSTEM, "plan file '%s': %s", path, strerror(errno));
    if (file >= 0)
        unlink(beside);
    return ALNICO_ERROR_SYSTEM;
}

/* Adds what was found to what the file holds by now. */
static alnico_status_t file_merge(struct cudnn_plans *plans)
{
    const cJSON *entry;
    TRY(file_load(plans));
    cJSON_ArrayForEach(entry, plans->found)
    {
        cJSON_DeleteItemFromObjectCaseSensitive(plans->section, entry->string);
        cJSON_AddItemToObject(plans->section, entry->string, cJSON_Duplicate(entry, true));
    }
    char *text = cJSON_Print(plans->file);
    if (!text)
        return error_set(ALNICO_ERROR_MEMORY, "plan file: no memory");
    const alnico_status_t status = file_write(plans, text);
    cJSON_free(text);
    return status;
}

void plans_save(struct cudnn_plans *plans)
{
    search_release(&plans->search);
    if (plans->lock >= 0 && cJSON_GetArraySize(plans->found) > 0 &&
        file_merge(plans) != ALNICO_SUCCESS)
        log_write(LOG_WARNING, "%s: what was searched is not kept", alnico_error_detail());
    file_unlock(plans);
}

/* ---- One plan in the file ---- */

static void remembered_clear(struct cudnn_plans *plans, struct remembered *item)
{
    product_destroy(&plans->handle, item->choice.product);
    item->choice.product = NULL;
    cudnn_bag_clear(plans->handle.library, &item->bag);
}

static alnico_status_t product_find(const struct cudnn_plans *plans,
                                    const struct convolution *convolution, const char *text,
                                    struct remembered *item)
{
    if (!product_possible(convolution))
        return error_set(ALNICO_ERROR_UNSUPPORTED, "plan file: %s is no product", item->text);
    TRY(search_product(&plans->search, convolution, &item->choice.product));
    TRY(product_restore(&plans->handle, item->choice.product, text, &item->choice.workspace));
    return item->choice.workspace <= plans->options.workspace_most
               ? ALNICO_SUCCESS
               : error_set(ALNICO_ERROR_UNSUPPORTED, "workspace");
}

/* CRC-32 of a plan and what it is for: cuDNN does not tell the shapes of a plan from a text. */
static uint32_t plan_sum(const struct cudnn_plans *plans, const struct remembered *item,
                         const char *plan)
{
    const char *const texts[] = {plans->section->string, item->text, plan};
    uLong sum = crc32_z(0, NULL, 0);
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
        sum = crc32_z(sum, (const Bytef *)texts[i], strlen(texts[i]) + 1);
    return (uint32_t)sum;
}

static bool file_find(struct cudnn_plans *plans, const struct convolution *convolution,
                      struct remembered *item)
{
    const cJSON *entry = cJSON_GetObjectItemCaseSensitive(plans->section, item->text);
    const char *plan = cJSON_GetStringValue(cJSON_GetObjectItem(entry, "plan"));
    const char *product = cJSON_GetStringValue(cJSON_GetObjectItem(entry, "product"));
    const double engine = cJSON_GetNumberValue(cJSON_GetObjectItem(entry, "engine"));
    const double us = cJSON_GetNumberValue(cJSON_GetObjectItem(entry, "us"));
    const double sum = cJSON_GetNumberValue(cJSON_GetObjectItem(entry, "sum"));
    const char *why = cJSON_GetStringValue(cJSON_GetObjectItem(entry, "why"));
    if (why && engine == NO_ENGINE) {
        item->choice.engine = NO_ENGINE;
        snprintf(item->why, sizeof item->why, "%s", why);
        return true;
    }
    if ((!plan && !product) || !(engine >= 0) || !(us >= 0))
        return false;
    if (!product && sum != plan_sum(plans, item, plan))
        return false;
    item->choice.engine = (int64_t)engine;
    item->choice.us = us;
    if ((product
             ? product_find(plans, convolution, product, item)
             : search_restore(&plans->search, plan, &item->bag, &item->choice)) == ALNICO_SUCCESS)
        return true;
    remembered_clear(plans, item);
    return false;
}

/* What cuDNN does not put into words is searched again the next time. */
static void file_add(struct cudnn_plans *plans, const struct remembered *item)
{
    char product[PRODUCT_TEXT_BYTES];
    char *plan = item->choice.product ? NULL : search_text(&plans->search, &item->choice);
    if (!plan && !item->choice.product)
        return;
    cJSON *entry = cJSON_AddObjectToObject(plans->found, item->text);
    cJSON_AddNumberToObject(entry, "engine", (double)item->choice.engine);
    cJSON_AddNumberToObject(entry, "us", item->choice.us);
    cJSON_AddNumberToObject(entry, "workspace", (double)item->choice.workspace);
    if (plan) {
        cJSON_AddStringToObject(entry, "plan", plan);
        cJSON_AddNumberToObject(entry, "sum", plan_sum(plans, item, plan));
    } else {
        product_text(item->choice.product, product);
        cJSON_AddStringToObject(entry, "product", product);
    }
    free(plan);
}

static void file_add_none(struct cudnn_plans *plans, const struct remembered *item)
{
    cJSON *entry = cJSON_AddObjectToObject(plans->found, item->text);
    cJSON_AddNumberToObject(entry, "engine", NO_ENGINE);
    cJSON_AddStringToObject(entry, "why", item->why);
}

/* ---- Finding ---- */

static alnico_status_t plans_reserve(struct cudnn_plans *plans)
{
    if (plans->count < plans->capacity)
        return ALNICO_SUCCESS;
    const size_t capacity = plans->capacity ? 2 * plans->capacity : 64;
    struct remembered *items = realloc(plans->items, capacity * sizeof *items);
    if (!items)
        return error_set(ALNICO_ERROR_MEMORY, "cuDNN kernels: no memory");
    plans->items = items;
    plans->capacity = capacity;
    return ALNICO_SUCCESS;
}

/* Fills an item by searching. That there is no engine is a result, too; in a file only where memory
 * was no reason. */
static alnico_status_t plans_search(struct cudnn_plans *plans,
                                    const struct convolution *convolution,
                                    const struct convolution_memory *memory,
                                    struct remembered *item)
{
    const alnico_status_t status =
        search_run(&plans->search, convolution, memory, &item->bag, &item->choice);
    if (status == ALNICO_SUCCESS) {
        file_add(plans, item);
        return status;
    }
    cudnn_bag_clear(plans->handle.library, &item->bag);
    if (status != ALNICO_ERROR_UNSUPPORTED)
        return status;
    item->choice = (struct plans_choice){.engine = NO_ENGINE};
    snprintf(item->why, sizeof item->why, "%s", alnico_error_detail());
    if (!plans->search.starved)
        file_add_none(plans, item);
    return ALNICO_SUCCESS;
}

static alnico_status_t remembered_take(const struct remembered *item, struct plans_choice *out)
{
    if (item->choice.engine == NO_ENGINE)
        return error_set(ALNICO_ERROR_UNSUPPORTED, "%s", item->why);
    *out = item->choice;
    return ALNICO_SUCCESS;
}

alnico_status_t plans_run(const struct cudnn_handle *handle, const struct plans_choice *choice,
                          const struct convolution_memory *memory, cudnnBackendDescriptor_t pack,
                          void *workspace)
{
    if (choice->product)
        return product_run(handle, choice->product, memory, workspace, choice->workspace);
    return cudnn_status(handle->library->cudnnBackendExecute(handle->cudnn, choice->plan, pack),
                        "cudnnBackendExecute");
}

alnico_status_t plans_find(struct cudnn_plans *plans, const struct convolution *convolution,
                           const struct convolution_memory *memory, struct plans_choice *out)
{
    struct remembered item = {.text = ""};
    convolution_text(convolution, item.text, sizeof item.text);
    for (size_t i = 0; i < plans->count; i++)
        if (strcmp(plans->items[i].text, item.text) == 0)
            return remembered_take(&plans->items[i], out);
    TRY(plans_reserve(plans));
    if (!file_find(plans, convolution, &item)) {
        TRY(file_take(plans));
        if (!file_find(plans, convolution, &item))
            TRY(plans_search(plans, convolution, memory, &item));
        else if (cJSON_GetArraySize(plans->found) == 0)
            file_unlock(plans); /* whoever waits for it, too, need not wait for this process */
    }
    plans->items[plans->count++] = item;
    return remembered_take(&item, out);
}

/* ---- Beginning and end ---- */

void plans_close(struct cudnn_plans *plans)
{
    if (!plans)
        return;
    for (size_t i = 0; i < plans->count; i++)
        remembered_clear(plans, &plans->items[i]);
    search_close(&plans->search);
    file_unlock(plans);
    cJSON_Delete(plans->file);
    cJSON_Delete(plans->found);
    free(plans->items);
    free(plans);
}

alnico_status_t plans_open(const struct cudnn_handle *handle, const struct plans_options *options,
                           struct cudnn_plans **out)
{
    *out = NULL;
    struct cudnn_plans *plans = calloc(1, sizeof *plans);
    if (!plans)
        return error_set(ALNICO_ERROR_MEMORY, "cuDNN kernels: no memory");
    plans->handle = *handle;
    plans->options = *options;
    plans->found = cJSON_CreateObject();
    plans->lock = -1;
    alnico_status_t status = search_open(handle, options, &plans->search);
    if (status == ALNICO_SUCCESS)
        status = file_load(plans);
    if (status != ALNICO_SUCCESS)
        plans_close(plans);
    else
        *out = plans;
    return status;
}
