#include <voxgrad/autograd/autocast_scope.h>
#include <voxgrad/autograd/shared_nodes.h>
#include <voxgrad/ops/dispatch.h>
#include <voxgrad/ops/in_f32.h>
#include <voxgrad/ops/kernels.h>
#include <voxgrad/ops/matmul.h>
#include <voxgrad/ops/sum.h>

namespace vox {

namespace {

constexpr ByDevice matmul_kernel{"matmul", in_f32<&cpu::matmul>, VOX_CUDA(&cuda::matmul)};

/// x with batch dimensions `batch`, off the tape; repeated batches have stride 0.
Tensor expand_batch(const Tensor& x, const Shape& batch) {
  Shape shape = batch;
  shape.push_back(x.size(-2));
  shape.push_back(x.size(-1));
  return x.detach().expand(shape);
}

Shape batch_of(const Tensor& x) { return Shape(x.shape().begin(), x.shape().end() - 2); }

/// y = a b for operands of rank >= 2:
///   da = g b^T, db = a^T g, each summed over broadcast batches.
struct MatmulNode final : autograd::PairNode {
  const char* name() const override { return "matmul"; }
  autograd::Gradients backward(autograd::Gradients g) override;
};

/// The batch dimensions of a product.
Shape batch_of(const Tensor& a, const Tensor& b) {
  try {
    return broadcast_shapes("matmul", batch_of(a), batch_of(b));
  } catch (const ShapeError&) {  // which does not know the operands' shapes
    throw ShapeError(str("matmul: the batch dimensions of shapes ", a.shape(), " and ", b.shape(), ", ",
                         batch_of(a), " and ", batch_of(b), ", do not broadcast; sizes must be equal or 1"));
  }
}

Tensor matmul_matrices(const Tensor& a, const Tensor& b) {
  const Shape batch = batch_of(a, b);
  Shape shape = batch;
  shape.push_back(a.size(-2)), shape.push_back(b.size(-1));
  Tensor y = detail::empty_for("matmul", shape, a.options());
  if (y.numel() > 0) matmul_kernel.on(y.device())(expand_batch(a, batch), expand_batch(b, batch), y);
  if (auto node = autograd::record<MatmulNode>({a, b}, y)) node->save_factors(a, b);
  return y;
}

autograd::Gradients MatmulNode::backward(autograd::Gradients g) {
  const auto transposed = [](const autograd::SavedTensor& m) { return m.get().transpose(-2, -1); };
  return {if_needed(0, [&] { return sum_to(matmul_matrices(*g[0], transposed(saved_b_)), input_shape(0)); }),
          if_needed(1, [&] { return sum_to(matmul_matrices(transposed(saved_a_), *g[0]), input_shape(1)); })};
}

}  // namespace

Tensor matmul(const Tensor& first, const Tensor& second) {
  const Tensor a = detail::autocast_operand(first), b = detail::autocast_operand(second);
  detail::check_defined("matmul", "a", a);
  detail::check_defined("matmul", "b", b);
  detail::check_same_dtype("matmul", a, b);
  detail::check_same_device("matmul", a, b);
  detail::check_floating("matmul", "a", a);
  check<ShapeError>(a.rank() > 0 && b.rank() > 0, "matmul: needs rank >= 1, got shapes ", a.shape(), " and ",
                    b.shape(), " (use mul for a factor of rank 0)");
  const int64_t k = b.size(b.rank() == 1 ? 0 : -2);
  check<ShapeError>(a.size(-1) == k, "matmul: a's last size must be b's ",
                    b.rank() == 1 ? "only" : "last but one", ", got shapes ", a.shape(), " and ", b.shape(),
                    ": ", a.size(-1), " is not ", k);
  Tensor y = matmul_matrices(a.rank() == 1 ? a.unsqueeze(0) : a, b.rank() == 1 ? b.unsqueeze(1) : b);
  if (b.rank() == 1) y = y.squeeze(-1);
  if (a.rank() == 1) y = y.squeeze(b.rank() == 1 ? -1 : -2);
  return y;
}

Tensor bmm(const Tensor& a, const Tensor& b) {
  detail::check_defined("bmm", "a", a);
  detail::check_defined("bmm", "b", b);
  check<ShapeError>(a.rank() == 3 && b.rank() == 3 && a.shape()[0] == b.shape()[0],
                    "bmm: needs two tensors of rank 3 and one batch size, got shapes ", a.shape(), " and ",
                    b.shape(), " (matmul broadcasts)");
  return in_the_name_of("bmm", [&] { return matmul(a, b); });
}

}  // namespace vox
