/* One communicator of Alnico for one device, with the lock that lets one thread at a time call on it,
 * and the operations in flight on it. Made by ProcessGroupAlnico; each Work holds its own.
 *
 * Who waits for the lock does not hold Python's (gil.hpp): tensors are freed with the lock held. */
#pragma once

#include <alnico/alnico.h>

#include <atomic>
#include <condition_variable>
#include <list>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include <c10/core/Device.h>
#include <c10/core/Stream.h>
#include <c10/util/intrusive_ptr.h>

namespace alnico
{

class Work;

/* The status with the library's detail, as text. */
std::string status_text(alnico_status_t status);

/* Throws c10::DistBackendError unless the status is ALNICO_SUCCESS. */
void check(alnico_status_t status);

class Communicator : public std::enable_shared_from_this<Communicator>
{
  public:
    /* Takes `handle` over. On a GPU `own` is the stream that the communicator was made with. */
    Communicator(alnico_comm_t handle, c10::Device device, std::optional<c10::Stream> own);
    Communicator(const Communicator &) = delete;
    Communicator &operator=(const Communicator &) = delete;
    ~Communicator();

    alnico_comm_t handle() const
    {
        return handle_;
    }

    /* Throws if the communicator is closed. With the lock. */
    void check_open() const;

    /* Keeps a work until it is complete; before its first operation begins. With the lock. */
    void keep(c10::intrusive_ptr<Work> work);
    void forget(const Work &work);

    /* Finishes the kept works that are complete, and returns them. With the lock. */
    std::vector<c10::intrusive_ptr<Work>> reap();

    /* From now on a thread finishes kept works soon after they are complete: their futures and hooks
     * are waited for. With the lock. */
    void watch();
    bool watched() const
    {
        return watcher_.joinable();
    }

    bool idle();

    /* Waits for what is in flight and destroys the communicator. Collective unless it has an error.
     * A hook or a callback of a future may call it, too. */
    void close();

    const c10::Device device;
    const std::optional<c10::Stream> own; /* of operations that run beside the caller's stream */
    std::mutex mutex;

  private:
    void poll();

    const alnico_comm_t handle_; /* the library knows handles that were destroyed */
    std::atomic<bool> closed_{false};
    std::list<c10::intrusive_ptr<Work>> kept_;
    std::condition_variable changed_;
    std::thread watcher_;
};

} // namespace alnico
