/*
 * Copies of boxes between tensors and messages, for moves between ranks: one kernel for many boxes, eight
 * channels of a pixel a thread. Where boxes that are added meet, the thread of the first adds them all, in
 * their order, so that nothing is added atomically.
 */
#include "train/kernels/cuda/vector.cuh"

namespace
{

constexpr unsigned THREADS = 256, BLOCKS = 8;

struct boxes {
    struct train_box box[TRAIN_BOXES];
    unsigned count;
    bool meet; /* some that are added may */
};

/* An image, a row, a column and a channel of a tensor. */
struct spot {
    unsigned at[4];
};

/* Whether the box has the spot; what it is counted in the box. */
__device__ bool has(const struct train_box &box, const spot &s, spot *own)
{
    const unsigned extent[4] = {box.images, box.rows, box.columns, box.channels};
    bool inside = true;
#pragma unroll
    for (int axis = 0; axis < 4; axis++) {
        own->at[axis] = s.at[axis] - box.first[axis]; /* wraps if before */
        inside &= own->at[axis] < extent[axis];
    }
    return inside;
}

template <class T> __device__ T *element(const struct train_place &place, const spot &own)
{
    return (T *)place.at + own.at[0] * place.image + own.at[1] * place.row +
           own.at[2] * place.pixel + own.at[3];
}

/* N numbers of a box. */
template <class T, int N>
__device__ void numbers(const struct train_box &box, const spot &own, float *out)
{
    if constexpr (N == EIGHT)
        load_eight((const T *)element<T>(box.from, own), out);
    else
        *out = load_one((const T *)element<T>(box.from, own));
}

/* N numbers of box b, with those of the later ones that meet it; false: an earlier one has them. */
template <class T, int N>
__device__ bool sum(const struct boxes &all, unsigned b, const spot &own, float *out)
{
    const struct train_box &box = all.box[b];
    float more[N];
    spot s, other;
    numbers<T, N>(box, own, out);
    if (!all.meet || !box.add)
        return true;
    for (int axis = 0; axis < 4; axis++)
        s.at[axis] = box.first[axis] + own.at[axis];
    for (unsigned k = 0; k < all.count; k++) {
        if (k == b || !has(all.box[k], s, &other))
            continue;
        if (k < b)
            return false;
        numbers<T, N>(all.box[k], other, more);
        for (int i = 0; i < N; i++)
            out[i] += more[i];
    }
    return true;
}

template <class T> __device__ void copy_eight(const struct boxes &all, unsigned b, const spot &own)
{
    float v[EIGHT] = {};
    if (all.box[b].zero || sum<T, EIGHT>(all, b, own, v))
        write_eight(element<T>(all.box[b].to, own), v, all.box[b].add);
}

template <class T> __device__ void copy_few(const struct boxes &all, unsigned b, spot own)
{
    const struct train_box &box = all.box[b];
    const unsigned end = own.at[3] + EIGHT < box.channels ? own.at[3] + EIGHT : box.channels;
    for (; own.at[3] < end; own.at[3]++) {
        T *to = element<T>(box.to, own);
        float v = 0;
        if (box.zero || sum<T, 1>(all, b, own, &v))
            store_one(to, box.add ? load_one((const T *)to) + v : v);
    }
    for (unsigned k = 0; end == box.channels && k < box.pads; k++, own.at[3]++)
        store_one(element<T>(box.to, own), 0);
}

/* Blocks of row y of the grid make box y. */
template <class T> __global__ void boxes_kernel(const __grid_constant__ struct boxes all)
{
    const struct train_box &box = all.box[blockIdx.y];
    const unsigned groups = (box.channels + EIGHT - 1) / EIGHT;
    const size_t chunks = (size_t)box.images * box.rows * box.columns * groups;
    for (size_t i = blockIdx.x * (size_t)THREADS + threadIdx.x; i < chunks;
         i += (size_t)gridDim.x * THREADS) {
        spot own;
        unsigned group;
        size_t at = divide(i, groups, &group);
        at = divide(at, box.columns, &own.at[2]);
        own.at[0] = (unsigned)divide(at, box.rows, &own.at[1]);
        own.at[3] = group * EIGHT;
        if (box.aligned)
            copy_eight<T>(all, blockIdx.y, own);
        else
            copy_few<T>(all, blockIdx.y, own);
    }
}

} // namespace

int train_boxes(const struct train_gpu *gpu, const struct train_box *list, unsigned count, int type)
{
    struct boxes all = {};
    size_t most = 0;
    unsigned adds = 0;
    for (all.count = 0; all.count < count; all.count++) {
        const struct train_box &box = list[all.count];
        const size_t chunks =
            (size_t)box.images * box.rows * box.columns * ((box.channels + EIGHT - 1) / EIGHT);
        all.box[all.count] = box;
        most = chunks > most ? chunks : most;
        adds += box.add;
    }
    all.meet = adds > 1;
    const dim3 grid(blocks_for(gpu, most, THREADS, BLOCKS), count);
    return typed(type, [&](auto number) {
        return launch(gpu, boxes_kernel<decltype(number)>, grid, THREADS, all);
    });
}

int train_boxes_load(void)
{
    return load_kernels(EACH_TYPE(boxes_kernel));
}
