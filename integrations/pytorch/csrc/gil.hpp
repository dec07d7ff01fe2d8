/* Python's global interpreter lock. PyTorch calls on a process group and its works with and without it.
 *
 * Who waits here, for a rank, a thread or a communicator's lock, does not hold it meanwhile: the thread
 * that has the communicator's lock may need it, to free a tensor that Python knows. */
#pragma once

namespace alnico
{

/* Releases the lock for the object's life if this thread holds it. */
class WithoutGil
{
  public:
    WithoutGil();
    WithoutGil(const WithoutGil &) = delete;
    WithoutGil &operator=(const WithoutGil &) = delete;
    ~WithoutGil();

  private:
    void *thread_ = nullptr; /* PyThreadState */
};

} // namespace alnico
