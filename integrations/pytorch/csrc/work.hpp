/* What a collective of the process group returns: operations of one communicator that end together.
 *
 * On the CPU a work has requests, which whoever waits or asks tests. On a GPU its operations are on a
 * stream: the caller's, or the communicator's own with an event behind them. Single messages on a GPU
 * have requests, too, so that those of two ranks to each other may be begun in any order. */
#pragma once

#include "communicator.hpp"

#include <functional>

#include <c10/core/Event.h>
#include <torch/csrc/distributed/c10d/Work.hpp>

namespace alnico
{

/* A blocking operation of alnico.h with its nonblocking form. */
template <class Blocking, class Nonblocking> struct Operation {
    Blocking blocking;
    Nonblocking nonblocking;
};
template <class B, class N> Operation(B, N) -> Operation<B, N>;

using CompletionHook = std::function<void(std::shared_ptr<c10d::WorkInfo>)>;

class Work : public c10d::Work
{
  public:
    struct Settings {
        int rank;
        c10d::OpType type;
        uint64_t sequence;
        std::chrono::milliseconds timeout;
        bool timing;
    };

    Work(std::shared_ptr<Communicator> communicator, Settings settings,
         const std::vector<at::Tensor> &inputs);
    ~Work() override;

    bool isCompleted() override;
    bool wait(std::chrono::milliseconds timeout = kNoTimeout) override;
    void synchronize() override;
    void blockCurrentStream() override;
    void abort() override;
    std::vector<at::Tensor> result() override;
    c10::intrusive_ptr<c10::ivalue::Future> getFuture() override;
    c10::intrusive_ptr<c10::ivalue::Future> getFutureResult() override;
    float getDuration() const override;
    uint64_t getSequencenumber() const override;

    /* What the process group does with a work, in this order and with the communicator's lock. */

    /* On a GPU: the stream that operations go to from now on. */
    void enter(bool beside);
    template <class O, class... Arguments> void start(const O &operation, Arguments... arguments);
    /* A message, which goes with the next flush. */
    void message(bool sends, const at::Tensor &tensor, int peer);
    /* Starts the messages, as one group or a single one. */
    void flush();
    /* `to` gets what is in `from` when the operations are complete. */
    void copy_later(const at::Tensor &to, const at::Tensor &from);
    /* What follows the copies. */
    void call_later(std::function<void()> function);
    /* Nothing is added any more. */
    void leave();

    void hold(const std::vector<at::Tensor> &tensors);
    void add_outputs(const std::vector<at::Tensor> &outputs);
    /* The host waits for it on a GPU, too. */
    void wait_on_host()
    {
        host_waits_ = true;
    }
    const std::optional<c10::Stream> &stream() const
    {
        return stream_;
    }

    /* Whether it is complete; finishes it then. With the lock. */
    bool progress();
    /* Ends it. With the lock. */
    void end(std::exception_ptr error);
    /* If it is complete, completes its futures and calls its hook, once. Without the lock. */
    void settle();
    /* Without the lock, after `leave`. */
    void call_at_end(const CompletionHook &hook);

    const std::shared_ptr<Communicator> communicator;

  private:
    struct Message {
        bool sends;
        at::Tensor tensor;
        int peer;
    };

    void start_single(const Message &message);
    void start_group();
    void copy_out();
    void at_end(std::function<void()> function);
    void join_stream();
    [[noreturn]] void expire(std::chrono::milliseconds limit, bool for_good);
    bool on_gpu() const
    {
        return communicator->device.is_cuda();
    }

    const Settings settings_;
    const std::chrono::steady_clock::time_point began_;
    std::chrono::steady_clock::time_point ended_;
    std::vector<alnico_request_t> requests_;
    std::vector<Message> messages_;
    std::vector<std::pair<at::Tensor, at::Tensor>> copies_; /* to, from */
    std::vector<std::function<void()>> calls_;
    std::vector<at::Tensor> held_, outputs_;
    std::optional<c10::Stream> stream_;
    std::optional<c10::Event> start_, end_;
    bool left_ = false, beside_ = false, host_waits_ = false;
    std::vector<std::function<void()>> at_end_;
    c10::intrusive_ptr<c10::ivalue::Future> future_, result_;
};

template <class O, class... Arguments> void Work::start(const O &operation, Arguments... arguments)
{
    alnico_comm_t comm = communicator->handle();
    if (stream_) {
        check(operation.blocking(arguments..., comm));
        return;
    }
    alnico_request_t request = nullptr;
    check(operation.nonblocking(arguments..., comm, &request));
    requests_.push_back(request);
}

} // namespace alnico
