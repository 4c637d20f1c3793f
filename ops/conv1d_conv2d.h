#pragma once

#include <optional>

#include <voxgrad/ops/conv3d.h>

// Convolutions over one and two dimensions: views of those over three.

namespace vox {

struct Conv1dOptions {
  detail::ByName by_name{};
  int64_t stride = 1, padding = 0, dilation = 1, groups = 1;
};
struct ConvTranspose1dOptions {
  detail::ByName by_name{};
  int64_t stride = 1, padding = 0, output_padding = 0, groups = 1, dilation = 1;
  std::optional<int64_t> output_size = {};
};

struct Conv2dOptions {
  detail::ByName by_name{};
  Pair stride = 1, padding = 0, dilation = 1;
  int64_t groups = 1;
};
struct ConvTranspose2dOptions {
  detail::ByName by_name{};
  Pair stride = 1, padding = 0, output_padding = 0;
  int64_t groups = 1;
  Pair dilation = 1;
  std::optional<Pair> output_size = {};
};

Tensor conv1d(const Tensor& input, const Tensor& weight, const Tensor& bias = {},
              const Conv1dOptions& options = {});
Tensor conv2d(const Tensor& input, const Tensor& weight, const Tensor& bias = {},
              const Conv2dOptions& options = {});
Tensor conv_transpose1d(const Tensor& input, const Tensor& weight, const Tensor& bias = {},
                        const ConvTranspose1dOptions& options = {});
Tensor conv_transpose2d(const Tensor& input, const Tensor& weight, const Tensor& bias = {},
                        const ConvTranspose2dOptions& options = {});

namespace detail {

// They throw what the public calls throw for options that no input fits. (conv3d_geometry.h declares the same
// for three axes.) Layers call them in their constructors.
void check_options(const char* function, int64_t kernel_size, const Conv1dOptions& options);
void check_options(const char* function, const Pair& kernel_size, const Conv2dOptions& options);
void check_options(const char* function, int64_t kernel_size, const ConvTranspose1dOptions& options);
void check_options(const char* function, const Pair& kernel_size, const ConvTranspose2dOptions& options);

}  // namespace detail
}  // namespace vox
