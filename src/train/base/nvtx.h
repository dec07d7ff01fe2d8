/* Named spans of the training thread's time, for NVIDIA's Nsight by NVTX: what it enqueues. A
 * graph's replay enqueues all of a step at once. Without the CUDA toolkit they do not exist;
 * without a tool a span costs two looks at a pointer. */
#ifndef ALNICO_TRAIN_BASE_NVTX_H
#define ALNICO_TRAIN_BASE_NVTX_H

#ifdef ALNICO_HAVE_NVTX
/* Spans nest; each begin has its end on the same thread. */
void nvtx_begin(const char *name);
void nvtx_end(void);
#else
static inline void nvtx_begin(const char *name)
{
    (void)name;
}
static inline void nvtx_end(void)
{
}
#endif

/* TRY of a call, within a span. */
#define TRY_NVTX(name, call)                                                                       \
    do {                                                                                           \
        nvtx_begin(name);                                                                          \
        const alnico_status_t nvtx_status_ = (call);                                               \
        nvtx_end();                                                                                \
        if (nvtx_status_ != ALNICO_SUCCESS)                                                        \
            return nvtx_status_;                                                                   \
    } while (0)

#endif
