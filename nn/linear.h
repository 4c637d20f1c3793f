#pragma once

#include <voxgrad/nn/module.h>

namespace vox::nn {

/// input * weight^T + bias, with a weight (out_features, in_features) and a bias (out_features). Both start
/// uniform in +-1/sqrt(in_features). (..., in_features) -> (..., out_features). If in_features is 0, the
/// output is the bias, which starts at 0.
class Linear final : public Module {
 public:
  struct Options {
    vox::detail::ByName by_name{};
    int64_t in_features, out_features;
    bool bias = true;
    TensorOptions tensor = {};  ///< dtype and device of the parameters
  };
  explicit Linear(const Options& options);
  VOXGRAD_MODULE()
  /// Throws ShapeError unless the input's last size is in_features.
  Tensor forward(const Tensor& input);
  std::string describe() const override;
  int64_t multiply_adds(const Tensor&, const Tensor& output) const override {
    return output.numel() * options.in_features;
  }

  Options options;
  Tensor weight, bias;
};

}  // namespace vox::nn
