#pragma once

#include <voxgrad/nn/module.h>

namespace vox::nn {

/// In training, zeroes each element with probability p and scales the others by 1 / (1 - p) (Srivastava et
/// al. 2014). In evaluation it returns its input. Each training call with 0 < p < 1 draws one f32 tensor from
/// default_generator(), so equal seeds drop equal elements on every device.
class Dropout final : public Module {
 public:
  struct Options {
    vox::detail::ByName by_name{};
    double p = 0.5;
  };
  /// Throws ValueError unless 0 <= p <= 1.
  explicit Dropout(const Options& options);
  Dropout() : Dropout(Options{}) {}
  VOXGRAD_MODULE()
  /// Any shape, floating dtype.
  Tensor forward(const Tensor& input);
  std::string describe() const override { return str("Dropout(", options.p, ")"); }

  Options options;
};

}  // namespace vox::nn
