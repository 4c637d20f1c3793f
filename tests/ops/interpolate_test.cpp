#include <voxgrad/core/host_memory.h>

#include "tests/support/test.h"

namespace vox {
namespace {

constexpr auto nearest = InterpolateOptions::Mode::nearest;
constexpr auto trilinear = InterpolateOptions::Mode::trilinear;

class Interpolate : public DeviceTest {
 protected:
  /// One axis alone: the others have size 1.
  static Doubles along(int64_t dim, const Doubles& v, InterpolateOptions options, int64_t size,
                       DType dtype = f64) {
    Shape shape = Shape::filled(5, 1);
    shape[dim] = static_cast<int64_t>(v.size());
    Triple target = 1;
    target[dim - 2] = size;
    options.size = target;
    return values(interpolate(make(v, shape, dtype), options));
  }
  static Doubles along_scaled(const Doubles& v, InterpolateOptions options, double scale) {
    options.scale_factor = {1, 1, scale};
    return values(interpolate(make(v, {1, 1, 1, 1, static_cast<int64_t>(v.size())}), options));
  }
};
INSTANTIATE_TEST_SUITE_P(, Interpolate, devices(), device_name);

TEST_P(Interpolate, NearestByHand) {
  for (const DType dtype : {f32, f64}) {
    for (const int64_t dim : {2, 3, 4}) {
      EXPECT_EQ(along(dim, {1, 2, 3}, {.mode = nearest}, 6, dtype), (Doubles{1, 1, 2, 2, 3, 3}));
      EXPECT_EQ(along(dim, {1, 2, 3}, {.mode = nearest}, 5, dtype), (Doubles{1, 1, 2, 2, 3}));
      EXPECT_EQ(along(dim, {1, 2, 3, 4, 5}, {.mode = nearest}, 3, dtype), (Doubles{1, 2, 4}));
      EXPECT_EQ(along(dim, {1, 2, 3}, {.mode = nearest}, 1, dtype), (Doubles{1}));
    }
  }
  EXPECT_EQ(along_scaled({1, 2, 3, 4}, {.mode = nearest}, 1.5), (Doubles{1, 1, 2, 3, 3, 4}));
  EXPECT_EQ(along_scaled({1, 2, 3}, {.mode = nearest}, 2.5), (Doubles{1, 1, 1, 2, 2, 3, 3}));
  EXPECT_EQ(along_scaled({1, 2, 3, 4, 5}, {.mode = nearest}, 0.5), (Doubles{1, 3}));
}

TEST_P(Interpolate, NearestFindsWholePositionsExactly) {
  // o * in / out is whole at every out / in: no rounding may fall below it. 1/49 rounds down, 1/41 up.
  for (const int64_t factor : {3, 41, 49, 55, 98, 107}) {
    const Doubles y = along(4, {1, 2, 3}, {.mode = nearest}, 3 * factor);
    for (int64_t o = 0; o < 3 * factor; ++o)
      EXPECT_EQ(y[static_cast<size_t>(o)], static_cast<double>(1 + o / factor)) << factor << " " << o;
  }
}

TEST_P(Interpolate, TrilinearByHand) {
  for (const DType dtype : {f32, f64}) {
    for (const int64_t dim : {2, 3, 4}) {
      EXPECT_EQ(along(dim, {0, 4, 8}, {.mode = trilinear}, 6, dtype), (Doubles{0, 1, 3, 5, 7, 8}));
      EXPECT_EQ(along(dim, {0, 1, 2, 3}, {.mode = trilinear}, 2, dtype), (Doubles{0.5, 2.5}));
      EXPECT_EQ(along(dim, {5}, {.mode = trilinear}, 3, dtype), (Doubles{5, 5, 5}));
      EXPECT_EQ(along(dim, {0, 4, 8}, {.mode = trilinear, .align_corners = true}, 5, dtype),
                (Doubles{0, 2, 4, 6, 8}));
      EXPECT_EQ(along(dim, {3, 4, 8}, {.mode = trilinear, .align_corners = true}, 1, dtype), (Doubles{3}));
      EXPECT_EQ(along(dim, {3}, {.mode = trilinear, .align_corners = true}, 2, dtype), (Doubles{3, 3}));
    }
  }
}

TEST_P(Interpolate, ScaleFactorIsUsedAsGiven) {
  // floor(2 * 2.7) = 5 cells. With the given scale o reads at (o + 0.5) / 2.7 - 0.5, with size 5 at
  // (o + 0.5) * 2 / 5 - 0.5.
  const Doubles expected{0, 1.5, 11.5, 21.5, 27}, by_size{0, 2.7, 13.5, 24.3, 27};
  const Doubles scaled = along_scaled({0, 27}, {.mode = trilinear}, 2.7);
  const Doubles sized = along(4, {0, 27}, {.mode = trilinear}, 5);
  ASSERT_EQ(scaled.size(), 5u);
  for (size_t i = 0; i < 5; ++i) {
    EXPECT_NEAR(scaled[i], expected[i], 1e-12);
    EXPECT_NEAR(sized[i], by_size[i], 1e-12);
  }
  // An axis that keeps its size is copied (floor(3 * 1.3) = 3).
  EXPECT_EQ(along_scaled({1, 2, 5}, {.mode = trilinear}, 1.3), (Doubles{1, 2, 5}));
}

// The definition, all eight neighbours at once, in double. `t` is the position on each axis.
double blend(const Doubles& x, const Shape& s, int64_t nc, const double (&t)[3]) {
  double sum = 0;
  for (int corner = 0; corner < 8; ++corner) {
    double weight = 1;
    int64_t index = nc;
    for (int axis = 0; axis < 3; ++axis) {
      const int64_t in = s[2 + axis];
      const double p = std::min(std::max(t[axis], 0.0), static_cast<double>(in - 1));
      const auto low = static_cast<int64_t>(std::floor(p));
      const bool high = corner >> axis & 1;
      weight *= high ? p - static_cast<double>(low) : 1 - (p - static_cast<double>(low));
      index = index * in + std::min(low + high, in - 1);
    }
    sum += weight * x[static_cast<size_t>(index)];
  }
  return sum;
}

TEST_P(Interpolate, TrilinearMatchesItsDefinition) {
  const Triple size{7, 3, 8};                                                // grows, shrinks, grows
  for (const Shape& shape : {Shape{2, 3, 4, 5, 3}, Shape{6, 3, 4, 5, 3}}) {  // few planes, and many
    for (const auto& [dtype, corners] : {std::pair(f32, false), {f32, true}, {f64, false}, {f64, true}}) {
      const Tensor x = whole(shape, on(dtype));
      const Tensor y = interpolate(x, {.size = size, .mode = trilinear, .align_corners = corners});
      ASSERT_EQ(y.shape(), (Shape{shape[0], 3, 7, 3, 8}));
      EXPECT_EQ(y.dtype(), dtype);
      const Doubles in = values(x), out = values(y);
      size_t n = 0;
      for_each_place(y.shape(), [&](const Shape& o) {
        double t[3];
        for (int a = 0; a < 3; ++a) {
          const auto i = static_cast<double>(o[2 + a]), ins = static_cast<double>(shape[2 + a]),
                     outs = static_cast<double>(size[a]);
          t[a] = corners ? i * (ins - 1) / (outs - 1) : (i + 0.5) * ins / outs - 0.5;
        }
        EXPECT_NEAR(out[n], blend(in, shape, o[0] * 3 + o[1], t), dtype == f32 ? 1e-5 : 1e-12) << n;
        ++n;
      });
    }
  }
}

TEST_P(Interpolate, GradientByHand) {
  for (const DType dtype : {f32, f64}) {
    Tensor x = make({0, 0, 0}, {1, 1, 1, 1, 3}, dtype).set_requires_grad();
    const Tensor g = make({1, 2, 3, 4, 5, 6}, {1, 1, 1, 1, 6}, dtype);
    interpolate(x, {.size = Triple{1, 1, 6}, .mode = trilinear}).backward(g);
    EXPECT_EQ(values(x.grad()), (Doubles{3.25, 7, 10.75}));
    x.zero_grad();
    interpolate(x, {.size = Triple{1, 1, 6}, .mode = nearest}).backward(g);
    EXPECT_EQ(values(x.grad()), (Doubles{3, 7, 11}));
    x.zero_grad();
    interpolate(x, {.size = Triple{1, 1, 2}, .mode = nearest}).backward(g.slice(4, 0, 2));
    EXPECT_EQ(values(x.grad()), (Doubles{1, 2, 0}));
  }
}

// Rows of the matrix of one axis: forward on the unit vectors gives its columns, backward its rows.
TEST_P(Interpolate, BackwardIsTheTransposeToTheLastBit) {
  std::vector<InterpolateOptions> cases;
  for (int64_t out = 1; out <= 11; ++out) {
    for (const auto& o : {InterpolateOptions{.mode = nearest}, InterpolateOptions{.mode = trilinear},
                          InterpolateOptions{.mode = trilinear, .align_corners = true}}) {
      cases.push_back(o);
      cases.back().size = Triple{1, 1, out};
    }
  }
  for (const double scale : {0.35, 0.5, 0.77, 1.4, 2.0, 2.7, 3.3}) {
    cases.push_back({.scale_factor = {{1, 1, scale}}, .mode = nearest});
    cases.push_back({.scale_factor = {{1, 1, scale}}, .mode = trilinear});
  }
  for (const int64_t in : {3, 4, 7}) {
    for (const InterpolateOptions& options : cases) {
      const Tensor units = eye(in, {f64}).to(device()).reshape({in, 1, 1, 1, in});
      const Tensor columns = interpolate(units, options);
      const int64_t out = columns.size(4);
      Tensor x = zeros({out, 1, 1, 1, in}, on(f64)).set_requires_grad();
      interpolate(x, options).backward(eye(out, {f64}).to(device()).reshape({out, 1, 1, 1, out}));
      EXPECT_EQ(values(x.grad().reshape({out, in})), values(columns.reshape({in, out}).transpose(0, 1)))
          << in << " to " << out;
    }
  }
}

TEST_P(Interpolate, AdjointIdentityIsExactOnIntegers) {
  for (const DType dtype : {f32, f64}) {
    for (const auto mode : {nearest, trilinear}) {
      Tensor x = whole({2, 3, 4, 3, 5}, on(dtype)).set_requires_grad();
      Tensor y = interpolate(x, {.scale_factor = {{2, 2, 2}}, .mode = mode});
      ASSERT_EQ(y.shape(), (Shape{2, 3, 8, 6, 10}));
      const Tensor g = whole(y.shape(), on(dtype));
      y.backward(g);
      // Weights are multiples of 1/64: every sum is exact.
      EXPECT_EQ(values((y.detach() * g).sum()), values((x.detach() * x.grad()).sum()));
    }
  }
}

TEST_P(Interpolate, AlongWAsAlongHToTheLastBit) {  // whose loops have little in common
  for (const DType dtype : {f32, f64, bf16, f16}) {
    const std::pair<int64_t, int64_t> sizes[] = {{40, 97}, {17, 64},  {33, 50},  {64, 31}, {100, 300},
                                                 {5, 40},  {16, 112}, {64, 128}, {31, 62}, {9, 8}};
    for (const auto& [in, out] : sizes) {
      for (const auto mode : {nearest, trilinear}) {
        Tensor x = whole({1, 3, 1, 5, in}, on(dtype)).set_requires_grad();
        Tensor y = interpolate(x, {.size = Triple(1, 5, out), .mode = mode});
        Tensor turned = x.detach().transpose(3, 4).contiguous().set_requires_grad();
        Tensor y_turned = interpolate(turned, {.size = Triple(1, out, 5), .mode = mode});
        EXPECT_EQ(values(y), values(y_turned.transpose(3, 4))) << in << " to " << out;
        const Tensor gy = whole(y.shape(), on(dtype)) * 0.1;
        y.backward(gy);
        y_turned.backward(gy.transpose(3, 4).contiguous());
        EXPECT_EQ(values(x.grad()), values(turned.grad().transpose(3, 4))) << in << " to " << out;
      }
    }
  }
}

// 8 GiB of addresses, of which a few pages are touched.
TEST(InterpolateFarTest, AnAxisMayHaveMoreThan32BitsOfCells) {
#if VOX_ADDRESS_SANITIZER || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "sanitizers keep shadow memory for every byte of it";
#endif
  const int64_t width = (int64_t{1} << 31) + 9;
  Tensor x;
  try {
    x = empty({1, 1, 1, 1, width});
  } catch (const OutOfMemoryError&) {
    GTEST_SKIP() << "no 8 GiB of addresses";
  }
  x.slice(4, 0, 2).copy_(full({1, 1, 1, 1, 2}, 3));
  x.slice(4, width / 2 - 1, width / 2 + 2).copy_(full({1, 1, 1, 1, 3}, 5));
  x.slice(4, width - 2, width).copy_(full({1, 1, 1, 1, 2}, 7));
  const Tensor y = interpolate(x, {.size = Triple{1, 1, 3}, .mode = trilinear, .align_corners = true});
  EXPECT_EQ(values(y), (Doubles{3, 5, 7}));
}

TEST_P(Interpolate, NeighboursOfWeightZeroDoNotCount) {
  EXPECT_EQ(along(4, {1, inf, 3}, {.mode = trilinear, .align_corners = true}, 5),
            (Doubles{1, inf, inf, inf, 3}));
  Doubles row(33), finer(65);  // in vectors
  row[3] = finer[5] = finer[6] = finer[7] = inf;
  EXPECT_EQ(along(4, row, {.mode = trilinear, .align_corners = true}, 65), finer);
}

TEST_P(Interpolate, CopiesWhereNothingChanges) {
  const Tensor x = whole({1, 2, 2, 3, 2}, on(f64));
  const Tensor y = interpolate(x, {.size = Triple{2, 3, 2}, .mode = trilinear});
  EXPECT_EQ(values(y), values(x));
  EXPECT_NE(y.impl()->storage, x.impl()->storage);
  EXPECT_EQ(interpolate(zeros({0, 2, 2, 2, 2}, on(f32)), {.size = Triple(4)}).shape(),
            (Shape{0, 2, 4, 4, 4}));
}

TEST_P(Interpolate, RefusesBadArguments) {
  const Tensor x = zeros({1, 1, 2, 2, 2}, on(f32));
  EXPECT_ERRORS(ValueError, interpolate({}, {.size = Triple(2)}), interpolate(x, {}),
                interpolate(x, {.size = Triple(2), .scale_factor = {{1, 1, 1}}}),
                interpolate(x, {.size = Triple(2), .align_corners = true}));
  EXPECT_ERRORS(ShapeError, interpolate(x[0][0][0], {.size = Triple(2)}),
                interpolate(x.slice(2, 0, 0), {.size = Triple(2)}), interpolate(x, {.size = Triple(2, 0, 2)}),
                interpolate(x, {.size = Triple(2, -1, 2)}));
  EXPECT_THROW(interpolate(x, {.scale_factor = {{1, 0.4, 1}}}), ShapeError);  // floor(0.8) = 0
  EXPECT_THROW(interpolate(x, {.scale_factor = {{1, 1e300, 1}}}), ShapeError);
  for (const double bad : {0.0, -1.0, nan, inf})
    EXPECT_THROW(interpolate(x, {.scale_factor = {{1, 1, bad}}}), ValueError);
  const int64_t huge = std::numeric_limits<int64_t>::max();
  EXPECT_THROW(interpolate(x, {.size = Triple(huge)}), Error);
}

// A thread of a GPU computes several cells along D if there are many, one if there are few, and cuts D
// between threads. Away from the ends, a part of the input gives the same bits alone.
TEST_P(Interpolate, ManyCellsGiveWhatFewGive) {
  Tensor x = randn({1, 1, 68, 128, 256}, on(f32)).set_requires_grad();
  for (const auto mode : {nearest, trilinear}) {
    const InterpolateOptions options{.scale_factor = 2, .mode = mode};
    const Tensor y = interpolate(x, options);
    const Tensor g = randn(y.shape(), on(f32));
    const Tensor grad = vox::grad({y}, {x}, {.grad_outputs = {g}})[0];
    for (const int64_t begin : {0, 14, 31, 62}) {
      Tensor few = x.detach().slice(2, begin, begin + 6).slice(3, 10, 13).set_requires_grad();
      const Tensor few_y = interpolate(few, options);
      const auto inner = [](const Tensor& t) {
        return values(t.slice(2, 1, t.size(2) - 1).slice(3, 1, t.size(3) - 1));
      };
      EXPECT_EQ(inner(few_y), inner(y.slice(2, 2 * begin, 2 * begin + 12).slice(3, 20, 26)));
      const Tensor few_g = g.slice(2, 2 * begin, 2 * begin + 12).slice(3, 20, 26);
      EXPECT_EQ(inner(vox::grad({few_y}, {few}, {.grad_outputs = {few_g}})[0]),
                inner(grad.slice(2, begin, begin + 6).slice(3, 10, 13)));
    }
  }
}

}  // namespace
}  // namespace vox
