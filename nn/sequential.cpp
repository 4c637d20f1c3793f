#include <voxgrad/nn/layers.h>
#include <voxgrad/nn/norm.h>
#include <voxgrad/nn/sequential.h>
#include <voxgrad/ops/elementwise.h>

namespace vox::nn {

void Sequential::append(Layer layer) {
  check<ValueError>(layer.module != nullptr, "Sequential: layer ", layer.name, " is null");
  check<ValueError>(!layer.name.empty() && layer.name.find('.') == std::string::npos,
                    "Sequential: a layer's name is not empty and has no dot, got '", layer.name, "'");
  for (const Layer& other : layers_)
    check<ValueError>(other.name != layer.name, "Sequential: the name '", layer.name, "' is listed twice");
  for (const auto& [path, module] : layer.module->named_modules())
    check<ValueError>(module != this, "Sequential: layer '", layer.name,
                      "' contains this Sequential; a module cannot contain itself");
  layers_.push_back(std::move(layer));
}

Module& Net::module() const {
  check<ValueError>(module_ != nullptr, "nn::Net: it has no network; another Net was made from it by a move");
  return *module_;
}

Tensor Sequential::forward(const Tensor& input, const Tap& tap) {
  Tensor x = input;
  for (size_t i = 0; i < layers_.size(); ++i) {
    auto* norm = dynamic_cast<Norm*>(layers_[i].module.get());
    const bool joins = norm && norm->activation == Activation::none() && i + 1 < layers_.size();
    auto* next = joins ? dynamic_cast<Rectifier*>(layers_[i + 1].module.get()) : nullptr;
    if (next && !norm->has_forward_hooks() && !next->has_forward_hooks()) {
      x = detail::as_call_of(*norm, [&] { return norm->normalize(x, next->activation()); });
      ++i;
    } else {
      x = layers_[i].call(*layers_[i].module, x);
    }
    if (tap) tap(layers_[i].name, x);
  }
  return x;
}

Tensor Residual::forward(const Tensor& input) {
  const Tensor change = body(input);
  check<ShapeError>(change.shape() == input.shape(), "nn::Residual: its layers must keep the shape, got ",
                    input.shape(), " to ", change.shape());
  return input + change;
}

}  // namespace vox::nn
