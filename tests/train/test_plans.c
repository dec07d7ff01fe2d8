/* What the cuDNN kernels remember of a search: plans, that there is none, and what they must not
 * remember. The search and the GPU are played here. */
#include <cuda_runtime_api.h>
#undef cudaGetDevice
#undef cudaGetDeviceProperties
#define cudaGetDevice played_device
#define cudaGetDeviceProperties played_properties
static int played_device(int *device);
static int played_properties(struct cudaDeviceProp *properties, int device);
#include "../../src/train/cudnn_plans.c"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <unistd.h>

#include <cmocka.h>

/* ---- What is played ---- */

static struct {
    alnico_status_t status; /* of every search */
    bool starved;
    size_t searches;
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

alnico_status_t search_open(const struct cudnn_handle *handle, const struct plans_options *options,
                            struct search *out)
{
    *out = (struct search){.handle = *handle, .options = *options};
    return ALNICO_SUCCESS;
}

void search_close(struct search *search)
{
    search_release(search);
}

void search_release(struct search *search)
{
    search->workspace = NULL;
}

alnico_status_t search_run(struct search *search, const struct convolution *convolution,
                           const struct convolution_memory *memory, struct cudnn_bag *bag,
                           struct plans_choice *out)
{
    (void)convolution;
    (void)memory;
    (void)bag;
    played.searches++;
    search->starved = played.starved;
    if (played.status != ALNICO_SUCCESS)
        return error_set(played.status, "search %zu failed", played.searches);
    *out = (struct plans_choice){.plan = &played, .engine = 7, .us = 2.5};
    return ALNICO_SUCCESS;
}

char *search_text(const struct search *search, const struct plans_choice *choice)
{
    (void)search;
    (void)choice;
    return strdup("a plan");
}

alnico_status_t search_restore(const struct search *search, const char *text, struct cudnn_bag *bag,
                               struct plans_choice *out)
{
    (void)search;
    (void)bag;
    assert_string_equal(text, "a plan");
    out->plan = &played;
    return ALNICO_SUCCESS;
}

/* ---- Tests ---- */

static const struct cudnn_library library = {.cudnnGetVersion = played_version};
static char path[64];

static struct cudnn_plans *plans_begin(void)
{
    const struct cudnn_handle handle = {.library = &library};
    const struct plans_options options = {.file = path, .workspace_most = 1 << 20};
    struct cudnn_plans *plans;
    assert_int_equal(plans_open(&handle, &options, &plans), ALNICO_SUCCESS);
    return plans;
}

static void plans_end(struct cudnn_plans *plans)
{
    assert_int_equal(plans_save(plans), ALNICO_SUCCESS);
    plans_close(plans);
}

/* Asks for a convolution of so many filters while searches end in `status`. */
static void expect(struct cudnn_plans *plans, size_t filters, alnico_status_t status,
                   size_t searches, const char *detail)
{
    const struct convolution convolution = {.filters = filters};
    const struct convolution_memory memory = {0};
    struct plans_choice choice = {.engine = 99};
    played.searches = 0;
    assert_int_equal(plans_find(plans, &convolution, &memory, &choice), status);
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
    struct cudnn_plans *plans = plans_begin();
    expect(plans, 8, ALNICO_SUCCESS, 1, NULL);
    expect(plans, 8, ALNICO_SUCCESS, 0, NULL);
    plans_end(plans);
    plans = plans_begin();
    expect(plans, 8, ALNICO_SUCCESS, 0, NULL);
    expect(plans, 16, ALNICO_SUCCESS, 1, NULL);
    plans_end(plans);
}

static void that_there_is_no_engine_is_remembered(void **unused)
{
    (void)unused;
    struct cudnn_plans *plans = plans_begin();
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
    struct cudnn_plans *plans = plans_begin();
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
    struct cudnn_plans *plans = plans_begin();
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(plans_are_remembered, forget),
        cmocka_unit_test_setup(that_there_is_no_engine_is_remembered, forget),
        cmocka_unit_test_setup(want_of_memory_stays_out_of_the_file, forget),
        cmocka_unit_test_setup(errors_are_not_remembered, forget),
    };
    snprintf(path, sizeof path, "/tmp/alnico-plans-%d", (int)getpid());
    const int failed = cmocka_run_group_tests(tests, NULL, NULL);
    remove(path);
    return failed;
}
