/*
 * Which of cuDNN's engines carries out a convolution, or which kernel of cuBLASLt if it is a matrix
 * gemm: asked of their heuristics, timed on the GPU at hand, and remembered in a file, keyed by
 * GPU, versions, options and shape. Used by the cuDNN kernels while they are made, on the thread
 * that trains; searching runs convolutions and waits for them.
 */
#ifndef ALNICO_TRAIN_KERNELS_CUDNN_ENGINE_CACHE_H
#define ALNICO_TRAIN_KERNELS_CUDNN_ENGINE_CACHE_H

#include "train/kernels/cudnn/gemm.h"

#include <stdio.h>

struct engine_options {
    const char *file;      /* read at the beginning, written by engine_cache_save; NULL: none */
    size_t workspace_most; /* bytes that a plan may want */
    bool deterministic;    /* only engines that give the same bits in every run; products all do */
    bool tf32;             /* float32: products in TF32 */
    bool thorough;         /* also engines that are compiled at run time: seconds each */
    unsigned gemms;        /* 1: products of cuBLASLt, too; 2: wherever there is one */
    FILE *log;             /* a line for each engine that was tried; NULL: none */
};

/* The engine that was chosen: a plan of cuDNN or a GEMM. It lives as long as the cache. */
struct engine_choice {
    cudnnBackendDescriptor_t plan;
    struct gemm *gemm;
    size_t workspace; /* bytes that it wants */
    int64_t engine;   /* cuDNN's number; of a product its place in cuBLASLt's list */
    double us;        /* when it was timed, by itself */
};

struct engine_cache;

/* Errors: MEMORY, ARGUMENT (a file that is no plan file), what CUDA says. A file that is missing,
 * or of other GPUs, is fine. */
alnico_status_t engine_cache_open(const struct cudnn_handle *handle,
                                  const struct engine_options *options, struct engine_cache **out);

/* NULL is fine. */
void engine_cache_close(struct engine_cache *cache);

/* The plan for a convolution; its memory is written to if it must be searched. From the first
 * search until engine_cache_save the file is locked: other processes that must search wait, and
 * look into it again, so that ranks with one file choose alike. Errors: UNSUPPORTED if no engine
 * does it, with the reason of the last, which is remembered as well; MEMORY; ARGUMENT (the file has
 * become none); what CUDA says. */
alnico_status_t engine_find(struct engine_cache *cache, const struct convolution *convolution,
                            const struct convolution_memory *memory, struct engine_choice *out);

/* Enqueues what was chosen. `pack`: of a plan, convolution_pack of the same memory. */
alnico_status_t engine_run(const struct cudnn_handle *handle, const struct engine_choice *choice,
                           const struct convolution_memory *memory, cudnnBackendDescriptor_t pack,
                           void *workspace);

/* Gives back what searching took, and adds to the file what is new. That it cannot be written is
 * only logged: the plans are there. */
void engine_cache_save(struct engine_cache *cache);

#endif
