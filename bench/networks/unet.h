#pragma once

#include <voxgrad/voxgrad.h>

#include <vector>

// The U-Nets of models.py, with the same names of parameters.

namespace bench {

using namespace vox::nn;
using vox::Tensor;

/// Two convolutions of kernel 3, each with norm and activation, which Sequential joins. The first one may
/// have a stride.
inline Sequential block(int64_t in, int64_t out, int64_t stride, bool nnunet) {
  Sequential layers;
  for (int i = 0; i < 2; ++i) {
    layers.push_back(Conv3d({.in_channels = i == 0 ? in : out,
                             .out_channels = out,
                             .kernel_size = 3,
                             .stride = i == 0 ? stride : 1,
                             .padding = 1}));
    if (nnunet) {
      layers.push_back(InstanceNorm3d({.num_features = out, .affine = true}));
      layers.push_back(LeakyReLU(0.01));
    } else {
      layers.push_back(BatchNorm3d({.num_features = out}));
      layers.push_back(ReLU());
    }
  }
  return layers;
}

/// A 3-D U-Net. With `nnunet` it is nnU-Net's: instance norm, leaky ReLU, and strided convolutions instead of
/// pooling.
struct UNet final : Module {
  bool nnunet;
  std::vector<Sequential> down, merge;
  std::vector<ConvTranspose3d> up;
  Conv3d head;
  VOXGRAD_MODULE(down, up, merge, head)

  UNet(const std::vector<int64_t>& channels, bool nnunet, int64_t classes = 2)
      : nnunet(nnunet), head({.in_channels = channels[0], .out_channels = classes, .kernel_size = 1}) {
    for (size_t i = 0; i < channels.size(); ++i) {
      const int64_t in = i == 0 ? 1 : channels[i - 1], stride = nnunet && i > 0 ? 2 : 1;
      down.push_back(block(in, channels[i], stride, nnunet));
    }
    for (size_t i = 0; i + 1 < channels.size(); ++i) {
      up.push_back(ConvTranspose3d(
          {.in_channels = channels[i + 1], .out_channels = channels[i], .kernel_size = 2, .stride = 2}));
      merge.push_back(block(2 * channels[i], channels[i], 1, nnunet));
    }
  }

  Tensor forward(const Tensor& input) {
    std::vector<Tensor> skips;
    Tensor x = input;
    for (size_t i = 0; i < down.size(); ++i) {
      if (i > 0 && !nnunet) x = vox::max_pool3d(x, {.kernel_size = 2});
      x = down[i](x);
      skips.push_back(x);
    }
    for (size_t i = up.size(); i-- > 0;) x = merge[i](vox::cat({skips[i], up[i](x)}, 1));
    return head(x);
  }
};

}  // namespace bench
