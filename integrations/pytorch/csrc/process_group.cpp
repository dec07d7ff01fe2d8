/* How process groups come to be and end, and what their works are begun and finished with. */
#include "process_group.hpp"
#include "gil.hpp"
#include "memory.hpp"

#include <algorithm>
#include <cstring>

#include <c10/core/DeviceGuard.h>
#include <c10/core/StreamGuard.h>

namespace alnico
{

namespace
{

/* Rank 0's id, or why it has none, through the store. */
alnico_id_t share_id(c10d::Store &store, int rank)
{
    const std::string key = "alnico";
    alnico_id_t id;
    if (rank == 0) {
        const alnico_status_t status = alnico_id_create(&id);
        const std::string error = status_text(status);
        const std::string bytes(id.bytes, sizeof id.bytes);
        store.set(key, status == ALNICO_SUCCESS ? bytes : error);
    }
    const std::string got = store.get_to_str(key);
    TORCH_CHECK_WITH(DistBackendError, got.size() == sizeof id.bytes, got);
    std::memcpy(id.bytes, got.data(), sizeof id.bytes);
    return id;
}

/* alnico_bootstrap_t's, over the communicator of the CPU. */
int allgather_on_cpu(void *context, const void *mine, void *all, size_t bytes)
{
    auto *cpu = static_cast<Communicator *>(context);
    std::lock_guard<std::mutex> lock(cpu->mutex);
    return alnico_allgather(mine, all, bytes, ALNICO_UINT8, cpu->handle());
}

const c10::Device CPU(c10::kCPU);

} // namespace

c10::intrusive_ptr<ProcessGroupAlnico> ProcessGroupAlnico::create(const StorePointer &store,
                                                                  int rank, int size,
                                                                  const OptionsPointer &options)
{
    WithoutGil without_gil;
    const alnico_id_t id = share_id(*store, rank);
    alnico_comm_t cpu = nullptr;
    check(alnico_comm_create_id(&id, rank, size, ALNICO_DEVICE_CPU, nullptr, &cpu));
    return c10::make_intrusive<ProcessGroupAlnico>(cpu, store, options);
}

ProcessGroupAlnico::ProcessGroupAlnico(alnico_comm_t cpu, const StorePointer &store,
                                       const OptionsPointer &options)
    : c10d::Backend(alnico_comm_rank(cpu), alnico_comm_size(cpu)), store_(store), options_(options)
{
    communicators_[CPU.str()] = std::make_shared<Communicator>(cpu, CPU, std::nullopt);
}

/* A group that nobody has shut down may be one whose ranks end at different times. */
ProcessGroupAlnico::~ProcessGroupAlnico()
{
    WithoutGil without_gil;
    if (!communicators_.empty())
        abort();
    shutdown();
}

std::vector<std::shared_ptr<Communicator>> ProcessGroupAlnico::communicators()
{
    WithoutGil without_gil;
    std::lock_guard<std::mutex> lock(mutex_);
    std::vector<std::shared_ptr<Communicator>> all;
    for (auto &[name, communicator] : communicators_)
        all.push_back(communicator);
    return all;
}

std::shared_ptr<Communicator> ProcessGroupAlnico::communicator(c10::Device device)
{
    WithoutGil without_gil;
    std::lock_guard<std::mutex> lock(mutex_);
    TORCH_CHECK_WITH(DistBackendError, !communicators_.empty(),
                     "alnico: the process group was destroyed");
    auto &found = communicators_[device.str()];
    if (!found)
        found = connect(device);
    return found;
}

/* Of a GPU. All ranks have to come. */
std::shared_ptr<Communicator> ProcessGroupAlnico::connect(c10::Device device)
{
    TORCH_CHECK_VALUE(device.is_cuda() && device.has_index(), "alnico: no communicator for ",
                      device);
    c10::DeviceGuard guard(device);
    const auto stream = c10::impl::VirtualGuardImpl(device.type())
                            .getStreamFromGlobalPool(device, /*isHighPriority=*/true);
    const alnico_bootstrap_t bootstrap = {rank_, size_, allgather_on_cpu,
                                          communicators_[CPU.str()].get()};
    alnico_comm_t handle = nullptr;
    check(alnico_comm_create(&bootstrap, ALNICO_DEVICE_CUDA, stream.native_handle(), &handle));
    return std::make_shared<Communicator>(handle, device, stream);
}

void ProcessGroupAlnico::eagerConnectSingleDevice(at::Device device)
{
    (void)communicator(device);
}

c10::intrusive_ptr<Work>
ProcessGroupAlnico::make_work(const std::shared_ptr<Communicator> &communicator, const Begin &begin,
                              const Tensors &inputs)
{
    auto timeout = begin.timeout == c10d::kUnsetTimeout ? options_->timeout : begin.timeout;
    auto type = coalescing_ ? c10d::OpType::COALESCED : begin.type;
    auto work = c10::make_intrusive<Work>(
        communicator, Work::Settings{rank_, type, ++sequence_, timeout, timing_}, inputs);
    if (communicator->device.is_cpu() || (c10d::isP2POp(type) && !coalescing_))
        communicator->keep(work);
    return work;
}

void ProcessGroupAlnico::startCoalescing()
{
    TORCH_CHECK_VALUE(!coalescing_, "alnico: operations are being coalesced already");
    coalescing_ = true;
}

/* Nothing to wait for if there was no operation. */
ProcessGroupAlnico::WorkPointer ProcessGroupAlnico::endCoalescing()
{
    TORCH_CHECK_VALUE(coalescing_, "alnico: no operations are being coalesced");
    coalescing_ = false;
    auto work = std::move(coalesced_);
    if (!work)
        return nullptr;
    WithoutGil without_gil;
    {
        auto &communicator = *work->communicator;
        c10::OptionalDeviceGuard on_device;
        if (communicator.device.is_cuda())
            on_device.reset_device(communicator.device);
        c10::OptionalStreamGuard on_stream(work->stream());
        std::lock_guard<std::mutex> lock(communicator.mutex);
        work->flush();
        work->leave();
    }
    if (hasHooks())
        work->call_at_end(onCompletionHook_);
    return work;
}

/* Every rank calls it; those that are not among the ranks get nothing. */
ProcessGroupAlnico::BackendPointer ProcessGroupAlnico::split(const StorePointer &store,
                                                             const std::vector<int> &ranks,
                                                             const OptionsPointer &options)
{
    TORCH_CHECK_VALUE(!ranks.empty(), "alnico: split into no ranks");
    const auto mine = std::find(ranks.begin(), ranks.end(), rank_);
    const bool member = mine != ranks.end();
    const int color = member ? *std::min_element(ranks.begin(), ranks.end()) : -1;
    WithoutGil without_gil;
    const auto cpu = communicator(CPU);
    alnico_comm_t part = nullptr;
    {
        std::lock_guard<std::mutex> lock(cpu->mutex);
        cpu->check_open();
        check(alnico_comm_split(cpu->handle(), color, int(mine - ranks.begin()), nullptr, &part));
    }
    if (!member)
        return nullptr;
    return c10::make_intrusive<ProcessGroupAlnico>(part, store, options ? options : options_);
}

ProcessGroupAlnico::BackendPointer ProcessGroupAlnico::merge(const StorePointer &store,
                                                             const OptionsPointer &options,
                                                             const int &rank, const int &size)
{
    return create(store, rank, size, options ? options : options_);
}

/* The ranks that stay call it. With SHRINK_ABORT the others need not be alive. This group is
 * aborted, since a group that lacks ranks is never shut down by all. */
ProcessGroupAlnico::BackendPointer ProcessGroupAlnico::shrink(const std::vector<int64_t> &excluded,
                                                              int flags,
                                                              const OptionsPointer &options)
{
    constexpr int SHRINK_ABORT = 1;
    const auto is_excluded = [&](int rank) {
        return std::find(excluded.begin(), excluded.end(), rank) != excluded.end();
    };
    TORCH_CHECK_VALUE(!is_excluded(rank_), "alnico: rank ", rank_, " is excluded and shrinks");
    int before = 0, stay = 0;
    for (int i = 0; i < size_; i++) {
        before += i < rank_ && !is_excluded(i);
        stay += !is_excluded(i);
    }
    const auto &chosen = options ? options : options_;
    WithoutGil without_gil;
    c10::intrusive_ptr<ProcessGroupAlnico> smaller;
    if (flags & SHRINK_ABORT) {
        alnico_comm_t survivors = nullptr;
        check(alnico_comm_shrink(communicator(CPU)->handle(), nullptr, &survivors));
        smaller = c10::make_intrusive<ProcessGroupAlnico>(survivors, store_, chosen);
        TORCH_CHECK_WITH(DistBackendError, smaller->getSize() == stay,
                         "alnico: ", smaller->getSize(), " ranks live; expected ", stay,
                         " without those that "
                         "are excluded");
    } else {
        auto store =
            c10::make_intrusive<c10d::PrefixStore>(c10::str("shrink/", shrinks_++), store_);
        smaller = create(store, before, stay, chosen);
    }
    abort();
    return smaller;
}

void ProcessGroupAlnico::setTimeout(std::chrono::milliseconds timeout)
{
    options_->timeout = timeout;
}

/* All ranks count from 0. */
void ProcessGroupAlnico::setSequenceNumberForGroup()
{
}

uint64_t ProcessGroupAlnico::getSequenceNumberForGroup()
{
    return sequence_;
}

void ProcessGroupAlnico::enableCollectivesTiming()
{
    timing_ = true;
}

/* Works have copies of the hook, which share the function of Python's: its references are counted with
 * the interpreter's lock only. */
void ProcessGroupAlnico::registerOnCompletionHook(CompletionHook &&hook)
{
    TORCH_CHECK_VALUE(!hasHooks(), "alnico: the group has an onCompletion hook already");
    auto shared = std::make_shared<const CompletionHook>(std::move(hook));
    onCompletionHook_ = [shared](const std::shared_ptr<c10d::WorkInfo> &info) { (*shared)(info); };
}

void ProcessGroupAlnico::waitForPendingWorks()
{
    WithoutGil without_gil;
    for (auto &communicator : communicators())
        while (!communicator->idle())
            std::this_thread::sleep_for(std::chrono::milliseconds(1));
}

/* Memory that can be registered with a communicator. */
at::Tensor ProcessGroupAlnico::allocateTensor(long size, at::TensorOptions options)
{
    return allocate_tensor(size, options);
}

c10d::ErrorType ProcessGroupAlnico::getError()
{
    for (auto &communicator : communicators()) {
        const alnico_status_t status = alnico_comm_status(communicator->handle());
        if (status == ALNICO_ERROR_TIMEOUT)
            return c10d::ErrorType::TIMEOUT;
        if (status == ALNICO_ERROR_ABORTED)
            return c10d::ErrorType::REMOTE_ERROR;
        if (status != ALNICO_SUCCESS)
            return c10d::ErrorType::COMM_ERROR;
    }
    return c10d::ErrorType::SUCCESS;
}

void ProcessGroupAlnico::abort()
{
    for (auto &communicator : communicators())
        (void)alnico_comm_abort(communicator->handle());
}

/* Communicators of GPUs first, in the same order on all ranks. */
void ProcessGroupAlnico::shutdown()
{
    WithoutGil without_gil;
    auto all = communicators();
    {
        std::lock_guard<std::mutex> lock(mutex_);
        communicators_.clear();
    }
    std::reverse(all.begin(), all.end());
    for (auto &communicator : all)
        communicator->close();
}

} // namespace alnico
