#include <voxgrad/nn/optim/adam.h>
#include <voxgrad/ops/kernels.h>

namespace vox::optim {

Adam::Adam(std::vector<Tensor> parameters, const AdamOptions& o, bool decoupled)
    : Optimizer(std::move(parameters), o.lr), options_(o), decoupled_(decoupled) {
  check<ValueError>(o.beta1 >= 0 && o.beta1 < 1 && o.beta2 >= 0 && o.beta2 < 1,
                    "Adam: betas must be in [0, 1), got ", o.beta1, " and ", o.beta2);
  check<ValueError>(o.eps >= 0 && o.weight_decay >= 0, "Adam: eps and weight_decay must be >= 0, got ", o.eps,
                    " and ", o.weight_decay);
}

void Adam::update(Device device, Items items) {
  constexpr ByDevice kernel{"Adam", &cpu::adam_step, VOX_CUDA(&cuda::adam_step)};
  const auto& o = options_;
  const detail::AdamStep step{lr(), o.beta1, o.beta2, o.eps, o.weight_decay, decoupled_};
  kernel.on(device)(step, items);
}

AdamW::AdamW(std::vector<Tensor> parameters, const Options& o)
    : Adam(std::move(parameters),
           {.lr = o.lr, .beta1 = o.beta1, .beta2 = o.beta2, .eps = o.eps, .weight_decay = o.weight_decay},
           true) {}

}  // namespace vox::optim
