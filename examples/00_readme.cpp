// 00: the sample of the README. You learn what a training program consists of: a network, an optimiser, a
// loop.

#include <iostream>

#include <voxgrad/voxgrad.h>

int main() {
  vox::nn::Sequential net{
      vox::nn::Conv3d({.in_channels = 1, .out_channels = 8, .kernel_size = 3, .padding = 1}), vox::nn::ReLU(),
      vox::nn::ConvTranspose3d(
          {.in_channels = 8, .out_channels = 1, .kernel_size = 4, .stride = 2, .padding = 1})};
  vox::optim::Adam adam(net.parameters(), {.lr = 1e-2});
  vox::Tensor small = vox::rand({4, 1, 6, 6, 6}), big = vox::interpolate(small, {.size = 12});
  for (int step = 0; step < 50; ++step) {
    adam.zero_grad();
    vox::Tensor loss = vox::mse_loss(net(small), big);
    loss.backward();
    adam.step();
    if (step % 10 == 0) std::cout << "step " << step << ", loss " << loss.item() << "\n";
  }
}
