#include <voxgrad/nn/layers.h>
#include <voxgrad/nn/norm.h>
#include <voxgrad/nn/sequential.h>

namespace vox::nn {

Tensor Sequential::forward(const Tensor& input) {
  Tensor x = input;
  for (size_t i = 0; i < layers_.size(); ++i) {
    auto* norm = dynamic_cast<Norm*>(layers_[i].get());
    const bool joins = norm && norm->activation == Activation::none() && i + 1 < layers_.size();
    if (const auto* next = joins ? dynamic_cast<const Rectifier*>(layers_[i + 1].get()) : nullptr) {
      x = norm->normalize(x, next->activation());
      ++i;
    } else {
      x = layers_[i]->forward(x);
    }
  }
  return x;
}

}  // namespace vox::nn
