// Trains a small network with what voxgrad_afternoon has: it upsamples random blocks by a convolution, a
// transposed convolution and a matrix product. Fails unless the gradients agree with finite differences
// and the loss falls to a hundredth.

#include <cmath>
#include <iostream>
#include <vector>

#include <voxgrad/voxgrad.h>

namespace {

constexpr vox::TensorOptions f64{.dtype = vox::f64};

/// A parameter with numbers in +-1/sqrt(fan).
vox::Tensor parameter(const vox::Shape& shape, double fan) {
  const vox::Tensor t = (vox::rand(shape, f64) * 2 - 1) / std::sqrt(fan);
  return t.detach().set_requires_grad();
}

struct Network {
  vox::Tensor w1 = parameter({4, 1, 3, 3, 3}, 27), b1 = parameter({4}, 27);
  vox::Tensor w2 = parameter({4, 2, 2, 2, 2}, 16), b2 = parameter({2}, 16);
  vox::Tensor w3 = parameter({2 * 64, 8}, 128), b3 = parameter({8}, 128);

  std::vector<vox::Tensor> parameters() const { return {w1, b1, w2, b2, w3, b3}; }
  vox::Tensor operator()(const vox::Tensor& x) const {  // (N, 1, 2, 2, 2) -> (N, 8)
    const vox::Tensor fine = vox::relu(vox::conv3d(x, w1, b1, {.padding = 1}));
    const vox::Tensor finer = vox::relu(vox::conv_transpose3d(fine, w2, b2, {.stride = 2}));
    return vox::matmul(finer.reshape({x.size(0), 2 * 64}), w3) + b3;
  }
};

/// Whether the gradient of the sum of p's elements agrees with a finite difference of the loss.
template <class Loss>
bool gradient_agrees(vox::Tensor p, const Loss& loss) {
  const auto guard = vox::no_grad();
  const double eps = 1e-6, expected = p.grad().sum().item<double>();
  const double above = (p.add_(eps), loss()), below = (p.add_(-2 * eps), loss());
  p.add_(eps);
  const double got = (above - below) / (2 * eps);
  if (std::abs(got - expected) < 1e-6 * (1 + std::abs(expected))) return true;
  std::cerr << "gradient of shape " << p.shape() << ": " << expected << ", by differences " << got << "\n";
  return false;
}

}  // namespace

int main() {
  vox::manual_seed(1);
  const vox::Tensor x = vox::rand({16, 1, 2, 2, 2}, f64), target = x.reshape({16, 8}) * x.reshape({16, 8});
  const Network net;
  const auto loss = [&] { return vox::mse_loss(net(x), target); };
  vox::optim::SGD sgd(net.parameters(), {.lr = 0.1, .momentum = 0.9});
  double first = 0, last = 0;
  bool agree = true;
  for (int step = 0; step < 1000; ++step) {
    sgd.zero_grad();
    const vox::Tensor value = loss();
    value.backward();
    last = value.item<double>();
    if (step == 0) {
      first = last;
      for (const vox::Tensor& p : net.parameters())
        agree &= gradient_agrees(p, [&] { return loss().item<double>(); });
    }
    sgd.step();
  }
  if (last >= first / 100) std::cerr << "the loss fell from " << first << " to " << last << " only\n";
  return agree && last < first / 100 ? 0 : 1;
}
