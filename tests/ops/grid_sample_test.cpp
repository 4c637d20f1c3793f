#include "tests/support/test.h"

// The catalogue has layouts, dtypes, gradients and refused operands; tests/opinfo has PyTorch's samples.

namespace vox {
namespace {

using Options = GridSampleOptions;
using enum Options::Padding;
constexpr auto nearest = Options::Mode::nearest, linear = Options::Mode::linear;

const std::vector<Options>& all_options() {
  static const std::vector<Options> list = [] {
    std::vector<Options> all;
    for (const auto mode : {nearest, linear})
      for (const auto padding : {zeros, border, reflection})
        for (const bool align_corners : {false, true})
          all.push_back({.mode = mode, .padding = padding, .align_corners = align_corners});
    return all;
  }();
  return list;
}

class GridSample : public DeviceTest {
 protected:
  /// What these coordinates read of one axis, which is W.
  static Doubles along(const Doubles& x, const Doubles& points, const Options& options, DType dtype = f64) {
    const auto count = static_cast<int64_t>(points.size());
    const Tensor volume = from_vector<double>(x, {1, 1, 1, static_cast<int64_t>(x.size())}),
                 w = from_vector<double>(points, {1, 1, count, 1});
    const Tensor grid = cat({w, zeros_like(w)}, -1);
    return values(grid_sample(volume.to(dtype).to(device()), grid.to(dtype).to(device()), options));
  }
};
INSTANTIATE_TEST_SUITE_P(, GridSample, devices(), device_name);

TEST_P(GridSample, ByHand) {
  const Doubles x{1, 2, 3, 4};
  for (const DType dtype : {f32, f64, bf16, f16}) {
    const auto read = [&](const Doubles& points, const Options& options) {
      return along(x, points, options, dtype);
    };
    // Centres of cells are at -0.75, -0.25, 0.25 and 0.75; faces at -1 and 1.
    EXPECT_EQ(read({-0.75, 0.25, 0.5, -1, 1.25}, {}), (Doubles{1, 3, 3.5, 0.5, 0}));
    EXPECT_EQ(read({-1, -2, 1.5, 0.5}, {.padding = border}), (Doubles{1, 1, 4, 3.5}));
    EXPECT_EQ(read({-1, -1.5, 1.25, 2, 6}, {.padding = reflection}), (Doubles{1, 1.5, 4, 2.5, 2.5}));
    EXPECT_EQ(read({-1, 0, 1, 1.5}, {.align_corners = true}), (Doubles{1, 2.5, 4, 1}));
    EXPECT_EQ(read({-1.5, 2, 4}, {.padding = reflection, .align_corners = true}), (Doubles{1.75, 2.5, 2.5}));
    // Ties go to the even cell.
    EXPECT_EQ(read({-0.75, -0.5, 0, 0.5, -1, -1.1, 1.1}, {.mode = nearest}), (Doubles{1, 1, 3, 3, 1, 0, 0}));
    EXPECT_EQ(read({-9, 9}, {.mode = nearest, .padding = border}), (Doubles{1, 4}));
  }
}

/// The definition, one cell at a time: cell i of an axis counts by its distance to the position.
double weight(double g, int64_t n, int64_t i, const Options& o) {
  const auto size = static_cast<double>(n), last = size - 1, low = o.align_corners ? 0 : -0.5;
  double p = o.align_corners ? (g + 1) / 2 * last : ((g + 1) * size - 1) / 2;
  if (o.padding == reflection) {
    const double span = o.align_corners ? last : size,
                 turn = span > 0 ? std::fmod(std::abs(p - low), 2 * span) : 0;
    p = low + std::min(turn, 2 * span - turn);
  }
  if (o.padding != zeros) p = std::clamp(p, 0.0, last);
  const double cell = static_cast<double>(i);
  return o.mode == nearest ? std::nearbyint(p) == cell : std::max(0.0, 1 - std::abs(p - cell));
}

TEST_P(GridSample, MatchesItsDefinition) {
  for (const Shape& sizes : {Shape{5, 3, 4}, Shape{1, 2, 1}, Shape{7, 4}, Shape{1, 6}}) {
    const int64_t axes = sizes.rank(), points = 301;  // more than a block of the CPU
    Shape shape{1, 1}, grid_shape = Shape::filled(axes + 2, 1);
    for (const int64_t size : sizes) shape.push_back(size);
    grid_shape[axes] = points, grid_shape[axes + 1] = axes;
    const Tensor x = normal(shape, on(f64)), grid = normal(grid_shape, on(f64), 2) * 1.5;
    const Doubles cells = values(x), g = values(grid);
    for (const Options& o : all_options()) {
      const Doubles y = values(grid_sample(x, grid, o));
      for (int64_t point = 0; point < points; ++point) {
        double sum = 0;
        for (int64_t cell = 0; cell < x.numel(); ++cell) {
          double product = cells[static_cast<size_t>(cell)];
          for (int64_t axis = axes - 1, rest = cell; axis >= 0; rest /= sizes[axis--])
            product *= weight(g[static_cast<size_t>(point * axes + axes - 1 - axis)], sizes[axis],
                              rest % sizes[axis], o);
          sum += product;
        }
        ASSERT_NEAR(y[static_cast<size_t>(point)], sum, 1e-12) << sizes << " " << point;
      }
    }
  }
}

TEST_P(GridSample, TheGradientIsTheTransposeExactly) {
  // Coordinates are 1/64 of cells, so all sums of products are exact. Many points read the same cells.
  const Tensor x = whole({2, 9, 6, 16, 8}, on(f64)).set_requires_grad();
  const Tensor grid = whole({2, 7, 11, 13, 3}, on(f64), 3) * (5.0 / 16) + 1.0 / 64;
  for (Options o : all_options()) {
    o.align_corners = false;
    const Tensor y = grid_sample(x, grid, o), g = whole(y.shape(), on(f64), 4);
    const auto gradient = [&] { return grad({y}, {x}, {.grad_outputs = {g}, .retain_graph = true})[0]; };
    const Tensor grad_x = gradient();
    EXPECT_EQ(sum(y.detach() * g).item(), sum(x.detach() * grad_x).item());
    EXPECT_TRUE(same_bits(grad_x, gradient()));
  }
}

/// More cells than CUDA's tiles have on each axis, and cells of which 33 to 3,000 points read.
TEST_P(GridSample, TheGradientOfManyPointsOfOneCell) {
  const int64_t count = 9000;
  for (const int64_t channels : {1, 5}) {
    const Shape shape{2, channels, 35, 18, 70}, points{2, 1, 1, count, 3};
    const Tensor place = whole(points, {}, 3).to(f64) * (1.0 / 16) + 1.0 / 64;
    place.slice(3, 0, 3000).fill_(1.0 / 64);
    for (int64_t i = 0; i < 10; ++i) place.slice(3, 3000 + 33 * i, 3033 + 34 * i).fill_(0.25 - i / 32.0);
    for (const Options& o : {Options{}, Options{.padding = border}, Options{.mode = nearest}}) {
      std::vector<Tensor> gradients;
      for (const Device where : {Device::cpu(), device()}) {
        const Tensor x = vox::zeros(shape, {f64, where}).set_requires_grad(), grid = place.to(where);
        const Tensor y = grid_sample(x, grid, o), g = whole(y.shape(), {f64, where}, 4);
        gradients.push_back(grad({y}, {x}, {.grad_outputs = {g}})[0].to(Device::cpu()));
        // Sums that round: their order shows.
        const Tensor f = normal(y.shape(), {f64, where}, 5);
        const auto of_f = [&] { return grad({grid_sample(x, grid, o)}, {x}, {.grad_outputs = {f}})[0]; };
        EXPECT_TRUE(same_bits(of_f(), of_f()));
      }
      EXPECT_TRUE(same_bits(gradients[0], gradients[1]));
    }
  }
}

TEST_P(GridSample, FarAwayAndNaN) {
  const Doubles far{nan, inf, -inf, 1e30, -1e30, 3e9, -5e9, 1e18};
  for (const DType dtype : {f32, f64, bf16}) {
    for (const Options& o : all_options()) {
      const Doubles y = along({1, 2, 3}, far, o, dtype);
      const Doubles at_border{1, 3, 1, 3, 1, 3, 1, 3};
      EXPECT_EQ(y[0], o.padding == zeros ? 0 : 1);
      if (o.padding != reflection) {
        EXPECT_EQ(y, o.padding == zeros ? Doubles(8, 0) : at_border);
      }
      EXPECT_TRUE(std::all_of(y.begin(), y.end(), [](double v) { return v >= 0 && v <= 3; }));
      Tensor x = ones({1, 1, 3, 3, 3}, on(dtype)).set_requires_grad();
      Tensor grid = from_vector<double>(far, {1, 1, 1, 8, 1}).to(dtype).to(device()).expand({1, 1, 1, 8, 3});
      grid = grid.contiguous().set_requires_grad();
      sum(grid_sample(x, grid, o)).backward();
      EXPECT_EQ(values(grid.grad()), Doubles(24, 0));
      EXPECT_EQ(sum(x.grad()).item(), o.padding == zeros ? 0 : 8);
    }
  }
}

TEST_P(GridSample, CellsOfWeight0DoNotCount) {
  EXPECT_EQ(along({inf, 2, inf}, {0}, {}), (Doubles{2}));
  EXPECT_EQ(along({1, 2, inf}, {-1}, {.padding = border}), (Doubles{1}));
}

TEST_P(GridSample, OfNothing) {
  for (const Options& o : all_options()) {
    for (const auto& [n, c, points] : {std::tuple{0, 2, 3}, {2, 0, 3}, {2, 2, 0}}) {
      Tensor x = ones({n, c, 2, 3, 4}, on(f32)).set_requires_grad(),
             grid = ones({n, 1, points, 2, 3}, on(f32)).set_requires_grad();
      const Tensor y = grid_sample(x, grid, o);
      EXPECT_EQ(y.shape(), (Shape{n, c, 1, points, 2}));
      sum(y).backward();
      EXPECT_EQ(values(x.grad()), Doubles(static_cast<size_t>(x.numel()), 0));
      EXPECT_EQ(values(grid.grad()), Doubles(static_cast<size_t>(grid.numel()), 0));
    }
  }
}

TEST_P(GridSample, UnderAutocastTheWiderDtypeCounts) {
  const auto guard = autocast(bf16);
  const Tensor x = ones({1, 1, 2, 2}, on(bf16)), grid = zeros_like(ones({1, 1, 1, 2}, on(f32)));
  EXPECT_EQ(grid_sample(x, grid).dtype(), f32);
}

TEST_P(GridSample, AffineGrids) {
  const Tensor identity = make({1, 0, 0, 0, 1, 0}, {1, 2, 3});
  EXPECT_EQ(values(affine_grid(identity, {1, 1, 2, 4})),
            (Doubles{-0.75, -0.5, -0.25, -0.5, 0.25, -0.5, 0.75, -0.5, -0.75, 0.5, -0.25, 0.5, 0.25, 0.5,
                     0.75, 0.5}));
  EXPECT_EQ(values(affine_grid(identity, {1, 1, 1, 3}, true)), (Doubles{-1, 0, 0, 0, 1, 0}));
  const Tensor turn = make({0, 0, 1, 10, 0, 1, 0, 20, -1, 0, 0, 30}, {1, 3, 4});
  EXPECT_EQ(values(affine_grid(turn, {1, 9, 2, 1, 2})),  // (w, h, d) becomes (d, h, -w) + (10, 20, 30)
            (Doubles{9.5, 20, 30.5, 9.5, 20, 29.5, 10.5, 20, 30.5, 10.5, 20, 29.5}));
  const Tensor x = normal({1, 2, 4, 5}, on(f64));
  for (const bool align_corners : {false, true}) {
    const Tensor y =
        grid_sample(x, affine_grid(identity, x.shape(), align_corners), {.align_corners = align_corners});
    EXPECT_TRUE(allclose(y, x, 1e-12, 1e-12));
  }
}

}  // namespace
}  // namespace vox
