// Distances and scores of masks: hand cases, brute force, and values recorded from SciPy, MONAI and medpy.
#include "tests/support/test.h"

namespace vox::nn {
namespace {

Tensor mask_of(Bytes cells, const Shape& shape) { return from_vector(cells, shape); }

Tensor random_mask(const Shape& shape, double share) { return lt(rand(shape, {f64}), share); }

/// The distance of every cell to the nearest cell that is 0, by definition.
Doubles by_definition(const Tensor& mask, Doubles spacing) {
  Tensor three = mask.to(u8);
  while (three.rank() < 3) three = three.unsqueeze(0), spacing.insert(spacing.begin(), 1);
  const Bytes cells = three.to_vector<uint8_t>();
  const int64_t h = three.size(1), w = three.size(2), n = three.numel();
  Doubles result;
  for (int64_t i = 0; i < n; ++i) {
    double least = inf;
    for (int64_t k = 0; k < n; ++k) {
      if (cells[k]) continue;
      const double z = spacing[0] * static_cast<double>(i / (h * w) - k / (h * w)),
                   y = spacing[1] * static_cast<double>(i / w % h - k / w % h),
                   x = spacing[2] * static_cast<double>(i % w - k % w);
      least = std::min(least, x * x + y * y + z * z);
    }
    result.push_back(std::sqrt(least));
  }
  return result;
}

DEVICE_SUITE(MetricsTest);

TEST_P(MetricsTest, DistancesOfHandCases) {
  const auto on_device = [&](const Tensor& t) { return t.to(device()); };
  const Tensor line = distance_transform(on_device(mask_of({1, 1, 0, 1, 2, 1, 0}, {7})), {2});
  EXPECT_EQ(line.device(), device());
  EXPECT_EQ(line.to_vector<double>(), (Doubles{4, 2, 0, 2, 4, 2, 0}));
  EXPECT_EQ(distance_transform(on_device(mask_of({0, 1, 1, 1, 1, 1}, {2, 3})), {3, 4}).to_vector<double>(),
            (Doubles{0, 4, 8, 3, 5, std::sqrt(73)}));
  EXPECT_EQ(distance_transform(on_device(mask_of({1, 1}, {1, 2}))).to_vector<double>(), (Doubles{inf, inf}));
  EXPECT_EQ(distance_transform(on_device(zeros({0, 2}, {u8}))).numel(), 0);
}

TEST(Metrics, DistancesEqualBruteForce) {
  const Doubles spacings[] = {{1, 1, 1}, {3, 0.7, 0.7}, {0.1, 10, 1}};
  for (const Doubles& spacing : spacings) {
    for (const double share : {0.2, 0.9, 0.995}) {
      const Tensor mask = random_mask({9, 7, 11}, share).transpose(0, 2);  // not dense
      const Doubles expected = by_definition(mask, spacing);
      const Doubles found = distance_transform(mask, spacing).to_vector<double>();
      for (size_t i = 0; i < found.size(); ++i) {
        if (std::isinf(expected[i]))
          ASSERT_EQ(found[i], expected[i]);
        else
          ASSERT_NEAR(found[i], expected[i], 1e-12 * expected[i]);
      }
    }
  }
  const Tensor plane = random_mask({30, 20}, 0.97);
  EXPECT_EQ(distance_transform(plane).to_vector<double>(), by_definition(plane, {1, 1}));  // exact squares
}

TEST(Metrics, ThreadsDoNotChangeDistances) {
  const Tensor mask = random_mask({40, 41, 42}, 0.98);
  EXPECT_TRUE(same_on_any_threads([&] { return distance_transform(mask, {1.5, 1, 1}); }));
}

TEST_P(MetricsTest, ScoresOfHandCases) {
  const Tensor a = mask_of({1, 1, 0, 0, 1, 0, 0, 0}, {2, 4}).to(device()),
               b = mask_of({1, 0, 1, 0, 1, 1, 0, 0}, {2, 4}).to(device()), none = zeros_like(a);
  EXPECT_EQ(dice_score(a, b), 4.0 / 7);
  EXPECT_EQ(dice_score(a, none), 0);
  EXPECT_TRUE(std::isnan(dice_score(none, none)));
  const SurfaceDistances d = surface_distances(a, b, {1, 2});
  EXPECT_EQ(d.from_a, (Doubles{0, 1, 0}));  // (0, 1) is 1 away from (1, 1)
  EXPECT_EQ(d.from_b, (Doubles{0, 2, 0, 1}));
  EXPECT_EQ(hausdorff_distance(d, 100), 2);
  EXPECT_EQ(hausdorff_distance(d), 0.95 * 3 - 2 + 1);  // between ranks 2 and 3 of 0, 0, 1, 2
  EXPECT_EQ(average_surface_distance(d), 4.0 / 7);
  const SurfaceDistances one = surface_distances(a, none), neither = surface_distances(none, none);
  EXPECT_EQ(hausdorff_distance(one), inf);
  EXPECT_EQ(average_surface_distance(one), inf);
  EXPECT_TRUE(std::isnan(hausdorff_distance(neither)));
  EXPECT_TRUE(std::isnan(average_surface_distance(neither)));
}

// A block inside a block: only surfaces count, also where they touch the tensor's edge.
TEST(Metrics, DistancesAreThoseOfSurfaces) {
  Tensor outer = zeros({8, 8, 8}, {u8}), inner = outer.clone();
  outer.slice(0, 0, 7).slice(1, 0, 7).slice(2, 0, 7).fill_(1);
  inner.slice(0, 2, 5).slice(1, 2, 5).slice(2, 2, 5).fill_(1);
  const SurfaceDistances d = surface_distances(outer, inner);
  EXPECT_EQ(d.from_a.size(), 343u - 125u);
  EXPECT_EQ(d.from_b.size(), 26u);
  EXPECT_EQ(*std::max_element(d.from_b.begin(), d.from_b.end()), 2);
  EXPECT_EQ(hausdorff_distance(d, 100), std::sqrt(12));
}

/// The cells within 3.5 of a centre.
Tensor ball(const std::array<double, 3>& centre) {
  Tensor squares = zeros({9, 10, 11}, {f64});
  for (int axis = 0; axis < 3; ++axis) {
    Shape shape{1, 1, 1};
    shape[axis] = squares.size(axis);
    const Tensor steps = arange(0, shape[axis], 1, {f64}).reshape(shape) - centre[axis];
    squares = squares + steps * steps;
  }
  return lt(squares, 3.5 * 3.5);
}

TEST(Metrics, AreThoseOfScipyMonaiAndMedpy) {
  // tests/data/image/record.py, and MONAI's formulas over SciPy's distances.
  const Tensor a = ball({4, 4, 5}), b = ball({5, 5, 4});
  EXPECT_NEAR(distance_transform(a, {3, 1, 0.5}).sum().item(), 163.27249794910767, 1e-10);
  EXPECT_NEAR(dice_score(a, b), 0.659217877094972, 1e-14);
  const SurfaceDistances d = surface_distances(a, b, {3, 1, 0.5});
  EXPECT_EQ(d.from_a.size(), 98u);
  EXPECT_NEAR(hausdorff_distance(d), 3.006207189772366, 1e-12);
  EXPECT_NEAR(hausdorff_distance(d, 100), 3.2015621187164243, 1e-12);
  EXPECT_NEAR(average_surface_distance(d), 0.8835615290883254, 1e-12);
}

TEST(Metrics, RefuseOtherArguments) {
  const Tensor mask = ones({3, 3}, {u8});
  EXPECT_THROW(distance_transform(ones({3, 3})), DTypeError);
  EXPECT_ERRORS(ShapeError, distance_transform(ones({1, 1, 1, 1}, {u8})), distance_transform(ones({}, {u8})),
                dice_score(mask, ones({3, 4}, {u8})), surface_distances(mask, ones({9}, {u8})));
  EXPECT_ERRORS(ValueError, distance_transform(mask, {1}), distance_transform(mask, {1, 0}),
                distance_transform(mask, {1, NAN}), hausdorff_distance({{1}, {1}}, 101));
}

}  // namespace
}  // namespace vox::nn
