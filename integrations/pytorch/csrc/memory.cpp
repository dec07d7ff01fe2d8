/* Memory of alnico.h for tensors. */
#include "memory.hpp"

#include "communicator.hpp"

#include <algorithm>

#include <c10/core/impl/VirtualGuardImpl.h>
#include <torch/csrc/utils/pybind.h>

namespace alnico
{

void *memory_allocate(size_t bytes, int, void *)
{
    void *memory = nullptr;
    (void)alnico_memory_allocate(ALNICO_DEVICE_CUDA, bytes, &memory);
    return memory;
}

void memory_free(void *memory, size_t, int device, void *)
{
    try {
        c10::impl::VirtualGuardImpl(c10::kCUDA).synchronizeDevice(c10::DeviceIndex(device));
    } catch (...) { /* the GPU has failed, and nothing uses the memory */
    }
    (void)alnico_memory_free(ALNICO_DEVICE_CUDA, memory);
}

namespace
{

/* Operations in flight hold the tensor, and there are no streams. */
at::Tensor allocate_on_cpu(int64_t size, const at::TensorOptions &options)
{
    void *memory = nullptr;
    const size_t bytes = std::max(size, int64_t(1)) * options.dtype().itemsize();
    check(alnico_memory_allocate(ALNICO_DEVICE_CPU, bytes, &memory));
    return at::from_blob(
        memory, {size}, [](void *freed) { (void)alnico_memory_free(ALNICO_DEVICE_CPU, freed); },
        options);
}

} // namespace

at::Tensor allocate_tensor(int64_t size, const at::TensorOptions &options)
{
    if (options.device().is_cpu())
        return allocate_on_cpu(size, options);
    pybind11::gil_scoped_acquire gil;
    return pybind11::module_::import("alnico_torch.memory")
        .attr("allocate")(size, at::typeMetaToScalarType(options.dtype()), options.device())
        .cast<at::Tensor>();
}

} // namespace alnico
