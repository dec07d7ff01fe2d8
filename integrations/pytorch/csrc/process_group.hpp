/* The c10d backend "alnico": PyTorch's collectives as operations of alnico.h.
 *
 * A process group has a communicator for the CPU from the beginning, and one for each GPU from its first
 * operation there, whose ranks meet through that of the CPU. Operations on the CPU are nonblocking ones
 * of the inline stream. Those on a GPU are ordered on the caller's stream if nobody is to wait for
 * them later (asyncOp is false), else on a stream of the communicator's own. */
#pragma once

#include "tensors.hpp"
#include "work.hpp"

#include <map>

#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>

namespace alnico
{

class ProcessGroupAlnico : public c10d::Backend
{
  public:
    using Tensors = std::vector<at::Tensor>;
    using WorkPointer = c10::intrusive_ptr<c10d::Work>;
    using BackendPointer = c10::intrusive_ptr<c10d::Backend>;
    using StorePointer = c10::intrusive_ptr<c10d::Store>;
    using OptionsPointer = c10::intrusive_ptr<Options>;

    /* Collective over the `size` ranks that share the store. */
    static c10::intrusive_ptr<ProcessGroupAlnico> create(const StorePointer &store, int rank,
                                                         int size, const OptionsPointer &options);

    /* Takes over a communicator of the CPU. `store` is of its ranks, or of more. */
    ProcessGroupAlnico(alnico_comm_t cpu, const StorePointer &store, const OptionsPointer &options);
    ~ProcessGroupAlnico() override;

    const std::string getBackendName() const override
    {
        return "alnico";
    }
    OptionsPointer getBackendOptions() override
    {
        return options_;
    }
    bool supportsSplitting() const override
    {
        return true;
    }
    bool supportsCoalescing() const override
    {
        return true;
    }
    bool supportsShrinking() const override
    {
        return true;
    }
    bool supportsTensorAlloc(c10::DeviceIndex) override
    {
        return true;
    }

    WorkPointer broadcast(Tensors &tensors, const c10d::BroadcastOptions &options) override;
    WorkPointer allreduce(Tensors &tensors, const c10d::AllreduceOptions &options) override;
    WorkPointer allreduce_sparse(Tensors &tensors, const c10d::AllreduceOptions &options) override;
    WorkPointer allreduce_coalesced(Tensors &tensors,
                                    const c10d::AllreduceCoalescedOptions &options) override;
    WorkPointer reduce(Tensors &tensors, const c10d::ReduceOptions &options) override;
    WorkPointer allgather(std::vector<Tensors> &outputs, Tensors &inputs,
                          const c10d::AllgatherOptions &options) override;
    WorkPointer _allgather_base(at::Tensor &output, at::Tensor &input,
                                const c10d::AllgatherOptions &options) override;
    WorkPointer allgather_coalesced(std::vector<Tensors> &outputs, Tensors &inputs,
                                    const c10d::AllgatherOptions &options) override;
    WorkPointer allgather_into_tensor_coalesced(Tensors &outputs, Tensors &inputs,
                                                const c10d::AllgatherOptions &options) override;
    WorkPointer gather(std::vector<Tensors> &outputs, Tensors &inputs,
                       const c10d::GatherOptions &options) override;
    WorkPointer scatter(Tensors &outputs, std::vector<Tensors> &inputs,
                        const c10d::ScatterOptions &options) override;
    WorkPointer reduce_scatter(Tensors &outputs, std::vector<Tensors> &inputs,
                               const c10d::ReduceScatterOptions &options) override;
    WorkPointer _reduce_scatter_base(at::Tensor &output, at::Tensor &input,
                                     const c10d::ReduceScatterOptions &options) override;
    WorkPointer reduce_scatter_tensor_coalesced(Tensors &outputs, Tensors &inputs,
                                                const c10d::ReduceScatterOptions &options) override;
    WorkPointer alltoall_base(at::Tensor &output, at::Tensor &input,
                              std::vector<int64_t> &output_splits,
                              std::vector<int64_t> &input_splits,
                              const c10d::AllToAllOptions &options) override;
    WorkPointer alltoall(Tensors &outputs, Tensors &inputs,
                         const c10d::AllToAllOptions &options) override;
    WorkPointer send(Tensors &tensors, int to, int tag) override;
    WorkPointer recv(Tensors &tensors, int from, int tag) override;
    /* Refused: alnico.h has no such message. */
    WorkPointer recvAnysource(Tensors &tensors, int tag) override;
    WorkPointer barrier(const c10d::BarrierOptions &options) override;
    void monitoredBarrier(const c10d::BarrierOptions &options, bool all) override;

    void startCoalescing() override;
    WorkPointer endCoalescing() override;

    BackendPointer split(const StorePointer &store, const std::vector<int> &ranks,
                         const OptionsPointer &options) override;
    BackendPointer merge(const StorePointer &store, const OptionsPointer &options, const int &rank,
                         const int &size) override;
    BackendPointer shrink(const std::vector<int64_t> &excluded, int flags,
                          const OptionsPointer &options) override;

    void setTimeout(std::chrono::milliseconds timeout) override;
    void setSequenceNumberForGroup() override;
    uint64_t getSequenceNumberForGroup() override;
    void enableCollectivesTiming() override;
    void registerOnCompletionHook(CompletionHook &&hook) override;
    void waitForPendingWorks() override;
    void eagerConnectSingleDevice(at::Device device) override;
    at::Tensor allocateTensor(long size, at::TensorOptions options) override;
    c10d::ErrorType getError() override;
    void abort() override;
    void shutdown() override;

  private:
    /* What every collective is begun with. */
    struct Begin {
        c10d::OpType type;
        std::chrono::milliseconds timeout;
        bool async;
    };
    template <class Body>
    WorkPointer issue(const Begin &begin, c10::Device device, const Tensors &inputs,
                      const Tensors &outputs, Body body);
    c10::intrusive_ptr<Work> make_work(const std::shared_ptr<Communicator> &communicator,
                                       const Begin &begin, const Tensors &inputs);
    WorkPointer message(bool sends, Tensors &tensors, int peer, int tag);

    /* The parts of works that a coalesced form has several of. */
    void add_allreduce(Work &work, const at::Tensor &tensor, const c10d::ReduceOp &op);
    void add_allgather(Work &work, const Tensors &outputs, const at::Tensor &input);
    void add_allgather_base(Work &work, const at::Tensor &output, const at::Tensor &input);
    void add_reduce_scatter_base(Work &work, const at::Tensor &output, const at::Tensor &input,
                                 const c10d::ReduceOp &op);
    at::Tensor count_entries(const at::Tensor &sparse, std::chrono::milliseconds timeout);

    std::shared_ptr<Communicator> communicator(c10::Device device);
    std::shared_ptr<Communicator> connect(c10::Device device);
    std::vector<std::shared_ptr<Communicator>> communicators();
    void check_list(const Tensors &list, const char *what) const;

    const StorePointer store_;
    const OptionsPointer options_;
    std::mutex mutex_; /* of what follows */
    std::map<std::string, std::shared_ptr<Communicator>>
        communicators_; /* by device; "cpu" first */
    std::atomic<uint64_t> sequence_{0};
    int shrinks_ = 0;
    bool timing_ = false, coalescing_ = false;
    c10::intrusive_ptr<Work> coalesced_;
};

} // namespace alnico
