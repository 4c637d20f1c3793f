#include <voxgrad/core/uniform.h>
#include <voxgrad/ops/kernels.h>

// Random numbers, and the steps of SGD.

namespace vox::cpu {

void rand(const Tensor& output, GeneratorState at) {
  visit_floating_storage("rand", output.dtype(), [&]<class T>(T) {
    using Distribution = detail::Uniform<T>;
    for (int64_t block = 0; block * Distribution::count < output.numel(); ++block)
      detail::write_block(Distribution{}, at.seed, at.offset, block, output.numel(),
                          detail::mutable_ptr<T>(output));
  });
}

void sgd_step(const detail::SgdStep& step, std::span<const detail::OptimizerItem> items) {
  for (const detail::OptimizerItem& item : items) {
    ++*detail::mutable_ptr<int64_t>(item.updates);
    visit_floating_storage("SGD", item.parameter.dtype(), [&]<class T>(T) {
      using C = opmath_t<T>;
      const detail::SgdStep::Formula<C> formula(step);
      T* const parameter = detail::mutable_ptr<T>(item.parameter);
      for (int64_t i = 0; i < item.parameter.numel(); ++i) {
        C value = static_cast<C>(parameter[i]), none = 0;
        C& momentum = item.buffers[0].defined() ? detail::mutable_ptr<C>(item.buffers[0])[i] : none;
        formula(value, static_cast<C>(detail::ptr<T>(item.gradient)[i]), momentum, none,
                static_cast<C>(step.lr), C(0));
        parameter[i] = static_cast<T>(value);
      }
    });
  }
}

}  // namespace vox::cpu
