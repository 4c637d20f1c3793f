#pragma once

#include <voxgrad/nn/module.h>
#include <voxgrad/ops/interpolate.h>

namespace vox::nn {

/// interpolate (ops/interpolate.h) as a layer:
/// `Upsample({.scale_factor = 2, .mode = InterpolateOptions::Mode::trilinear})`. Options that no input fits
/// are refused at construction.
struct Upsample final : Module {
  explicit Upsample(const InterpolateOptions& o) : options(o) {
    vox::detail::check_options("nn::Upsample", o);
  }
  Tensor forward(const Tensor& input) override { return interpolate(input, options); }
  const InterpolateOptions options;
};

}  // namespace vox::nn
