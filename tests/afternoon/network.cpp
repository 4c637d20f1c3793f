// Trains a small network with what voxgrad_afternoon has: it upsamples random blocks by a convolution, a
// transposed convolution and a matrix product. Prints nothing but errors; fails unless the loss falls to a
// hundredth.

#include <cmath>
#include <iostream>
#include <vector>

#include <voxgrad/voxgrad.h>

namespace {

/// A parameter with numbers in +-1/sqrt(fan).
vox::Tensor parameter(const vox::Shape& shape, double fan) {
  const vox::Tensor t = (vox::rand(shape) * 2 - 1) / std::sqrt(fan);
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

}  // namespace

int main() {
  vox::manual_seed(1);
  const vox::Tensor x = vox::rand({16, 1, 2, 2, 2}), target = x.reshape({16, 8}) * x.reshape({16, 8});
  const Network net;
  vox::optim::SGD sgd(net.parameters(), {.lr = 0.05, .momentum = 0.9});
  double first = 0, last = 0;
  for (int step = 0; step < 200; ++step) {
    const vox::Tensor loss = vox::mse_loss(net(x), target);
    last = loss.item<float>();
    if (step == 0) first = last;
    sgd.zero_grad();
    loss.backward();
    sgd.step();
  }
  if (last < first / 100) return 0;
  std::cerr << "the loss fell from " << first << " to " << last << " only\n";
  return 1;
}
