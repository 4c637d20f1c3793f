#include "tests/support/catalogue.h"
#include "tests/support/test.h"

// "Results do not depend on the number of threads, to the last bit" (core/parallel.h); except for sums over
// several dimensions, they do not depend on strides either. Tested for pooling, interpolation and reductions,
// forward and backward, on tensors of several chunks.

namespace vox {
namespace {

std::vector<Sample> samples() {
  const Operand x{{3, 8, 17, 19, 23}};  // odd, and more than the grain of every kernel
  const Operand few{{1, 2, 17, 19, 23}}, points{{3, 17, 19, 23, 3}};
  std::vector<Sample> list;
  const auto add = [&](const char* op, std::vector<Argument> arguments) -> Sample& {
    return list.emplace_back(Sample{"", op, std::move(arguments), {}});
  };
  add("max_pool3d", {x, 3, 2, 1});
  add("avg_pool3d", {x, {2, 3, 2}, 1});
  add("interpolate", {x, {13, 9, 41}});
  add("interpolate", {x, {23, 9, 41}, {}, "trilinear"});
  add("interpolate", {few, {51, 60, 70}, {}, "trilinear"});  // pass by pass
  add("grid_sample", {x, points, "trilinear", "zeros"});
  add("sum", {x, Shape{}, false}).in_any_order();
  add("mean", {x, {0, 2, 3, 4}, false}).in_any_order();
  add("sum", {x, {1}, false});
  add("sum", {x, {4}, false});
  add("max", {x, {0, 2, 3, 4}, false});
  add("argmin", {x, {2}, false});
  add("softmax", {x, 1});
  add("log_softmax", {x, 4});
  return list;
}

/// Views of one shape and the same values; the first is contiguous.
std::vector<std::pair<std::string, Tensor>> views(const Tensor& x) {
  const Tensor last = x.permute({0, 2, 3, 4, 1}).contiguous().permute({0, 4, 1, 2, 3});
  const Tensor reversed = x.permute({4, 3, 2, 1, 0}).contiguous().permute({4, 3, 2, 1, 0});
  Shape wide = x.shape();
  wide[4] *= 2;
  Tensor every_second = zeros(wide, x.options()).slice(4, 0, wide[4], 2);
  every_second.copy_(x);
  return {{"contiguous", x}, {"channels_last", last}, {"reversed", reversed}, {"sliced", every_second}};
}

TEST(SameBits, OnAnyNumberOfThreadsAndStrides) {
  const int before = get_num_threads();
  const auto random = [](const Tensor& y) { return normal(y.shape(), y.options(), 2); };
  for (const Sample& op : samples()) {
    for (const DType dtype : {f32, f64}) {
      std::vector<Tensors> inputs(4);  // by layout
      std::vector<std::string> layouts;
      for (const Operand& operand : op.operands()) {
        layouts.clear();
        for (const auto& [layout, view] : views(normal(operand.shape, {.dtype = dtype}))) {
          inputs[layouts.size()].push_back(view);
          layouts.push_back(layout);
        }
      }
      for (size_t k = 0; k < inputs.size(); ++k) {
        set_num_threads(1);
        const Tensors expected = differentiated(op, inputs[op.any_layout ? 0 : k], random);
        for (const int threads : {1, 2, 3, 8}) {
          set_num_threads(threads);
          const Tensors got = differentiated(op, inputs[k], random);
          for (size_t i = 0; i < expected.size(); ++i)
            EXPECT_TRUE(same_bits(got[i], expected[i]))
                << op.name() << dtype << ", " << threads << " threads, " << layouts[k] << ", result " << i;
        }
      }
    }
  }
  set_num_threads(before);
}

}  // namespace
}  // namespace vox
