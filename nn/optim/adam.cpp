#include <voxgrad/nn/optim/adam.h>
#include <voxgrad/ops/elementwise.h>

#include <cmath>

namespace vox::optim {

Adam::Adam(std::vector<Tensor> parameters, const AdamOptions& o)
    : Optimizer(std::move(parameters), o.lr), options_(o) {
  check<ValueError>(o.beta1 >= 0 && o.beta1 < 1 && o.beta2 >= 0 && o.beta2 < 1,
                    "Adam: betas must be in [0, 1), got ", o.beta1, " and ", o.beta2);
  check<ValueError>(o.eps >= 0 && o.weight_decay >= 0, "Adam: eps and weight_decay must be >= 0, got ", o.eps,
                    " and ", o.weight_decay);
}

void Adam::update(size_t i, Tensor p, const Tensor& g) {
  adaptive_step(i, p, options_.weight_decay != 0 ? g + options_.weight_decay * p.to(g.dtype()) : g);
}

void Adam::adaptive_step(size_t i, Tensor p, const Tensor& g, double shrink) {
  const double t = static_cast<double>(updates(i));
  Tensor& m = buffer("exp_avg", i);
  Tensor& v = buffer("exp_avg_sq", i);
  m.mul_(options_.beta1).add_(g, 1 - options_.beta1);
  v.mul_(options_.beta2).add_(g * g, 1 - options_.beta2);
  const double correction1 = 1 - std::pow(options_.beta1, t), correction2 = 1 - std::pow(options_.beta2, t);
  move(p, m / (sqrt(v * (1 / correction2)) + options_.eps), -lr() / correction1, shrink);
}

AdamW::AdamW(std::vector<Tensor> parameters, const Options& o)
    : Adam(std::move(parameters),
           {.lr = o.lr, .beta1 = o.beta1, .beta2 = o.beta2, .eps = o.eps, .weight_decay = o.weight_decay}) {}

void AdamW::update(size_t i, Tensor p, const Tensor& g) {
  adaptive_step(i, p, g, 1 - lr() * options_.weight_decay);
}

}  // namespace vox::optim
