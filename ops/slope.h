#pragma once

#include <functional>
#include <utility>

#include <voxgrad/autograd/record.h>
#include <voxgrad/ops/arithmetic.h>

namespace vox::detail {

/// y = f(x), element by element, with the gradient g * slope(x). It is one product, where the gradients of
/// the ops in f may be infinities that cancel.
struct SlopeNode final : autograd::Node {
  explicit SlopeNode(const char* function) : function_(function) {}
  const char* function_;
  std::function<Tensor(const Tensor&)> slope_;
  autograd::SavedTensor x_{this};
  const char* name() const override { return function_; }
  autograd::Gradients backward(autograd::Gradients g) override { return {*g[0] * slope_(x_.get())}; }
};

/// f(x), recorded with this slope, which consists of recorded ops.
inline Tensor with_slope(const char* function, const Tensor& x, const std::function<Tensor(const Tensor&)>& f,
                         std::function<Tensor(const Tensor&)> slope) {
  const Tensor y = f(x.detach());
  if (auto node = autograd::record<SlopeNode>({x}, y, function)) {
    node->slope_ = std::move(slope);
    node->x_.save(x);
  }
  return y;
}

}  // namespace vox::detail
