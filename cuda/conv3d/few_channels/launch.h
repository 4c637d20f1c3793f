#pragma once

#include <voxgrad/cuda/conv3d/few_channels/plan.h>

#include <type_traits>

// How the launchers find the kernel of a plan.

namespace vox::cuda::conv::few_channels {

/// Calls `f` with the kernel's parameters as std::integral_constants: taps and stride along h, or 0 for any.
template <int t = 5, int s = 2, class F>
void visit_column(int taps, int step, int tap_step, F f) {
  if constexpr (t > 0) {
    constexpr int next_t = s > 1 ? t : t - 1, next_s = s > 1 ? 1 : 2;
    if constexpr (shares_column(t, s))
      if (taps == t && step == s && tap_step == 1)
        return f(std::integral_constant<int, t>{}, std::integral_constant<int, s>{});
    visit_column<next_t, next_s>(taps, step, tap_step, f);
  } else {
    f(std::integral_constant<int, 0>{}, std::integral_constant<int, 0>{});
  }
}

/// Calls `f` with `block` (1, 2, 4, ..., `most`) as a std::integral_constant.
template <int most, class F>
void visit_block(int block, F f) {
  if constexpr (most > 1)
    if (block < most) return visit_block<most / 2>(block, f);
  f(std::integral_constant<int, most>{});
}

/// Calls `f` with the length of a thread's run and its number of channels as std::integral_constants.
template <class F>
void visit_results(int run, int outs, F f) {
  visit_block<8>(outs, [&](auto block) {
    if constexpr (block == 1)
      if (run > short_run) return f(std::integral_constant<int, 2 * short_run>{}, block);
    f(std::integral_constant<int, short_run>{}, block);
  });
}

}  // namespace vox::cuda::conv::few_channels
