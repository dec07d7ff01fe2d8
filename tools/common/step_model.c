/* See step_model.h. */
#include "tools/common/step_model.h"

#include "tools/common/program.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

static double move_alone(const struct step_parts *parts, const struct step_move *move)
{
    return parts->alpha * (double)move->messages + parts->beta * (double)move->bytes;
}

static double move_exposed(const struct step_parts *parts, const struct step_move *move,
                           bool overlapped)
{
    const double alone = move_alone(parts, move);
    return overlapped ? fmax((1 - parts->hidden) * alone, alone - move->beside) : alone;
}

static double moves_exposed(const struct step_parts *parts, size_t bucket, bool overlapped)
{
    double sum = 0;
    for (size_t i = 0; i < parts->move_count; i++)
        if (parts->moves[i].bucket == bucket)
            sum += move_exposed(parts, &parts->moves[i], overlapped);
    return sum;
}

double step_moves_exposed(const struct step_parts *parts, bool overlapped)
{
    double sum = 0;
    for (size_t bucket = 0; bucket <= parts->count; bucket++)
        sum += moves_exposed(parts, bucket, overlapped);
    return sum;
}

double step_seconds(const struct step_parts *parts, const double *communication, bool overlapped)
{
    double now = 0, link = 0, sent = 0;
    for (size_t i = 0; i < parts->count; i++) {
        now += parts->buckets[i].backward + moves_exposed(parts, 1 + i, overlapped);
        link = (overlapped ? fmax(now, link) : link) + communication[i];
        sent += communication[i];
        now += overlapped ? (1 - parts->hidden) * communication[i] : 0;
    }
    const double both = overlapped ? fmax(now, link) : now + link;
    return parts->input + parts->forward + moves_exposed(parts, 0, overlapped) + both +
           parts->update + (sent > 0 ? parts->lag : 0);
}

struct step_costs step_costs_fit(const size_t *bytes, const double *seconds, size_t count,
                                 int ranks)
{
    double w = 0, wx = 0, wxx = 0, wy = 0, wxy = 0;
    for (size_t i = 0; i < count; i++) {
        const double x = (double)bytes[i], y = seconds[i], weight = 1 / (y * y);
        w += weight;
        wx += weight * x;
        wxx += weight * x * x;
        wy += weight * y;
        wxy += weight * x * y;
    }
    const double determinant = w * wxx - wx * wx;
    struct step_costs costs = {.beta = wxy / wxx, .ranks = ranks};
    if (determinant <= 1e-9 * w * wxx)
        return costs;
    const double beta = (w * wxy - wx * wy) / determinant, alpha = (wy - beta * wx) / w;
    if (beta < 0)
        costs = (struct step_costs){.alpha = wy / w, .ranks = ranks};
    else if (alpha >= 0)
        costs = (struct step_costs){.alpha = alpha, .beta = beta, .ranks = ranks};
    return costs;
}

double step_costs_at(struct step_costs costs, int ranks, size_t bytes)
{
    const double alpha = costs.alpha * log2(ranks) / log2(costs.ranks);
    const double beta = costs.beta * (1 - 1.0 / (double)ranks) / (1 - 1.0 / (double)costs.ranks);
    return ranks > 1 ? alpha + beta * (double)bytes : 0;
}

cJSON *step_parts_json(const struct step_parts *parts)
{
    cJSON *object = json_add(
        cJSON_CreateObject(), "images %g input %g forward %g update %g lag %g hidden %g",
        parts->images, parts->input, parts->forward, parts->update, parts->lag, parts->hidden);
    cJSON *buckets = cJSON_AddArrayToObject(object, "buckets");
    for (size_t i = 0; i < parts->count; i++)
        json_add(json_row(buckets), "bytes %zu backward %g", parts->buckets[i].bytes,
                 parts->buckets[i].backward);
    if (!parts->move_count)
        return object;
    json_add(object, "alpha %g beta %g", parts->alpha, parts->beta);
    cJSON *moves = cJSON_AddArrayToObject(object, "moves");
    for (size_t i = 0; i < parts->move_count; i++)
        json_add(json_row(moves), "bucket %zu messages %zu bytes %zu beside %g",
                 parts->moves[i].bucket, parts->moves[i].messages, parts->moves[i].bytes,
                 parts->moves[i].beside);
    return object;
}

static bool range_read(const cJSON *object, const char *key, double least, double most, double *out,
                       char *error, size_t room)
{
    const cJSON *value = cJSON_GetObjectItemCaseSensitive(object, key);
    *out = cJSON_IsNumber(value) ? value->valuedouble : NAN;
    if (*out >= least && *out <= most)
        return true;
    snprintf(error, room, "'%s' is not a number from %g to %g", key, least, most);
    return false;
}

/* A number of an object, from 0 to `most`. */
static bool number_read(const cJSON *object, const char *key, double most, double *out, char *error,
                        size_t room)
{
    return range_read(object, key, 0, most, out, error, room);
}

static bool buckets_read(const cJSON *rows, struct step_parts *out, char *error, size_t room)
{
    double bytes;
    for (const cJSON *row = rows->child; row; row = row->next) {
        struct step_bucket *bucket = &out->buckets[out->count++];
        if (!number_read(row, "bytes", 0x1p53, &bytes, error, room) ||
            !number_read(row, "backward", 1e9, &bucket->backward, error, room))
            return false;
        bucket->bytes = (size_t)bytes;
    }
    return true;
}

/* Moves, which only a split network has. */
static bool moves_read(const cJSON *object, struct step_parts *out, char *error, size_t room)
{
    const cJSON *rows = cJSON_GetObjectItemCaseSensitive(object, "moves");
    double bucket, messages, bytes;
    if (!rows)
        return true;
    out->moves = calloc((size_t)cJSON_GetArraySize(rows) + 1, sizeof *out->moves);
    if (!out->moves) {
        snprintf(error, room, "no memory for 'moves'");
        return false;
    }
    if (!number_read(object, "alpha", 1e9, &out->alpha, error, room) ||
        !number_read(object, "beta", 1e9, &out->beta, error, room))
        return false;
    for (const cJSON *row = rows->child; row; row = row->next) {
        struct step_move *move = &out->moves[out->move_count++];
        if (!number_read(row, "bucket", (double)out->count, &bucket, error, room) ||
            !number_read(row, "messages", 0x1p53, &messages, error, room) ||
            !number_read(row, "bytes", 0x1p53, &bytes, error, room) ||
            !number_read(row, "beside", 1e9, &move->beside, error, room))
            return false;
        move->bucket = (size_t)bucket;
        move->messages = (size_t)messages;
        move->bytes = (size_t)bytes;
    }
    return true;
}

bool step_parts_read(const cJSON *object, struct step_parts *out, char *error, size_t room)
{
    const struct {
        const char *key;
        double *out, least, most;
    } numbers[] = {{"input", &out->input, 0, 1e9},
                   {"forward", &out->forward, 0, 1e9},
                   {"update", &out->update, 0, 1e9},
                   {"hidden", &out->hidden, STEP_HIDDEN_LEAST, 1},
                   {"images", &out->images, 0, 0x1p53}};
    const cJSON *rows = cJSON_GetObjectItemCaseSensitive(object, "buckets");
    *out = (struct step_parts){0};
    if (cJSON_HasObjectItem(object, "lag") &&
        !number_read(object, "lag", 1e9, &out->lag, error, room))
        return false;
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
        if (!range_read(object, numbers[i].key, numbers[i].least, numbers[i].most, numbers[i].out,
                        error, room))
            return false;
    const size_t count = cJSON_IsArray(rows) ? (size_t)cJSON_GetArraySize(rows) : 0;
    out->buckets = calloc(count + 1, sizeof *out->buckets);
    if (!count || !out->buckets)
        snprintf(error, room, "'buckets' is not a list of at least one");
    else if (buckets_read(rows, out, error, room) && moves_read(object, out, error, room))
        return true;
    step_parts_free(out);
    return false;
}

void step_parts_free(struct step_parts *parts)
{
    free(parts->buckets);
    free(parts->moves);
    *parts = (struct step_parts){0};
}
