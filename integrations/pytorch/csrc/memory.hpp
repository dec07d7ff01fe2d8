/* Memory of alnico.h for tensors. That of GPUs comes from PyTorch's caching allocator
 * (alnico_torch/memory.py), which calls these functions for what it does not have. */
#pragma once

#include <ATen/ATen.h>

namespace alnico
{

/* On the current GPU; NULL if there is none, as PyTorch's pluggable allocators say it. */
void *memory_allocate(size_t bytes, int device, void *stream);

/* Waits for all that the GPU does, as cudaFree does: the caching allocator relies on it. */
void memory_free(void *memory, size_t bytes, int device, void *stream);

/* Of `size` elements, of the CPU or a GPU. */
at::Tensor allocate_tensor(int64_t size, const at::TensorOptions &options);

} // namespace alnico
