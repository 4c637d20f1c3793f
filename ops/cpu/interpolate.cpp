// Interpolation and its adjoint, one axis after the other: a pass sees x as (outer, in, inner) and y as
// (outer, out, inner). Both directions gather through the same table of taps, so they are exact transposes of
// each other; per element two reads, one write and at most three operations for the forward.
//
// interpolate_passes runs all passes plane by plane, so that what lies between them stays in the cache; the
// bits are those of one pass at a time.

#include <voxgrad/core/factories.h>
#include <voxgrad/core/parallel.h>
#include <voxgrad/ops/axis_view.h>
#include <voxgrad/ops/cpu/isa.h>
#include <voxgrad/ops/cpu/simd/interpolate.h>
#include <voxgrad/ops/cpu/walk.h>
#include <voxgrad/ops/interpolate_kernels.h>

#include <algorithm>
#include <limits>
#include <vector>

namespace vox::cpu {

namespace {

constexpr ByIsa kernels = VOX_BY_ISA(interpolate_kernels);

/// The taps of all outputs of an axis, as arrays: y[o] reads index[o] and the next cell. For gathers of
/// neighbouring outputs there are near[o] and near_next[o], which is the same cell where the second weight is
/// 0, so that nothing is read beyond the end; they have 32 bits, so an axis beyond that goes row by row.
template <class T>
class ForwardPass {
 public:
  explicit ForwardPass(const InterpolateAxis& axis)
      : in_(axis.in), out_(axis.out), gathers_(in_ <= std::numeric_limits<int32_t>::max()) {
    for (int64_t o = 0; o < axis.out; ++o) {
      const InterpolateTap tap = axis.tap(o);
      const T next = static_cast<T>(tap.weight_next);
      index_.push_back(tap.index);
      if (gathers_) {
        near_.push_back(static_cast<int32_t>(tap.index));
        near_next_.push_back(static_cast<int32_t>(next == 0 ? tap.index : tap.index + 1));
      }
      weight_.push_back(T(1) - next);
      next_weight_.push_back(next);
    }
  }
  int64_t in() const { return in_; }
  int64_t out() const { return out_; }

  /// Rows [begin, end) of (outer, out): each `inner` elements of y.
  void run(const T* x, T* y, int64_t begin, int64_t end, int64_t inner, bool stream) const {
    const auto& kernel = kernels.of<T>();
    for (int64_t row = begin; row < end;) {
      const int64_t outer = row / out_, o = row % out_;
      const T* from = x + outer * in_ * inner;
      int64_t count = std::min(out_ - o, end - row);
      if (inner == 1 && gathers_) {
        const int64_t rows = o == 0 && count == out_ ? (end - row) / out_ : 1;
        kernel.blend_along(from, rows, in_, near_.data() + o, near_next_.data() + o, weight_.data() + o,
                           next_weight_.data() + o, y + row, count);
        count *= rows;
      } else {
        kernel.blend_rows(from, index_.data() + o, weight_.data() + o, next_weight_.data() + o,
                          y + row * inner, count, inner, stream);
      }
      row += count;
    }
  }

 private:
  int64_t in_, out_;
  bool gathers_;
  std::vector<int64_t> index_;
  std::vector<int32_t> near_, near_next_;
  std::vector<T> weight_, next_weight_;
};

/// For every cell of the input the outputs that read it, by rising output, with their weights. The outputs
/// are neighbours of each other: taps rise, and only those before the first and after the last may have no
/// weight. For sums along the innermost axis there are weights with those of one tap of all cells side by
/// side; its outputs are numbered with 32 bits, so an axis beyond that goes cell by cell.
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
  // What a pass of the adjoint reads is the forward's output.
  int64_t in() const { return out_; }
  int64_t out() const { return in_; }

  void run(const T* grad_y, T* grad_x, int64_t begin, int64_t end, int64_t inner, bool) const {
    const auto& kernel = kernels.of<T>();
    for (int64_t row = begin; row < end;) {
      const int64_t outer = row / in_, i = row % in_;
      const T* from = grad_y + outer * out_ * inner;
      if (inner == 1 && i == 0 && end - row >= in_ && taps_ > 0) {
        const int64_t whole = (end - row) / in_;
        kernel.sum_along(from, whole, out_, first_.data(), count_.data(), taps_, weights_along_.data(),
                         grad_x + row, in_);
        row += whole * in_;
      } else {
        const int64_t count = std::min(in_ - i, end - row);
        kernel.sum_rows(from, begins_.data() + i, outputs_.data(), weights_.data(), grad_x + row * inner,
                        count, inner);
        row += count;
      }
    }
  }

 private:
  void prepare_sums_along() {
    int32_t first = 0;  // does not fall, even where a cell has no output
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

/// Rows that make a chunk of about 10 microseconds.
int64_t rows_per_chunk(int64_t inner) { return std::max<int64_t>(1, 32768 / std::max<int64_t>(1, inner)); }

template <template <class> class Pass>
void one_pass(const char* function, const Tensor& x, int64_t dim, const InterpolateAxis& axis, Tensor& y) {
  visit_floating(function, y.dtype(), [&]<class T>(T) {
    const AxisView view(y.shape(), dim);
    const Pass<T> pass(axis);
    const T* from = detail::ptr<T>(x);
    T* to = detail::mutable_ptr<T>(y);
    parallel_for(view.outer * pass.out(), rows_per_chunk(view.inner),
                 [&](int64_t begin, int64_t end) { pass.run(from, to, begin, end, view.inner, false); });
  });
}

template <template <class> class Pass>
void all_passes(const char* function, const Tensor& x, const std::vector<int64_t>& order,
                const InterpolateAxes& axes, Tensor& y) {
  visit_floating(function, y.dtype(), [&]<class T>(T) {
    std::vector<Pass<T>> passes;
    for (const int64_t dim : order) passes.emplace_back(axes[static_cast<size_t>(dim)]);
    int64_t sizes[3], planes = 1, most = 0;
    for (int64_t i = 0; i < 2; ++i) planes *= x.shape()[i];
    for (int64_t i = 0; i < 3; ++i) sizes[i] = x.shape()[2 + i];
    const int64_t plane_in = sizes[0] * sizes[1] * sizes[2];
    int64_t plane_out = plane_in;
    for (size_t p = 0; p < passes.size(); ++p) {
      plane_out = plane_out / passes[p].in() * passes[p].out();
      most = std::max(most, plane_out);
    }
    const T* from = detail::ptr<T>(x);
    T* to = detail::mutable_ptr<T>(y);
    const bool stream = y.numel() * static_cast<int64_t>(sizeof(T)) >= stream_bytes;
    const int64_t grain = std::max<int64_t>(1, 32768 / std::max(plane_in, plane_out));
    parallel_for(planes, grain, [&](int64_t begin, int64_t end) {
      // A tensor, whose memory is kept for the next chunk (Note [Host memory]).
      const Tensor buffers = empty({2, passes.size() > 1 ? most : 0}, {y.dtype(), Device::cpu()});
      for (int64_t plane = begin; plane < end; ++plane) {
        int64_t size[3] = {sizes[0], sizes[1], sizes[2]};
        const T* source = from + plane * plane_in;
        for (size_t p = 0; p < passes.size(); ++p) {
          const bool last = p + 1 == passes.size();
          T* const target = last ? to + plane * plane_out
                                 : detail::mutable_ptr<T>(buffers) + static_cast<int64_t>(p % 2) * most;
          const auto dim = static_cast<size_t>(order[p]);
          size[dim] = passes[p].out();
          int64_t outer = 1, inner = 1;
          for (size_t d = 0; d < 3; ++d) (d < dim ? outer : inner) *= d == dim ? 1 : size[d];
          passes[p].run(source, target, 0, outer * size[dim], inner, last && stream);
          source = target;
        }
      }
      if (stream) finish_streaming();
    });
  });
}

}  // namespace

void interpolate_axis(const Tensor& x, int64_t dim, const InterpolateAxis& axis, Tensor& y) {
  one_pass<ForwardPass>("interpolate", x, dim, axis, y);
}

void interpolate_axis_adjoint(const Tensor& grad_y, int64_t dim, const InterpolateAxis& axis,
                              Tensor& grad_x) {
  one_pass<AdjointPass>("interpolate_adjoint", grad_y, dim, axis, grad_x);
}

void interpolate_passes(const Tensor& x, const std::vector<int64_t>& order, const InterpolateAxes& axes,
                        Tensor& y) {
  all_passes<ForwardPass>("interpolate", x, order, axes, y);
}

void interpolate_passes_adjoint(const Tensor& grad_y, const std::vector<int64_t>& order,
                                const InterpolateAxes& axes, Tensor& grad_x) {
  all_passes<AdjointPass>("interpolate_adjoint", grad_y, order, axes, grad_x);
}

}  // namespace vox::cpu
