#include <voxgrad/nn/optim/rmsprop.h>
#include <voxgrad/ops/layer_kernels.h>
#include <voxgrad/ops/rmsprop_step.h>

namespace vox::optim {

void RMSprop::add_group(std::vector<Tensor> parameters, const Options& o) {
  check<ValueError>(o.alpha >= 0 && o.alpha <= 1 && o.eps >= 0 && o.momentum >= 0 && o.weight_decay >= 0,
                    "RMSprop: alpha must be in [0, 1], and eps, momentum and weight_decay >= 0, got ",
                    o.alpha, ", ", o.eps, ", ", o.momentum, " and ", o.weight_decay);
  check<ValueError>(!o.centered || o.momentum == 0, "RMSprop: centered needs momentum = 0, got ", o.momentum);
  check<ValueError>(options_.empty() || (o.centered == options_[0].centered &&
                                         (o.momentum > 0) == (options_[0].momentum > 0)),
                    "RMSprop: all groups must agree in centered, and in whether there is a momentum");
  add_parameters(std::move(parameters), o.lr);
  options_.push_back(o);
}

std::vector<std::string> RMSprop::buffer_names() const {
  const Options& o = options_[0];
  std::vector<std::string> names{"square_avg"};
  if (o.centered || o.momentum > 0) names.push_back(o.centered ? "grad_avg" : "momentum_buffer");
  return names;
}

void RMSprop::update(size_t group, Device device, Items items) {
  constexpr ByDevice kernel{"RMSprop", &cpu::rmsprop_step, VOX_CUDA(&cuda::rmsprop_step)};
  const Options& o = options_[group];
  const detail::RmspropStep step{lr(group), o.alpha, o.eps, o.weight_decay, o.momentum, o.centered};
  kernel.on(device)(step, items);
}

}  // namespace vox::optim
