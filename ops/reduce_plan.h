#pragma once

#include <voxgrad/ops/kernels.h>

// What all reductions share: checked arguments, and the call of a kernel.

namespace vox::detail {

/// What `dims` and `keepdim` of one call mean for x.
struct ReducePlan {
  Shape order;          ///< kept dimensions, then reduced ones, each in their old order
  Shape keepdim_shape;  ///< x's shape with 1 for reduced dimensions
  Shape shape;          ///< of the result
  int64_t reduced = 0;  ///< number of reduced dimensions
  int64_t count = 1;    ///< elements per result
};
ReducePlan reduce_plan(const char* function, const Tensor& x, const Shape& dims, bool keepdim);

/// ShapeError, naming `function`, if x has more than 2^53 elements. Their block results, up to 16 bytes each,
/// fill the address space. Only an expanded tensor is that large.
void check_reducible(const char* function, const Tensor& x);

/// x, off the tape, with its dimensions in this order.
Tensor in_order(const Tensor& x, const Shape& order);

/// A ReduceKernel, with its checks of devices. Errors name `function`.
void call_reduce(const char* function, ReduceKind kind, const Tensor& x, const Tensor& target,
                 const ReducePlan& plan, Tensor& y, Tensor& extra);

/// The reduction of x, off the tape, as a new tensor.
Tensor reduced(const char* function, ReduceKind kind, const Tensor& x, const ReducePlan& plan, DType dtype,
               Tensor extra = {});

/// The gradient of x, off the tape. g, r and b have the shape of the results, and keepdim_shape makes that
/// broadcast; r may have x's shape, or be undefined, which means 0.
Tensor reduce_gradient(const char* function, ReduceGradient kind, const Shape& keepdim_shape, const Tensor& g,
                       const Tensor& x, const Tensor& r, const Tensor& b = {});

}  // namespace vox::detail
