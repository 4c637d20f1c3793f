#pragma once

#include <atomic>
#include <tuple>

#include <voxgrad/core/factories.h>
#include <voxgrad/ops/cpu/conv3d/correlate_plan.h>
#include <voxgrad/ops/cpu/tasks.h>

namespace vox::cpu {

/// The weights of some slices of all groups, as correlate() reads them: (slice, phase, block), each (in
/// channel, tap, row).
template <class S, class T>
class PackedWeights {
 public:
  explicit PackedWeights(const CorrelatePlan<S, T>& plan) : plan_(plan), c_(plan.c) {}

  /// How many slices are packed at the same time.
  int64_t at_once() const {
    const int64_t slice_bytes =
        c_.out_channels * c_.in_channels * plan_.taps * static_cast<int64_t>(sizeof(T)) / plan_.slices;
    return std::clamp<int64_t>(plan_.packed_weight_bytes / std::max<int64_t>(slice_bytes, 1), 1,
                               c_.groups * plan_.slices);
  }

  /// Packs `count` slices from `first` on. Returns whether all of the weights are finite.
  bool pack(int64_t first, int64_t count) {
    begin_ = before(first);
    const int64_t size = (before(first + count) - begin_) * plan_.taps * c_.in_channels;
    if (!memory_.defined() || memory_.numel() < size) memory_ = empty({size}, {.dtype = dtype_of<T>()});
    packed_ = detail::mutable_ptr<T>(memory_);
    std::atomic<bool> finite = true;
    for_tasks(count * c_.in_channels, 8, [&](int64_t t) {
      const int64_t slice = first + t / c_.in_channels, in_group = slice % plan_.slices;
      for (int64_t b = plan_.slice_begin(in_group); b < plan_.slice_begin(in_group + 1); ++b)
        if (!pack_block(slice / plan_.slices, in_group, b, t % c_.in_channels)) finite = false;
    });
    return finite;
  }

  /// Where those of a block begin.
  T* of(int64_t group, int64_t slice, const Phase& phase, int64_t block) const {
    const int64_t begin = plan_.slice_output(slice), end = plan_.slice_output(slice + 1);
    return packed_ + c_.in_channels *
                         ((before(group * plan_.slices + slice) - begin_) * plan_.taps +
                          phase.weights * (end - begin) + phase.taps() * (plan_.block_begin(block) - begin));
  }

 private:
  /// The weights before a slice of all groups, in units of (tap, in channel).
  int64_t before(int64_t slice) const {
    return slice / plan_.slices * c_.out_channels + plan_.slice_output(slice % plan_.slices);
  }

  /// Packs those between one input channel and a block of output channels, for all phases.
  bool pack_block(int64_t group, int64_t slice, int64_t block, int64_t in) const {
    const auto& simd = conv_kernels.of<T>();
    const int64_t begin = plan_.block_begin(block), rows = plan_.block_begin(block + 1) - begin;
    const int64_t taps = c_.kernel.d * c_.kernel.h * c_.kernel.w;
    const S* from =
        c_.weight + group * c_.weight_per_group + begin * c_.weight_per_out + in * c_.weight_per_in;
    T* by_tap = scratch<T, 4>(taps * rows);
    if constexpr (std::is_same_v<S, T>) {
      simd.transpose(from, c_.weight_per_out, rows, taps, by_tap, rows);
    } else {
      for (int64_t tap = 0; tap < taps; ++tap)
        for (int64_t r = 0; r < rows; ++r)
          by_tap[tap * rows + r] = static_cast<T>(from[r * c_.weight_per_out + tap]);
    }
    const bool finite = all_finite(by_tap, taps * rows);
    if (plan_.tiles.winograd) {
      T* factors = scratch<T, 7>(16 * plan_.kernel.d * rows);
      winograd_weights(simd, by_tap, plan_.kernel.d, rows,
                       {c_.phases[1][0].in_per_tap < 0, c_.phases[2][0].in_per_tap < 0}, factors);
      by_tap = factors;
    }
    for (const Phase& phase : plan_.phases) {
      const auto& [ld, lh, lw] = std::tie(*phase.d, *phase.h, *phase.w);
      T* to = of(group, slice, phase, block) + in * phase.taps() * rows;
      for (int64_t md = 0; md < ld.taps; ++md)
        for (int64_t mh = 0; mh < lh.taps; ++mh)
          for (int64_t mw = 0; mw < lw.taps; ++mw) {
            const int64_t h = lh.tap_first + mh * lh.tap_step, w = lw.tap_first + mw * lw.tap_step;
            const int64_t tap = ((ld.tap_first + md * ld.tap_step) * plan_.kernel.h + h) * plan_.kernel.w + w;
            to = std::copy_n(by_tap + tap * rows, rows, to);
          }
    }
    return finite;
  }

  const CorrelatePlan<S, T>& plan_;
  const Correlation<S, T>& c_;
  Tensor memory_;
  T* packed_ = nullptr;
  int64_t begin_ = 0;  // the weights before the first slice in memory
};

}  // namespace vox::cpu
