/* GPUs for the suite. */
#ifndef ALNICO_TESTS_CONFORMANCE_SITE_CUDA_H
#define ALNICO_TESTS_CONFORMANCE_SITE_CUDA_H

/* Sets what has to be in the environment before CUDA is used, and returns the number of GPUs that
 * this process sees. */
int site_cuda_count(void);

#endif
