#pragma once

#include <voxgrad/nn/module.h>
#include <voxgrad/ops/pool3d.h>

// The pooling of ops/pool3d.h as layers: `MaxPool3d({.kernel_size = 2})`. Options that no input fits are
// refused at construction.

namespace vox::nn {

struct MaxPool3d final : Module {
  explicit MaxPool3d(const MaxPool3dOptions& o) : options(o) {
    vox::detail::check_options("nn::MaxPool3d", o);
  }
  Tensor forward(const Tensor& input) override { return max_pool3d(input, options); }
  const MaxPool3dOptions options;
};

struct AvgPool3d final : Module {
  explicit AvgPool3d(const AvgPool3dOptions& o) : options(o) {
    vox::detail::check_options("nn::AvgPool3d", o);
  }
  Tensor forward(const Tensor& input) override { return avg_pool3d(input, options); }
  const AvgPool3dOptions options;
};

}  // namespace vox::nn
