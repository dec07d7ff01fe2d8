/* Communicators: their works in flight and the thread that finishes them for futures and hooks. */
#include "gil.hpp"
#include "work.hpp"

#include <chrono>

#include <c10/util/Exception.h>

namespace alnico
{

std::string status_text(alnico_status_t status)
{
    const char *detail = alnico_error_detail();
    return *detail ? detail : alnico_status_string(status);
}

void check(alnico_status_t status)
{
    if (status != ALNICO_SUCCESS)
        C10_THROW_ERROR(DistBackendError, status_text(status));
}

namespace
{

std::exception_ptr destroyed()
{
    return std::make_exception_ptr(c10::DistBackendError(
        {__func__, __FILE__, __LINE__}, "alnico: the process group was destroyed"));
}

} // namespace

Communicator::Communicator(alnico_comm_t handle, c10::Device device, std::optional<c10::Stream> own)
    : device(device), own(own), handle_(handle)
{
}

Communicator::~Communicator()
{
    close();
}

void Communicator::check_open() const
{
    if (closed_)
        std::rethrow_exception(destroyed());
}

void Communicator::keep(c10::intrusive_ptr<Work> work)
{
    kept_.push_back(std::move(work));
    changed_.notify_one();
}

void Communicator::forget(const Work &work)
{
    kept_.remove_if([&work](const auto &kept) { return kept.get() == &work; });
}

std::vector<c10::intrusive_ptr<Work>> Communicator::reap()
{
    std::vector<c10::intrusive_ptr<Work>> complete;
    for (auto work = kept_.begin(); work != kept_.end();) {
        if ((*work)->progress()) {
            complete.push_back(std::move(*work));
            work = kept_.erase(work);
        } else {
            ++work;
        }
    }
    return complete;
}

void Communicator::watch()
{
    if (!watched() && !closed_)
        watcher_ = std::thread([self = shared_from_this()] { self->poll(); });
}

bool Communicator::idle()
{
    std::lock_guard<std::mutex> lock(mutex);
    return kept_.empty();
}

void Communicator::poll()
{
    std::unique_lock<std::mutex> lock(mutex);
    while (!closed_) {
        changed_.wait(lock, [this] { return closed_ || !kept_.empty(); });
        auto complete = reap();
        lock.unlock();
        for (auto &work : complete)
            work->settle();
        if (complete.empty())
            std::this_thread::sleep_for(std::chrono::microseconds(50));
        complete.clear();
        lock.lock();
    }
}

void Communicator::close()
{
    WithoutGil without_gil;
    std::vector<c10::intrusive_ptr<Work>> complete;
    {
        std::lock_guard<std::mutex> lock(mutex);
        if (closed_.exchange(true))
            return;
        (void)alnico_synchronize(handle_);
        complete = reap();
        for (auto &work : kept_) {
            work->end(destroyed());
            complete.push_back(work);
        }
        kept_.clear();
        alnico_comm_destroy(handle_);
        changed_.notify_all();
    }
    for (auto &work : complete)
        work->settle();
    if (!watched())
        return;
    if (watcher_.get_id() == std::this_thread::get_id())
        watcher_.detach();
    else
        watcher_.join();
}

} // namespace alnico
