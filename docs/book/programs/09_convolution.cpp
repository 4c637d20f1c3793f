// 09: a convolution, its adjoint, and where a checkerboard comes from.

#include <iostream>

#include <voxgrad/voxgrad.h>

double dot(const vox::Tensor& a, const vox::Tensor& b) { return (a * b).sum().item(); }

int main() {
  // Whole numbers, so that the three sums are equal to the last bit.
  vox::manual_seed(1);
  const vox::Tensor x = vox::randint(-4, 5, {1, 2, 9}).to(vox::f32);
  const vox::Tensor w = vox::randint(-4, 5, {3, 2, 4}).to(vox::f32).set_requires_grad(true);
  const vox::Tensor y = vox::conv1d(x, w, {}, {.stride = 2, .padding = 1});
  const vox::Tensor u = vox::randint(-4, 5, y.shape()).to(vox::f32);

  // One number T(x, w, u), computed in three ways.
  const vox::Tensor back =
      vox::conv_transpose1d(u, w.detach(), {}, {.stride = 2, .padding = 1, .output_padding = 1});
  const vox::Tensor weight_grad = vox::grad({y}, {w}, {.grad_outputs = {u}})[0];
  std::cout << "x " << x.shape() << ", conv " << y.shape() << ", conv_transpose " << back.shape() << "\n";
  std::cout << "<conv(x, w), u> = " << dot(y.detach(), u) << "\n<x, conv_transpose(u, w)> = " << dot(x, back)
            << "\n<w, weight_grad(x, u)> = " << dot(w.detach(), weight_grad) << "\n\n";

  // How many taps reach each output of a transposed convolution.
  for (const int64_t taps : {2, 3, 4, 5}) {
    const vox::Tensor weight = vox::ones({1, 1, taps});
    std::cout << "stride 2, " << taps
              << " taps: " << vox::conv_transpose1d(vox::ones({1, 1, 5}), weight, {}, {.stride = 2}).flatten()
              << "\n";
  }
  const vox::Tensor resized = vox::interpolate(vox::ones({1, 1, 1, 1, 5}), {.size = {{1, 1, 10}}});
  std::cout << "resize, then 3 taps: " << vox::conv3d(resized, vox::ones({1, 1, 1, 1, 3})).flatten() << "\n";
}
