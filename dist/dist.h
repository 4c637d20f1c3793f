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
// elements on GPUs by NCCL in the current stream. All ranks make the same calls in the same order;
// docs/parallel.md tells more.

namespace vox {

/// A rank that has ended, is stuck, or makes another call than the others; a failure of MPI or NCCL. After it
/// the ranks cannot communicate any more.
struct DistError : Error {
  using Error::Error;
};

}  // namespace vox

namespace vox::dist {

struct InitOptions {
  /// Seconds that ranks wait for each other in one call. 0: VOXGRAD_DIST_TIMEOUT, or 600.
  double timeout = 0;
};

/// Finds the other ranks: those that mpirun started, or those of the environment that torchrun sets (RANK,
/// WORLD_SIZE, LOCAL_RANK, MASTER_ADDR, MASTER_PORT). A program that was started as usual is its only
/// rank, and need not call it. Call it once, before all other functions here. When the program ends, it waits
/// for the other ranks. Throws DistError.
void init(const InitOptions& options = {});

int rank();        ///< 0 to size() - 1
int size();        ///< number of ranks
int local_rank();  ///< counts the ranks of this machine: `Device::cuda(dist::local_rank())`

/// How all_reduce combines elements. On bool, max is "any" and min is "all".
enum class Reduce { sum, mean, max, min };

/// Elementwise over all ranks, whose `x` have one shape and dtype. The order of summation depends on the
/// number of ranks, the shape and the engine only. The gradient of x is that of the sum of all ranks' losses:
///
///     sum: all_reduce(g),   mean: all_reduce(g, mean)
///
/// Throws GradError for max and min of an x that requires grad, DTypeError for the mean of integers and the
/// sum of bool, and DistError.
Tensor all_reduce(const Tensor& x, Reduce reduce = Reduce::sum);

/// The x of rank `root`. The gradient of that x is the sum of all ranks' gradients; that of the others is 0.
Tensor broadcast(const Tensor& x, int root = 0);

/// All ranks' x, concatenated along the first dimension. The gradient is reduce_scatter(g).
Tensor all_gather(const Tensor& x);

/// The rank's part of the sum of all x, which is cut into size() parts along the first dimension. The
/// gradient is all_gather(g).
Tensor reduce_scatter(const Tensor& x);

/// Whether any rank passes true: for decisions that a clock or a signal makes, such as to stop after this
/// step.
bool any(bool value);

/// Returns when all ranks have called it. Does not wait for GPUs.
void barrier();

}  // namespace vox::dist
