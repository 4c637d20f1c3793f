#include <voxgrad/autograd/shared_nodes.h>
#include <voxgrad/ops/dispatch.h>
#include <voxgrad/ops/in_f32.h>
#include <voxgrad/ops/layer_kernels.h>
#include <voxgrad/ops/shaping.h>

#include <utility>

namespace vox {

namespace detail {
/// The adjoint of index_select (shaping.h); both are recorded, each the gradient of the other.
Tensor index_add(const Tensor& y, int64_t dim, const Tensor& indices, int64_t size);
}  // namespace detail

namespace {

constexpr ByDevice check_kernel{"index_select", &cpu::check_indices, VOX_CUDA(&cuda::check_indices)};
constexpr ByDevice select_kernel{"index_select", &cpu::index_select, VOX_CUDA(&cuda::index_select)};
constexpr ByDevice add_kernel{"index_select", in_f32<&cpu::index_add>, VOX_CUDA(in_f32<&cuda::index_add>)};

Tensor empty_with(const Tensor& x, int64_t dim, int64_t size) {
  Shape shape = x.shape();
  shape[dim] = size;
  return detail::empty_for("index_select", shape, x.options());
}

Tensor select_into(Tensor y, const Tensor& x, int64_t dim, const Tensor& indices) {
  // The kernel reads a dense copy of x faster. The copy pays if it is no larger than the result.
  const bool copy = indices.numel() >= x.shape()[dim];
  const Tensor from = in_the_name_of("index_select", [&] { return copy ? x.detach().contiguous() : x; });
  if (y.numel() > 0) select_kernel.on(y.device())(from, dim, indices, y);
  return autograd::linear_keeping(indices, "index_select", {x}, y,
                                  [dim, size = x.shape()[dim]](const Tensor& g, const Tensor& chosen) {
                                    return detail::index_add(g, dim, chosen, size);
                                  });
}

}  // namespace

namespace detail {

Tensor index_select(const Tensor& x, int64_t dim, const Tensor& indices) {
  return select_into(empty_with(x, dim, indices.numel()), x, dim, indices);
}

Tensor index_add(const Tensor& y, int64_t dim, const Tensor& indices, int64_t size) {
  Tensor x = empty_with(y, dim, size);
  if (x.numel() > 0) add_kernel.on(x.device())(y.detach().contiguous(), dim, indices.contiguous(), x);
  return autograd::linear_keeping(indices, "index_add", {y}, x, [dim](const Tensor& g, const Tensor& chosen) {
    return index_select(g, dim, chosen);
  });
}

}  // namespace detail

Tensor index_select(const Tensor& x, Int dim, const Tensor& indices) {
  detail::check_defined("index_select", "x", x);
  detail::check_defined("index_select", "indices", indices);
  dim = normalize_dim("index_select", dim, x.rank());
  check<DTypeError>(indices.dtype() == i64, "index_select: indices must have dtype i64, got ",
                    indices.dtype());
  check<ShapeError>(indices.rank() == 1, "index_select: indices must have one dimension, got shape ",
                    indices.shape());
  detail::check_same_device("index_select", x, indices);
  Tensor y = empty_with(x, dim, indices.numel());  // before all indices are read
  check_kernel.on(x.device())(indices, x.shape()[dim]);
  return select_into(std::move(y), x, dim, indices);
}

}  // namespace vox
