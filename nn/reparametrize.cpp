#include <voxgrad/autograd/grad_mode.h>
#include <voxgrad/core/factories.h>
#include <voxgrad/nn/reparametrize.h>
#include <voxgrad/ops/elementwise.h>
#include <voxgrad/ops/matmul.h>
#include <voxgrad/ops/reduce.h>

namespace vox::nn::detail {

namespace {

/// The slices of `weight` along `dim` as the rows of a matrix.
Tensor matrix_of(const Tensor& weight, int64_t dim) {
  check<ShapeError>(dim >= 0 && dim < weight.rank(), "nn::SpectralNorm: dim ", dim, " of a weight of shape ",
                    weight.shape());
  std::vector<int64_t> order{dim};
  for (int64_t d = 0; d < weight.rank(); ++d) {
    if (d != dim) order.push_back(d);
  }
  return weight.permute(order).reshape({weight.shape()[dim], -1});
}

/// x with length 1, or shorter if its length is below eps.
Tensor normalized(const Tensor& x, double eps) { return x / maximum(vox::norm(x), eps); }

}  // namespace

Tensor norm_except(const Tensor& v, std::optional<int64_t> dim) {
  const Tensor wide = v.to(opmath(v.dtype()));
  if (!dim) return vox::norm(wide).to(v.dtype());
  check<ShapeError>(*dim >= 0 && *dim < v.rank(), "nn::WeightNorm: dim ", *dim, " of a weight of shape ",
                    v.shape());
  Shape others;
  for (int64_t d = 0; d < v.rank(); ++d) {
    if (d != *dim) others.push_back(d);
  }
  if (others.empty()) return abs(v);
  return vox::norm(wide, 2, others, true).to(v.dtype());
}

Tensor normalized_weight(const Tensor& g, const Tensor& v, std::optional<int64_t> dim) {
  const DType wide = opmath(v.dtype());
  return (v.to(wide) * (g.to(wide) / norm_except(v.to(wide), dim))).to(v.dtype());
}

Tensor spectral_weight(const Tensor& weight, Tensor& u, Tensor& v, int64_t dim, int64_t iterations,
                       double eps) {
  const DType wide = opmath(weight.dtype());
  const Tensor matrix = matrix_of(weight.to(wide), dim);
  {
    const auto guard = no_grad();
    for (int64_t i = 0; i < iterations; ++i) {
      v.copy_(normalized(matmul(u.to(wide), matrix), eps));
      u.copy_(normalized(matmul(matrix, v.to(wide)), eps));
    }
  }
  // Copies, because the next call writes to u and v before the backward of this one may have run.
  const Tensor sigma = matmul(u.clone().to(wide), matmul(matrix, v.clone().to(wide)));
  return (weight.to(wide) / sigma).to(weight.dtype());
}

std::pair<Tensor, Tensor> spectral_vectors(const Tensor& weight, int64_t dim) {
  const auto guard = no_grad();
  const Tensor matrix = matrix_of(weight, dim);
  const auto direction = [&](int64_t size) {
    const Tensor x = randn({size}, {.dtype = opmath(weight.dtype())}).to(weight.device());
    return normalized(x, 1e-12).to(weight.dtype());
  };
  return {direction(matrix.size(0)), direction(matrix.size(1))};
}

}  // namespace vox::nn::detail
