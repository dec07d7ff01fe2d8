/* What the cuDNN kernels remember of a search: plans, products, that there is none, and what they
 * must not remember. The search, cuBLASLt and the GPU are played here. */
#include <cuda_runtime_api.h>
#undef cudaGetDevice
#undef cudaGetDeviceProperties
#define cudaGetDevice played_device
#define cudaGetDeviceProperties played_properties
static int played_device(int *device);
static int played_properties(struct cudaDeviceProp *properties, int device);
#include "train/kernels/cudnn/engine_cache.c"

#include <fcntl.h>
#include <glob.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/wait.h>

#include <cmocka.h>

/* ---- What is played ---- */

static struct {
    alnico_status_t status; /* of every search */
    bool starved;
    bool gemm;    /* a search finds one */
    bool refused; /* cuBLASLt has no such kernel */
    bool slow;    /* searches take a while */
    size_t searches;
    long descriptors; /* that cuBLASLt has made, less those destroyed */
    size_t workspace; /* that a kernel wants */
} played;

static int played_device(int *device)
{
    return *device = 0;
}

static int played_properties(struct cudaDeviceProp *properties, int device)
{
    snprintf(properties->name, sizeof properties->name, "a GPU");
    return device;
}

static size_t played_version(void)
{
    return 91400;
}

static size_t played_cublas_version(void)
{
    return 130100;
}

static cublasStatus_t played_description(cublasLtMatmulDesc_t *out, cublasComputeType_t compute,
                                         cudaDataType_t type)
{
    *out = (cublasLtMatmulDesc_t)&played;
    played.descriptors++;
    return compute == CUBLAS_COMPUTE_32F && type == CUDA_R_32F ? CUBLAS_STATUS_SUCCESS
                                                               : CUBLAS_STATUS_INVALID_VALUE;
}

static cublasStatus_t played_attribute(cublasLtMatmulDesc_t description,
                                       cublasLtMatmulDescAttributes_t which, const void *value,
                                       size_t bytes)
{
    (void)description;
    (void)value;
    return which == CUBLASLT_MATMUL_DESC_TRANSA && bytes == sizeof(cublasOperation_t)
               ? CUBLAS_STATUS_SUCCESS
               : CUBLAS_STATUS_INVALID_VALUE;
}

static cublasStatus_t played_layout(cublasLtMatrixLayout_t *out, cudaDataType_t type, uint64_t rows,
                                    uint64_t columns, int64_t row)
{
    *out = (cublasLtMatrixLayout_t)&played;
    played.descriptors++;
    return type == CUDA_R_16BF && rows && columns && row == (int64_t)rows
               ? CUBLAS_STATUS_SUCCESS
               : CUBLAS_STATUS_INVALID_VALUE;
}

static cublasStatus_t played_description_end(cublasLtMatmulDesc_t description)
{
    (void)description;
    played.descriptors--;
    return CUBLAS_STATUS_SUCCESS;
}

static cublasStatus_t played_layout_end(cublasLtMatrixLayout_t layout)
{
    (void)layout;
    played.descriptors--;
    return CUBLAS_STATUS_SUCCESS;
}

/* All but the last of a kernel's words have their highest bit set. */
static const uint64_t kernel[] = {1ull << 63 | 1, 1ull << 63 | 2, 1ull << 63 | 3, ~0ull,
                                  1ull << 63 | 5, 1ull << 63 | 6, 1ull << 63 | 7, 8};

static cublasStatus_t played_check(cublasLtHandle_t handle, cublasLtMatmulDesc_t description,
                                   cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                                   cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
                                   const cublasLtMatmulAlgo_t *algorithm,
                                   cublasLtMatmulHeuristicResult_t *out)
{
    (void)handle;
    assert_true(description && a && b && c && c == d);
    for (size_t i = 0; i < sizeof kernel / sizeof *kernel; i++)
        assert_true(algorithm->data[i] == kernel[i]);
    out->workspaceSize = played.workspace;
    return played.refused ? CUBLAS_STATUS_NOT_SUPPORTED : CUBLAS_STATUS_SUCCESS;
}

alnico_status_t search_open(const struct cudnn_handle *handle, const struct engine_options *options,
                            struct engine_search *out)
{
    *out = (struct engine_search){.handle = *handle, .options = *options};
    return ALNICO_SUCCESS;
}

void search_close(struct engine_search *search)
{
    search_release(search);
}

void search_release(struct engine_search *search)
{
    search->workspace = NULL;
}

alnico_status_t search_run(struct engine_search *search, const struct convolution *convolution,
                           const struct convolution_memory *memory, struct cudnn_bag *bag,
                           struct engine_choice *out)
{
    (void)convolution;
    (void)memory;
    (void)bag;
    const struct timespec pause = {.tv_nsec = 20000000};
    played.searches++;
    if (played.slow)
        nanosleep(&pause, NULL);
    search->starved = played.starved;
    if (played.status != ALNICO_SUCCESS)
        return error_set(played.status, "search %zu failed", played.searches);
    *out = (struct engine_choice){.plan = &played, .engine = 7, .us = 2.5};
    if (!played.gemm)
        return ALNICO_SUCCESS;
    out->plan = NULL;
    if (search_gemm(search, convolution, &out->gemm) != ALNICO_SUCCESS)
        return ALNICO_ERROR_MEMORY;
    for (size_t i = 0; i < sizeof kernel / sizeof *kernel; i++)
        out->gemm->algorithm.data[i] = kernel[i];
    return ALNICO_SUCCESS;
}

alnico_status_t search_gemm(const struct engine_search *search,
                            const struct convolution *convolution, struct gemm **out)
{
    return gemm_make(&search->handle, convolution, false, out);
}

char *search_text(const struct engine_search *search, const struct engine_choice *choice)
{
    (void)search;
    (void)choice;
    return strdup("a plan");
}

alnico_status_t search_restore(const struct engine_search *search, const char *text,
                               struct cudnn_bag *bag, struct engine_choice *out)
{
    (void)search;
    (void)bag;
    assert_string_equal(text, "a plan");
    out->plan = &played;
    return ALNICO_SUCCESS;
}

/* ---- Tests ---- */

static const struct cudnn_library library = {
    .cudnnGetVersion = played_version,
    .cublasLtGetVersion = played_cublas_version,
    .cublasLtMatmulDescCreate = played_description,
    .cublasLtMatmulDescSetAttribute = played_attribute,
    .cublasLtMatmulDescDestroy = played_description_end,
    .cublasLtMatrixLayoutCreate = played_layout,
    .cublasLtMatrixLayoutDestroy = played_layout_end,
    .cublasLtMatmulAlgoCheck = played_check,
};
static char path[64];

static struct engine_cache *plans_begin(void)
{
    const struct cudnn_handle handle = {.library = &library};
    const struct engine_options options = {
        .file = path, .workspace_most = 1 << 20, .gemms = played.gemm};
    struct engine_cache *plans;
    assert_int_equal(engine_cache_open(&handle, &options, &plans), ALNICO_SUCCESS);
    return plans;
}

static void plans_end(struct engine_cache *plans)
{
    engine_cache_save(plans);
    engine_cache_close(plans);
}

/* Asks for a convolution of so many filters. */
static alnico_status_t ask(struct engine_cache *plans, size_t filters, struct engine_choice *choice)
{
    const struct convolution convolution = {.type = ALNICO_BFLOAT16,
                                            .batch = 1,
                                            .height = 1,
                                            .width = 1,
                                            .channels = 8,
                                            .filters = filters,
                                            .rows = 1,
                                            .columns = 1,
                                            .stride = 1};
    const struct convolution_memory memory = {0};
    return engine_find(plans, &convolution, &memory, choice);
}

/* While searches end in `status`. */
static void expect(struct engine_cache *plans, size_t filters, alnico_status_t status,
                   size_t searches, const char *detail)
{
    struct engine_choice choice = {.engine = 99};
    played.searches = 0;
    assert_int_equal(ask(plans, filters, &choice), status);
    assert_int_equal(played.searches, searches);
    assert_int_equal(choice.engine, status == ALNICO_SUCCESS ? 7 : 99);
    if (detail)
        assert_string_equal(alnico_error_detail(), detail);
}

static int forget(void **unused)
{
    (void)unused;
    memset(&played, 0, sizeof played);
    remove(path);
    return 0;
}

static void plans_are_remembered(void **unused)
{
    (void)unused;
    struct engine_cache *plans = plans_begin();
    expect(plans, 8, ALNICO_SUCCESS, 1, NULL);
    expect(plans, 8, ALNICO_SUCCESS, 0, NULL);
    plans_end(plans);
    plans = plans_begin();
    expect(plans, 8, ALNICO_SUCCESS, 0, NULL);
    expect(plans, 16, ALNICO_SUCCESS, 1, NULL);
    plans_end(plans);
}

static void products_are_remembered(void **unused)
{
    (void)unused;
    played.gemm = true;
    played.workspace = 1 << 20;
    struct engine_cache *plans = plans_begin();
    expect(plans, 8, ALNICO_SUCCESS, 1, NULL);
    expect(plans, 8, ALNICO_SUCCESS, 0, NULL);
    plans_end(plans);
    assert_int_equal(played.descriptors, 0);
    plans = plans_begin();
    expect(plans, 8, ALNICO_SUCCESS, 0, NULL);
    assert_int_equal(played.descriptors, 4);
    plans_end(plans);
    assert_int_equal(played.descriptors, 0);
}

/* Of other options, with another kernel, with more workspace than there may be. */
static void products_of_elsewhere_are_searched_again(void **unused)
{
    (void)unused;
    for (int way = 0; way < 3; way++) {
        forget(NULL);
        played.gemm = true;
        struct engine_cache *plans = plans_begin();
        expect(plans, 8, ALNICO_SUCCESS, 1, NULL);
        plans_end(plans);
        played.gemm = way != 0;
        played.refused = way == 1;
        played.workspace = way == 2 ? (1 << 20) + 1 : 0;
        plans = plans_begin();
        expect(plans, 8, ALNICO_SUCCESS, 1, NULL);
        plans_end(plans);
        assert_int_equal(played.descriptors, 0);
    }
}

static void that_there_is_no_engine_is_remembered(void **unused)
{
    (void)unused;
    struct engine_cache *plans = plans_begin();
    played.status = ALNICO_ERROR_UNSUPPORTED;
    expect(plans, 8, ALNICO_ERROR_UNSUPPORTED, 1, "search 1 failed");
    expect(plans, 8, ALNICO_ERROR_UNSUPPORTED, 0, "search 1 failed");
    plans_end(plans);
    plans = plans_begin();
    played.status = ALNICO_SUCCESS;
    expect(plans, 8, ALNICO_ERROR_UNSUPPORTED, 0, "search 1 failed");
    expect(plans, 16, ALNICO_SUCCESS, 1, NULL);
    plans_end(plans);
}

/* With more memory there may be one: only this process goes on without. */
static void want_of_memory_stays_out_of_the_file(void **unused)
{
    (void)unused;
    struct engine_cache *plans = plans_begin();
    played.status = ALNICO_ERROR_UNSUPPORTED;
    played.starved = true;
    expect(plans, 8, ALNICO_ERROR_UNSUPPORTED, 1, NULL);
    expect(plans, 8, ALNICO_ERROR_UNSUPPORTED, 0, NULL);
    plans_end(plans);
    plans = plans_begin();
    played.status = ALNICO_SUCCESS;
    expect(plans, 8, ALNICO_SUCCESS, 1, NULL);
    plans_end(plans);
}

static void errors_are_not_remembered(void **unused)
{
    (void)unused;
    const alnico_status_t errors[] = {ALNICO_ERROR_MEMORY, ALNICO_ERROR_SYSTEM};
    struct engine_cache *plans = plans_begin();
    for (size_t i = 0; i < 2; i++) {
        played.status = errors[i];
        expect(plans, 8, errors[i], 1, "search 1 failed");
    }
    plans_end(plans);
    plans = plans_begin();
    played.status = ALNICO_SUCCESS;
    expect(plans, 8, ALNICO_SUCCESS, 1, NULL);
    plans_end(plans);
}

/* Puts what the file has of the first convolution in the place of the second. */
static void entries_mix(void)
{
    struct engine_cache *plans = plans_begin();
    cJSON *first = plans->section->child, *second = first->next;
    assert_non_null(second);
    assert_true(cJSON_ReplaceItemInObjectCaseSensitive(plans->section, second->string,
                                                       cJSON_Duplicate(first, true)));
    FILE *file = fopen(path, "wb");
    char *text = cJSON_Print(plans->file);
    assert_true(fputs(text, file) >= 0 && fclose(file) == 0);
    cJSON_free(text);
    engine_cache_close(plans);
}

/* It would read and write what is not its own. */
static void a_plan_of_another_convolution_is_searched_again(void **unused)
{
    (void)unused;
    struct engine_cache *plans = plans_begin();
    expect(plans, 8, ALNICO_SUCCESS, 1, NULL);
    expect(plans, 16, ALNICO_SUCCESS, 1, NULL);
    plans_end(plans);
    entries_mix();
    plans = plans_begin();
    expect(plans, 8, ALNICO_SUCCESS, 0, NULL);
    expect(plans, 16, ALNICO_SUCCESS, 1, NULL);
    plans_end(plans);
}

/* ---- Several processes with one file ---- */

enum { RANKS = 4, ROUNDS = 10 };

/* Each asks for a convolution of its own, or all for the same. Returns the searches of all. */
static size_t ranks_search(bool same)
{
    size_t searches = 0;
    int status;
    played.slow = true;
    for (size_t rank = 0; rank < RANKS; rank++) {
        if (fork() != 0)
            continue;
        struct engine_choice choice;
        struct engine_cache *plans = plans_begin();
        const bool fine = ask(plans, same ? 8 : 8 + 8 * rank, &choice) == ALNICO_SUCCESS;
        engine_cache_save(plans);
        engine_cache_close(plans);
        _exit(fine ? (int)played.searches : 99);
    }
    while (wait(&status) > 0) {
        assert_true(WIFEXITED(status));
        searches += (size_t)WEXITSTATUS(status);
    }
    return searches;
}

static void nothing_is_left_beside(void)
{
    char pattern[80];
    glob_t found;
    snprintf(pattern, sizeof pattern, "%s?*", path);
    assert_int_equal(glob(pattern, 0, NULL, &found), GLOB_NOMATCH);
}

static void ranks_lose_nothing_in_one_file(void **unused)
{
    (void)unused;
    for (int round = 0; round < ROUNDS; round++) {
        forget(NULL);
        assert_int_equal(ranks_search(false), RANKS);
        struct engine_cache *plans = plans_begin();
        for (size_t rank = 0; rank < RANKS; rank++)
            expect(plans, 8 + 8 * rank, ALNICO_SUCCESS, 0, NULL);
        plans_end(plans);
    }
    nothing_is_left_beside();
}

/* Only the first searches: others could find another engine the fastest. */
static void ranks_with_one_file_choose_alike(void **unused)
{
    (void)unused;
    for (int round = 0; round < ROUNDS; round++) {
        forget(NULL);
        assert_int_equal(ranks_search(true), 1);
    }
}

/* Where files do not lock, others may have written meanwhile. */
static void what_others_wrote_stays(void **unused)
{
    (void)unused;
    struct engine_cache *plans = plans_begin(), *other;
    expect(plans, 8, ALNICO_SUCCESS, 1, NULL);
    assert_int_equal(flock(plans->lock, LOCK_UN), 0);
    other = plans_begin();
    expect(other, 16, ALNICO_SUCCESS, 1, NULL);
    plans_end(other);
    plans_end(plans);
    plans = plans_begin();
    expect(plans, 8, ALNICO_SUCCESS, 0, NULL);
    expect(plans, 16, ALNICO_SUCCESS, 0, NULL);
    plans_end(plans);
}

/* The plans are there all the same. */
static void a_file_that_cannot_be_written_ends_nothing(void **unused)
{
    (void)unused;
    char there[sizeof path];
    struct engine_cache *plans;
    snprintf(there, sizeof there, "%s", path);
    snprintf(path, sizeof path, "/nonexistent/plans");
    plans = plans_begin();
    expect(plans, 8, ALNICO_SUCCESS, 1, NULL);
    plans_end(plans);
    snprintf(path, sizeof path, "%s", there);
}

static bool file_is_locked(void)
{
    const int file = open(path, O_RDONLY);
    assert_true(file >= 0);
    const bool locked = flock(file, LOCK_EX | LOCK_NB) != 0;
    close(file);
    return locked;
}

/* Who finds in the file what it waited for lets others look at once; who searches does not. */
static void the_lock_lasts_as_long_as_a_search(void **unused)
{
    (void)unused;
    struct engine_cache *first = plans_begin(), *second = plans_begin();
    expect(first, 8, ALNICO_SUCCESS, 1, NULL);
    assert_true(file_is_locked());
    plans_end(first);
    expect(second, 8, ALNICO_SUCCESS, 0, NULL);
    assert_false(file_is_locked());
    expect(second, 16, ALNICO_SUCCESS, 1, NULL);
    assert_true(file_is_locked());
    plans_end(second);
    assert_false(file_is_locked());
}

/* What was there before is whole. */
static void a_full_disk_damages_nothing(void **unused)
{
    (void)unused;
    struct rlimit before, none;
    struct engine_cache *plans = plans_begin();
    expect(plans, 8, ALNICO_SUCCESS, 1, NULL);
    plans_end(plans);
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
    none = before;
    none.rlim_cur = 0;
    signal(SIGXFSZ, SIG_IGN);
    plans = plans_begin();
    expect(plans, 16, ALNICO_SUCCESS, 1, NULL);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &none), 0);
    engine_cache_save(plans);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
    engine_cache_close(plans);
    nothing_is_left_beside();
    plans = plans_begin();
    expect(plans, 8, ALNICO_SUCCESS, 0, NULL);
    plans_end(plans);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(plans_are_remembered, forget),
        cmocka_unit_test_setup(products_are_remembered, forget),
        cmocka_unit_test_setup(products_of_elsewhere_are_searched_again, forget),
        cmocka_unit_test_setup(that_there_is_no_engine_is_remembered, forget),
        cmocka_unit_test_setup(want_of_memory_stays_out_of_the_file, forget),
        cmocka_unit_test_setup(errors_are_not_remembered, forget),
        cmocka_unit_test_setup(a_plan_of_another_convolution_is_searched_again, forget),
        cmocka_unit_test_setup(ranks_lose_nothing_in_one_file, forget),
        cmocka_unit_test_setup(ranks_with_one_file_choose_alike, forget),
        cmocka_unit_test_setup(the_lock_lasts_as_long_as_a_search, forget),
        cmocka_unit_test_setup(what_others_wrote_stays, forget),
        cmocka_unit_test_setup(a_file_that_cannot_be_written_ends_nothing, forget),
        cmocka_unit_test_setup(a_full_disk_damages_nothing, forget),
    };
    snprintf(path, sizeof path, "/tmp/alnico-plans-%d", (int)getpid());
    const int failed = cmocka_run_group_tests(tests, NULL, NULL);
    remove(path);
    return failed;
}
