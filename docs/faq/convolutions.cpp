#include "docs/faq/answers.h"

namespace faq {

ANSWER(11, transposed_is_not_inverse) {
  const vox::Tensor x = vox::from_vector<float>({1, 2, 3, 4}, {1, 4});
  const vox::Tensor weight = vox::from_vector<float>({1, 1}, {1, 1, 2});
  const vox::Tensor y = vox::conv1d(x, weight), back = vox::conv_transpose1d(y, weight);
  std::cout << "x    " << x << "\ny    " << y << "\nback " << back << "\n";

  const vox::Tensor z = vox::from_vector<float>({1, 0, 2}, {1, 3});
  std::cout << "<conv(x), z> = " << (y * z).sum().item()
            << ", <x, conv_transpose(z)> = " << (x * vox::conv_transpose1d(z, weight)).sum().item() << "\n";
}

ANSWER(12, output_padding) {
  const vox::Tensor weight = vox::ones({1, 1, 3});
  for (const int64_t size : {7, 8})
    std::cout << "conv1d: " << size << " -> "
              << vox::conv1d(vox::ones({1, size}), weight, {}, {.stride = 2}).size(1) << "\n";
  const vox::Tensor small = vox::ones({1, 3});
  for (const int64_t extra : {0, 1})
    std::cout << vox::conv_transpose1d(small, weight, {}, {.stride = 2, .output_padding = extra}) << "\n";
  std::cout << vox::conv_transpose1d(small, weight, {}, {.stride = 2, .output_size = 8}).shape() << "\n";
  attempt([&] { vox::conv_transpose1d(small, weight, {}, {.stride = 2, .output_size = 9}); });
}

ANSWER(13, shared_sizes) {
  const vox::Tensor weight = vox::ones({1, 1, 3});
  for (const int64_t size : {7, 8, 9}) {
    const vox::Tensor x = vox::ones({1, size}).set_requires_grad();
    const vox::Tensor y = vox::conv1d(x, weight, {}, {.stride = 2});
    y.sum().backward();
    std::cout << y.shape() << "  " << x.grad() << "\n";
  }
}

ANSWER(14, groups) {
  for (const int64_t groups : {1, 2, 4}) {
    const vox::nn::Conv3d conv({.in_channels = 4, .out_channels = 8, .kernel_size = 3, .groups = groups});
    const vox::nn::ConvTranspose3d transposed(
        {.in_channels = 4, .out_channels = 8, .kernel_size = 3, .groups = groups});
    std::cout << groups << "  " << conv.weight.shape() << "  " << transposed.weight.shape() << "\n";
  }
}

ANSWER(15, checkerboard) {
  const vox::Tensor x = vox::ones({1, 5});
  for (const int64_t kernel : {3, 4})
    std::cout << "kernel " << kernel << ": "
              << vox::conv_transpose1d(x, vox::ones({1, 1, kernel}), {}, {.stride = 2}) << "\n";
}

}  // namespace faq
