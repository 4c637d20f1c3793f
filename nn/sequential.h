#pragma once

#include <voxgrad/nn/module.h>

namespace vox::nn {

/// Layers applied one after the other: `Sequential net{Conv3d({...}), ReLU(), ConvTranspose3d({...})};` The
/// children are named "0", "1", ... Use braces: C++ reads `Sequential net(ReLU(), ReLU());` as the
/// declaration of a function.
class Sequential final : public Module {
 public:
  template <class... Ms>
  requires((std::is_base_of_v<Module, std::remove_cvref_t<Ms>> &&
            !std::is_lvalue_reference_v<Ms>)&&...) explicit Sequential(Ms&&... layers) {
    (push_back(std::move(layers)), ...);
  }
  Sequential(Sequential&&) = default;
  Sequential& operator=(Sequential&&) = default;

  /// Appends a layer, which is moved, or a std::shared_ptr to one, which is shared with the caller.
  template <class M>
  void push_back(M&& layer) {
    layers_.push_back(register_module(std::to_string(layers_.size()), std::forward<M>(layer)));
  }

  size_t size() const { return layers_.size(); }
  Module& operator[](size_t i) const {
    check<ValueError>(i < layers_.size(), "Sequential: layer ", i, " of ", layers_.size());
    return *layers_[i];
  }

  /// A norm and a ReLU or LeakyReLU that follows it are one pass over memory. The result is that of both
  /// layers, except that LeakyReLU rounds 16-bit elements once instead of twice.
  Tensor forward(const Tensor& input) override;

 private:
  std::vector<std::shared_ptr<Module>> layers_;
};

}  // namespace vox::nn
