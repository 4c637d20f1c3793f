#include <voxgrad/core/factories.h>
#include <voxgrad/core/parallel.h>
#include <voxgrad/core/print.h>
#include <voxgrad/nn/metrics.h>
#include <voxgrad/ops/arithmetic.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <numeric>

namespace vox::nn {

namespace {

constexpr double infinity = std::numeric_limits<double>::infinity();

/// A grid of 3 axes; those in front that the tensor does not have are of size 1.
struct Grid {
  std::array<int64_t, 3> size{1, 1, 1}, stride{1, 1, 1};
  std::array<double, 3> spacing{1, 1, 1};
  int first = 0;  // the first axis that the tensor has

  int64_t cells() const { return size[0] * size[1] * size[2]; }
  int64_t place(int64_t cell, int axis) const { return cell / stride[axis] % size[axis]; }
};

Grid grid_of(const char* function, const Tensor& mask, const std::vector<double>& spacing) {
  vox::detail::check_defined(function, "mask", mask);
  check<ShapeError>(mask.rank() >= 1 && mask.rank() <= 3, function, ": masks have 1 to 3 dimensions, got ",
                    mask.shape());
  check<DTypeError>(mask.dtype() == boolean || mask.dtype() == u8, function, ": masks are bool or u8, got ",
                    mask.dtype(), "; gt(x, 0.5) makes one");
  const auto rank = static_cast<size_t>(mask.rank());
  check<ValueError>(spacing.empty() || spacing.size() == rank, function, ": spacing must have ", rank,
                    " numbers or none, got ", spacing.size());
  Grid grid;
  grid.first = static_cast<int>(3 - rank);
  for (size_t axis = 0; axis < rank; ++axis) {
    const double s = spacing.empty() ? 1 : spacing[axis];
    check<ValueError>(s > 0 && std::isfinite(s), function, ": spacing must be positive and finite, got ", s);
    grid.size[grid.first + axis] = mask.shape()[static_cast<int64_t>(axis)];
    grid.spacing[grid.first + axis] = s;
  }
  for (int axis = 1; axis >= 0; --axis) grid.stride[axis] = grid.stride[axis + 1] * grid.size[axis + 1];
  return grid;
}

using Mask = std::vector<uint8_t>;

Mask cells_of(const Tensor& mask) { return mask.to(boolean).to(u8).to_vector<uint8_t>(); }

/// values[p] = min over q of values[q] + (step * (p - q))^2: the lower envelope of a parabola at each q.
/// `apex` and `from` are room for the parabolas of the envelope: their q, and where each becomes the lowest.
void lower_envelope(std::vector<double>& values, double step, std::vector<int64_t>& apex,
                    std::vector<double>& from, std::vector<double>& result) {
  const auto n = static_cast<int64_t>(values.size());
  const auto x = [step](int64_t q) { return step * static_cast<double>(q); };
  const auto height = [&](int64_t q) { return values[q] + x(q) * x(q); };
  int64_t count = 0;
  for (int64_t q = 0; q < n; ++q) {
    if (values[q] == infinity) continue;
    double start = -infinity;
    for (; count > 0; --count) {
      const int64_t last = apex[count - 1];
      start = (height(q) - height(last)) / (2 * (x(q) - x(last)));
      if (start > from[count - 1]) break;
      start = -infinity;
    }
    apex[count] = q;
    from[count++] = start;
  }
  if (count == 0) return;
  for (int64_t p = 0, k = 0; p < n; ++p) {
    while (k + 1 < count && from[k + 1] < x(p)) ++k;
    const double distance = step * static_cast<double>(p - apex[k]);
    result[p] = values[apex[k]] + distance * distance;
  }
  values.swap(result);
}

/// lower_envelope along every line of `axis`.
void transform_axis(std::vector<double>& squares, const Grid& grid, int axis) {
  const int64_t n = grid.size[axis], stride = grid.stride[axis];
  const int64_t lines = n == 0 ? 0 : grid.cells() / n;
  parallel_for(lines, std::max<int64_t>(4096 / std::max<int64_t>(n, 1), 1), [&](int64_t begin, int64_t end) {
    std::vector<double> line(n), from(n), result(n);
    std::vector<int64_t> apex(n);
    for (int64_t l = begin; l < end; ++l) {
      double* first = squares.data() + l / stride * stride * n + l % stride;
      for (int64_t i = 0; i < n; ++i) line[i] = first[i * stride];
      lower_envelope(line, grid.spacing[axis], apex, from, result);
      for (int64_t i = 0; i < n; ++i) first[i * stride] = line[i];
    }
  });
}

std::vector<double> distances(const Mask& mask, const Grid& grid) {
  std::vector<double> squares(mask.size());
  for (size_t i = 0; i < mask.size(); ++i) squares[i] = mask[i] ? infinity : 0;
  for (int axis = 2; axis >= grid.first; --axis) transform_axis(squares, grid, axis);
  for (double& square : squares) square = std::sqrt(square);
  return squares;
}

/// The cells of the mask with a face to the outside.
Mask surface(const Mask& mask, const Grid& grid) {
  Mask border(mask.size());
  parallel_for(grid.cells(), 1 << 14, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      for (int axis = grid.first; axis < 3 && mask[i] && !border[i]; ++axis) {
        const int64_t place = grid.place(i, axis), stride = grid.stride[axis];
        border[i] = place == 0 || place + 1 == grid.size[axis] || !mask[i - stride] || !mask[i + stride];
      }
    }
  });
  return border;
}

/// For each cell of `from`, in order, its distance to `to`.
std::vector<double> nearest(const Mask& from, Mask to, const Grid& grid) {
  for (uint8_t& cell : to) cell = !cell;
  const std::vector<double> all = distances(to, grid);
  std::vector<double> found;
  for (size_t i = 0; i < from.size(); ++i) {
    if (from[i]) found.push_back(all[i]);
  }
  return found;
}

/// The part of both masks that has all of their cells: nothing outside it changes a distance.
void crop_to_cells(Tensor& a, Tensor& b, const Mask& cells, const Grid& grid) {
  std::array<int64_t, 3> begin = grid.size, end{};
  for (int64_t i = 0; i < grid.cells(); ++i) {
    if (!cells[i]) continue;
    for (int axis = 0; axis < 3; ++axis) {
      begin[axis] = std::min(begin[axis], grid.place(i, axis));
      end[axis] = std::max(end[axis], grid.place(i, axis) + 1);
    }
  }
  for (int axis = grid.first; axis < 3 && end[axis] > 0; ++axis) {
    a = a.slice(axis - grid.first, begin[axis], end[axis]);
    b = b.slice(axis - grid.first, begin[axis], end[axis]);
  }
}

void check_pair(const char* function, const Tensor& a, const Tensor& b) {
  grid_of(function, a, {}), grid_of(function, b, {});
  check<ShapeError>(a.shape() == b.shape(), function, ": masks must have one shape, got ", a.shape(), " and ",
                    b.shape());
}

double percentile_of(std::vector<double> values, double percent) {
  if (values.empty()) return -infinity;
  const double rank = percent / 100 * static_cast<double>(values.size() - 1);
  const auto below = values.begin() + static_cast<int64_t>(rank);
  std::nth_element(values.begin(), below, values.end());
  const double fraction = rank - std::floor(rank);
  if (fraction == 0 || *below == infinity) return *below;
  return *below + fraction * (*std::min_element(below + 1, values.end()) - *below);
}

}  // namespace

Tensor distance_transform(const Tensor& mask, const std::vector<double>& spacing) {
  const Grid grid = grid_of("distance_transform", mask, spacing);
  return from_vector(distances(cells_of(mask), grid), mask.shape()).to(mask.device());
}

double dice_score(const Tensor& a, const Tensor& b) {
  check_pair("dice_score", a, b);
  const Mask x = cells_of(a), y = cells_of(b);
  int64_t both = 0, sum = 0;
  for (size_t i = 0; i < x.size(); ++i) both += x[i] & y[i], sum += x[i] + y[i];
  return 2 * static_cast<double>(both) / static_cast<double>(sum);
}

SurfaceDistances surface_distances(const Tensor& a, const Tensor& b, const std::vector<double>& spacing) {
  check_pair("surface_distances", a, b);
  Tensor part_a = a, part_b = b;
  Mask cells = cells_of(a);
  const Mask others = cells_of(b);
  std::transform(cells.begin(), cells.end(), others.begin(), cells.begin(), std::bit_or<>());
  crop_to_cells(part_a, part_b, cells, grid_of("surface_distances", a, spacing));
  const Grid grid = grid_of("surface_distances", part_a, spacing);
  const Mask surface_a = surface(cells_of(part_a), grid), surface_b = surface(cells_of(part_b), grid);
  return {nearest(surface_a, surface_b, grid), nearest(surface_b, surface_a, grid)};
}

double hausdorff_distance(const SurfaceDistances& d, Real percentile) {
  check<ValueError>(percentile >= 0 && percentile <= 100,
                    "hausdorff_distance: percentile must be in [0, 100], got ", percentile);
  if (d.from_a.empty() && d.from_b.empty()) return std::numeric_limits<double>::quiet_NaN();
  return std::max(percentile_of(d.from_a, percentile), percentile_of(d.from_b, percentile));
}

double average_surface_distance(const SurfaceDistances& d) {
  const double sum = std::accumulate(d.from_a.begin(), d.from_a.end(), 0.0) +
                     std::accumulate(d.from_b.begin(), d.from_b.end(), 0.0);
  return sum / static_cast<double>(d.from_a.size() + d.from_b.size());
}

}  // namespace vox::nn
