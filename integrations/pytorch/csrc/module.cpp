/* What Python sees: `create`, which alnico_torch calls, and what PyTorch asks of a backend's object beyond
 * what it knows itself. */
#include "memory.hpp"
#include "process_group.hpp"

#include <pybind11/chrono.h>
#include <torch/csrc/utils/pybind.h>

namespace py = pybind11;
using alnico::ProcessGroupAlnico;

namespace
{

/* Copied by PyTorch's split_group. */
struct Options : c10d::Backend::Options {
    using c10d::Backend::Options::Options;
};

c10::intrusive_ptr<ProcessGroupAlnico> create(const c10::intrusive_ptr<c10d::Store> &store,
                                              int rank, int size, std::chrono::milliseconds timeout,
                                              const std::string &name,
                                              const std::vector<uint64_t> &global_ranks)
{
    auto options = c10::make_intrusive<Options>("alnico", timeout);
    options->group_name = name;
    options->global_ranks_in_group = global_ranks;
    return ProcessGroupAlnico::create(store, rank, size, options);
}

} // namespace

PYBIND11_MODULE(TORCH_EXTENSION_NAME, module)
{
    py::class_<Options, c10::intrusive_ptr<Options>, c10d::Backend::Options>(module, "Options")
        .def("__deepcopy__", [](const Options &options, const py::dict &) {
            return c10::make_intrusive<Options>(options);
        });
    py::class_<ProcessGroupAlnico, c10::intrusive_ptr<ProcessGroupAlnico>, c10d::Backend>(
        module, "ProcessGroupAlnico")
        .def_property_readonly("options", &ProcessGroupAlnico::getBackendOptions)
        .def_property_readonly(
            "mem_allocator",
            [](const ProcessGroupAlnico &) {
                return py::module_::import("alnico_torch.memory").attr("allocator")();
            })
        /* new_group calls it on the ranks that are no members, of a group with a device_id. */
        .def("perform_nocolor_split", [](ProcessGroupAlnico &, const py::object &) {});
    module.def("create", &create);
    module.def("memory_functions", [] {
        return std::pair(reinterpret_cast<uintptr_t>(&alnico::memory_allocate),
                         reinterpret_cast<uintptr_t>(&alnico::memory_free));
    });
}
