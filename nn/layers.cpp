#include <voxgrad/nn/layer.h>
#include <voxgrad/nn/layers.h>

namespace vox::nn {

std::string MaxPool3d::describe() const {
  return str("MaxPool3d(kernel_size=", options.kernel_size,
             detail::option("stride", options.stride.value_or(options.kernel_size), options.kernel_size),
             detail::option("padding", options.padding, 0), detail::option("dilation", options.dilation, 1),
             options.ceil_mode ? ", ceil_mode" : "", ")");
}

std::string AvgPool3d::describe() const {
  return str("AvgPool3d(kernel_size=", options.kernel_size,
             detail::option("stride", options.stride.value_or(options.kernel_size), options.kernel_size),
             detail::option("padding", options.padding, 0), options.ceil_mode ? ", ceil_mode" : "", ")");
}

std::string Upsample::describe() const {
  std::string size;
  if (options.size) size = str("size=", *options.size);
  if (const auto& scale = options.scale_factor)
    size = str("scale_factor=(", (*scale)[0], ",", (*scale)[1], ",", (*scale)[2], ")");
  return str("Upsample(", size,
             options.mode == InterpolateOptions::Mode::nearest ? ", nearest" : ", trilinear",
             options.align_corners ? ", align_corners" : "", ")");
}

}  // namespace vox::nn
