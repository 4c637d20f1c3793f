#pragma once

#include <voxgrad/ops/cpu/isa.h>
#include <voxgrad/ops/cpu/simd/interpolate.h>
#include <voxgrad/ops/interpolate_axis.h>

#include <algorithm>
#include <limits>
#include <vector>

// One pass of interpolation and one of its adjoint: the tables of an axis, and the loops over them.

namespace vox::cpu {

inline constexpr ByIsa interpolate_loops = VOX_BY_ISA(interpolate_kernels);

/// The taps of all outputs of an axis, as arrays: y[o] reads index[o] and next_index[o]. These are equal if
/// the second weight is 0, so that nothing is read beyond the end. Gathers of neighbouring outputs use 32-bit
/// indices, so a longer axis goes row by row.
template <class T>
class ForwardPass {
 public:
  explicit ForwardPass(const InterpolateAxis& axis)
      : in_(axis.in), out_(axis.out), gathers_(in_ <= std::numeric_limits<int32_t>::max()) {
    const auto count = static_cast<size_t>(out_);
    for (auto* table : {&index_, &next_index_}) table->reserve(count);
    for (auto* table : {&near_, &near_next_}) table->reserve(gathers_ ? count : 0);
    for (auto* table : {&weight_, &next_weight_}) table->reserve(count);
    for (int64_t o = 0; o < axis.out; ++o) {
      const InterpolateTap tap = axis.tap(o);
      const T next = static_cast<T>(tap.weight_next);
      index_.push_back(tap.index);
      next_index_.push_back(next == 0 ? tap.index : tap.index + 1);
      if (gathers_) {
        near_.push_back(static_cast<int32_t>(tap.index));
        near_next_.push_back(static_cast<int32_t>(next_index_.back()));
      }
      weight_.push_back(T(1) - next);
      next_weight_.push_back(next);
    }
  }
  int64_t out() const { return out_; }

  /// Computes outputs [begin, end) of one axis; rows have n elements.
  void rows(const T* x, T* y, int64_t begin, int64_t end, int64_t n, bool stream) const {
    interpolate_loops.of<T>().blend_rows(x, index_.data() + begin, next_index_.data() + begin,
                                         weight_.data() + begin, next_weight_.data() + begin, y, end - begin,
                                         n, stream);
  }

  /// Computes rows [begin, end) of (outer, out), each `inner` elements of y.
  void run(const T* x, T* y, int64_t begin, int64_t end, int64_t inner, bool stream) const {
    for (int64_t row = begin; row < end;) {
      const int64_t outer = row / out_, o = row % out_;
      const T* from = x + outer * in_ * inner;
      int64_t count = std::min(out_ - o, end - row);
      if (inner == 1 && gathers_) {
        const int64_t axes = o == 0 && count == out_ ? (end - row) / out_ : 1;
        interpolate_loops.of<T>().blend_along(from, axes, in_, near_.data() + o, near_next_.data() + o,
                                              weight_.data() + o, next_weight_.data() + o, y + row, count);
        count *= axes;
      } else {
        rows(from, y + row * inner, o, o + count, inner, stream);
      }
      row += count;
    }
  }

 private:
  int64_t in_, out_;
  bool gathers_;
  std::vector<int64_t> index_, next_index_;
  std::vector<int32_t> near_, near_next_;
  std::vector<T> weight_, next_weight_;
};

/// For every cell of the input: the outputs that read it, in ascending order, with their weights. The outputs
/// of a cell are consecutive, because taps rise; only those before the first and after the last may have
/// weight 0. Sums along the innermost axis use a second array of weights, in which tap k of all cells is
/// contiguous. They number outputs with 32 bits, so a longer axis goes cell by cell.
template <class T>
class AdjointPass {
 public:
  explicit AdjointPass(const InterpolateAxis& axis) : in_(axis.in), out_(axis.out) {
    for (int64_t i = 0; i < axis.in; ++i) {
      begins_.push_back(static_cast<int64_t>(outputs_.size()));
      const int64_t last = axis.first_output(i + 1);
      for (int64_t o = axis.first_output(std::max<int64_t>(i - 1, 0)); o < last; ++o) {
        const InterpolateTap tap = axis.tap(o);
        const T next = static_cast<T>(tap.weight_next), weight = tap.index == i ? T(1) - next : next;
        if (weight == 0) continue;
        outputs_.push_back(o);
        weights_.push_back(weight);
      }
    }
    begins_.push_back(static_cast<int64_t>(outputs_.size()));
    if (out_ <= std::numeric_limits<int32_t>::max()) prepare_sums_along();
  }
  int64_t out() const { return in_; }  // the adjoint writes what the forward read

  void rows(const T* grad_y, T* grad_x, int64_t begin, int64_t end, int64_t n) const {
    interpolate_loops.of<T>().sum_rows(grad_y, begins_.data() + begin, outputs_.data(), weights_.data(),
                                       grad_x, end - begin, n);
  }

  void run(const T* grad_y, T* grad_x, int64_t begin, int64_t end, int64_t inner, bool) const {
    for (int64_t row = begin; row < end;) {
      const int64_t outer = row / in_, i = row % in_;
      const T* from = grad_y + outer * out_ * inner;
      if (inner == 1 && i == 0 && end - row >= in_ && taps_ > 0) {
        const int64_t whole = (end - row) / in_;
        interpolate_loops.of<T>().sum_along(from, whole, out_, first_.data(), count_.data(), taps_,
                                            weights_along_.data(), grad_x + row, in_);
        row += whole * in_;
      } else {
        const int64_t count = std::min(in_ - i, end - row);
        rows(from, grad_x + row * inner, i, i + count, inner);
        row += count;
      }
    }
  }

 private:
  void prepare_sums_along() {
    int32_t first = 0;  // never decreases, even if a cell has no output
    for (size_t i = 0; i + 1 < begins_.size(); ++i) {
      const int64_t count = begins_[i + 1] - begins_[i];
      if (count > 0) first = static_cast<int32_t>(outputs_[static_cast<size_t>(begins_[i])]);
      first_.push_back(first);
      count_.push_back(static_cast<int32_t>(count));
      taps_ = std::max(taps_, count);
    }
    weights_along_.resize(static_cast<size_t>(taps_ * in_));
    for (size_t i = 0; i < count_.size(); ++i) {
      for (int64_t k = 0; k < count_[i]; ++k)
        weights_along_[static_cast<size_t>(k * in_) + i] = weights_[static_cast<size_t>(begins_[i] + k)];
    }
  }

  int64_t in_, out_, taps_ = 0;
  std::vector<int64_t> begins_, outputs_;
  std::vector<T> weights_, weights_along_;
  std::vector<int32_t> first_, count_;
};

}  // namespace vox::cpu
