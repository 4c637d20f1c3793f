#pragma once

#include <algorithm>
#include <concepts>
#include <list>
#include <memory>
#include <vector>

#include <voxgrad/autograd/record.h>

namespace vox {

/// What a custom Function keeps between its forward and its backward.
class FunctionContext {
 public:
  /// Keeps tensors for backward: inputs, outputs or intermediate results of forward, in this order. Second
  /// derivatives treat an intermediate result as a constant. To get them right, recompute it in backward.
  void save_for_backward(std::vector<Tensor> tensors) { to_save_ = std::move(tensors); }

  /// In backward: the saved tensors. Throws GradError if one was written in place since, and if none was
  /// saved.
  std::vector<Tensor> saved() const {
    check<GradError>(!saved_.empty(), "FunctionContext::saved: nothing was saved (call save_for_backward in ",
                     "forward, and saved in backward)");
    std::vector<Tensor> tensors;
    for (const autograd::SavedTensor& s : saved_) tensors.push_back(s.get());
    return tensors;
  }

  /// In backward: whether the gradient of input i of forward is needed.
  bool needs_grad(Int i) const {
    check<GradError>(owner_ != nullptr, "FunctionContext::needs_grad: may be called only in backward");
    const auto inputs = static_cast<int64_t>(owner_->edges().size());
    check<ValueError>(i >= 0 && i < inputs, "FunctionContext::needs_grad: input ", i, " of ", inputs);
    return owner_->needs_grad(i);
  }

 private:
  template <class>
  friend class Function;
  template <class>
  friend struct FunctionNode;

  autograd::Node* owner_ = nullptr;
  std::vector<Tensor> to_save_;
  std::list<autograd::SavedTensor> saved_;
};

template <class F>
struct FunctionNode;

namespace detail {
/// F::name, a constant or, as a local struct may have no static data, a static function.
template <class F>
const char* name_of_function() {
  if constexpr (requires {
                  { F::name() } -> std::convertible_to<const char*>;
                })
    return F::name();
  else {
    static_assert(
        requires {
          { F::name } -> std::convertible_to<const char*>;
        },
        "a vox::Function needs `static constexpr const char* name`, or `static const char* name()`");
    return F::name;
  }
}

template <class F>
concept HasForward = requires(F f, FunctionContext& context, const std::vector<Tensor>& inputs) {
  { f.forward(context, inputs) } -> std::convertible_to<Tensor>;
};
template <class F>
concept HasBackward = requires(F f, FunctionContext& context, const Tensor& grad_output) {
  { f.backward(context, grad_output) } -> std::convertible_to<std::vector<Tensor>>;
};
}  // namespace detail

/// Base of a user's op with its own gradient; examples/03_custom_op.cpp is a complete one.
///
///     struct Cube : vox::Function<Cube> {
///       static constexpr const char* name = "cube";
///       double scale;                                              // anything forward and backward share
///       Tensor forward(FunctionContext& ctx, const std::vector<Tensor>& inputs);
///       std::vector<Tensor> backward(FunctionContext& ctx, const Tensor& grad_output);
///     };
///     Tensor y = Cube{.scale = 2}.apply({x});
///
/// A struct inside a function, which cannot have static data, writes `static const char* name() { return
/// "cube"; }`.
///
/// forward runs under no_grad() and returns a new tensor, which is recorded if its dtype is floating.
/// backward returns one gradient per input; an undefined tensor stands for none. If backward consists of
/// recorded ops, it can itself be differentiated.
template <class F>
class Function {
 public:
  Tensor apply(const std::vector<Tensor>& inputs) const {
    static_assert(detail::HasForward<F>,
                  "a vox::Function needs `Tensor forward(FunctionContext&, const std::vector<Tensor>&)`");
    static_assert(detail::HasBackward<F>,
                  "a vox::Function needs `std::vector<Tensor> backward(FunctionContext&, const Tensor&)`");
    const char* const name = detail::name_of_function<F>();
    F self = static_cast<const F&>(*this);
    FunctionContext context;
    Tensor output = [&] {
      const auto guard = no_grad();
      return self.forward(context, inputs);
    }();
    check<ValueError>(output.defined(), name, ": forward returned an undefined tensor");
    const auto is_output = [returned = output.impl()](const Tensor& t) { return t.impl() == returned; };
    const bool is_input = std::any_of(inputs.begin(), inputs.end(), is_output);
    check<GradError>(is_input || !output.requires_grad(), name,
                     ": forward must return a new tensor, got one that is on the tape");
    // The tape needs its own handle: the tensor may be an input, or the program may use it further.
    output = output.detach();
    if (!is_input) std::replace_if(context.to_save_.begin(), context.to_save_.end(), is_output, output);
    if (!is_floating(output.dtype())) return output;  // integer results have no gradient
    auto node = autograd::record<FunctionNode<F>>(inputs, std::span<const Tensor>(&output, 1));
    if (node) node->keep(std::move(self), std::move(context));
    return output;
  }
};

/// The node that a Function leaves on the tape.
template <class F>
struct FunctionNode final : autograd::Node {
  std::optional<F> function;
  FunctionContext context;

  const char* name() const override { return detail::name_of_function<F>(); }

  void keep(F self, FunctionContext forward_context) {
    function.emplace(std::move(self));
    context.owner_ = this;
    for (const Tensor& t : forward_context.to_save_) {
      // A tensor that is neither input nor output was made under no_grad(), so the tape treats it as a
      // constant.
      context.saved_.emplace_back(this).save(t);
    }
  }

  autograd::Gradients backward(autograd::Gradients gradients) override {
    std::vector<Tensor> results = autograd::call_on_gradient(
        "backward of ", *this, *gradients[0],
        [&](const Tensor& g) { return std::vector<Tensor>(function->backward(context, g)); });
    check<GradError>(results.size() == edges().size(), name(), ": backward returned ", results.size(),
                     " gradients for ", edges().size(), " inputs");
    autograd::Gradients out;
    for (Tensor& g : results) out.push_back(g.defined() ? autograd::Gradient(std::move(g)) : std::nullopt);
    return out;
  }
};

}  // namespace vox
