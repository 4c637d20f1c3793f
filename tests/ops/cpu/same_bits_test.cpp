#include "tests/support/test.h"

// "Results do not depend on the number of threads, to the last bit" (core/parallel.h); except for sums over
// several dimensions, they do not depend on strides either. Tested for pooling, interpolation and reductions,
// forward and backward, on tensors of several chunks.

namespace vox {
namespace {

using Mode = InterpolateOptions::Mode;

struct Op {
  std::string name;
  std::function<Tensor(const Tensor&)> f;
  bool has_gradient = true, on_any_strides = true;

  /// For GoogleTest, which otherwise prints the bytes of an Op, including unwritten padding.
  friend std::ostream& operator<<(std::ostream& out, const Op& op) { return out << op.name; }
};

const std::vector<Op>& all_ops() {
  static const std::vector<Op> ops{
      {"MaxPool",
       [](const Tensor& x) { return max_pool3d(x, {.kernel_size = 3, .stride = 2, .padding = 1}); }},
      {"AvgPool",
       [](const Tensor& x) {
         return avg_pool3d(x, {.kernel_size = {2, 3, 2}, .stride = 1});
       }},
      {"Nearest",
       [](const Tensor& x) {
         return interpolate(x, {.size = {{13, 9, 41}}});
       }},
      {"Trilinear",
       [](const Tensor& x) {
         return interpolate(x, {.size = {{23, 9, 41}}, .mode = Mode::trilinear});
       }},
      {"TrilinearPassByPass",  // of few planes
       [](const Tensor& x) {
         const Tensor few = x.slice(0, 1, 2).slice(1, 3, 5);
         return interpolate(few, {.size = {{51, 60, 70}}, .mode = Mode::trilinear});
       }},
      {"GridSample",  // of its own elements, so that the gradient is that of both operands
       [](const Tensor& x) {
         return grid_sample(x, x.slice(1, 2, 5).permute({0, 2, 3, 4, 1}));
       }},
      {"SumOfAll", [](const Tensor& x) { return sum(x); }, true, false},
      {"MeanPerChannel",
       [](const Tensor& x) {
         return mean(x, {0, 2, 3, 4});
       },
       true, false},
      {"SumOverChannels", [](const Tensor& x) { return sum(x, {1}); }},
      {"SumAlongRows", [](const Tensor& x) { return sum(x, {4}); }},
      {"MaxPerChannel",
       [](const Tensor& x) {
         return max(x, {0, 2, 3, 4});
       }},
      {"ArgminAlongD", [](const Tensor& x) { return argmin(x, {2}); }, false},
      {"Softmax", [](const Tensor& x) { return softmax(x, 1); }},
      {"LogSoftmaxAlongRows", [](const Tensor& x) { return log_softmax(x, 4); }},
  };
  return ops;
}

const Shape shape{3, 8, 17, 19, 23};  // odd, and more than the grain of every kernel

/// Views of one shape and the same values; the first is contiguous.
std::vector<std::pair<std::string, Tensor>> views(const Tensor& x) {
  const Tensor last = x.permute({0, 2, 3, 4, 1}).contiguous().permute({0, 4, 1, 2, 3});
  const Tensor reversed = x.permute({4, 3, 2, 1, 0}).contiguous().permute({4, 3, 2, 1, 0});
  Tensor wide = zeros({3, 8, 17, 19, 46}, x.options());
  Tensor every_second = wide.slice(4, 0, 46, 2);
  every_second.copy_(x);
  return {{"contiguous", x}, {"channels_last", last}, {"reversed", reversed}, {"sliced", every_second}};
}

/// The op's result, and the gradient of its input for a random gradient of its output.
std::vector<Tensor> results(const Op& op, const Tensor& input) {
  if (!op.has_gradient) return {op.f(input)};
  Tensor x = input.detach().set_requires_grad();
  Tensor y = op.f(x);
  y.backward(normal(y.shape(), y.options(), 2));
  return {y, x.grad()};
}

class SameBits : public ::testing::TestWithParam<Op> {
 protected:
  ~SameBits() override { set_num_threads(before_); }

 private:
  int before_ = get_num_threads();
};
INSTANTIATE_TEST_SUITE_P(, SameBits, ::testing::ValuesIn(all_ops()),
                         [](const auto& info) { return info.param.name; });

TEST_P(SameBits, OnAnyNumberOfThreadsAndStrides) {
  for (const DType dtype : {f32, f64}) {
    const auto inputs = views(normal(shape, {.dtype = dtype}));
    for (const auto& [layout, x] : inputs) {
      set_num_threads(1);
      const std::vector<Tensor> expected =
          results(GetParam(), GetParam().on_any_strides ? inputs[0].second : x);
      for (const int threads : {1, 2, 3, 8}) {
        set_num_threads(threads);
        const std::vector<Tensor> got = results(GetParam(), x);
        for (size_t i = 0; i < expected.size(); ++i)
          EXPECT_TRUE(same_bits(got[i], expected[i]))
              << dtype << ", " << threads << " threads, " << layout << (i == 0 ? ": result" : ": gradient");
      }
    }
  }
}

}  // namespace
}  // namespace vox
