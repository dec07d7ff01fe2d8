/* Python's global interpreter lock, by its C API. */
#include <Python.h>

#include "gil.hpp"

namespace alnico
{

/* PyGILState_Check is true after the end of Python, too. */
WithoutGil::WithoutGil()
{
    if (Py_IsInitialized() && PyGILState_Check())
        thread_ = PyEval_SaveThread();
}

WithoutGil::~WithoutGil()
{
    if (thread_)
        PyEval_RestoreThread(static_cast<PyThreadState *>(thread_));
}

} // namespace alnico
