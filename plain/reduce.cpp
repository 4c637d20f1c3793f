#include <voxgrad/ops/kernels.h>
#include <voxgrad/plain/loops.h>

#include <vector>

namespace vox::cpu {
namespace {

/// What a sum adds up for one element, and whether it is divided by their number.
struct Terms {
  bool is_square = false, is_magnitude = false, is_mean = false;
  explicit Terms(ReduceKind kind) {
    is_square = kind == ReduceKind::sum_of_squares || kind == ReduceKind::mean_square;
    is_magnitude = kind == ReduceKind::sum_of_magnitudes || kind == ReduceKind::mean_magnitude;
    is_mean =
        kind == ReduceKind::mean || kind == ReduceKind::mean_square || kind == ReduceKind::mean_magnitude;
    check<ValueError>(is_square || is_magnitude || is_mean || kind == ReduceKind::sum,
                      "reduce: voxgrad_afternoon has only sums and means");
  }
  template <class Sum>
  Sum of(Sum d) const {
    return is_square ? d * d : is_magnitude && d < 0 ? -d : d;
  }
};

}  // namespace

void reduce(ReduceKind kind, const Tensor& x, const Tensor& target, int64_t reduced_dims, Tensor& y,
            Tensor& extra) {
  const Terms terms(kind);
  Tensor& result = y.defined() ? y : extra;
  const Shape kept(x.shape().begin(), x.shape().end() - reduced_dims);
  const int64_t rows = checked_numel("reduce", kept), length = rows == 0 ? 0 : x.numel() / rows;
  const auto sum_as = [&]<class Sum>(Sum) {
    std::vector<Sum> sums(static_cast<size_t>(rows));
    int64_t i = 0;  // the walk is in row-major order, so element i belongs to row i / length
    plain::for_each_element(
        [&](const auto& at) {
          Sum d = plain::read<Sum>(x, at[0]);
          if (target.defined()) d -= plain::read<Sum>(target, at[0]);  // it has x's strides
          sums[static_cast<size_t>(i++ / length)] += terms.of(d);
        },
        x);
    visit_dtype(result.dtype(), [&]<class T>(T) {
      for (int64_t row = 0; row < rows; ++row) {
        const Sum sum = sums[static_cast<size_t>(row)];
        detail::mutable_ptr<T>(result)[row] = detail::convert<T>(terms.is_mean ? sum / Sum(length) : sum);
      }
    });
  };
  if (is_floating(x.dtype()))
    sum_as(double{});
  else
    sum_as(uint64_t{});  // wraps around
}

void reduce_gradient(ReduceGradient kind, const Tensor& g, const Tensor& x, const Tensor& r, const Tensor&,
                     Tensor& grad_x) {
  check<ValueError>(kind == ReduceGradient::difference || kind == ReduceGradient::sign,
                    "reduce_gradient: voxgrad_afternoon has only those of sums and means");
  plain::map(
      [kind](auto scale, auto value, auto from) {
        const auto d = value - from;
        if (kind == ReduceGradient::difference) return scale * d;
        return d > 0 ? scale : d < 0 ? -scale : scale * d;
      },
      grad_x, g, x, r);
}

}  // namespace vox::cpu
