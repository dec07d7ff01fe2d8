/* Types, reductions and blocks. */
#include "tensors.hpp"

#include <algorithm>
#include <numeric>
#include <optional>

namespace alnico
{

namespace
{

/* Nothing for a type that cannot be reduced. */
std::optional<alnico_datatype_t> type_of(at::ScalarType type)
{
    switch (type) {
    case at::kChar:
        return ALNICO_INT8;
    case at::kByte:
    case at::kBool:
        return ALNICO_UINT8;
    case at::kInt:
        return ALNICO_INT32;
    case at::kUInt32:
        return ALNICO_UINT32;
    case at::kLong:
        return ALNICO_INT64;
    case at::kUInt64:
        return ALNICO_UINT64;
    case at::kFloat8_e4m3fn:
        return ALNICO_FLOAT8_E4M3;
    case at::kFloat8_e5m2:
        return ALNICO_FLOAT8_E5M2;
    case at::kHalf:
        return ALNICO_FLOAT16;
    case at::kBFloat16:
        return ALNICO_BFLOAT16;
    case at::kFloat:
        return ALNICO_FLOAT32;
    case at::kDouble:
        return ALNICO_FLOAT64;
    default:
        return std::nullopt;
    }
}

/* In the order of c10d::ReduceOp::RedOpType: of numbers, and of truth values, if there is one. */
struct Meaning {
    alnico_op_t of_numbers;
    std::optional<alnico_op_t> of_bools;
};
const Meaning MEANINGS[] = {
    {ALNICO_SUM, ALNICO_LOGICAL_OR},          /* SUM */
    {ALNICO_AVERAGE, std::nullopt},           /* AVG */
    {ALNICO_PRODUCT, ALNICO_LOGICAL_AND},     /* PRODUCT */
    {ALNICO_MINIMUM, ALNICO_LOGICAL_AND},     /* MIN */
    {ALNICO_MAXIMUM, ALNICO_LOGICAL_OR},      /* MAX */
    {ALNICO_BITWISE_AND, ALNICO_LOGICAL_AND}, /* BAND */
    {ALNICO_BITWISE_OR, ALNICO_LOGICAL_OR},   /* BOR */
    {ALNICO_BITWISE_XOR, ALNICO_LOGICAL_XOR}, /* BXOR */
    {ALNICO_SUM, std::nullopt},               /* PREMUL_SUM */
};

} // namespace

void check_tensor(const at::Tensor &tensor, const char *what)
{
    TORCH_CHECK_VALUE(tensor.defined(), "alnico: ", what, " is no tensor");
    TORCH_CHECK_VALUE(tensor.device().is_cpu() || tensor.device().is_cuda(), "alnico: ", what,
                      " is on ", tensor.device(), "; expected cpu or cuda");
    TORCH_CHECK_VALUE(tensor.layout() == at::kStrided, "alnico: ", what, " is ", tensor.layout(),
                      "; expected a dense tensor");
    TORCH_CHECK_VALUE(tensor.is_non_overlapping_and_dense(), "alnico: ", what,
                      " is not contiguous: sizes ", tensor.sizes(), ", strides ", tensor.strides());
}

Reduction reduction_of(const at::Tensor &tensor, const c10d::ReduceOp &op)
{
    auto type = type_of(tensor.scalar_type());
    TORCH_CHECK_TYPE(type, "alnico: tensors of type ", tensor.scalar_type(),
                     " cannot be reduced; expected an integer of 8, 32 or 64 bits, bool, or "
                     "a Float8_e4m3fn, Float8_e5m2, Half, BFloat16, Float or Double");
    TORCH_CHECK_VALUE(op.op_ < std::size(MEANINGS), "alnico: unknown reduction ", int(op.op_));
    const Meaning &meaning = MEANINGS[op.op_];
    if (tensor.scalar_type() != at::kBool)
        return {*type, meaning.of_numbers};
    TORCH_CHECK_TYPE(meaning.of_bools, "alnico: tensors of type Bool have no average");
    return {*type, *meaning.of_bools};
}

at::Tensor as_real(const at::Tensor &tensor, const c10d::ReduceOp &op)
{
    if (!tensor.is_complex())
        return tensor;
    TORCH_CHECK_TYPE(c10d::isComplexViewAsRealAllowed(op),
                     "alnico: complex tensors can only be summed and averaged");
    return at::view_as_real(tensor);
}

at::Tensor scaled(const at::Tensor &tensor, const c10d::ReduceOp &op)
{
    if (op.op_ != c10d::ReduceOp::PREMUL_SUM)
        return tensor;
    TORCH_CHECK_TYPE(tensor.is_floating_point() || tensor.is_complex(),
                     "alnico: PREMUL_SUM of tensors of type ", tensor.scalar_type());
    auto *factor = dynamic_cast<c10d::NCCLPreMulSumSupplement *>(op.supplement_.get());
    TORCH_CHECK_VALUE(factor, "alnico: PREMUL_SUM without a factor");
    return factor->tensor_factor.defined() ? tensor * factor->tensor_factor.to(tensor.dtype())
                                           : tensor * factor->double_factor;
}

Blocks::Blocks(const std::vector<at::Tensor> &tensors) : tensors_(tensors)
{
    bool adjacent = true;
    auto *next = static_cast<char *>(tensors[0].data_ptr());
    for (auto &tensor : tensors) {
        check_tensor(tensor, "a tensor of the list");
        TORCH_CHECK_TYPE(tensor.scalar_type() == tensors[0].scalar_type(),
                         "alnico: tensors of a list have types ", tensors[0].scalar_type(), " and ",
                         tensor.scalar_type());
        TORCH_CHECK_VALUE(tensor.device() == tensors[0].device(),
                          "alnico: tensors of a list are on ", tensors[0].device(), " and ",
                          tensor.device());
        counts_.push_back(tensor.numel());
        adjacent = adjacent && tensor.is_contiguous() && tensor.data_ptr() == next;
        next += tensor.nbytes();
    }
    if (!adjacent)
        memory_ = at::empty({std::accumulate(counts_.begin(), counts_.end(), int64_t(0))},
                            tensors[0].options().requires_grad(false));
    data_ = adjacent ? tensors[0].data_ptr() : memory_.data_ptr();
}

bool Blocks::equal() const
{
    return std::all_of(counts_.begin(), counts_.end(),
                       [this](size_t count) { return count == counts_[0]; });
}

at::Tensor Blocks::whole() const
{
    if (temporary())
        return memory_;
    const int64_t count = std::accumulate(counts_.begin(), counts_.end(), int64_t(0));
    return at::from_blob(data_, {count}, tensors_[0].options().requires_grad(false));
}

at::Tensor Blocks::part(size_t index) const
{
    int64_t from = std::accumulate(counts_.begin(), counts_.begin() + index, int64_t(0));
    return memory_.narrow(0, from, counts_[index]).view(tensors_[index].sizes());
}

void Blocks::fill()
{
    if (!temporary())
        return;
    at::NoGradGuard no_grad;
    for (size_t i = 0; i < tensors_.size(); i++)
        part(i).copy_(tensors_[i]);
}

} // namespace alnico
