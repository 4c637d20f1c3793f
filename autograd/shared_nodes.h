#pragma once

#include <optional>
#include <tuple>
#include <type_traits>

#include <voxgrad/autograd/record.h>

// Nodes that many ops share.

namespace vox::autograd {

/// The node of an op that is linear in each of its inputs. Such a gradient is a function of g, and perhaps of
/// a tensor that the node keeps, `adjoint(g)` or `adjoint(g, kept)`.
template <class... Adjoint>
struct LinearNode final : Node {
  LinearNode(const char* name, const Tensor* kept, const std::tuple<Adjoint...>& adjoints)
      : name_(name), adjoints_(adjoints) {
    if (kept) kept_.emplace(this).save(*kept);
  }
  const char* name() const override { return name_; }
  Gradients backward(Gradients gradients) override {
    const auto apply_to_g = [&]<class F>(const F& adjoint) -> Tensor {
      if constexpr (std::is_invocable_v<F, Tensor, Tensor>)
        return adjoint(*gradients[0], kept_->get());
      else
        return adjoint(*gradients[0]);
    };
    const auto each = [&](const Adjoint&... adjoint) {
      int64_t input = 0;
      return Gradients{if_needed(input++, [&] { return apply_to_g(adjoint); })...};
    };
    return std::apply(each, adjoints_);
  }

 private:
  const char* name_;
  std::tuple<Adjoint...> adjoints_;  // by input
  std::optional<SavedTensor> kept_;
};

/// Records `y` as linear in `inputs`, with an adjoint for each, and returns it:
///
///     return linear("permute", {x}, y, [inverse](const Tensor& g) { return g.permute(inverse); });
///
/// An adjoint consists of recorded ops and captures no tensor: its node would own what lies on the tape.
template <class... Adjoint>
Tensor linear(const char* name, std::initializer_list<Tensor> inputs, const Tensor& y, Adjoint... adjoints) {
  record<LinearNode<Adjoint...>>(inputs, y, name, nullptr, std::tuple(adjoints...));
  return y;
}

/// The same for an op that keeps a tensor, such as indices: adjoint(g, kept).
template <class... Adjoint>
Tensor linear_keeping(const Tensor& kept, const char* name, std::initializer_list<Tensor> inputs,
                      const Tensor& y, Adjoint... adjoints) {
  record<LinearNode<Adjoint...>>(inputs, y, name, &kept, std::tuple(adjoints...));
  return y;
}

/// A node that keeps both operands, or, if it is a product, each for the gradient of the other.
struct PairNode : Node {
  SavedTensor saved_a_{this}, saved_b_{this};
  void save(const Tensor& a, const Tensor& b) {
    saved_a_.save(a);
    saved_b_.save(b);
  }
  void save_factors(const Tensor& a, const Tensor& b) {
    saved_a_.save_for(1, a);
    saved_b_.save_for(0, b);
  }
};

}  // namespace vox::autograd
