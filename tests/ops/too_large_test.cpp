#include "capi/ops.h"
#include "tests/support/test.h"

// Results that are too large are refused with the name of the public call and the shape of the result: not
// with the name of the function that allocates, nor with a product of some sizes.

namespace vox {
namespace {

using capi::Value;
using Tensors = Value::Tensors;

class TooLarge : public DeviceTest {
 protected:
  struct Case {
    const char* function;
    Shape shape;  ///< as the message spells it
    std::function<void()> call;

    Case(const char* op, const Shape& shape, const capi::Values& values)
        : Case(op, shape, [=] { capi::ops().at(op)(values); }) {}
    Case(const char* function, const Shape& shape, std::function<void()> call)
        : function(function), shape(shape), call(std::move(call)) {}
  };
  template <class E>
  static void expect_refused(const std::vector<Case>& cases, const char* rule) {
    for (const auto& [function, shape, call] : cases) {
      const std::string message = message_of<E>(call);
      EXPECT_EQ(message.find(str(function, ": ")), 0u) << function << " threw: " << message;
      EXPECT_TRUE(has_parts(message, {rule}));
      EXPECT_TRUE(has_parts(message, {str(shape)})) << str(shape) << " is not in: " << message;
    }
  }
  /// A number as a tensor of that shape.
  static Tensor expanded(const Shape& shape, DType dtype = f32) {
    return full(Shape::filled(shape.rank(), 1), 1, {dtype, device()}).expand(shape);
  }
};
INSTANTIATE_TEST_SUITE_P(, TooLarge, devices(), device_name);

constexpr int64_t power(int n) { return int64_t{1} << n; }

TEST_P(TooLarge, MoreElementsThanCanBeCounted) {
  const Shape square{power(40), power(40)}, padded{power(40), power(40) + 1};
  const Tensor a = expanded({power(40), 1}), b = expanded({1, power(40)}), one = expanded({1, 1});
  const TensorOptions here{f32, device()};
  const Shape volume{1, 1, power(20), power(20), power(20)}, larger{1, 1, power(23), power(23), power(23)};
  const nn::Linear::Options linear{.in_features = power(40), .out_features = power(40)};
  const nn::Conv3d::Options conv{.in_channels = power(40), .out_channels = power(40), .kernel_size = 2};
  expect_refused<ShapeError>(
      {{"empty", square, [&] { empty(square); }},
       {"zeros", square, [&] { zeros(square, here); }},
       {"full", square, [&] { full(square, 2, here); }},
       {"randn", square, [&] { randn(square, here); }},
       {"eye", square, [&] { eye(power(40)); }},
       {"from_vector", square, [&] { from_vector<float>({1}, square); }},
       {"expand", square, {a, square}},
       {"reshape", square, {a, square}},
       {"add", square, {a, b}},
       {"lt", square, {a, b}},
       {"where", square, {lt(one, 0), a, b}},
       {"matmul", square, {a, b}},
       {"pad", padded, {a, {power(40), 0}, 0}},
       {"interpolate", larger, {expanded(volume), {}, 8}},
       {"nn::Linear", square, [&] { nn::Linear{linear}; }},
       {"nn::Conv3d", Shape({power(40), power(40), 2, 2, 2}), [&] { nn::Conv3d{conv}; }}},
      "a tensor has at most 2^63 - 1 elements, got shape ");
}

TEST_P(TooLarge, MoreBytesThanCanBeCounted) {
  const Shape shape{power(61)}, half{power(60)}, column{power(60), 1}, volume{power(57), 1, 4, 2, 2};
  const Tensor x = expanded(shape), bytes = expanded(shape, u8), h = expanded(half), c = expanded(column),
               row = expanded({1, 2}), v = expanded(volume), yes = full({1}, true, {boolean, device()}),
               two = zeros({2}, {i64, device()});
  expect_refused<ShapeError>({{"empty", shape, [&] { empty(shape); }},
                              {"ones", shape, [&] { ones(shape, x.options()); }},
                              {"ones_like", shape, [&] { ones_like(x); }},
                              {"rand", shape, [&] { rand(shape, x.options()); }},
                              {"randint", shape, [&] { randint(0, 2, shape, two.options()); }},
                              {"arange", shape, [&] { arange(power(61), two.options()); }},
                              {"clone", shape, {x}},
                              {"contiguous", shape, {x}},
                              {"to", shape, {bytes, "f64"}},
                              {"exp", shape, {x}},
                              {"add", shape, {x, x}},
                              {"mul", shape, {x, 2}},
                              {"sub", shape, {1, x}},
                              {"where", shape, {yes, x, x}},
                              {"matmul", Shape({power(60), 2}), {c, row}},
                              {"cat", shape, {Tensors{h, h}, 0}},
                              {"stack", Shape({2, power(60)}), {Tensors{h, h}, 0}},
                              {"pad", Shape({power(60), 3}), {c, {1, 1}, 0}},
                              {"index_select", Shape({power(60), 2}), {c, 1, two}},
                              {"max_pool3d", volume, {v, 1}},
                              {"avg_pool3d", volume, {v, 1}},
                              {"interpolate", Shape({power(57), 1, 4, 4, 2}), {v, {4, 4, 2}}}},
                             "a tensor has at most 2^63 - 1 bytes, got shape ");
}

// Messages use the caller's shapes, without the axes and the batch that only conv3d has.
TEST_P(TooLarge, MoreElementsThanAConvolutionTakes) {
  const Shape big{1, 1, power(23) - 7, power(23) - 7, power(23) - 7};
  const Tensor x3 = expanded({1, 1, power(20), power(20), power(20)}), w3 = expanded({1, 1, 1, 1, 1});
  const Tensor x2 = expanded({power(57), 1, 2, 2}), w2 = expanded({4, 1, 1, 1});
  const Tensor x1 = expanded({1, 1}), w1 = expanded({1, power(30), power(30)});
  expect_refused<ShapeError>({{"conv_transpose3d", big, {x3, w3, {}, 8}},
                              {"conv2d", Shape({power(57), 4, 2, 2}), {x2, w2}},
                              {"conv_transpose1d", Shape({power(30), power(30)}), {x1, w1}}},
                             "a tensor of a convolution has at most 2^60 - 1 elements, got shape ");
}

// No machine has 2^57 bytes.
TEST_P(TooLarge, MoreBytesThanThereAre) {
  const Shape shape{power(55)};
  const Tensor x = expanded(shape);
  expect_refused<OutOfMemoryError>({{"empty", shape, [&] { empty(shape, x.options()); }},
                                    {"zeros", shape, [&] { zeros(shape, x.options()); }},
                                    {"relu", shape, {x}},
                                    {"add", shape, {x, x}},
                                    {"to_vector", shape, [&] { x.to_vector<float>(); }}},
                                   "no memory for a tensor of shape ");
}

// Refused before any work is done, which here would take hours.
TEST_P(TooLarge, WorkThatIsInVain) {
  const Shape shape{power(50)}, scores{power(50), 2}, row{1, 1, 1, 1, power(50)};
  const Tensor x = expanded(shape), h = expanded(shape, bf16), v = expanded(row),
               w = expanded({1, 1, 1, 1, 1}), input = expanded(scores), target = expanded(shape, i64),
               y2 = v.squeeze(0).squeeze(0), w2 = w.squeeze(0).squeeze(0).reshape({1, 1, 1, 1}),
               zero = zeros({1}, {i64, device()});
  expect_refused<OutOfMemoryError>({{"softmax", shape, {x, 0}},
                                    {"softmax", shape, {h, 0}},
                                    {"log_softmax", shape, {x, 0}},
                                    {"log_softmax", shape, {h, 0}},
                                    {"cross_entropy", scores, {input, target}},
                                    {"mse_loss", shape, {x, x, "none"}},
                                    {"l1_loss", shape, {x, x, "none"}},
                                    {"index_select", shape, {zero.to(f32), 0, zero.expand(shape)}},
                                    {"flip", shape, {x, {0}}},
                                    {"pad", Shape({1, power(50) + 2}), {x.unsqueeze(0), {1, 1}, "replicate"}},
                                    {"conv3d", row, {v, w}},
                                    {"conv2d", row, {y2.unsqueeze(0), w2}},
                                    {"conv_transpose3d", row, {v, w}},
                                    {"conv3d_weight_grad", row, {v, w, {1, 1, power(50)}}}},
                                   "no memory for a tensor of shape ");
}

/// Runs `call` in a process of its own with `bytes` more memory, and prints what it throws to stderr.
void run_with_little_memory(int64_t bytes, const std::function<void()>& call) {
  set_num_threads(1);
  limit_memory(bytes);
  try {
    call();
  } catch (const Error& error) {
    std::fprintf(stderr, "%s\n", error.what());
  }
  std::exit(0);
}

// The results fit memory, but the tables of the CPU's kernels do not.
TEST(TablesDeathTest, AreRefusedInTheNameOfTheFunction) {
  if (!can_limit_memory) GTEST_SKIP() << "memory cannot be limited here";
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  constexpr int64_t cells = power(22), result = cells * 4, room = 3 * result;
  const Tensor row = ones({1, 1, 1, 1, 1}).expand({1, 1, 1, 1, cells});  // pooling copies it
  const Triple one{1, 1, 2}, wide{1, 1, cells};
  const auto expect_named = [&](const char* function, const std::function<void()>& call) {
    EXPECT_EXIT(run_with_little_memory(room, call), ::testing::ExitedWithCode(0),
                str("^", function, ": no memory for its tables"));
  };
  expect_named("interpolate", [&] { interpolate(ones({1, 1, 1, 1, 8}), {.size = wide}); });
  expect_named("avg_pool3d", [&] { avg_pool3d(row, {.kernel_size = one, .stride = Triple(1)}); });
  expect_named("max_pool3d", [&] { max_pool3d(row, {.kernel_size = one, .stride = Triple(1)}); });
}

// A result of 32 MiB needs no table as long as the stride.
TEST(TablesDeathTest, AStrideCostsNothing) {
  if (!can_limit_memory) GTEST_SKIP() << "memory cannot be limited here";
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  for (int64_t axis = 0; axis < 3; ++axis) {
    Triple stride = 1;
    stride[axis] = power(22);
    const auto along = [&](int64_t size) {
      Shape s{1, 1, 1, 1, 1};
      s[2 + axis] = size;
      return s;
    };
    const auto call = [&] {
      const Tensor y = conv_transpose3d(ones(along(3)), ones(along(2)), {}, {.stride = stride});
      std::fprintf(stderr, "%g of %lld\n", static_cast<double>(y.sum().item<float>()),
                   static_cast<long long>(y.numel()));
    };
    EXPECT_EXIT(run_with_little_memory(power(27), call), ::testing::ExitedWithCode(0), "^6 of 8388610");
  }
}

}  // namespace
}  // namespace vox
