// 13: a network learns. Points in the plane, then balls in noisy volumes, by one loop.
#include <cmath>
#include <iostream>

#include <voxgrad/voxgrad.h>

using namespace vox;

struct Data {
  Tensor x, y;  // y: 1 where the answer is yes, else 0
};
Data moons(int64_t n) {  // two half circles that lie in each other, n points of each
  const Tensor angle = rand({n, 1}) * M_PI, c = cos(angle), s = sin(angle);
  const Tensor x = cat({cat({c, s}, 1), cat({1 - c, 0.5 - s}, 1)}, 0);
  return {x + 0.1 * randn(x.shape()), cat({zeros({n, 1}), ones({n, 1})}, 0)};
}
Data balls(int64_t n) {  // n volumes, each with a ball of value 1, in noise
  const Tensor d = arange(12) - (4 + 4 * rand({3, n, 1, 1, 1, 1})), square = d * d;
  const Tensor distance = square[0].transpose(2, 4) + square[1].transpose(3, 4) + square[2];
  const Tensor y = lt(distance, 16).to(f32);
  return {y + randn(y.shape()), y};
}
double percent_right(const Tensor& answer, const Tensor& y) {
  return std::round(100 * eq(gt(answer, 0), gt(y, 0)).to(f32).mean().item());
}
void learn(nn::Sequential network, const Data& data, const Data& others) {
  optim::Adam adam(network.parameters(), {.lr = 0.02});
  for (int step = 0; step < 200; ++step) {
    adam.zero_grad();
    binary_cross_entropy_with_logits(network(data.x), data.y).backward();
    adam.step();
  }
  std::cout << "the network is right for " << percent_right(network(others.x), others.y)
            << " % of new data\n";
}
int main() {
  manual_seed(1);
  const Data points = moons(100), new_points = moons(500), volumes = balls(8), new_volumes = balls(8);
  learn(nn::Sequential{nn::Linear({.in_features = 2, .out_features = 16}), nn::Tanh(),
                       nn::Linear({.in_features = 16, .out_features = 1})},
        points, new_points);
  std::cout << "a threshold is right for " << percent_right(volumes.x - 0.5, volumes.y)
            << " % of the cells\n";
  learn(nn::Sequential{nn::Conv3d({.in_channels = 1, .out_channels = 8, .kernel_size = 3, .padding = 1}),
                       nn::ReLU(),
                       nn::Conv3d({.in_channels = 8, .out_channels = 1, .kernel_size = 3, .padding = 1})},
        volumes, new_volumes);
}
