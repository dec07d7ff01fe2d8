/* Tensors as alnico.h sees them: types, reductions, and lists of tensors as blocks of one memory. */
#pragma once

#include <alnico/alnico.h>

#include <vector>

#include <ATen/ATen.h>
#include <torch/csrc/distributed/c10d/Types.hpp>

namespace alnico
{

/* Refuses what no collective takes: tensors with holes, sparse ones, those of other devices. */
void check_tensor(const at::Tensor &tensor, const char *what);

struct Reduction {
    alnico_datatype_t type;
    alnico_op_t op;
};

/* Of a tensor's elements; bool as in NCCL: a sum is true if any is. */
Reduction reduction_of(const at::Tensor &tensor, const c10d::ReduceOp &op);

/* Complex numbers as pairs of real ones, where that is the same. */
at::Tensor as_real(const at::Tensor &tensor, const c10d::ReduceOp &op);

/* The tensor, times the factor of PREMUL_SUM. */
at::Tensor scaled(const at::Tensor &tensor, const c10d::ReduceOp &op);

/* A list of tensors, one for each rank, in one memory: where they lie, if they are contiguous and
 * one behind the other, else a temporary tensor. */
class Blocks
{
  public:
    explicit Blocks(const std::vector<at::Tensor> &tensors);

    /* Copies the tensors into the temporary memory, if there is one. */
    void fill();
    void *data() const
    {
        return data_;
    }
    bool temporary() const
    {
        return memory_.defined();
    }
    /* In elements; `equal` says whether all are the same. */
    const std::vector<size_t> &counts() const
    {
        return counts_;
    }
    bool equal() const;
    /* All elements. */
    at::Tensor whole() const;
    /* The tensor's part of the temporary memory, in its shape. */
    at::Tensor part(size_t index) const;

  private:
    const std::vector<at::Tensor> &tensors_;
    std::vector<size_t> counts_;
    at::Tensor memory_;
    void *data_;
};

} // namespace alnico
