#pragma once

#include <concepts>
#include <functional>
#include <type_traits>
#include <utility>
#include <vector>

#include <voxgrad/core/tensor.h>

namespace vox {

namespace detail {
using CheckpointFunction = std::function<std::vector<Tensor>(const std::vector<Tensor>&)>;
std::vector<Tensor> checkpoint(const CheckpointFunction& f, const std::vector<Tensor>& inputs);
}  // namespace detail

/// f(inputs...), without keeping what its ops save for backward: f runs again in backward (Chen et al., arXiv
/// 1604.06174). So a network of n layers, checkpointed in sqrt(n) parts, trains in the memory of about
/// 2 sqrt(n) layers and the time of one more forward.
///
///     Tensor y = vox::checkpoint([&](const Tensor& x) { return block(x); }, x);
///
/// f takes tensors and returns a Tensor or a std::vector<Tensor>. Results and gradients have the same bits as
/// those of f(inputs...), if f does the same in both runs: the second draws the same numbers from
/// default_generator() (if no other thread draws meanwhile) and has the same autocast and precision. (Under
/// autocast a parameter is cast anew, so its gradients from inside and outside of f are added in f32.)
/// Gradients reach the inputs and all tensors that f captured, to any order. f is copied; what it refers to
/// must live until the backward. Other effects of f happen twice: batch norm counts the batch twice in its
/// running statistics.
///
/// The backward throws GradError if an input, or a leaf that f captured, was written since the first run; and
/// if the gradients of the second run lead to other tensors than those of the first, or its results have
/// another shape or dtype. Other differences are not noticed, and make gradients wrong: other ops on the same
/// tensors, and changes of numbers or of tensors that do not require grad or are not leaves, which f
/// captured.
template <class Function, class... Tensors>
requires(std::convertible_to<const Tensors&, const Tensor&>&&...) auto checkpoint(Function&& function,
                                                                                  const Tensors&... inputs) {
  using F = std::decay_t<Function>;
  static_assert(std::is_copy_constructible_v<F>,
                "checkpoint: the function is copied, which a module cannot be; pass a lambda: "
                "checkpoint([&](const Tensor& x) { return block(x); }, x)");
  using Result = std::invoke_result_t<F&, const Tensors&...>;
  static_assert(std::is_same_v<Result, Tensor> || std::is_same_v<Result, std::vector<Tensor>>,
                "checkpoint: f must return a Tensor or a std::vector<Tensor>");
  detail::check_callable<Result(const Tensors&...)>("checkpoint", "function", function);
  const auto call = [f = F(std::forward<Function>(function))](
                        const std::vector<Tensor>& in) mutable -> std::vector<Tensor> {
    const auto apply = [&]<size_t... i>(std::index_sequence<i...>) { return f(in[i]...); };
    if constexpr (std::is_same_v<Result, Tensor>)
      return {apply(std::index_sequence_for<Tensors...>())};
    else
      return apply(std::index_sequence_for<Tensors...>());
  };
  std::vector<Tensor> results = detail::checkpoint(call, {inputs...});
  if constexpr (std::is_same_v<Result, Tensor>)
    return results[0];
  else
    return results;
}

}  // namespace vox
