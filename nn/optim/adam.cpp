#include <voxgrad/nn/optim/adam.h>
#include <voxgrad/ops/adam_step.h>
#include <voxgrad/ops/kernels.h>

namespace vox::optim {

template <bool decoupled>
void BasicAdam<decoupled>::add_group(std::vector<Tensor> parameters, const Options& o) {
  constexpr const char* name = decoupled ? "AdamW" : "Adam";
  check<ValueError>(o.beta1 >= 0 && o.beta1 < 1 && o.beta2 >= 0 && o.beta2 < 1, name,
                    ": betas must be in [0, 1), got ", o.beta1, " and ", o.beta2);
  check<ValueError>(o.eps >= 0 && o.weight_decay >= 0, name, ": eps and weight_decay must be >= 0, got ",
                    o.eps, " and ", o.weight_decay);
  add_parameters(std::move(parameters), o.lr);
  options_.push_back(o);
}

template <bool decoupled>
void BasicAdam<decoupled>::update(size_t group, Device device, Items items) {
  constexpr ByDevice kernel{"Adam", &cpu::adam_step, VOX_CUDA(&cuda::adam_step)};
  const Options& o = options_[group];
  kernel.on(device)(detail::AdamStep{lr(group), o.beta1, o.beta2, o.eps, o.weight_decay, decoupled}, items);
}

template class BasicAdam<false>;
template class BasicAdam<true>;

}  // namespace vox::optim
