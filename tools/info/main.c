/* alnico-info: what this build has and what it would do here: machine, launcher, devices, algorithms,
 * the tuning table, the environment. Everything is gathered as one JSON object, which is printed as
 * text and written by --json. Of several ranks, rank 0 prints. */
#include "base/log.h"
#include "comm/backends/backend.h"
#include "comm/rendezvous/launch.h"
#include "comm/tuning/settings.h"
#include "device/device.h"
#include "tools/common/options.h"
#include "tools/common/program.h"
#ifdef ALNICO_HAVE_CUDA
#include "comm/backends/peer_cuda/peer_cuda.h"
#include "tools/info/gpu.h"
#endif

#include <errno.h>
#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static void add_launch(cJSON *info)
{
    struct launch launch;
    if (launch_find(&launch) == ALNICO_SUCCESS)
        json_add(cJSON_AddObjectToObject(info, "launch"), "by %s rank %d ranks %d",
                 launch.by ? launch.by->name : "none", launch.rank, launch.size);
    else
        json_add(info, "launch_error %s", alnico_error_detail());
}

/* By device: what the build has, whether or not the machine has it. */
#ifdef ALNICO_HAVE_CUDA
static const bool has_device[] = {true, true};
#else
static const bool has_device[] = {true, false};
#endif

static void add_devices(cJSON *info)
{
    cJSON *devices = cJSON_AddArrayToObject(info, "devices");
    for (int i = 0; i <= ALNICO_DEVICE_CUDA; i++) {
        bool here = device_find((alnico_device_t)i) != NULL;
        json_add(json_row(devices), "name %s state %s", option_devices[i],
                 here            ? "available"
                 : has_device[i] ? alnico_error_detail()
                                 : "not in this build");
    }
#ifdef ALNICO_HAVE_CUDA
    info_add_gpus(info);
#endif
}

/* Names and versions come from the build. */
static void add_libraries(cJSON *info)
{
    static const struct {
        const char *name, *version;
    } libraries[] = {{"hwloc", ALNICO_HWLOC_VERSION},
                     {"cJSON", ALNICO_CJSON_VERSION},
                     {"oneDNN", ALNICO_DNNL_VERSION},
                     {"zlib", ALNICO_ZLIB_VERSION}};
    cJSON *object = cJSON_AddObjectToObject(info, "libraries");
    for (size_t i = 0; i < sizeof libraries / sizeof *libraries; i++)
        cJSON_AddStringToObject(object, libraries[i].name,
                                *libraries[i].version ? libraries[i].version : "not in this build");
#ifdef ALNICO_HAVE_CUDA
    info_add_gpu_libraries(object);
#endif
}

/* "cpu cuda", of those that this build has. */
static const char *devices_text(unsigned devices)
{
    bool cpu = devices & 1u << ALNICO_DEVICE_CPU;
    bool cuda = devices & 1u << ALNICO_DEVICE_CUDA && has_device[ALNICO_DEVICE_CUDA];
    return cpu && cuda ? "cpu cuda" : cuda ? "cuda" : "cpu";
}

static void add_backends(cJSON *info)
{
    cJSON *list = cJSON_AddArrayToObject(info, "backends");
    for (int i = 0; i < BACKENDS; i++)
        if (backends[i]->ops)
            json_add(json_row(list), "name %s devices %s about %s", backends[i]->name,
                     devices_text(backends[i]->devices), backends[i]->ops->about);
    cJSON *transports = cJSON_AddArrayToObject(info, "transports");
    static const char *const table[][2] = {{"mpi", "messages between processes"},
                                           {"local", "ranks that are threads of one process"},
                                           {"shm", "ranks of one host, through shared memory"},
                                           {"sim", "virtual time, for alnico-simulate"}};
    for (size_t i = 0; i < sizeof table / sizeof *table; i++)
        json_add(json_row(transports), "name %s about %s", table[i][0], table[i][1]);
}

/* An array named "allreduce_algorithms", or of another collective. */
static cJSON *add_section(cJSON *info, int collective, const char *what)
{
    char key[64];
    snprintf(key, sizeof key, "%s_%s", collectives[collective].name, what);
    return cJSON_AddArrayToObject(info, key);
}

static void add_algorithms_of(cJSON *algorithms, int collective, int device)
{
    const struct backend *backend;
    const struct algorithm *a;
    for (int i = 0; (a = backend_algorithm_at(device, collective, i, &backend)); i++) {
        if (backend->ops)
            json_add(json_row(algorithms), "name %s device %s backend %s about %s", a->name,
                     tuning_devices[device], backend->name, a->about);
    }
}

static void add_algorithms(cJSON *info, int collective)
{
    cJSON *algorithms = add_section(info, collective, "algorithms");
    for (int device = 0; device < DEVICES; device++)
        if (has_device[device])
            add_algorithms_of(algorithms, collective, device);
}

/* A bound that everything fits is null in JSON. */
static double int_bound(int value)
{
    return value == INT_MAX ? INFINITY : value;
}

/* The calls that a row holds for, by its modes. */
static const char *const calls_text[MODES] = {[0] = "any",
                                              [MODE_REGISTERED] = "registered",
                                              [MODE_CAPTURED] = "captured",
                                              [MODE_REGISTERED | MODE_CAPTURED] =
                                                  "registered captured"};

static void add_rows_of(cJSON *rows, int collective, const struct tuning_row *table, int count,
                        const char *origin)
{
    const struct tuning_row *row = table;
    for (int i = 0; i < count; i++, row++)
        if (row->collective == collective)
            json_add(json_row(rows),
                     "device %s ranks_up_to %g hosts_up_to %g bytes_up_to %g backend %s "
                     "algorithm %s chunk_bytes %zu blocks %d calls %s origin %s",
                     tuning_devices[row->device], int_bound(row->ranks), int_bound(row->hosts),
                     row->bytes == SIZE_MAX ? INFINITY : (double)row->bytes, row->backend,
                     row->algorithm, row->chunk_bytes, row->blocks, calls_text[row->modes], origin);
}

/* The rows in their order: those of ALNICO_TUNING's file, then the built-in ones. */
static void add_rows(cJSON *info, int collective, const struct tuning *file)
{
    cJSON *rows = add_section(info, collective, "tuning");
    add_rows_of(rows, collective, file->rows, file->count, "file");
    add_rows_of(rows, collective, tuning_builtin, tuning_builtin_count, "built in");
}

/* `wanted`: by number. */
static void add_operations(cJSON *info, const bool *wanted)
{
    struct settings settings = {.status = ALNICO_SUCCESS};
    struct tuning file;
    settings_read_tuning(&settings, &file);
    for (int i = 0; i < COLLECTIVES; i++)
        if (wanted[i]) {
            add_algorithms(info, i);
            add_rows(info, i, &file);
        }
    json_add(info, "tuning_file %s", file.count ? variable_text(VARIABLE_TUNING) : "");
    if (settings.status != ALNICO_SUCCESS)
        json_add(info, "tuning_error %s", settings.detail);
    tuning_finish(&file);
}

static void add_environment(cJSON *info)
{
    cJSON *environment = cJSON_AddArrayToObject(info, "environment");
    for (int i = 0; i < VARIABLES; i++) {
        const struct variable_info *variable = variable_info((enum variable)i);
        const bool hidden = i == VARIABLE_SECRET && variable_is_set((enum variable)i);
        json_add(json_row(environment), "name %s value %s origin %s about %s", variable->name,
                 hidden ? "(not shown)" : variable_text((enum variable)i),
                 variable_is_set((enum variable)i) ? "environment" : "default", variable->about);
    }
    struct settings settings;
    settings_read(&settings);
    if (settings.status != ALNICO_SUCCESS)
        json_add(info, "environment_error %s", settings.detail);
}

static cJSON *gather(const bool *operations)
{
    cJSON *info = json_add(cJSON_CreateObject(), "alnico %s", alnico_version());
    cJSON_AddItemToObject(info, "machine", program_machine());
    add_launch(info);
    add_devices(info);
    add_libraries(info);
    add_backends(info);
#ifdef ALNICO_HAVE_CUDA
    json_add(info, "gpu_scratch_bytes_of_a_communicator %d", PEER_SCRATCH_BYTES);
#endif
    add_operations(info, operations);
    add_environment(info);
    return info;
}

/* A value as text; the result is valid until the next call. */
static const char *value_text(const cJSON *value)
{
    static char text[32];
    if (cJSON_IsString(value))
        return *value->valuestring ? value->valuestring : "-";
    if (isinf(value->valuedouble))
        return "any";
    snprintf(text, sizeof text, "%.0f", value->valuedouble);
    return text;
}

/* Widest text of a column: its name and the values of that key in every row. */
static int column_width(const cJSON *rows, const char *key)
{
    size_t width = strlen(key);
    for (const cJSON *row = rows->child; row; row = row->next) {
        size_t length = strlen(value_text(cJSON_GetObjectItem(row, key)));
        width = length > width ? length : width;
    }
    return (int)width;
}

/* An array of objects with the same keys. */
static void print_rows(const cJSON *rows)
{
    if (!rows->child)
        return;
    for (const cJSON *key = rows->child->child; key; key = key->next)
        printf("  %-*s", key->next ? column_width(rows, key->string) : 0, key->string);
    printf("\n");
    for (const cJSON *row = rows->child; row; row = row->next) {
        for (const cJSON *key = row->child; key; key = key->next) {
            int width = key->next ? column_width(rows, key->string) : 0;
            printf("  %-*s", width, value_text(key));
        }
        printf("\n");
    }
}

static void print_info(const cJSON *info)
{
    for (const cJSON *part = info->child; part; part = part->next) {
        if (!cJSON_IsArray(part) && !cJSON_IsObject(part)) {
            printf("%s %s\n", part->string, value_text(part));
            continue;
        }
        printf("\n%s\n", part->string);
        if (cJSON_IsArray(part))
            print_rows(part);
        else
            for (const cJSON *item = part->child; item; item = item->next)
                printf("  %-13s %s\n", item->string, value_text(item));
    }
}

struct options {
    const char *json;
    bool operations[COLLECTIVES];
};

static void read_operations(struct argp_state *state, char *text, void *out)
{
    struct options *options = out;
    memset(options->operations, false, sizeof options->operations);
    for (char *rest = text, *name; (name = strsep(&rest, ","));) {
        const struct collective *operation = collective_find(name);
        if (!operation)
            argp_error(state,
                       "--operations %s: expected a comma list of names, as allreduce,sendrecv",
                       name);
        else
            options->operations[operation - collectives] = true;
    }
}

static struct options read_options(int argc, char **argv)
{
    static const struct option_row table[] = {
        {"json", 'j', "FILE", "also write everything to FILE", OPTION_TEXT,
         OPTION_FIELD(struct options, json)},
        {"operations", 'o', "LIST",
         "whose algorithms and rows of the tuning table: a comma list, as allreduce,sendrecv (all)",
         OPTION_OTHER, .read = read_operations},
        {0}};
    static const struct option_table program = {
        .options = table,
        .about =
            "Prints what this build of Alnico has and would do here: machine, launcher, devices, "
            "libraries, backends, each operation's algorithms and the tuning table in force "
            "for it, and every ALNICO_ variable. Ends with 1 if a communicator would be "
            "refused for one of them. Of several ranks, rank 0 prints."};
    struct options options = {.json = NULL};
    memset(options.operations, true, sizeof options.operations);
    options_read(&program, argc, argv, &options);
    return options;
}

/* The settings that every communicator here would be refused for; returns how many. */
static int print_errors(const cJSON *info)
{
    static const char *const keys[] = {"launch_error", "tuning_error", "environment_error"};
    int errors = 0;
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        const char *text = cJSON_GetStringValue(cJSON_GetObjectItem(info, keys[i]));
        if (!text)
            continue;
        fprintf(stderr, "%s: %s\n", program_invocation_short_name, text);
        errors++;
    }
    return errors;
}

int main(int argc, char **argv)
{
    program_start();
    struct options options = read_options(argc, argv);
    int errors = 0;
    if (program_launch_rank() == 0) {
        log_check_environment();
        program_json_try(options.json);
        cJSON *info = gather(options.operations);
        print_info(info);
        errors = print_errors(info);
        program_json_write(options.json, info);
    }
    return errors ? EXIT_FAILURE : EXIT_SUCCESS;
}
