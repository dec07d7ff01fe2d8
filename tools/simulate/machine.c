/* Reads and checks machine files. Every key is known, present and of the right kind, or the
 * detail says which is not. Main thread. */
#include "tools/simulate/run.h"

#include "base/json.h"
#include "base/status.h"

#include <errno.h>
#include <libgen.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { FILE_BYTES_MAX = 1 << 20 };

/* A place in a file, and the struct that it is read into. */
struct place {
    const char *file, *outer; /* outer: "" or "same_host." */
    char *target;             /* struct simulate_machine or struct sim_link */
};

/* A key, what reads its value, the bounds of a number (which may also be 0 if `optional`), and
 * where in the target it goes. */
struct key {
    const char *name;
    alnico_status_t (*read)(const struct place *place, const struct key *key, const cJSON *value);
    double least, most;
    size_t at;
    bool whole, optional;
};

static const double gbps_least = 1e-6, gbps_most = 1e6, us_most = 1e6;

static alnico_status_t refuse(const struct place *place, const char *key, const cJSON *value,
                              const char *expected)
{
    char *text = value ? cJSON_PrintUnformatted(value) : NULL;
    error_set(ALNICO_ERROR_ARGUMENT, "%s: %s%s is %.60s, expected %s", place->file, place->outer,
              key, text ? text : "missing", expected);
    cJSON_free(text);
    return ALNICO_ERROR_ARGUMENT;
}

static alnico_status_t read_text(const struct place *place, const struct key *key,
                                 const cJSON *value)
{
    bool good = cJSON_IsString(value) && *value->valuestring;
    return good ? ALNICO_SUCCESS : refuse(place, key->name, value, "a text");
}

static alnico_status_t read_name(const struct place *place, const struct key *key,
                                 const cJSON *value)
{
    struct simulate_machine *machine = (struct simulate_machine *)(void *)place->target;
    TRY(read_text(place, key, value));
    if (strlen(value->valuestring) >= sizeof machine->name)
        return refuse(place, key->name, value, "at most 63 characters");
    strcpy(machine->name, value->valuestring);
    return ALNICO_SUCCESS;
}

static alnico_status_t read_texts(const struct place *place, const struct key *key,
                                  const cJSON *value)
{
    bool good = cJSON_IsArray(value) && value->child;
    for (const cJSON *item = good ? value->child : NULL; item; item = item->next)
        good = good && cJSON_IsString(item);
    return good ? ALNICO_SUCCESS : refuse(place, key->name, value, "a list of texts");
}

static alnico_status_t read_number(const struct place *place, const struct key *key,
                                   const cJSON *value)
{
    char expected[96];
    double number = cJSON_IsNumber(value) ? value->valuedouble : NAN;
    bool within = (key->optional && number == 0) || (number >= key->least && number <= key->most);
    if (!within || (key->whole && number != floor(number))) {
        snprintf(expected, sizeof expected, "%sa %snumber from %.7g to %.7g",
                 key->optional ? "0 or " : "", key->whole ? "whole " : "", key->least, key->most);
        return refuse(place, key->name, value, expected);
    }
    if (key->whole)
        memcpy(place->target + key->at, &(int){(int)number}, sizeof(int));
    else
        memcpy(place->target + key->at, &number, sizeof number);
    return ALNICO_SUCCESS;
}

/* A key that nobody knows, or that comes twice. */
static alnico_status_t check_names(const struct place *place, const cJSON *object,
                                   const struct key *keys, size_t count)
{
    for (const cJSON *item = object->child; item; item = item->next) {
        size_t k = 0;
        while (k < count && strcmp(keys[k].name, item->string) != 0)
            k++;
        if (k == count)
            return error_set(ALNICO_ERROR_ARGUMENT, "%s: %s%.60s is no key that a machine file has",
                             place->file, place->outer, item->string);
        if (cJSON_GetObjectItemCaseSensitive(object, item->string) != item)
            return error_set(ALNICO_ERROR_ARGUMENT, "%s: %s%s comes twice", place->file,
                             place->outer, item->string);
    }
    return ALNICO_SUCCESS;
}

static alnico_status_t read_object(const struct place *place, const cJSON *object,
                                   const struct key *keys, size_t count)
{
    TRY(check_names(place, object, keys, count));
    for (size_t k = 0; k < count; k++) {
        const cJSON *value = cJSON_GetObjectItemCaseSensitive(object, keys[k].name);
        TRY(keys[k].read(place, &keys[k], value));
    }
    return ALNICO_SUCCESS;
}

static alnico_status_t read_link(const struct place *place, const struct key *key,
                                 const cJSON *value)
{
    static const struct key keys[] = {
        {"latency_us", read_number, .most = us_most, .at = offsetof(struct sim_link, latency_us)},
        {"bandwidth_gbps", read_number, gbps_least, gbps_most,
         .at = offsetof(struct sim_link, bandwidth_gbps)},
    };
    char outer[32];
    struct place inner = {place->file, outer, place->target + key->at};
    snprintf(outer, sizeof outer, "%s.", key->name);
    if (!cJSON_IsObject(value))
        return refuse(place, key->name, value, "an object");
    return read_object(&inner, value, keys, sizeof keys / sizeof *keys);
}

#define AT(member) offsetof(struct simulate_machine, member)

static const struct key staging_keys[] = {
    {"latency_us", read_number, .most = us_most, .at = AT(staging.latency_us)},
    {"bandwidth_gbps", read_number, gbps_least, gbps_most, .at = AT(staging.bandwidth_gbps)},
    {"reduce_gbps", read_number, gbps_least, gbps_most, .at = AT(staging.reduce_gbps)},
};

static alnico_status_t read_staging(const struct place *place, const struct key *key,
                                    const cJSON *value)
{
    struct place inner = {place->file, "staging.", place->target};
    if (!value)
        return ALNICO_SUCCESS;
    if (!cJSON_IsObject(value))
        return refuse(place, key->name, value, "an object");
    return read_object(&inner, value, staging_keys, sizeof staging_keys / sizeof *staging_keys);
}

static const struct key machine_keys[] = {
    {"name", .read = read_name},
    {"about", .read = read_text},
    {"sources", .read = read_texts},
    {"ranks_per_host", read_number, 1, 1 << 20, AT(sim.ranks_per_host), .whole = true},
    {"hosts_per_leaf", read_number, 0, 1 << 20, AT(sim.hosts_per_leaf), .whole = true},
    {"same_host", read_link, .at = AT(sim.link[SIM_SAME_HOST])},
    {"same_leaf", read_link, .at = AT(sim.link[SIM_SAME_LEAF])},
    {"other_leaf", read_link, .at = AT(sim.link[SIM_OTHER_LEAF])},
    {"injection_gbps", read_number, gbps_least, gbps_most, AT(sim.injection_gbps),
     .optional = true},
    {"taper", read_number, 1, 1000, .at = AT(sim.taper)},
    {"reduce_gbps", read_number, gbps_least, gbps_most, AT(sim.reduce_gbps), .optional = true},
    {"staging", .read = read_staging},
};

alnico_status_t machine_parse(const char *text, size_t bytes, const char *file,
                              struct simulate_machine *out)
{
    struct place place = {file, "", (char *)out};
    cJSON *json;
    memset(out, 0, sizeof *out);
    TRY(json_parse(file, text, bytes, &json));
    alnico_status_t status =
        cJSON_IsObject(json)
            ? read_object(&place, json, machine_keys, sizeof machine_keys / sizeof *machine_keys)
            : error_set(ALNICO_ERROR_ARGUMENT, "%s: expected an object", file);
    cJSON_Delete(json);
    return status;
}

/* Installed machines are found from where the program is. */
static void find_path(const char *name, char *path, size_t bytes)
{
    char program[2048];
    if (strpbrk(name, "./")) {
        snprintf(path, bytes, "%s", name);
        return;
    }
    ssize_t length = readlink("/proc/self/exe", program, sizeof program - 1);
    program[length > 0 ? length : 0] = '\0';
    snprintf(path, bytes, "%s/%s/%s.json", dirname(program), ALNICO_MACHINES, name);
}

static alnico_status_t read_file(FILE *file, struct simulate_machine *out)
{
    char path[sizeof out->path], *text = calloc(FILE_BYTES_MAX + 1, 1);
    alnico_status_t status = ALNICO_SUCCESS;
    memcpy(path, out->path, sizeof path);
    size_t bytes = text ? fread(text, 1, FILE_BYTES_MAX, file) : 0;
    if (!text || ferror(file))
        status = error_set(ALNICO_ERROR_SYSTEM, "%s: cannot be read", path);
    else if (bytes == FILE_BYTES_MAX)
        status = error_set(ALNICO_ERROR_ARGUMENT, "%s: too long for a machine file", path);
    else
        status = machine_parse(text, bytes, path, out);
    memcpy(out->path, path, sizeof path);
    free(text);
    return status;
}

alnico_status_t machine_read(const char *name, struct simulate_machine *out)
{
    find_path(name, out->path, sizeof out->path);
    FILE *file = fopen(out->path, "r");
    if (!file)
        return error_set(ALNICO_ERROR_SYSTEM, "%s: %s: %s", name, out->path, strerror(errno));
    alnico_status_t status = read_file(file, out);
    fclose(file);
    return status;
}
