/* How operations of a process group begin: for the files that have some. */
#pragma once

#include "gil.hpp"
#include "process_group.hpp"

#include <c10/core/DeviceGuard.h>
#include <c10/core/StreamGuard.h>
#include <torch/csrc/distributed/c10d/Utils.hpp>

namespace alnico
{

/* One work, or a part of the one that is being coalesced. Nothing of it begins if `body` refuses its
 * tensors; what has begun when a later operation fails is kept until it ends. */
template <class Body>
ProcessGroupAlnico::WorkPointer ProcessGroupAlnico::issue(const Begin &begin, c10::Device device,
                                                          const Tensors &inputs,
                                                          const Tensors &outputs, Body body)
{
    WithoutGil without_gil;
    auto communicator = this->communicator(device);
    c10::OptionalDeviceGuard on_device;
    if (device.is_cuda())
        on_device.reset_device(device);
    std::vector<c10::intrusive_ptr<Work>> complete; /* freed without the lock */
    std::unique_lock<std::mutex> lock(communicator->mutex);
    communicator->check_open();
    if (!communicator->watched())
        complete = communicator->reap();
    auto work = coalesced_ ? coalesced_ : make_work(communicator, begin, inputs);
    TORCH_CHECK_VALUE(work->communicator == communicator, "alnico: coalesced operations are on ",
                      work->communicator->device, " and ", device);
    if (coalescing_)
        coalesced_ = work;
    work->hold(inputs);
    work->hold(outputs);
    work->add_outputs(outputs);
    work->enter(coalescing_ || (begin.async && !c10d::isP2POp(begin.type)));
    {
        c10::OptionalStreamGuard on_stream(work->stream());
        try {
            body(*work);
            if (!coalescing_)
                work->flush();
        } catch (...) {
            if (!coalescing_)
                work->leave();
            throw;
        }
        if (!coalescing_)
            work->leave();
    }
    lock.unlock();
    if (!coalescing_ && hasHooks())
        work->call_at_end(onCompletionHook_);
    return work;
}

} // namespace alnico
