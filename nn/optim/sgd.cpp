#include <voxgrad/nn/optim/sgd.h>
#include <voxgrad/ops/elementwise.h>

namespace vox::optim {

SGD::SGD(std::vector<Tensor> parameters, const SGDOptions& options)
    : Optimizer(std::move(parameters), options.lr), options_(options) {
  check<ValueError>(options.momentum >= 0 && options.weight_decay >= 0,
                    "SGD: momentum and weight_decay must be >= 0, got ", options.momentum, " and ",
                    options.weight_decay);
  check<ValueError>(!options.nesterov || options.momentum > 0, "SGD: nesterov needs momentum > 0");
}

void SGD::update(size_t i, Tensor p, const Tensor& gradient) {
  Tensor g =
      options_.weight_decay != 0 ? gradient + options_.weight_decay * p.to(gradient.dtype()) : gradient;
  if (options_.momentum != 0) {
    Tensor& m = buffer("momentum", i);
    m.mul_(options_.momentum).add_(g);  // starts at zero, so the first step gives g
    g = options_.nesterov ? g + options_.momentum * m : m;
  }
  move(p, g, -lr());
}

}  // namespace vox::optim
