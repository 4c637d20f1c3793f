#include <voxgrad/core/parallel.h>
#include <voxgrad/ops/adam_step.h>
#include <voxgrad/ops/layer_kernels.h>
#include <voxgrad/ops/rmsprop_step.h>

// Steps of optimisers: one pass over the memory of each parameter.

namespace vox::cpu {
namespace {

constexpr int64_t grain = 16384;  // elements worth a task

/// Elements begin to end of a parameter p with gradient g and buffers m and v, the first `buffers` of which
/// exist. Bound to a constant, so that the loop has no branches.
template <int buffers, class T, class C, class Formula>
void update(Formula f, C scale, C scale2, T* p, const T* g, C* m, C* v, int64_t begin, int64_t end) {
  for (int64_t i = begin; i < end; ++i) {
    C none = 0, value = static_cast<C>(p[i]);
    f(value, static_cast<C>(g[i]), buffers > 0 ? m[i] : none, buffers > 1 ? v[i] : none, scale, scale2);
    p[i] = static_cast<T>(value);
  }
}

template <class Step>
void step_all(const Step& step, std::span<const detail::OptimizerItem> items) {
  parallel_for(2, 1, [](int64_t, int64_t) {});  // starts threads, which may fail, before anything changes
  for (const detail::OptimizerItem& item : items) {
    const detail::UpdateNumbers numbers = step.numbers(++*detail::mutable_ptr<int64_t>(item.updates));
    visit_floating_storage("Optimizer", item.parameter.dtype(), [&]<class T>(T) {
      using C = opmath_t<T>;
      const typename Step::template Formula<C> formula(step);
      const auto scale = static_cast<C>(numbers.scale), scale2 = static_cast<C>(numbers.scale2);
      const auto buffer = [&](size_t k) {
        return item.buffers[k].defined() ? detail::mutable_ptr<C>(item.buffers[k]) : nullptr;
      };
      T* const p = detail::mutable_ptr<T>(item.parameter);
      const T* const g = detail::ptr<T>(item.gradient);
      C *const m = buffer(0), *const v = buffer(1);
      parallel_for(item.parameter.numel(), grain, [&](int64_t begin, int64_t end) {
        if (v)
          update<2>(formula, scale, scale2, p, g, m, v, begin, end);
        else if (m)
          update<1>(formula, scale, scale2, p, g, m, v, begin, end);
        else
          update<0>(formula, scale, scale2, p, g, m, v, begin, end);
      });
    });
  }
}

}  // namespace

void sgd_step(const detail::SgdStep& step, std::span<const detail::OptimizerItem> items) {
  step_all(step, items);
}
void adam_step(const detail::AdamStep& step, std::span<const detail::OptimizerItem> items) {
  step_all(step, items);
}
void rmsprop_step(const detail::RmspropStep& step, std::span<const detail::OptimizerItem> items) {
  step_all(step, items);
}

}  // namespace vox::cpu
