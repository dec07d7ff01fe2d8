/* Sums of sparse tensors: all ranks get the entries of all, and each adds them up in the order of ranks.
 * The numbers of entries go first, and the call waits for them. */
#include "issue.hpp"

#include <functional>
#include <numeric>

namespace alnico
{

using c10d::OpType;
using WorkPointer = ProcessGroupAlnico::WorkPointer;

namespace
{

constexpr Operation ALLGATHERV = {alnico_allgatherv, alnico_iallgatherv};

void check_sparse(const std::vector<at::Tensor> &tensors, const c10d::ReduceOp &op)
{
    TORCH_CHECK_VALUE(tensors.size() == 1, "alnico: allreduce_sparse takes one tensor, not ",
                      tensors.size());
    TORCH_CHECK_VALUE(tensors[0].layout() == at::kSparse,
                      "alnico: allreduce_sparse of a tensor that is ", tensors[0].layout(),
                      "; expected Sparse");
    TORCH_CHECK_VALUE(op == c10d::ReduceOp::SUM, "alnico: sparse tensors can only be summed");
}

/* rows[r] of rank r: entries, dimensions that are sparse, elements of the whole tensor. */
void check_rows(const at::Tensor &rows, int rank)
{
    const auto row = rows.accessor<int64_t, 2>();
    for (int64_t r = 0; r < rows.size(0); r++)
        TORCH_CHECK_VALUE(row[r][1] == row[rank][1] && row[r][2] == row[rank][2],
                          "alnico: allreduce_sparse has a tensor of ", row[rank][2],
                          " elements in ", row[rank][1], " sparse dimensions on rank ", rank,
                          " and of ", row[r][2], " in ", row[r][1], " on rank ", r);
}

/* Rows of all ranks, one behind the other. */
struct Gathered {
    Gathered(const at::Tensor &mine, const at::Tensor &rows) : mine(mine.contiguous())
    {
        const auto row = rows.accessor<int64_t, 2>();
        auto shape = mine.sizes().vec();
        shape[0] = 0;
        const size_t bytes_of_row =
            std::accumulate(shape.begin() + 1, shape.end(), size_t(1), std::multiplies<>()) *
            mine.element_size();
        for (int64_t r = 0; r < rows.size(0); r++) {
            shape[0] += row[r][0];
            bytes.push_back(row[r][0] * bytes_of_row);
        }
        all = at::empty(shape, mine.options().requires_grad(false));
    }

    void start(Work &work) const
    {
        work.start(ALLGATHERV, static_cast<const void *>(mine.data_ptr()), size_t(mine.nbytes()),
                   all.data_ptr(), bytes.data(), static_cast<const size_t *>(nullptr),
                   ALNICO_UINT8);
    }

    at::Tensor mine, all;
    std::vector<size_t> bytes;
};

} // namespace

/* Of all ranks, on the CPU. */
at::Tensor ProcessGroupAlnico::count_entries(const at::Tensor &sparse,
                                             std::chrono::milliseconds timeout)
{
    const auto options = at::TensorOptions().dtype(at::kLong);
    at::Tensor row = at::tensor({sparse._nnz(), sparse.sparse_dim(), sparse.numel()}, options)
                         .to(sparse.device());
    at::Tensor rows = at::empty({size_, 3}, row.options());
    c10d::AllgatherOptions waited;
    waited.timeout = timeout;
    waited.asyncOp = false;
    _allgather_base(rows, row, waited)->wait();
    return rows.cpu();
}

/* On a GPU all on the current stream: the sum waits for it in any case. */
WorkPointer ProcessGroupAlnico::allreduce_sparse(Tensors &tensors,
                                                 const c10d::AllreduceOptions &options)
{
    WithoutGil without_gil;
    check_sparse(tensors, options.reduceOp);
    TORCH_CHECK_VALUE(!coalescing_, "alnico: sums of sparse tensors cannot be coalesced");
    at::NoGradGuard no_grad;
    const at::Tensor tensor = tensors[0], mine = tensor.coalesce();
    const at::Tensor rows = count_entries(mine, options.timeout);
    check_rows(rows, rank_);
    const Gathered indices(mine.indices().t(), rows), values(mine.values(), rows);
    const auto sum = [tensor, indices = indices.all, values = values.all]() mutable {
        tensor.copy_(at::_sparse_coo_tensor_unsafe(indices.t(), values, tensor.sizes(),
                                                   tensor.options().requires_grad(false))
                         .coalesce());
    };
    const Tensors parts = {indices.mine, indices.all, values.mine, values.all};
    return issue({OpType::_ALLREDUCE_SPARSE, options.timeout, false}, tensor.device(), parts, {},
                 [&](Work &work) {
                     work.add_outputs(tensors);
                     if (indices.all.size(0) > 0) {
                         indices.start(work);
                         values.start(work);
                     }
                     work.call_later(sum);
                 });
}

} // namespace alnico
