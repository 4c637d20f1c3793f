#include <voxgrad/nn/optim/sgd.h>
#include <voxgrad/ops/kernels.h>

namespace vox::optim {

SGD::SGD(std::vector<Tensor> parameters, const SGDOptions& options)
    : Optimizer(std::move(parameters), options.lr), options_(options) {
  check<ValueError>(options.momentum >= 0 && options.weight_decay >= 0,
                    "SGD: momentum and weight_decay must be >= 0, got ", options.momentum, " and ",
                    options.weight_decay);
  check<ValueError>(!options.nesterov || options.momentum > 0, "SGD: nesterov needs momentum > 0");
}

void SGD::update(Device device, Items items) {
  constexpr ByDevice kernel{"SGD", &cpu::sgd_step, VOX_CUDA(&cuda::sgd_step)};
  const detail::SgdStep step{lr(), options_.momentum, options_.weight_decay, options_.nesterov};
  kernel.on(device)(step, items);
}

}  // namespace vox::optim
