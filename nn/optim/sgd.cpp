#include <voxgrad/nn/optim/sgd.h>
#include <voxgrad/ops/kernels.h>

namespace vox::optim {

void SGD::add_group(std::vector<Tensor> parameters, const Options& o) {
  check<ValueError>(o.momentum >= 0 && o.weight_decay >= 0,
                    "SGD: momentum and weight_decay must be >= 0, got ", o.momentum, " and ", o.weight_decay);
  check<ValueError>(!o.nesterov || o.momentum > 0, "SGD: nesterov needs momentum > 0");
  add_parameters(std::move(parameters), o.lr);
  options_.push_back(o);
}

void SGD::update(size_t group, Device device, Items items) {
  constexpr ByDevice kernel{"SGD", &cpu::sgd_step, VOX_CUDA(&cuda::sgd_step)};
  const Options& o = options_[group];
  kernel.on(device)(detail::SgdStep{lr(group), o.momentum, o.weight_decay, o.nesterov}, items);
}

}  // namespace vox::optim
