/*
 * Searching an engine for one convolution: cuDNN's heuristics name configurations, each becomes a
 * plan and is timed, as are the kernels that cuBLASLt names if it is a gemm, and the fastest
 * stays. Called by cudnn/engine_cache.c only.
 */
#ifndef ALNICO_TRAIN_KERNELS_CUDNN_ENGINE_SEARCH_H
#define ALNICO_TRAIN_KERNELS_CUDNN_ENGINE_SEARCH_H

#include "train/kernels/cudnn/engine_cache.h"

struct engine_search {
    struct cudnn_handle handle;
    struct engine_options options;
    cudaEvent_t begin, end;
    void *workspace; /* NULL until it is wanted */
    size_t workspace_bytes;
    bool starved; /* the last search: an engine may have been left out for want of memory */
};

alnico_status_t search_open(const struct cudnn_handle *handle, const struct engine_options *options,
                            struct engine_search *out);
void search_close(struct engine_search *search);

/* Frees the workspace until the next search. */
void search_release(struct engine_search *search);

/* The fastest: a plan, which the bag owns, or a gemm, to be destroyed. Errors: UNSUPPORTED, with
 * the last engine's reason. */
alnico_status_t search_run(struct engine_search *search, const struct convolution *convolution,
                           const struct convolution_memory *memory, struct cudnn_bag *bag,
                           struct engine_choice *out);

/* A plan as text, which the caller frees (NULL if cuDNN has none), and back. */
char *search_text(const struct engine_search *search, const struct engine_choice *choice);
alnico_status_t search_restore(const struct engine_search *search, const char *text,
                               struct cudnn_bag *bag, struct engine_choice *out);

/* A product for the convolution, of the search's precision. */
alnico_status_t search_gemm(const struct engine_search *search,
                            const struct convolution *convolution, struct gemm **out);

#endif
