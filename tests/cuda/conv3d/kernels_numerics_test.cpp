#include <cmath>
#include <limits>
#include <optional>
#include <string_view>

#include "tests/cuda/conv3d/support.h"

// Every kernel of the table, forced by name, on data other than whole numbers: the same bits on every run,
// errors on normal data, and values that are not finite. (highest_test.cpp tests `highest` in more detail.)

namespace vox {
namespace {

using namespace vox::testing;

const TransposeCase tiled{"tiled",   2,         40,        24, {9, 10, 11}, {3, 2, 4}, {2, 1, 2},
                          {1, 0, 1}, {1, 0, 0}, {1, 2, 1}, 2};
const TransposeCase rolled{"rolled",  2, 40,        24, {9, 20, 21}, {3, 2, 4}, {1, 1, 1},
                           {1, 0, 1}, 0, {1, 2, 1}, 2};

const TransposeCase patches{"patches", 2, 40, 24, {5, 6, 16}, 2, 2, 0, 0, 1, 1};
// For weight gradients from channels-last data: windows, and shares of the steps that begin inside a tile.
const TransposeCase windows{"windows", 2, 70, 66, {6, 8, 16}, 3, 1, 1, 0, 1, 1};

/// The case that every kernel runs.
const TransposeCase& case_for(std::string_view kernel, Conv3dPass pass) {
  if (kernel.starts_with("dense") && pass == Conv3dPass::weight_grad) return windows;
  return of_unit_stride(kernel) ? rolled : of_patches(kernel) ? patches : tiled;
}

TEST_P(Conv3dKernelsCuda, SameBitsOnEveryRunAndStream) {
  for (const Conv3dPass pass : all_passes) {
    const Conv3dGeometry g = case_for(kernel(), pass).geometry();
    if (!takes(pass, g)) continue;
    const OperandShapes shapes = shapes_of(pass, g);
    const Tensor a = randn(shapes.a, options()), b = randn(shapes.b, options());
    const Values first = values(run(GetParam(), pass, a, b, g));
    for (const double v : first) ASSERT_FALSE(std::isnan(v));
    cuda::Stream side;
    side.wait(cuda::current_stream());
    for (int i = 0; i < 20; ++i) {
      std::optional<cuda::StreamGuard> guard;
      if (i % 2) guard.emplace(side);
      EXPECT_TRUE(values(run(GetParam(), pass, a, b, g)) == first) << name_of(pass) << ' ' << i;
    }
  }
}

/// |y - y64| relative to |y64|, Frobenius.
double relative_error(const Values& y, const Values& exact) {
  double error = 0, norm = 0;
  for (size_t i = 0; i < y.size(); ++i) {
    error += (y[i] - exact[i]) * (y[i] - exact[i]);
    norm += exact[i] * exact[i];
  }
  return std::sqrt(error / norm);
}

// On normal data, operands rounded to nearest TF32 give an error of 2.9e-4, truncated ones 7.5e-4, and
// bf16 2.3e-3. 16-bit tensors hold their operands exactly; their results are rounded.
TEST_P(Conv3dKernelsCuda, NormalDataIsAsAccurateAsItsPrecision) {
  for (const Conv3dPass pass : all_passes) {
    const Conv3dGeometry g = case_for(kernel(), pass).geometry();
    if (!takes(pass, g)) continue;
    const OperandShapes shapes = shapes_of(pass, g);
    Tensor a = randn(shapes.a, options());
    const Tensor b = randn(shapes.b, options());
    if (pass == Conv3dPass::weight_grad) {  // channels of different sizes, whose scales differ
      Values sizes;
      for (int64_t c = 0; c < shapes.a[1]; ++c) sizes.push_back(std::exp2(c % 7 - 3));
      a = a * tensor(sizes, {1, shapes.a[1], 1, 1, 1}, dtype(), Device::cuda());
    }
    const Values exact = reference_values(pass, g, values(a), values(b));
    const double error = relative_error(values(run(GetParam(), pass, a, b, g)), exact);
    const bool as_f32 = kernel() == "direct" || precision() == Float32Precision::highest;
    const double limit = as_f32                                                       ? 1e-6
                         : dtype() == bf16 || precision() == Float32Precision::medium ? 5e-3
                                                                                      : 6e-4;
    EXPECT_LT(error, limit) << name_of(pass);
    EXPECT_GT(error, 0) << name_of(pass);
  }
}

// R8 below `highest`: an output that a non-finite value touches is never finite, and non-finite values of
// operands other than the weight reach no other output. At `highest` the result is that of f32 arithmetic.
TEST_P(Conv3dKernelsCuda, NonFiniteValuesAreNeverLost) {
  constexpr double inf = std::numeric_limits<double>::infinity();
  std::vector<TransposeCase> cases = awkward_cases();
  cases.push_back({"rolled", 1, 9, 10, {3, 4, 5}, {3, 2, 2}, 1, {1, 0, 1}, 0, {1, 1, 2}, 1});
  // Both phases along w are multiplied, by a zero where one of them has no tap.
  cases.push_back({"zeros", 1, 5, 20, {3, 4, 70}, 3, 2, 1, 1, 1, 1});
  cases.push_back({"zeros first", 1, 5, 20, {2, 3, 5}, {2, 2, 3}, 2, 0, 0, 1, 1});
  // Boxes of 64 cells, whose windows overlap.
  cases.push_back({"windows", 1, 3, 5, {2, 4, 16}, 3, 1, 1, 0, 1, 1});
  if (of_patches(kernel())) {
    cases.push_back({"patches", 1, 5, 20, {2, 3, 8}, 2, 2, 0, 0, 1, 1});
    cases.push_back({"cells", 2, 20, 3, {1, 3, 8}, 1, 1, 0, 0, 1, 1});
  }
  for (const TransposeCase& c : cases) {
    const Conv3dGeometry g = c.geometry();
    for (const Conv3dPass pass : all_passes) {
      if (!takes(pass, g)) continue;
      const OperandShapes shapes = shapes_of(pass, g);
      for (const double bad : {inf, -inf, nan}) {
        for (const bool in_first : {true, false}) {
          Values a = integers(numel(shapes.a), 1), b = integers(numel(shapes.b), 2);
          Values& operand = in_first ? a : b;
          operand[operand.size() / 3] = bad;
          const Tensor y = run(GetParam(), pass, tensor(a, shapes.a, dtype(), Device::cuda()),
                               tensor(b, shapes.b, dtype(), Device::cuda()), g);
          const Values got = values(y), expected = rounded(reference_values(pass, g, a, b), dtype());
          for (size_t i = 0; i < got.size(); ++i) {
            const std::string where = str(c.name, ' ', name_of(pass), ' ', bad, " at ", i);
            if (precision() == Float32Precision::highest) {
              ASSERT_TRUE(same(got[i], expected[i])) << where;
            } else if (!std::isfinite(expected[i])) {
              ASSERT_FALSE(std::isfinite(got[i])) << where;
            } else if (in_first) {
              ASSERT_EQ(got[i], expected[i]) << where;
            }
          }
        }
      }
    }
  }
}

}  // namespace
}  // namespace vox
