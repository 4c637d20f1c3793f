#pragma once

#include <voxgrad/nn/module.h>

namespace vox::nn {

struct DropoutOptions {
  vox::detail::ByName by_name{};
  double p = 0.5;
};

/// In training, zeroes each element with probability p and scales the others by 1 / (1 - p) (Srivastava et
/// al. 2014). In evaluation it returns its input. Dropout1d, 2d and 3d zero whole channels of `axes` spatial
/// axes (Tompson et al., arXiv 1411.4280), and take (N, C, spatial axes), or the same without N. Each
/// training call with 0 < p < 1 draws one f32 tensor from default_generator(), so equal seeds drop equal
/// elements on every device.
template <int axes>
class BasicDropout final : public Module {
 public:
  using Options = DropoutOptions;
  /// Throws ValueError unless 0 <= p <= 1.
  explicit BasicDropout(const Options& options);
  BasicDropout() : BasicDropout(Options{}) {}
  VOXGRAD_MODULE()
  /// Floating dtype; any shape, or that of the channels.
  Tensor forward(const Tensor& input);
  std::string describe() const override;

  Options options;
};

using Dropout = BasicDropout<0>;
using Dropout1d = BasicDropout<1>;
using Dropout2d = BasicDropout<2>;
using Dropout3d = BasicDropout<3>;

}  // namespace vox::nn
