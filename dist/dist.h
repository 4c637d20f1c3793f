#pragma once

#include <vector>

#include <voxgrad/core/tensor.h>

// Programs that run as several processes, called ranks, which compute together:
//
//     vox::dist::init();
//     vox::Tensor x = vox::full({3}, vox::dist::rank());
//     vox::Tensor y = vox::dist::all_reduce(x);  // the same on every rank: the sum of all x
//
// `mpirun -n 2 ./program` starts two of them, and so does torchrun. Elements on the CPU are moved by MPI,
// elements on GPUs by NCCL in the current stream. All ranks make the same calls in the same order.
// docs/parallel.md has the details.

namespace vox {

/// A rank has ended, is stuck, or made another call than the others; or MPI or NCCL failed. Afterwards the
/// ranks cannot communicate any more.
struct DistError : Error {
  using Error::Error;
};

}  // namespace vox

namespace vox::dist {

struct InitOptions {
  vox::detail::ByName by_name{};
  /// Seconds that ranks wait for each other in one call, at most 1e6. 0 means the environment variable
  /// VOXGRAD_DIST_TIMEOUT or, if that is not set, 600.
  double timeout = 0;
};

/// Finds the other ranks: those that mpirun started, or those of the environment that torchrun sets (RANK,
/// WORLD_SIZE, LOCAL_RANK, MASTER_ADDR, MASTER_PORT). Call it once, before all other functions here. A
/// program that neither of them started is its only rank and need not call it. At its end, a program waits
/// for the other ranks. Throws DistError if a rank is missing after the timeout or init() was called before,
/// and ValueError for a timeout out of range.
void init(const InitOptions& options = {});

int rank();        ///< 0 to size() - 1
int size();        ///< number of ranks
int local_rank();  ///< 0, 1, ... among the ranks of this machine: `Device::cuda(dist::local_rank())`

/// How all_reduce combines elements. On bool, max is "any" and min is "all".
enum class Reduce { sum, mean, max, min };

/// Combines the ranks' x element by element; all x have one shape and dtype. The order of summation depends
/// only on the number of ranks, the shape, and whether MPI or NCCL adds. Gradients are those of the sum of
/// all ranks' losses:
///
///     sum: all_reduce(g),   mean: all_reduce(g, mean)
///
/// Throws GradError for max and min of an x that requires grad, DTypeError for the mean of integers and the
/// sum of bool, and DistError.
Tensor all_reduce(const Tensor& x, Reduce reduce = Reduce::sum);

/// The x of rank `root`; all x have one shape and dtype. The gradient of root's x is the sum of all ranks'
/// gradients, that of the others is 0. Throws ValueError unless `root` is a rank, and DistError.
Tensor broadcast(const Tensor& x, int root = 0);

/// All ranks' x, of one shape and dtype, concatenated along the first dimension in the order of the ranks.
/// The gradient is reduce_scatter(g). Throws ShapeError for an x without dimensions, and DistError.
Tensor all_gather(const Tensor& x);

/// Part rank() of the sum of all x, which have one shape and dtype: the sum is cut into size() equal parts
/// along the first dimension. The gradient is all_gather(g). Throws ShapeError unless size() divides that
/// dimension, DTypeError for bool, and DistError.
Tensor reduce_scatter(const Tensor& x);

/// Whether any rank passes true. Ranks use it to agree on a decision that depends on a clock or a signal,
/// such as whether to stop.
bool any(bool value);

/// Returns when all ranks have called it. Does not wait for GPUs.
void barrier();

}  // namespace vox::dist
