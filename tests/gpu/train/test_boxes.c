/* Copies of boxes between tensors and messages (cuda/boxes.cu) against plain loops, exactly: numbers are
 * small integers. One launch has several boxes; those that are added meet. Prints every difference and
 * goes on. */
#include "tests/gpu/train/check.h"

#include "train/base/random.h"

#include <math.h>
#include <string.h>

enum { LISTS = 60, SIDE = 9 };

static uint64_t state;
static struct train_gpu gpu;

static unsigned draw(unsigned below)
{
    return (unsigned)(random_next(&state) % below);
}

/* A batch of images, or a message. */
struct tensor_case {
    unsigned sides[3], channels, padded; /* images, rows, columns */
    struct vector numbers;
};

static struct tensor_case tensor_make(unsigned channels, unsigned padded, int type)
{
    struct tensor_case t = {.sides = {1 + draw(3), 1 + draw(SIDE), 1 + draw(SIDE)},
                            .channels = channels,
                            .padded = padded};
    t.numbers = vector_make((size_t)t.sides[0] * t.sides[1] * t.sides[2] * padded, type);
    for (size_t i = 0; i < t.numbers.count; i++)
        t.numbers.host[i] = i % padded < channels ? (float)draw(9) - 4 : 0;
    vector_put(&t.numbers);
    return t;
}

static size_t element_bytes(int type)
{
    return type == ALNICO_FLOAT32 ? sizeof(float) : sizeof(uint16_t);
}

/* Where the box begins in a tensor. */
static struct train_place place_in(const struct tensor_case *t, const unsigned first[4])
{
    const size_t pixel = t->padded, row = pixel * t->sides[2], image = row * t->sides[1];
    const size_t at = first[0] * image + first[1] * row + first[2] * pixel + first[3];
    return (struct train_place){(char *)t->numbers.gpu + at * element_bytes(t->numbers.type), image,
                                row, pixel};
}

static struct train_place place_of_message(const struct vector *message, size_t at,
                                           const struct train_box *box)
{
    const size_t pixel = box->channels, row = pixel * box->columns;
    return (struct train_place){(char *)message->gpu + at * element_bytes(message->type),
                                row * box->rows, row, pixel};
}

/* A random box of a tensor; channels by eights if `eights`. */
static struct train_box box_draw(const struct tensor_case *t, bool eights)
{
    struct train_box box = {0};
    unsigned *const extents[] = {&box.images, &box.rows, &box.columns};
    const unsigned unit = eights ? 8 : 1, units = t->channels / unit;
    for (int axis = 0; axis < 3; axis++) {
        box.first[axis] = draw(t->sides[axis]);
        *extents[axis] = 1 + draw(t->sides[axis] - box.first[axis]);
    }
    box.first[3] = draw(units) * unit;
    box.channels = (1 + draw(units - box.first[3] / unit)) * unit;
    box.aligned = eights;
    return box;
}

static size_t box_count(const struct train_box *box)
{
    return (size_t)box->images * box->rows * box->columns * box->channels;
}

/* The index in the tensor of number i of a box. */
static size_t index_of(const struct tensor_case *t, const struct train_box *box, size_t i)
{
    const size_t c = i % box->channels + box->first[3], column = i / box->channels % box->columns,
                 row = i / box->channels / box->columns % box->rows,
                 n = i / box->channels / box->columns / box->rows;
    return (((n + box->first[0]) * t->sides[1] + row + box->first[1]) * t->sides[2] + column +
            box->first[2]) *
               t->padded +
           c;
}

static void compare(const char *what, int type, const float *got, const double *expected,
                    size_t count)
{
    char text[64];
    snprintf(text, sizeof text, "%s, %s", what, type_name(type));
    check_close(text, got, expected, count, 0, 0);
}

/* Boxes of a tensor into messages, one behind the other. */
static void check_pack(int type, bool eights)
{
    struct tensor_case t = tensor_make(eights ? 24 : 11, eights ? 24 : 16, type);
    const unsigned count = 1 + draw(TRAIN_BOXES);
    struct train_box boxes[TRAIN_BOXES];
    size_t at[TRAIN_BOXES + 1] = {0};
    for (unsigned b = 0; b < count; b++) {
        boxes[b] = box_draw(&t, eights);
        at[b + 1] = at[b] + box_count(&boxes[b]);
    }
    struct vector messages = vector_poisoned(at[count], type);
    double *expected = doubles(at[count]);
    for (unsigned b = 0; b < count; b++) {
        for (size_t i = 0; i < box_count(&boxes[b]); i++)
            expected[at[b] + i] = t.numbers.host[index_of(&t, &boxes[b], i)];
        boxes[b].from = place_in(&t, boxes[b].first);
        boxes[b].to = place_of_message(&messages, at[b], &boxes[b]);
        memset(boxes[b].first, 0, sizeof boxes[b].first);
    }
    launched(gpu.stream, train_boxes(&gpu, boxes, count, type), "train_boxes");
    vector_get(&messages);
    compare("boxes of a tensor", type, messages.host, expected, at[count]);
    vector_free(&messages);
    vector_free(&t.numbers);
    free(expected);
}

/* Messages that are added to a tensor, where they meet; all but the boxes stays. */
static void check_add(int type, bool eights)
{
    struct tensor_case t = tensor_make(eights ? 16 : 13, 16, type);
    const unsigned count = 1 + draw(8);
    struct train_box boxes[8];
    struct vector messages[8];
    double *expected = doubles(t.numbers.count);
    for (size_t i = 0; i < t.numbers.count; i++)
        expected[i] = t.numbers.host[i];
    for (unsigned b = 0; b < count; b++) {
        boxes[b] = box_draw(&t, eights);
        messages[b] = vector_make(box_count(&boxes[b]), type);
        for (size_t i = 0; i < messages[b].count; i++) {
            messages[b].host[i] = (float)draw(9) - 4;
            expected[index_of(&t, &boxes[b], i)] += messages[b].host[i];
        }
        vector_put(&messages[b]);
        boxes[b].from = place_of_message(&messages[b], 0, &boxes[b]);
        boxes[b].to = place_in(&t, boxes[b].first);
        boxes[b].add = true;
    }
    launched(gpu.stream, train_boxes(&gpu, boxes, count, type), "train_boxes");
    vector_get(&t.numbers);
    compare("messages that are added", type, t.numbers.host, expected, t.numbers.count);
    for (unsigned b = 0; b < count; b++)
        vector_free(&messages[b]);
    vector_free(&t.numbers);
    free(expected);
}

/* A box of one tensor in another of the same shape, beside zeros, with the padding behind it. */
static void check_keep(int type, bool eights)
{
    struct tensor_case t = tensor_make(eights ? 16 : 13, 16, type);
    struct vector out = vector_make(t.numbers.count, type);
    double *expected = doubles(t.numbers.count);
    struct train_box boxes[2] = {{.pads = 0}};
    boxes[0] = box_draw(&t, true);
    for (size_t i = 0; i < out.count; i++)
        out.host[i] = 7;
    vector_put(&out);
    boxes[0].first[1] = boxes[0].first[3] = 0;
    boxes[0].rows = 1;
    boxes[0].channels = t.channels;
    boxes[0].pads = t.padded - t.channels;
    boxes[0].aligned = eights;
    boxes[1] = boxes[0];
    boxes[1].first[1] = t.sides[1] - 1;
    boxes[1].zero = true;
    for (size_t i = 0; i < out.count; i++)
        expected[i] = 7;
    const unsigned count = t.sides[1] > 1 ? 2 : 1;
    for (unsigned b = 0; b < count; b++) {
        struct train_box *box = &boxes[b];
        struct tensor_case other = t;
        other.numbers = out;
        box->from = box->zero ? (struct train_place){0} : place_in(&t, box->first);
        box->to = place_in(&other, box->first);
        for (size_t i = 0; i < box_count(box); i++) {
            const size_t at = index_of(&t, box, i);
            expected[at] = box->zero ? 0 : t.numbers.host[at];
            for (size_t k = at / t.padded * t.padded + t.channels; k % t.padded; k++)
                expected[k] = 0;
        }
    }
    launched(gpu.stream, train_boxes(&gpu, boxes, count, type), "train_boxes");
    vector_get(&out);
    compare("a box that stays, and zeros", type, out.host, expected, out.count);
    vector_free(&out);
    vector_free(&t.numbers);
    free(expected);
}

int main(int count, char **arguments)
{
    const int types[] = {ALNICO_FLOAT32, ALNICO_BFLOAT16, ALNICO_FLOAT16};
    state = count > 1 ? strtoull(arguments[1], NULL, 10) : 1;
    printf("seed: %llu\n", (unsigned long long)state);
    gpu_require(1);
    gpu = check_gpu();
    for (int t = 0; t < 3; t++)
        for (int i = 0; i < LISTS; i++)
            for (int eights = 0; eights < 2; eights++) {
                check_pack(types[t], eights);
                check_add(types[t], eights);
                check_keep(types[t], eights);
            }
    return check_result("copies of boxes");
}
