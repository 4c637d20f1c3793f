#include <voxgrad/autograd/grad_mode.h>
#include <voxgrad/core/factories.h>
#include <voxgrad/core/parallel.h>
#include <voxgrad/core/print.h>
#include <voxgrad/image/resample.h>
#include <voxgrad/ops/arithmetic.h>
#include <voxgrad/ops/elementwise.h>
#include <voxgrad/ops/shaping.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>
#include <set>

namespace vox {

namespace {

// Edge cells that are repeated on each side of a line, as scipy does. The spline's coefficients at the edge
// are those of an infinite line to within sqrt(3) - 2 to the power of 12.
constexpr int64_t padding = 12;

/// Where each new cell of an axis lies in the padded line of old ones, and its weights of the cells there.
struct Axis {
  int64_t n, m, order;
  std::vector<int64_t> first;
  std::vector<std::array<double, 4>> weights;

  Axis(int64_t old_size, int64_t new_size, int64_t spline_order)
      : n(old_size), m(new_size), order(spline_order) {
    const double ratio = static_cast<double>(n) / static_cast<double>(m);
    for (int64_t i = 0; i < m; ++i) {
      const double x = (static_cast<double>(i) + 0.5) * ratio - 0.5 + (order == 0 ? 0.5 : 0);
      const double t = x - std::floor(x);
      first.push_back(static_cast<int64_t>(std::floor(x)) + padding - (order == 3 ? 1 : 0));
      if (order == 0) weights.push_back({1});
      if (order == 1) weights.push_back({1 - t, t});
      if (order != 3) continue;
      const double s = 1 - t, a = s * s * s / 6, d = t * t * t / 6;
      const double b = (4 - 6 * t * t + 3 * t * t * t) / 6;
      weights.push_back({a, b, 1 - a - b - d, d});
    }
  }
};

/// Replaces the cells of `columns` lines by the coefficients of the cubic B-splines whose sum goes through
/// them (Unser, "Splines: a perfect fit for signal and image processing", 1999). The line is mirrored at its
/// ends. Cell i of all lines stands at c + i * columns.
void to_coefficients(double* c, int64_t length, int64_t columns) {
  const double pole = std::sqrt(3.0) - 2;
  for (int64_t k = 0; k < length * columns; ++k) c[k] *= 6;
  double* last = c + (length - 1) * columns;
  for (int64_t k = 0; k < columns; ++k) {
    double sum = 0, power = pole;  // of the mirrored cells before the first one; far ones do not count
    for (int64_t i = 0; i < std::min<int64_t>(length, 60); ++i, power *= pole)
      sum += power * c[i * columns + k];
    c[k] += sum;
  }
  for (double* line = c + columns; line <= last; line += columns) {
    for (int64_t k = 0; k < columns; ++k) line[k] += pole * line[k - columns];
  }
  for (int64_t k = 0; k < columns; ++k) last[k] *= pole / (pole - 1);
  for (double* line = last - columns; line >= c; line -= columns) {
    for (int64_t k = 0; k < columns; ++k) line[k] = pole * (line[k + columns] - line[k]);
  }
}

/// x (outer, axis.n, inner) as (outer, axis.m, inner).
std::vector<double> along(const std::vector<double>& x, int64_t outer, int64_t inner, const Axis& axis) {
  constexpr int64_t widest = 32;  // lines that are computed together
  const int64_t groups = (inner + widest - 1) / widest, length = axis.n + 2 * padding;
  std::vector<double> result(static_cast<size_t>(outer * axis.m * inner));
  parallel_for(outer * groups, 1, [&](int64_t begin, int64_t end) {
    std::vector<double> lines(static_cast<size_t>(length * widest));
    for (int64_t task = begin; task < end; ++task) {
      const int64_t from = task % groups * widest, columns = std::min(widest, inner - from);
      const double* in = x.data() + task / groups * axis.n * inner + from;
      double* out = result.data() + task / groups * axis.m * inner + from;
      for (int64_t i = 0; i < length; ++i) {
        const double* cell = in + std::clamp<int64_t>(i - padding, 0, axis.n - 1) * inner;
        std::copy(cell, cell + columns, lines.data() + i * columns);
      }
      if (axis.order == 3) to_coefficients(lines.data(), length, columns);
      for (int64_t i = 0; i < axis.m; ++i) {
        for (int64_t tap = 0; tap <= axis.order; ++tap) {
          const double weight = axis.weights[i][tap];
          const double* cell = lines.data() + (axis.first[i] + tap) * columns;
          for (int64_t k = 0; k < columns; ++k) out[i * inner + k] += weight * cell[k];
        }
      }
    }
  });
  return result;
}

/// One volume.
std::vector<double> resample_volume(std::vector<double> x, Shape shape, const Shape& size, int64_t order,
                                    bool clip) {
  const auto [low, high] = std::minmax_element(x.begin(), x.end());
  const double least = *low, most = *high;
  for (int64_t axis = 0; axis < size.rank(); ++axis) {
    if (shape[axis] == size[axis]) continue;
    const auto product = std::multiplies<int64_t>();
    const int64_t outer = std::accumulate(shape.begin(), shape.begin() + axis, int64_t{1}, product);
    const int64_t inner = std::accumulate(shape.begin() + axis + 1, shape.end(), int64_t{1}, product);
    x = along(x, outer, inner, Axis(shape[axis], size[axis], order));
    shape[axis] = size[axis];
  }
  if (clip) {
    for (double& value : x) value = std::clamp(value, least, most);
  }
  return x;
}

void check_arguments(const char* function, const Tensor& x, const Shape& size, const ResampleOptions& o) {
  detail::check_defined(function, "x", x);
  const int64_t rank = size.rank();
  check<ShapeError>(rank >= 1 && rank <= 3 && *std::min_element(size.begin(), size.end()) >= 1, function,
                    ": size must have 1 to 3 positive sizes, got ", size);
  check<ShapeError>(x.rank() >= rank && x.numel() > 0, function, ": needs cells and at least ", rank,
                    " dimensions, got ", x.shape());
  for (const int64_t order : {o.order, o.separate_order})
    check<ValueError>(order == 0 || order == 1 || order == 3, function, ": order must be 0, 1 or 3, got ",
                      order);
  if (o.separate_axis)
    check<ValueError>(*o.separate_axis >= 0 && *o.separate_axis < rank && rank > 1, function,
                      ": separate_axis must be one of ", rank, " axes, and not the only one, got ",
                      *o.separate_axis);
}

/// Calls step(x, sizes, options) for the axes other than the separate one, and then for that.
Tensor in_two_steps(const Tensor& x, const Shape& size, const ResampleOptions& o, decltype(resample)& step) {
  Shape order, back, others;
  const int64_t first = x.rank() - size.rank(), axis = first + *o.separate_axis;
  for (int64_t i = 0; i < x.rank(); ++i) {
    if (i != axis) order.push_back(i);
    if (i >= first && i != axis) others.push_back(size[i - first]);
  }
  order.insert(first, axis);  // the axis is one of the leading dimensions
  for (int64_t i = 0; i < x.rank(); ++i)
    back.push_back(std::find(order.begin(), order.end(), i) - order.begin());
  const Tensor slices = step(x.permute(order), others, {.order = o.order, .clip = o.clip}).permute(back);
  const Tensor last =
      step(slices.transpose(axis, -1), Shape{size[axis - first]}, {.order = o.separate_order, .clip = false});
  return last.transpose(axis, -1).contiguous();
}

}  // namespace

Tensor resample(const Tensor& x, const Shape& size, const ResampleOptions& o) {
  check_arguments("resample", x, size, o);
  check<DTypeError>(x.dtype() == f32 || x.dtype() == f64, "resample: needs f32 or f64, got ", x.dtype(),
                    "; use to(f32), or resample_labels");
  const auto guard = no_grad();
  if (o.separate_axis) return in_two_steps(x, size, o, resample);
  const Shape volume(x.shape().end() - size.rank(), x.shape().end());
  Shape shape(x.shape().begin(), x.shape().end() - size.rank());
  for (const int64_t s : size) shape.push_back(s);
  Shape flat{-1};
  for (const int64_t s : volume) flat.push_back(s);
  const Tensor volumes = x.detach().to(Device::cpu()).reshape(flat);
  Tensor result = in_the_name_of("resample", [&] { return empty(shape, {x.dtype()}); });
  flat = size;
  flat.insert(0, -1);
  Tensor results = result.reshape(flat);
  for (int64_t i = 0; i < volumes.size(0); ++i) {
    const std::vector<double> values = volumes[i].to(f64).to_vector<double>();
    results[i].copy_(from_vector(resample_volume(values, volume, size, o.order, o.clip), size).to(x.dtype()));
  }
  return result.to(x.device());
}

Tensor resample_labels(const Tensor& labels, const Shape& size, const ResampleOptions& o) {
  check_arguments("resample_labels", labels, size, o);
  check<DTypeError>(labels.dtype() == u8 || labels.dtype() == i64, "resample_labels: needs u8 or i64, got ",
                    labels.dtype());
  const auto guard = no_grad();
  if (o.separate_axis) return in_two_steps(labels, size, o, resample_labels);
  const std::vector<int64_t> values = labels.to(i64).to_vector<int64_t>();
  const Tensor nearest = resample(labels.to(f64), size, {.order = 0}).to(labels.dtype());
  Tensor best, result;
  for (const int64_t label : std::set<int64_t>(values.begin(), values.end())) {
    const Tensor share = resample(eq(labels, label).to(f64), size, {.order = o.order});
    if (!best.defined()) {
      best = share;
      result = full(share.shape(), label, labels.options());
      continue;
    }
    const Tensor wins = logical_or(gt(share, best), logical_and(eq(share, best), eq(nearest, label)));
    result = where(wins, label, result);
    best = maximum(best, share);
  }
  return result;
}

}  // namespace vox
