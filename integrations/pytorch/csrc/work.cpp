/* How a work begins, is waited for, and ends. */
#include "work.hpp"

#include "gil.hpp"

#include <algorithm>

#include <ATen/core/grad_mode.h>
#include <c10/core/DeviceGuard.h>
#include <c10/core/StreamGuard.h>

namespace alnico
{

using std::chrono::milliseconds;
using std::chrono::steady_clock;

namespace
{

/* What a deadline of the library, which names the missing rank, may take longer than it says. */
milliseconds with_grace(milliseconds timeout)
{
    return timeout + timeout / 10 + milliseconds(500);
}

c10::Stream current_stream(c10::Device device)
{
    return c10::impl::VirtualGuardImpl(device.type()).getStream(device);
}

/* Processor time first, since most operations are short. */
void pause(int round)
{
    if (round < 200)
        std::this_thread::yield();
    else
        std::this_thread::sleep_for(std::chrono::microseconds(std::min(round - 150, 200)));
}

std::exception_ptr error_of(alnico_status_t status)
{
    try {
        check(status);
    } catch (...) {
        return std::current_exception();
    }
    return nullptr;
}

} // namespace

Work::Work(std::shared_ptr<Communicator> communicator, Settings settings,
           const std::vector<at::Tensor> &inputs)
    : c10d::Work(settings.rank, settings.type,
                 ("alnico:" + c10d::opTypeToString(settings.type)).c_str(), inputs),
      communicator(std::move(communicator)), settings_(settings), began_(steady_clock::now())
{
}

/* Streams may still use what nobody has waited for. */
Work::~Work()
{
    if (!beside_)
        return;
    try {
        for (auto &tensor : held_)
            tensor.record_stream(*stream_);
    } catch (...) { /* the process ends, and its memory with it */
    }
}

void Work::enter(bool beside)
{
    if (!on_gpu())
        return;
    auto current = current_stream(communicator->device);
    beside_ = beside;
    stream_ = beside ? *communicator->own : current;
    if (beside) {
        c10::Event ready(current.device_type());
        ready.record(current);
        ready.block(*stream_);
    }
    check(alnico_comm_set_stream(communicator->handle(), stream_->native_handle()));
    if (settings_.timing && !start_) {
        start_.emplace(stream_->device_type(), c10::EventFlag::BACKEND_DEFAULT);
        start_->record(*stream_);
    }
}

void Work::message(bool sends, const at::Tensor &tensor, int peer)
{
    messages_.push_back({sends, tensor, peer});
}

void Work::flush()
{
    if (messages_.empty())
        return;
    if (messages_.size() == 1 && c10d::isP2POp(settings_.type))
        start_single(messages_[0]);
    else
        start_group();
    messages_.clear();
}

void Work::start_single(const Message &message)
{
    alnico_request_t request = nullptr;
    check((message.sends
               ? alnico_isend(message.tensor.data_ptr(), message.tensor.nbytes(), ALNICO_UINT8,
                              message.peer, communicator->handle(), &request)
               : alnico_irecv(message.tensor.data_ptr(), message.tensor.nbytes(), ALNICO_UINT8,
                              message.peer, communicator->handle(), &request)));
    requests_.push_back(request);
}

/* A refused message leaves the others out, too: the group is ended and its request forgotten. */
void Work::start_group()
{
    alnico_comm_t comm = communicator->handle();
    check(alnico_group_begin(comm));
    alnico_request_t request = nullptr;
    alnico_status_t status = ALNICO_SUCCESS;
    std::string detail;
    for (auto &m : messages_) {
        void *data = m.tensor.data_ptr();
        alnico_status_t recorded =
            m.sends ? alnico_send(data, m.tensor.nbytes(), ALNICO_UINT8, m.peer, comm)
                    : alnico_recv(data, m.tensor.nbytes(), ALNICO_UINT8, m.peer, comm);
        if (recorded != ALNICO_SUCCESS && status == ALNICO_SUCCESS) {
            status = recorded;
            detail = status_text(recorded);
        }
    }
    alnico_status_t ended = alnico_group_end(comm, stream_ ? nullptr : &request);
    if (request)
        requests_.push_back(request);
    TORCH_CHECK_WITH(DistBackendError, status == ALNICO_SUCCESS, detail);
    check(ended);
}

void Work::copy_later(const at::Tensor &to, const at::Tensor &from)
{
    copies_.emplace_back(to, from);
}

void Work::call_later(std::function<void()> function)
{
    calls_.push_back(std::move(function));
}

void Work::copy_out()
{
    at::NoGradGuard no_grad;
    for (auto &[to, from] : copies_)
        to.copy_(from);
    for (auto &call : calls_)
        call();
    copies_.clear();
    calls_.clear();
}

void Work::leave()
{
    if (on_gpu())
        copy_out();
    if (stream_ && requests_.empty() && (beside_ || settings_.timing)) {
        end_.emplace(stream_->device_type(), settings_.timing ? c10::EventFlag::BACKEND_DEFAULT
                                                              : c10::EventFlag::PYTORCH_DEFAULT);
        end_->record(*stream_);
    }
    left_ = true;
}

void Work::hold(const std::vector<at::Tensor> &tensors)
{
    held_.insert(held_.end(), tensors.begin(), tensors.end());
}

void Work::add_outputs(const std::vector<at::Tensor> &outputs)
{
    outputs_.insert(outputs_.end(), outputs.begin(), outputs.end());
}

bool Work::progress()
{
    if (completed_)
        return true;
    if (!left_)
        return false;
    const bool by_requests = !requests_.empty();
    alnico_status_t status = ALNICO_SUCCESS;
    while (!requests_.empty() && status == ALNICO_SUCCESS) {
        bool done = false;
        status = alnico_test(&requests_.back(), &done);
        if (status == ALNICO_SUCCESS && !done)
            return false;
        requests_.pop_back();
    }
    if (on_gpu() && !by_requests && status == ALNICO_SUCCESS) {
        status = alnico_comm_status(communicator->handle());
        if (status == ALNICO_SUCCESS && !(end_ ? end_->query() : stream_->query()))
            return false;
    }
    end(error_of(status));
    return true;
}

void Work::end(std::exception_ptr error)
{
    if (completed_)
        return;
    try {
        if (!error)
            copy_out();
    } catch (...) { /* no memory */
        error = std::current_exception();
    }
    copies_.clear();
    calls_.clear();
    requests_.clear();
    if (!beside_)
        held_.clear();
    ended_ = steady_clock::now();
    finish(error);
}

void Work::settle()
{
    std::vector<std::function<void()>> at_end;
    {
        std::lock_guard<std::mutex> lock(mutex_);
        if (completed_)
            at_end.swap(at_end_);
    }
    for (auto &function : at_end)
        function();
}

void Work::at_end(std::function<void()> function)
{
    {
        std::lock_guard<std::mutex> lock(mutex_);
        at_end_.push_back(std::move(function));
    }
    {
        std::lock_guard<std::mutex> lock(communicator->mutex);
        communicator->watch();
        if (!progress() && on_gpu())
            communicator->keep(c10::intrusive_ptr<Work>::unsafe_reclaim_from_nonowning(this));
    }
    settle();
}

bool Work::isCompleted()
{
    WithoutGil without_gil;
    bool complete;
    {
        std::lock_guard<std::mutex> lock(communicator->mutex);
        complete = progress();
    }
    if (complete)
        settle();
    return complete;
}

bool Work::wait(milliseconds timeout)
{
    WithoutGil without_gil;
    if (on_gpu()) {
        join_stream();
        if (timeout == kNoTimeout && !host_waits_)
            return true;
    }
    const auto from = timeout == kNoTimeout ? began_ : steady_clock::now();
    const auto limit = timeout == kNoTimeout ? with_grace(settings_.timeout) : timeout;
    for (int round = 0; !isCompleted(); pause(round++))
        if (steady_clock::now() - from > limit)
            expire(limit, timeout == kNoTimeout);
    if (auto error = exception())
        std::rethrow_exception(error);
    return true;
}

void Work::expire(milliseconds limit, bool for_good)
{
    if (for_good)
        (void)alnico_comm_abort(communicator->handle());
    C10_THROW_ERROR(DistBackendError, c10::str("alnico: ", c10d::opTypeToString(settings_.type),
                                               " ", settings_.sequence, " of rank ", settings_.rank,
                                               " did not end within ", limit.count(), " ms"));
}

/* What the caller's stream gets from now on comes after the work. */
void Work::join_stream()
{
    std::lock_guard<std::mutex> lock(communicator->mutex);
    communicator->check_open();
    check(alnico_comm_status(communicator->handle()));
    auto current = current_stream(communicator->device);
    if (!requests_.empty()) {
        c10::DeviceGuard guard(communicator->device);
        check(alnico_comm_set_stream(communicator->handle(), current.native_handle()));
        for (auto &request : requests_)
            check(alnico_wait(&request));
        requests_.clear();
        stream_ = current;
        communicator->forget(*this);
    } else if (end_) {
        end_->block(current);
    } else if (*stream_ != current) {
        c10::Event done(current.device_type());
        done.record(*stream_);
        done.block(current);
    }
    held_.clear();
}

void Work::synchronize()
{
    WithoutGil without_gil;
    if (on_gpu())
        join_stream();
}

void Work::blockCurrentStream()
{
    wait();
}

void Work::abort()
{
    (void)alnico_comm_abort(communicator->handle());
}

std::vector<at::Tensor> Work::result()
{
    return outputs_;
}

/* On a GPU the future is complete at once, and marks where on the stream the results are. */
c10::intrusive_ptr<c10::ivalue::Future> Work::getFuture()
{
    WithoutGil without_gil;
    std::vector<c10::Device> devices;
    if (on_gpu())
        devices.push_back(communicator->device);
    bool pending;
    {
        std::lock_guard<std::mutex> lock(communicator->mutex);
        if (future_)
            return future_;
        future_ = c10::make_intrusive<c10::ivalue::Future>(
            c10::ListType::create(c10::TensorType::get()), devices);
        pending = !requests_.empty();
    }
    if (on_gpu()) {
        if (pending)
            join_stream();
        c10::StreamGuard guard(*stream_);
        future_->markCompleted(c10::IValue(outputs_));
        return future_;
    }
    at_end([this, future = future_] {
        if (exception_)
            future->setError(exception_);
        else
            future->markCompleted(c10::IValue(outputs_));
    });
    return future_;
}

c10::intrusive_ptr<c10::ivalue::Future> Work::getFutureResult()
{
    WithoutGil without_gil;
    {
        std::lock_guard<std::mutex> lock(communicator->mutex);
        if (result_)
            return result_;
        result_ = c10::make_intrusive<c10::ivalue::Future>(c10::IntType::get());
    }
    at_end([this, result = result_] {
        auto found = exception_ ? c10d::WorkResult::COMM_ERROR : c10d::WorkResult::SUCCESS;
        result->markCompleted(c10::IValue(static_cast<int64_t>(found)));
    });
    return result_;
}

void Work::call_at_end(const CompletionHook &hook)
{
    at_end([this, hook] {
        auto ended = ended_;
        hook(std::make_shared<c10d::WorkInfo>(
            settings_.type, settings_.sequence, std::chrono::time_point<steady_clock>(began_),
            std::chrono::time_point<steady_clock>(ended), ended - began_));
    });
}

float Work::getDuration() const
{
    if (start_ && end_)
        return static_cast<float>(start_->elapsedTime(*end_));
    return std::chrono::duration<float, std::milli>(ended_ - began_).count();
}

uint64_t Work::getSequencenumber() const
{
    return settings_.sequence;
}

} // namespace alnico
