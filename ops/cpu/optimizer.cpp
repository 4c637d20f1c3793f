#include <voxgrad/core/parallel.h>
#include <voxgrad/ops/adam_step.h>
#include <voxgrad/ops/cpu/convert_run.h>
#include <voxgrad/ops/layer_kernels.h>
#include <voxgrad/ops/rmsprop_step.h>

#include <algorithm>
#include <array>

// Steps of optimisers: one pass over the memory of each parameter.

namespace vox::cpu {
namespace {

constexpr int64_t grain = 16384;  // elements worth a task

/// n elements of a parameter p with gradient g and buffers m and v, the first `buffers` of which exist. Bound
/// to a constant, so that the loop has no branches.
template <int buffers, class C, class Formula>
void update(Formula f, C scale, C scale2, C* p, const C* g, C* m, C* v, int64_t n) {
  for (int64_t i = 0; i < n; ++i) {
    C none = 0;
    f(p[i], g[i], buffers > 0 ? m[i] : none, buffers > 1 ? v[i] : none, scale, scale2);
  }
}
/// 16-bit elements are widened in blocks. A loop with formula and conversions is too long for vector code.
template <int buffers, class T, class C, class Formula>
void update(Formula f, C scale, C scale2, T* p, const T* g, C* m, C* v, int64_t n) {
  constexpr int64_t block = 512;
  std::array<C, block> wide_p, wide_g;
  for (int64_t i = 0; i < n; i += block) {
    const int64_t count = std::min(block, n - i);
    convert_run(p + i, wide_p.data(), count);
    convert_run(g + i, wide_g.data(), count);
    update<buffers, C>(f, scale, scale2, wide_p.data(), wide_g.data(), m ? m + i : m, v ? v + i : v, count);
    convert_run(wide_p.data(), p + i, count);
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
      C *const all_m = buffer(0), *const all_v = buffer(1);
      parallel_for(item.parameter.numel(), grain, [&](int64_t begin, int64_t end) {
        C *const m = all_m ? all_m + begin : nullptr, *const v = all_v ? all_v + begin : nullptr;
        if (v)
          update<2>(formula, scale, scale2, p + begin, g + begin, m, v, end - begin);
        else if (m)
          update<1>(formula, scale, scale2, p + begin, g + begin, m, v, end - begin);
        else
          update<0>(formula, scale, scale2, p + begin, g + begin, m, v, end - begin);
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
