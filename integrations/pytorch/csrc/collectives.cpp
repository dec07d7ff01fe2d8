/* The collectives and messages of the process group: each checks its tensors and says which operations
 * of alnico.h its work has. What only copies goes as bytes. */
#include "issue.hpp"

#include <algorithm>

namespace alnico
{

using c10d::OpType;
using WorkPointer = ProcessGroupAlnico::WorkPointer;

namespace
{

constexpr Operation ALLREDUCE = {alnico_allreduce, alnico_iallreduce};
constexpr Operation REDUCE = {alnico_reduce, alnico_ireduce};
constexpr Operation BROADCAST = {alnico_broadcast, alnico_ibroadcast};
constexpr Operation ALLGATHER = {alnico_allgather, alnico_iallgather};
constexpr Operation ALLGATHERV = {alnico_allgatherv, alnico_iallgatherv};
constexpr Operation REDUCE_SCATTER = {alnico_reduce_scatter, alnico_ireduce_scatter};
constexpr Operation REDUCE_SCATTERV = {alnico_reduce_scatterv, alnico_ireduce_scatterv};
constexpr Operation GATHER = {alnico_gather, alnico_igather};
constexpr Operation SCATTER = {alnico_scatter, alnico_iscatter};
constexpr Operation ALLTOALL = {alnico_alltoall, alnico_ialltoall};
constexpr Operation ALLTOALLV = {alnico_alltoallv, alnico_ialltoallv};
constexpr Operation BARRIER = {alnico_barrier, alnico_ibarrier};

const at::Tensor &only(const std::vector<at::Tensor> &tensors, const char *operation)
{
    TORCH_CHECK_VALUE(tensors.size() == 1, "alnico: ", operation, " takes one tensor, not ",
                      tensors.size());
    check_tensor(tensors[0], operation);
    return tensors[0];
}

void check_alike(const at::Tensor &output, const at::Tensor &input, const char *operation)
{
    check_tensor(input, operation);
    check_tensor(output, operation);
    TORCH_CHECK_TYPE(output.scalar_type() == input.scalar_type(), "alnico: ", operation,
                     " has an input of type ", input.scalar_type(), " and an output of type ",
                     output.scalar_type());
    TORCH_CHECK_VALUE(output.device() == input.device(), "alnico: ", operation, " has an input on ",
                      input.device(), " and an output on ", output.device());
}

void check_count(int64_t got, int64_t expected, const char *operation, const char *what)
{
    TORCH_CHECK_VALUE(got == expected, "alnico: ", operation, " has ", what, " of ", got,
                      " elements; expected ", expected);
}

std::vector<at::Tensor> flattened(const std::vector<std::vector<at::Tensor>> &lists)
{
    std::vector<at::Tensor> all;
    for (auto &list : lists)
        all.insert(all.end(), list.begin(), list.end());
    return all;
}

/* A part of each rank, of rows; without sizes equal parts. In bytes. */
struct Rows {
    Rows(const at::Tensor &tensor, const std::vector<int64_t> &sizes, int ranks, const char *what)
        : bytes(ranks), at(ranks)
    {
        const int64_t rows = tensor.dim() ? tensor.size(0) : 1;
        const size_t row = rows ? tensor.nbytes() / rows : 0;
        TORCH_CHECK_VALUE(sizes.empty() || int(sizes.size()) == ranks, "alnico: alltoall has ",
                          sizes.size(), " ", what, " splits; expected ", ranks);
        TORCH_CHECK_VALUE(!sizes.empty() || rows % ranks == 0, "alnico: alltoall has an ", what,
                          " of ", rows, " rows, which ", ranks, " ranks cannot share equally");
        int64_t sum = 0;
        for (int i = 0; i < ranks; i++) {
            const int64_t size = sizes.empty() ? rows / ranks : sizes[i];
            TORCH_CHECK_VALUE(size >= 0, "alnico: alltoall has a split of ", size, " rows");
            bytes[i] = size * row;
            at[i] = sum * row;
            sum += size;
        }
        TORCH_CHECK_VALUE(sum == rows, "alnico: alltoall has ", what, " splits of ", sum,
                          " rows in all; the tensor has ", rows);
    }
    std::vector<size_t> bytes, at;
};

} // namespace

WorkPointer ProcessGroupAlnico::broadcast(Tensors &tensors, const c10d::BroadcastOptions &options)
{
    const at::Tensor tensor = only(tensors, "broadcast");
    return issue({OpType::BROADCAST, options.timeout, options.asyncOp}, tensor.device(), tensors,
                 tensors, [&](Work &work) {
                     work.start(BROADCAST, tensor.data_ptr(), tensor.nbytes(), ALNICO_UINT8,
                                int(options.rootRank));
                 });
}

void ProcessGroupAlnico::add_allreduce(Work &work, const at::Tensor &tensor,
                                       const c10d::ReduceOp &op)
{
    const at::Tensor real = as_real(tensor, op);
    const Reduction reduction = reduction_of(real, op);
    const at::Tensor input = scaled(real, op);
    work.start(ALLREDUCE, static_cast<const void *>(input.data_ptr()), real.data_ptr(),
               size_t(real.numel()), reduction.type, reduction.op);
    if (!input.is_same(real))
        work.hold({input});
}

WorkPointer ProcessGroupAlnico::allreduce(Tensors &tensors, const c10d::AllreduceOptions &options)
{
    if (tensors.size() == 1 && tensors[0].layout() == at::kSparse)
        return allreduce_sparse(tensors, options);
    const at::Tensor tensor = only(tensors, "allreduce");
    return issue({OpType::ALLREDUCE, options.timeout, options.asyncOp}, tensor.device(), tensors,
                 tensors, [&](Work &work) { add_allreduce(work, tensor, options.reduceOp); });
}

WorkPointer ProcessGroupAlnico::allreduce_coalesced(Tensors &tensors,
                                                    const c10d::AllreduceCoalescedOptions &options)
{
    TORCH_CHECK_VALUE(!tensors.empty(), "alnico: allreduce_coalesced of no tensors");
    for (auto &tensor : tensors)
        check_tensor(tensor, "allreduce_coalesced");
    return issue({OpType::COALESCED, options.timeout, options.asyncOp}, tensors[0].device(),
                 tensors, tensors, [&](Work &work) {
                     for (auto &tensor : tensors)
                         add_allreduce(work, tensor, options.reduceOp);
                 });
}

WorkPointer ProcessGroupAlnico::reduce(Tensors &tensors, const c10d::ReduceOptions &options)
{
    const at::Tensor tensor = only(tensors, "reduce");
    return issue({OpType::REDUCE, options.timeout, options.asyncOp}, tensor.device(), tensors,
                 tensors, [&](Work &work) {
                     const at::Tensor real = as_real(tensor, options.reduceOp);
                     const Reduction reduction = reduction_of(real, options.reduceOp);
                     const at::Tensor input = scaled(real, options.reduceOp);
                     work.hold({input});
                     work.start(REDUCE, static_cast<const void *>(input.data_ptr()),
                                options.rootRank == rank_ ? real.data_ptr() : nullptr,
                                size_t(real.numel()), reduction.type, reduction.op,
                                int(options.rootRank));
                 });
}

void ProcessGroupAlnico::check_list(const Tensors &list, const char *operation) const
{
    TORCH_CHECK_VALUE(int(list.size()) == size_, "alnico: ", operation, " has a list of ",
                      list.size(), " tensors; expected one for each of ", size_, " ranks");
}

void ProcessGroupAlnico::add_allgather(Work &work, const Tensors &outputs, const at::Tensor &input)
{
    Blocks blocks(outputs);
    std::vector<size_t> bytes;
    for (size_t count : blocks.counts())
        bytes.push_back(count * input.element_size());
    const at::Tensor sent = input.contiguous();
    const void *send = sent.data_ptr();
    work.hold({sent});
    if (blocks.equal())
        work.start(ALLGATHER, send, blocks.data(), bytes[0], ALNICO_UINT8);
    else
        work.start(ALLGATHERV, send, size_t(sent.nbytes()), blocks.data(),
                   const_cast<const size_t *>(bytes.data()), static_cast<const size_t *>(nullptr),
                   ALNICO_UINT8);
    for (size_t i = 0; blocks.temporary() && i < outputs.size(); i++)
        work.copy_later(outputs[i], blocks.part(i));
}

WorkPointer ProcessGroupAlnico::allgather(std::vector<Tensors> &outputs, Tensors &inputs,
                                          const c10d::AllgatherOptions &options)
{
    const at::Tensor input = only(inputs, "allgather");
    TORCH_CHECK_VALUE(outputs.size() == 1, "alnico: allgather takes one list of outputs, not ",
                      outputs.size());
    check_list(outputs[0], "allgather");
    check_alike(outputs[0][rank_], input, "allgather");
    check_count(outputs[0][rank_].numel(), input.numel(), "allgather", "an output");
    return issue({OpType::ALLGATHER, options.timeout, options.asyncOp}, input.device(), inputs,
                 outputs[0], [&](Work &work) { add_allgather(work, outputs[0], input); });
}

void ProcessGroupAlnico::add_allgather_base(Work &work, const at::Tensor &output,
                                            const at::Tensor &input)
{
    work.start(ALLGATHER, static_cast<const void *>(input.data_ptr()), output.data_ptr(),
               size_t(input.nbytes()), ALNICO_UINT8);
}

WorkPointer ProcessGroupAlnico::_allgather_base(at::Tensor &output, at::Tensor &input,
                                                const c10d::AllgatherOptions &options)
{
    check_alike(output, input, "all_gather_into_tensor");
    check_count(output.numel(), input.numel() * size_, "all_gather_into_tensor", "an output");
    return issue({OpType::_ALLGATHER_BASE, options.timeout, options.asyncOp}, input.device(),
                 {input}, {output}, [&](Work &work) { add_allgather_base(work, output, input); });
}

WorkPointer ProcessGroupAlnico::allgather_coalesced(std::vector<Tensors> &outputs, Tensors &inputs,
                                                    const c10d::AllgatherOptions &options)
{
    TORCH_CHECK_VALUE(int(outputs.size()) == size_ && !inputs.empty(),
                      "alnico: all_gather_coalesced has ", outputs.size(), " lists of outputs and ",
                      inputs.size(), " inputs");
    std::vector<Tensors> of_input(inputs.size());
    for (auto &list : outputs) {
        check_count(list.size(), inputs.size(), "all_gather_coalesced", "a list");
        for (size_t i = 0; i < inputs.size(); i++) {
            check_alike(list[i], inputs[i], "all_gather_coalesced");
            of_input[i].push_back(list[i]);
        }
    }
    return issue({OpType::ALLGATHER_COALESCED, options.timeout, options.asyncOp},
                 inputs[0].device(), inputs, flattened(outputs), [&](Work &work) {
                     for (size_t i = 0; i < inputs.size(); i++)
                         add_allgather(work, of_input[i], inputs[i]);
                 });
}

WorkPointer
ProcessGroupAlnico::allgather_into_tensor_coalesced(Tensors &outputs, Tensors &inputs,
                                                    const c10d::AllgatherOptions &options)
{
    const char *name = "allgather_into_tensor_coalesced";
    TORCH_CHECK_VALUE(outputs.size() == inputs.size() && !inputs.empty(), "alnico: ", name, " has ",
                      outputs.size(), " outputs and ", inputs.size(), " inputs");
    for (size_t i = 0; i < inputs.size(); i++) {
        check_alike(outputs[i], inputs[i], name);
        check_count(outputs[i].numel(), inputs[i].numel() * size_, name, "an output");
    }
    return issue({OpType::COALESCED, options.timeout, options.asyncOp}, inputs[0].device(), inputs,
                 outputs, [&](Work &work) {
                     for (size_t i = 0; i < inputs.size(); i++)
                         add_allgather_base(work, outputs[i], inputs[i]);
                 });
}

WorkPointer ProcessGroupAlnico::gather(std::vector<Tensors> &outputs, Tensors &inputs,
                                       const c10d::GatherOptions &options)
{
    const at::Tensor input = only(inputs, "gather");
    const bool root = options.rootRank == rank_;
    TORCH_CHECK_VALUE(outputs.size() == (root ? 1 : 0), "alnico: gather has ", outputs.size(),
                      " lists of outputs; expected one at the root and none elsewhere");
    const Tensors list = root ? outputs[0] : Tensors();
    if (root) {
        check_list(list, "gather");
        for (auto &output : list) {
            check_alike(output, input, "gather");
            check_count(output.numel(), input.numel(), "gather", "an output");
        }
    }
    return issue({OpType::GATHER, options.timeout, options.asyncOp}, input.device(), inputs, list,
                 [&](Work &work) {
                     std::optional<Blocks> blocks;
                     if (root)
                         blocks.emplace(list);
                     const at::Tensor sent = input.contiguous();
                     work.hold({sent});
                     work.start(GATHER, static_cast<const void *>(sent.data_ptr()),
                                root ? blocks->data() : nullptr, size_t(sent.nbytes()),
                                ALNICO_UINT8, int(options.rootRank));
                     for (size_t i = 0; root && blocks->temporary() && i < list.size(); i++)
                         work.copy_later(list[i], blocks->part(i));
                 });
}

WorkPointer ProcessGroupAlnico::scatter(Tensors &outputs, std::vector<Tensors> &inputs,
                                        const c10d::ScatterOptions &options)
{
    const at::Tensor output = only(outputs, "scatter");
    const bool root = options.rootRank == rank_;
    TORCH_CHECK_VALUE(inputs.size() == (root ? 1 : 0), "alnico: scatter has ", inputs.size(),
                      " lists of inputs; expected one at the root and none elsewhere");
    const Tensors list = root ? inputs[0] : Tensors();
    if (root) {
        check_list(list, "scatter");
        for (auto &input : list) {
            check_alike(output, input, "scatter");
            check_count(input.numel(), output.numel(), "scatter", "an input");
        }
    }
    TORCH_CHECK_VALUE(output.is_contiguous(),
                      "alnico: scatter has an output that is not contiguous");
    return issue({OpType::SCATTER, options.timeout, options.asyncOp}, output.device(), list,
                 outputs, [&](Work &work) {
                     std::optional<Blocks> blocks;
                     if (root) {
                         blocks.emplace(list);
                         blocks->fill();
                         work.hold({blocks->whole()});
                     }
                     work.start(SCATTER, static_cast<const void *>(root ? blocks->data() : nullptr),
                                output.data_ptr(), size_t(output.nbytes()), ALNICO_UINT8,
                                int(options.rootRank));
                 });
}

WorkPointer ProcessGroupAlnico::reduce_scatter(Tensors &outputs, std::vector<Tensors> &inputs,
                                               const c10d::ReduceScatterOptions &options)
{
    const at::Tensor output = only(outputs, "reduce_scatter");
    TORCH_CHECK_VALUE(inputs.size() == 1, "alnico: reduce_scatter takes one list of inputs, not ",
                      inputs.size());
    const Tensors &list = inputs[0];
    check_list(list, "reduce_scatter");
    check_alike(output, list[rank_], "reduce_scatter");
    check_count(output.numel(), list[rank_].numel(), "reduce_scatter", "an output");
    TORCH_CHECK_VALUE(output.is_contiguous(),
                      "alnico: reduce_scatter has an output that is not contiguous");
    return issue({OpType::REDUCE_SCATTER, options.timeout, options.asyncOp}, output.device(), list,
                 outputs, [&](Work &work) {
                     Blocks blocks(list);
                     blocks.fill();
                     work.hold({blocks.whole()});
                     const c10d::ReduceOp &op = options.reduceOp;
                     const at::Tensor whole = scaled(as_real(blocks.whole(), op), op);
                     const Reduction reduction = reduction_of(whole, op);
                     const size_t parts = output.is_complex() ? 2 : 1;
                     std::vector<size_t> counts;
                     for (size_t count : blocks.counts())
                         counts.push_back(count * parts);
                     work.hold({whole});
                     if (std::all_of(counts.begin(), counts.end(),
                                     [&](size_t count) { return count == counts[0]; }))
                         return work.start(
                             REDUCE_SCATTER, static_cast<const void *>(whole.data_ptr()),
                             output.data_ptr(), counts[0], reduction.type, reduction.op);
                     work.start(REDUCE_SCATTERV, static_cast<const void *>(whole.data_ptr()),
                                output.data_ptr(), const_cast<const size_t *>(counts.data()),
                                reduction.type, reduction.op);
                 });
}

void ProcessGroupAlnico::add_reduce_scatter_base(Work &work, const at::Tensor &output,
                                                 const at::Tensor &input, const c10d::ReduceOp &op)
{
    const at::Tensor whole = scaled(as_real(input, op), op), part = as_real(output, op);
    const Reduction reduction = reduction_of(whole, op);
    work.hold({whole});
    work.start(REDUCE_SCATTER, static_cast<const void *>(whole.data_ptr()), part.data_ptr(),
               size_t(part.numel()), reduction.type, reduction.op);
}

WorkPointer ProcessGroupAlnico::_reduce_scatter_base(at::Tensor &output, at::Tensor &input,
                                                     const c10d::ReduceScatterOptions &options)
{
    check_alike(output, input, "reduce_scatter_tensor");
    check_count(input.numel(), output.numel() * size_, "reduce_scatter_tensor", "an input");
    return issue({OpType::_REDUCE_SCATTER_BASE, options.timeout, options.asyncOp}, input.device(),
                 {input}, {output}, [&](Work &work) {
                     add_reduce_scatter_base(work, output, input, options.reduceOp);
                 });
}

WorkPointer
ProcessGroupAlnico::reduce_scatter_tensor_coalesced(Tensors &outputs, Tensors &inputs,
                                                    const c10d::ReduceScatterOptions &options)
{
    const char *name = "reduce_scatter_tensor_coalesced";
    TORCH_CHECK_VALUE(outputs.size() == inputs.size() && !inputs.empty(), "alnico: ", name, " has ",
                      outputs.size(), " outputs and ", inputs.size(), " inputs");
    for (size_t i = 0; i < inputs.size(); i++) {
        check_alike(outputs[i], inputs[i], name);
        check_count(inputs[i].numel(), outputs[i].numel() * size_, name, "an input");
    }
    return issue({OpType::COALESCED, options.timeout, options.asyncOp}, inputs[0].device(), inputs,
                 outputs, [&](Work &work) {
                     for (size_t i = 0; i < inputs.size(); i++)
                         add_reduce_scatter_base(work, outputs[i], inputs[i], options.reduceOp);
                 });
}

WorkPointer ProcessGroupAlnico::alltoall_base(at::Tensor &output, at::Tensor &input,
                                              std::vector<int64_t> &output_splits,
                                              std::vector<int64_t> &input_splits,
                                              const c10d::AllToAllOptions &options)
{
    check_alike(output, input, "alltoall");
    TORCH_CHECK_VALUE(output.is_contiguous() && input.is_contiguous(),
                      "alnico: alltoall has a tensor that is not contiguous");
    const Rows from(input, input_splits, size_, "input"),
        to(output, output_splits, size_, "output");
    const void *send = input.data_ptr();
    return issue({OpType::ALLTOALL_BASE, options.timeout, options.asyncOp}, input.device(), {input},
                 {output}, [&](Work &work) {
                     if (input_splits.empty() && output_splits.empty())
                         work.start(ALLTOALL, send, output.data_ptr(), from.bytes[0], ALNICO_UINT8);
                     else
                         work.start(ALLTOALLV, send, from.bytes.data(), from.at.data(),
                                    output.data_ptr(), to.bytes.data(), to.at.data(), ALNICO_UINT8);
                 });
}

WorkPointer ProcessGroupAlnico::alltoall(Tensors &outputs, Tensors &inputs,
                                         const c10d::AllToAllOptions &options)
{
    check_list(outputs, "alltoall");
    check_list(inputs, "alltoall");
    for (int i = 0; i < size_; i++)
        check_alike(outputs[i], inputs[i], "alltoall");
    return issue({OpType::ALLTOALL, options.timeout, options.asyncOp}, inputs[0].device(), inputs,
                 outputs, [&](Work &work) {
                     for (int i = 0; i < size_; i++) {
                         work.message(true, inputs[i], i);
                         work.message(false, outputs[i], i);
                     }
                 });
}

WorkPointer ProcessGroupAlnico::message(bool sends, Tensors &tensors, int peer, int tag)
{
    const char *name = sends ? "send" : "recv";
    const at::Tensor tensor = only(tensors, name);
    TORCH_CHECK_VALUE(tag == 0, "alnico: ", name, " with tag ", tag,
                      "; messages have no tags, they arrive in the order of their sends");
    TORCH_CHECK_VALUE(peer >= 0 && peer < size_, "alnico: ", name, ": rank ", peer,
                      " is not below the size ", size_);
    return issue({sends ? OpType::SEND : OpType::RECV, c10d::kUnsetTimeout, true}, tensor.device(),
                 tensors, tensors, [&](Work &work) { work.message(sends, tensor, peer); });
}

WorkPointer ProcessGroupAlnico::send(Tensors &tensors, int to, int tag)
{
    return message(true, tensors, to, tag);
}

WorkPointer ProcessGroupAlnico::recv(Tensors &tensors, int from, int tag)
{
    return message(false, tensors, from, tag);
}

WorkPointer ProcessGroupAlnico::recvAnysource(Tensors &, int)
{
    TORCH_CHECK_NOT_IMPLEMENTED(
        false, "alnico: recv from any rank; a receive names the rank that its message comes from");
}

/* On the GPU that is named or bound to the group, else on the CPU, which waits for nothing that a GPU has
 * still to do. */
WorkPointer ProcessGroupAlnico::barrier(const c10d::BarrierOptions &options)
{
    c10::Device device =
        options.device.value_or(getBoundDeviceId().value_or(c10::Device(c10::kCPU)));
    if (!options.device_ids.empty())
        device = c10::Device(c10::kCUDA, c10::DeviceIndex(options.device_ids[0]));
    return issue({OpType::BARRIER, options.timeout, options.asyncOp}, device, {}, {},
                 [&](Work &work) {
                     work.start(BARRIER);
                     work.wait_on_host();
                 });
}

void ProcessGroupAlnico::monitoredBarrier(const c10d::BarrierOptions &options, bool)
{
    barrier(options)->wait();
}

} // namespace alnico
