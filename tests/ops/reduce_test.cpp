#include "capi/ops.h"
#include "tests/support/test.h"

namespace vox {
namespace {

DEVICE_SUITE(ReduceTest);

/// The dims named by the bits of `mask`.
Shape dims_of(int mask) {
  Shape dims;
  for (int64_t i = 0; i < 8; ++i) {
    if (mask >> i & 1) dims.push_back(i);
  }
  return dims;
}

/// Sums by the definition: every element is added to the output whose index is 0 in the reduced dims.
Ints reference_sum(const Ints& x, const Shape& shape, int mask) {
  int64_t outputs = 1;
  for (int64_t d = 0; d < shape.rank(); ++d) outputs *= mask >> d & 1 ? 1 : shape[d];
  Ints y(static_cast<size_t>(outputs));
  for (size_t i = 0; i < x.size(); ++i) {
    int64_t rest = static_cast<int64_t>(i), o = 0, step = 1;
    for (int64_t d = shape.rank() - 1; d >= 0; --d) {
      const int64_t index = rest % shape[d];
      rest /= shape[d];
      if (mask >> d & 1) continue;
      o += index * step;
      step *= shape[d];
    }
    y[static_cast<size_t>(o)] += x[i];
  }
  return y;
}

TEST_P(ReduceTest, SumsOverEverySetOfDims) {
  const Shape shape{2, 3, 4, 5};
  for (DType dtype : {f32, f64, i64, u8, boolean}) {
    const Tensor x = dtype == boolean ? gt(whole(shape, on(i64)), 0) : (whole(shape, on(i64)) + 5).to(dtype);
    const auto values = x.to(i64).to_vector<int64_t>();
    for (int mask = 1; mask < 16; ++mask) {
      const Tensor y = sum(x, dims_of(mask)), kept = sum(x, dims_of(mask), true);
      EXPECT_EQ(y.dtype(), is_floating(dtype) ? dtype : i64);
      EXPECT_EQ(y.to(i64).to_vector<int64_t>(), reference_sum(values, shape, mask)) << dtype << " " << mask;
      EXPECT_TRUE(same_bits(y, kept.reshape(y.shape())));
      for (int64_t d = 0; d < 4; ++d) EXPECT_EQ(kept.size(d), mask >> d & 1 ? 1 : shape[d]);
    }
  }
}

TEST_P(ReduceTest, NoDimsMeanAllAndNegativeDimsCountFromTheEnd) {
  const Tensor x = whole({2, 3, 4}, on(f32));
  EXPECT_EQ(sum(x).shape(), Shape{});
  EXPECT_EQ(sum(x, {}, true).shape(), (Shape{1, 1, 1}));
  EXPECT_EQ(sum(x).item<float>(), sum(x, {0, 1, 2}).item<float>());
  EXPECT_TRUE(same_bits(sum(x, {-1, 0}), sum(x, {0, 2})));
  EXPECT_TRUE(same_bits(x.sum({1}), sum(x, {1})));
  EXPECT_TRUE(same_bits(x.mean({1}), mean(x, {1})));
  EXPECT_TRUE(same_bits(x.max({1}), max(x, {1})));
  EXPECT_TRUE(same_bits(x.min({1}), min(x, {1})));
}

// Lengths around the borders of lanes, blocks and levels, as rows and as columns.
TEST_P(ReduceTest, EveryLengthIsSummedExactlyOnce) {
  for (int64_t length :
       {1, 2, 15, 16, 17, 31, 32, 33, 63, 64, 65, 1023, 1024, 1025, 2047, 2049, 33000, 1050000}) {
    for (int64_t rows : {1, 9, 70, 400}) {
      if (rows * length > 2000000) continue;
      const Tensor singles = whole({rows, length}, on(f32));
      const auto expected = reference_sum(singles.to(i64).to_vector<int64_t>(), singles.shape(), 2);
      for (const DType dtype : {f32, f64}) {
        if (dtype == f64 && length > 2049) continue;
        const Tensor x = singles.to(dtype), columns = x.transpose(0, 1).contiguous();
        EXPECT_EQ(sum(x, {1}).to(i64).to_vector<int64_t>(), expected) << rows << " " << length << dtype;
        EXPECT_EQ(sum(columns, {0}).to(i64).to_vector<int64_t>(), expected) << rows << " " << length << dtype;
        EXPECT_TRUE(same_bits(argmax(x, {1}), argmax(columns, {0})));
      }
    }
  }
}

TEST_P(ReduceTest, LongSumsStayAccurate) {
  const int64_t n = 3000001;
  const Tensor x = abs(normal({n}, on(f32)));
  double exact = 0;
  for (float v : x.to_vector<float>()) exact += v;
  EXPECT_NEAR(sum(x).item<float>() / exact, 1, 2e-7);  // one float's rounding is 6e-8; in sequence: 1e-4
  EXPECT_NEAR(mean(x).item<float>() / (exact / n), 1, 2e-7);
}

TEST_P(ReduceTest, MeanDividesByTheNumberOfElements) {
  const Tensor x = make({1, 2, 3, 4, 5, 9}, {2, 3}, f32);
  EXPECT_EQ(mean(x).item<float>(), 4);
  EXPECT_EQ(mean(x, {0}).to_vector<float>(), (Floats{2.5, 3.5, 6}));
  EXPECT_EQ(mean(x, {1}).to_vector<float>(), (Floats{2, 6}));
}

TEST_P(ReduceTest, IntegerSumsWrapAround) {
  const int64_t most = std::numeric_limits<int64_t>::max();
  EXPECT_EQ(sum(ints({most, 1}, {2})).item<int64_t>(), std::numeric_limits<int64_t>::min());
}

TEST_P(ReduceTest, Empty) {
  const Tensor x = empty({0, 3}, on(f32));
  EXPECT_EQ(sum(x, {0}).to_vector<float>(), (Floats{0, 0, 0}));
  EXPECT_EQ(sum(x).item<float>(), 0);
  EXPECT_EQ(sum(x, {1}).shape(), (Shape{0}));
  EXPECT_TRUE(std::isnan(mean(x).item<float>()));
  EXPECT_EQ(max(x, {1}).shape(), (Shape{0}));
  EXPECT_EQ(argmax(x, {1}).shape(), (Shape{0}));
  EXPECT_ERRORS(ShapeError, max(x), min(x, {0}), argmax(x, {0}), argmin(x));
}

TEST_P(ReduceTest, ExtremaOfEveryDtype) {
  for (DType dtype : {f32, f64, i64, u8}) {
    const Tensor x = make({3, 1, 2, 2, 7, 7}, {2, 3}, dtype);
    EXPECT_EQ(max(x, {1}).to(i64).to_vector<int64_t>(), (Ints{3, 7})) << dtype;
    EXPECT_EQ(min(x, {0}).to(i64).to_vector<int64_t>(), (Ints{2, 1, 2})) << dtype;
    EXPECT_EQ(argmax(x, {1}).to_vector<int64_t>(), (Ints{0, 1})) << dtype;
    EXPECT_EQ(argmin(x).item<int64_t>(), 1) << dtype;
    EXPECT_EQ(max(x).dtype(), dtype);
  }
  const Tensor b = make({0, 1, 1, 0, 0, 0}, {2, 3}, boolean);
  EXPECT_EQ(max(b, {1}).to_vector<bool>(), (Bools{true, false}));
  EXPECT_EQ(min(b).item<bool>(), false);
  EXPECT_EQ(argmax(b).item<int64_t>(), 1);
  const int64_t least = std::numeric_limits<int64_t>::min();
  EXPECT_EQ(max(ints({least, least}, {2})).item<int64_t>(), least);
  EXPECT_EQ(argmax(ints({least, least}, {2})).item<int64_t>(), 0);
  EXPECT_EQ(max(numbers({-inf, -inf})).item<double>(), -inf);
  EXPECT_EQ(argmin(numbers({inf, inf})).item<int64_t>(), 0);
}

TEST_P(ReduceTest, NaNWins) {
  for (int64_t length : {3, 40, 5000}) {
    for (int64_t at : {int64_t{0}, length / 2, length - 1}) {
      Doubles values(static_cast<size_t>(length), inf);
      values[static_cast<size_t>(at)] = nan;
      values.back() = nan;
      const Tensor x = numbers(values);
      EXPECT_TRUE(std::isnan(max(x).item<double>()));
      EXPECT_TRUE(std::isnan(min(x).item<double>()));
      EXPECT_TRUE(std::isnan(sum(x).item<double>()));
      EXPECT_EQ(argmax(x).item<int64_t>(), at) << length;
      EXPECT_EQ(argmin(x).item<int64_t>(), at) << length;
    }
  }
}

TEST_P(ReduceTest, ArgCountsInRowMajorOrderOverTheReducedDims) {
  const Tensor x = whole({3, 4, 5}, on(f32)) * 0;
  Tensor y = x.clone();
  y.slice(0, 2, 3).slice(1, 1, 2).slice(2, 3, 4).fill_(1);
  EXPECT_EQ(argmax(y).item<int64_t>(), (2 * 4 + 1) * 5 + 3);
  EXPECT_EQ(argmax(y, {0, 2}).to_vector<int64_t>(), (Ints{0, 2 * 5 + 3, 0, 0}));
  EXPECT_EQ(argmax(y.permute({2, 0, 1})).item<int64_t>(), (3 * 3 + 2) * 4 + 1);
}

/// Every reduction (without `sums`: except sums and means) over every set of dims has the same bits on a
/// copy.
void expect_same_as_copy(const Tensor& view, bool sums = true) {
  const Tensor copy = copy_of(view);
  const bool arithmetic = sums && view.dtype() != boolean;
  for (int mask = 1; mask < 1 << view.rank(); ++mask) {
    const Shape dims = dims_of(mask);
    const auto same = [&](auto f) {
      EXPECT_TRUE(same_bits(f(view, dims, false), f(copy, dims, false)))
          << view.dtype() << view.shape() << view.strides() << mask;
    };
    if (arithmetic) same([](const auto&... a) { return sum(a...); });
    if (arithmetic && is_floating(view.dtype())) same([](const auto&... a) { return mean(a...); });
    same([](const auto&... a) { return max(a...); });
    same([](const auto&... a) { return min(a...); });
    same([](const auto&... a) { return argmax(a...); });
    same([](const auto&... a) { return argmin(a...); });
  }
}

const std::vector<Shape>& orders_of(int64_t rank) {
  static const std::vector<Shape> four{{3, 2, 1, 0}, {1, 0, 3, 2}, {0, 2, 3, 1}, {3, 0, 1, 2}, {0, 3, 1, 2}},
      five{{4, 3, 2, 1, 0}, {0, 4, 1, 2, 3}, {0, 2, 3, 4, 1}, {2, 0, 4, 1, 3}, {1, 0, 2, 3, 4}};
  return rank == 4 ? four : five;
}

// Permuted and sliced tensors are read in the order of their memory, some in two passes; with whole numbers
// the order does not show.
TEST_P(ReduceTest, WholeNumbersOfAnyLayout) {
  for (const Shape& shape : {Shape{3, 5, 7, 11}, Shape{4, 9, 17, 33}, Shape{70, 1, 33, 9},
                             Shape{2, 32, 3, 2, 33}, Shape{4, 3, 1, 20, 65}, Shape{33, 6, 3, 8, 4}}) {
    for (const DType dtype : {f32, f64, i64, bf16, f16, u8}) {
      const bool plain = dtype == f32 || dtype == i64;
      if (!plain && shape != Shape{4, 9, 17, 33}) continue;
      const Tensor x = (whole(shape, on(i64)) + (dtype == u8 ? 5 : 0)).to(dtype);
      if (dtype == i64) {
        const auto values = x.to_vector<int64_t>();
        for (int mask = 1; mask < 1 << shape.rank(); ++mask)
          EXPECT_EQ(sum(x, dims_of(mask)).to_vector<int64_t>(), reference_sum(values, shape, mask))
              << shape << mask;
      }
      const int64_t last = shape.rank() - 1;
      for (const Shape& order : orders_of(shape.rank())) {
        expect_same_as_copy(x.permute(order));
        if (!plain) continue;
        expect_same_as_copy(
            x.slice(last, 1, shape[last], 2).slice(last - 1, 1, shape[last - 1]).permute(order));
        expect_same_as_copy(x.slice(last, 1, shape[last]).permute(order));
      }
    }
  }
  for (const DType dtype : {f32, i64}) {
    expect_same_as_copy(whole({1, 50, 1}, on(dtype)).expand({40, 50, 30}));
    expect_same_as_copy(whole({50, 1, 30}, on(dtype)).expand({50, 40, 30}).permute({2, 1, 0}));
    const Tensor none = whole({6, 0, 5}, on(dtype)).permute({2, 0, 1});
    EXPECT_EQ(sum(none, {1, 2}).to(i64).to_vector<int64_t>(), Ints(5, 0));
    EXPECT_EQ(sum(none, {0, 1}).shape(), Shape{0});
  }
}

TEST_P(ReduceTest, AViewHasTheBitsOfItsCopy) {
  const bool sums = device().is_cuda();  // on the CPU sums over several dimensions depend on strides
  for (const Shape& shape :
       {Shape{3, 5, 7, 11}, Shape{2, 3, 130, 70}, Shape{1, 40, 3, 1030}, Shape{70, 1, 33, 9}}) {
    const Tensor x = normal(shape, on(f32));
    std::vector<Tensor> views{x.slice(3, 1, shape[3], 2).slice(2, 1, shape[2])};
    for (const Shape& order : orders_of(4)) views.push_back(x.permute(order));
    for (const Tensor& view : views) {
      expect_same_as_copy(view, sums);
      for (int64_t d = 0; d < 4; ++d) EXPECT_TRUE(same_bits(sum(view, {d}), sum(copy_of(view), {d})));
    }
  }
}

TEST_P(ReduceTest, APermutedTensorIsSummedInTheOrderOfMemory) {
  if (device().is_cuda()) GTEST_SKIP() << "there it is the logical order";
  const Tensor x = normal({4, 17, 3, 5, 65}, on(f32));
  for (const Shape& order : orders_of(5)) {
    const Tensor view = x.permute(order);
    EXPECT_TRUE(same_bits(sum(view), sum(x)));
    for (int mask = 1; mask < 32; ++mask) {
      int named = 0;  // the same dims of x
      for (int64_t d = 0; d < 5; ++d) named |= (mask >> d & 1) << order[d];
      const Tensor y = sum(view, dims_of(mask), true), expected = sum(x, dims_of(named), true).permute(order);
      EXPECT_TRUE(same_bits(y, expected)) << order << mask;
      EXPECT_TRUE(same_on_any_threads([&] { return mean(view, dims_of(mask)); })) << order << mask;
    }
  }
}

TEST_P(ReduceTest, ThreadsDoNotChangeBits) {
  if (device().is_cuda()) GTEST_SKIP() << "CPU threads";
  const Tensor x = normal({7, 33, 41, 97}, on(f32));
  for (int mask = 1; mask < 16; ++mask)
    EXPECT_TRUE(same_on_any_threads([&] { return sum(x, dims_of(mask)); })) << mask;
}

// A task takes fewer neighbouring rows, the more threads there are.
TEST_P(ReduceTest, SideBySideRowsHaveTheBitsOfRowsAlone) {
  for (const DType dtype : {f32, f64}) {
    const Tensor x = normal({1000, 1030}, on(dtype)), columns = x.transpose(0, 1).contiguous();
    const Tensor alone = sum(x, {1});
    EXPECT_TRUE(same_on_any_threads([&] { return sum(columns, {0}); }));
    EXPECT_TRUE(same_bits(sum(columns, {0}), alone));
    EXPECT_TRUE(same_bits(max(columns, {0}), max(x, {1})));
  }
}

TEST_P(ReduceTest, AFewRowsSideBySideHaveTheBitsOfRowsAlone) {
  for (const DType dtype : {f32, f64, bf16}) {
    for (const int64_t width : {2, 3, 4, 5, 8}) {
      for (const int64_t n : {1, 7, 16, 33, 100, 1024, 1025}) {
        const Tensor memory = normal({3, 70, n, width}, on(dtype));
        memory.slice(0, 1, 2).slice(1, 5, 6).slice(2, n - 1, n).slice(3, 1, 2).fill_(nan);
        for (const Tensor& x : {memory, memory.slice(0, 0, 1), memory.slice(1, 1, 69), memory.slice(0, 0, 0),
                                memory.slice(0, 0, 1).slice(1, 5, 6)}) {
          const Tensor rows = x.transpose(2, 3).contiguous();
          for (const auto& f : {+[](const Tensor&t, int64_t d) { return sum(t, {d}); },
                                +[](const Tensor&t, int64_t d) { return mean(t, {d}); },
                                +[](const Tensor&t, int64_t d) { return max(t, {d}); },
                                +[](const Tensor&t, int64_t d) { return min(t, {d}); }}) {
            EXPECT_TRUE(same_bits(f(x, 2), f(rows, 3))) << dtype << width << " " << n;
          }
        }
      }
    }
  }
}

/// Reductions whose lanes add more than the elements: rows alone, rows side by side in packets (widths 8 and
/// 64) and not (33), unaligned rows, short rows, rows of several blocks.
TEST_P(ReduceTest, RowsAndColumnsOfOtherReductionsHaveTheSameBits) {
  if (!device().is_cuda()) GTEST_SKIP() << "on the CPU the order is that of memory";
  using Function = Tensor (*)(const Tensor&, int64_t);
  const Function functions[] = {[](const Tensor& t, int64_t d) { return norm(t, 1, {d}); },
                                [](const Tensor& t, int64_t d) { return norm(t, 2, {d}); },
                                [](const Tensor& t, int64_t d) { return logsumexp(t, {d}); },
                                [](const Tensor& t, int64_t d) { return var(t, {d}); },
                                [](const Tensor& t, int64_t d) { return argmax(t, {d}); },
                                [](const Tensor& t, int64_t d) { return max(t, {d}); }};
  for (const DType dtype : {f32, f64, bf16, f16}) {
    for (const int64_t width : {8, 33, 64}) {
      for (const int64_t n : {1, 5, 31, 32, 33, 511, 512, 1024, 1030, 3000}) {
        const Tensor columns = normal({2, n, width}, on(dtype));
        const Tensor rows = columns.transpose(1, 2).contiguous(), ends = rows.slice(2, 1, n);
        for (const Function f : functions) {
          EXPECT_TRUE(same_bits(f(columns, 1), f(rows, 2))) << dtype << width << " " << n;
          if (n > 1) {
            EXPECT_TRUE(same_bits(f(ends, 2), f(copy_of(ends), 2))) << dtype << width << " " << n;
            EXPECT_TRUE(same_bits(f(columns.slice(1, 1, n), 1), f(ends, 2))) << dtype << width << " " << n;
          }
        }
      }
    }
  }
}

/// The count of ties is a second result, of every form of the loops.
TEST_P(ReduceTest, TiesOfRowsAndColumns) {
  for (const DType dtype : {f32, f64, bf16}) {
    for (const int64_t n : {4, 32, 100, 1024, 2100}) {
      Tensor x = zeros({n, 16}, on(dtype));
      x.slice(0, n - 4, n).fill_(1);
      for (const int64_t d : {0, 1}) {
        const Tensor leaf = (d == 0 ? x.clone() : x.transpose(0, 1).contiguous()).set_requires_grad();
        max(leaf, Shape{d}).backward(full({16}, 4, on(dtype)));
        EXPECT_TRUE(same_bits(leaf.grad(), leaf.detach())) << dtype << n << " " << d;
      }
    }
  }
}

TEST_P(ReduceTest, SumToUndoesBroadcasting) {
  const Tensor x = make({1, 2, 3, 4, 5, 6}, {2, 3}, f32);
  EXPECT_EQ(sum_to(x, {3}).to_vector<float>(), (Floats{5, 7, 9}));
  EXPECT_EQ(sum_to(x, {2, 1}).to_vector<float>(), (Floats{6, 15}));
  EXPECT_EQ(sum_to(x, {1, 1}).shape(), (Shape{1, 1}));
  EXPECT_EQ(sum_to(x, {}).item<float>(), 21);
  EXPECT_EQ(sum_to(x, {2, 3}).impl(), x.impl());
  EXPECT_EQ(sum_to(x.reshape({1, 2, 3}), {2, 3}).shape(), (Shape{2, 3}));
  EXPECT_ERRORS(ShapeError, sum_to(x, {2}), sum_to(x, {1, 2, 3}));
}

// Expanded memory is small, but the results of its blocks are not.
TEST_P(ReduceTest, MoreElementsThanCanBeReduced) {
  const int64_t half = int64_t{1} << 31;
  const auto expect_refused = [&](const char* op, const Shape& shape, const capi::Values& options) {
    capi::Values arguments{full(Shape::filled(shape.rank(), 1), 1, on(f32)).expand(shape)};
    arguments.insert(arguments.end(), options.begin(), options.end());
    EXPECT_MESSAGE(ShapeError, capi::ops().at(op)(arguments),
                   str(op, ": at most 2^53 elements can be reduced, got shape ", shape));
  };
  for (const Shape& shape : {Shape{half * half}, Shape{half, half}, Shape{2, half, half / 256}}) {
    for (const char* op : {"sum", "mean", "max", "min", "argmax", "argmin"})
      for (const Shape& dims : {Shape{}, Shape{0}, Shape{-1}}) expect_refused(op, shape, {dims, false});
    expect_refused("sum_to", shape, {{1}});
    expect_refused("softmax", shape, {0});
    expect_refused("log_softmax", shape, {-1});
  }
  Tensor x = full({1}, 1, on(f32)).set_requires_grad();
  EXPECT_THROW(x.expand({half * half}).sum(), ShapeError);
  EXPECT_EQ(sum(x.expand({half * half}).slice(0, 7, 5007)).item<float>(), 5000);
}

TEST_P(ReduceTest, Errors) {
  const Tensor x = whole({2, 3}, on(f32));
  EXPECT_ERRORS(ShapeError, sum(x, {2}), sum(x, {-3}), max(x, {0, 0}), mean(x, {1, -1}));
  EXPECT_ERRORS(ValueError, sum(Tensor()), argmax(Tensor()), sum_to(Tensor(), {}));
}

// For compute-sanitizer.
// One small case for each kernel of the reductions and matmul, and for each of their edges.

DEVICE_SUITE(ReduceSanitize);

// Short rows; rows of one block, full and not full; rows of several blocks; and all of them as columns.
TEST_P(ReduceSanitize, RowsAndColumns) {
  for (int64_t length : {3, 33, 1024, 1025, 34000}) {
    const Tensor x = whole({9, length}, on(f64));
    const Tensor columns = x.transpose(0, 1).contiguous();
    EXPECT_EQ(sum(x, {1}).to_vector<double>(), sum(columns, {0}).to_vector<double>());
    EXPECT_EQ(argmax(x, {1}).to_vector<int64_t>(), argmax(columns, {0}).to_vector<int64_t>());
    EXPECT_TRUE(same_bits(sum(x.to(bf16), {1}), sum(columns.to(bf16), {0})));
    EXPECT_TRUE(same_bits(min(x.to(f16), {1}), min(columns.to(f16), {0})));
    EXPECT_EQ(max(x.to(u8)).item<uint8_t>(), max(columns.to(u8)).item<uint8_t>());
  }
}

TEST_P(ReduceSanitize, MatmulTilesThatEndEarly) {
  for (const DType dtype : {f32, bf16, f16}) {
    const Tensor a = whole({2, 65, 17}, on(dtype)), b = whole({17, 66}, on(dtype));
    const Tensor y = matmul(a, b), transposed = matmul(b.transpose(0, 1), a.transpose(1, 2));
    EXPECT_TRUE(same_bits(y, transposed.transpose(1, 2)));
  }
}

DEVICE_SUITE(ReduceGradTest);

TEST_P(ReduceGradTest, TheMeanOfNothingHasASecondGradientOfZero) {
  const Tensor x = leaf({}), w = make({1}, {}).set_requires_grad();
  const Tensor g = grad({mean(x)}, {x}, {.grad_outputs = {w}, .create_graph = true})[0];
  EXPECT_EQ(g.shape(), Shape{0});
  EXPECT_EQ(grad({sum(g)}, {w})[0].item(), 0);
}

TEST_P(ReduceGradTest, TiesShareTheGradient) {
  Tensor x = make({7, 1, 7, 1, 2, 3}, {2, 3}).set_requires_grad();
  max(x, {1}).backward(numbers({6, 5}));
  EXPECT_EQ(values(x.grad()), (Doubles{3, 0, 3, 0, 0, 5}));
  x.zero_grad();
  min(x).backward();
  EXPECT_EQ(values(x.grad()), (Doubles{0, 0.5, 0, 0.5, 0, 0}));
}

TEST_P(ReduceGradTest, ANaNThatWonTakesTheGradient) {
  Tensor x = leaf({1, nan, 3}, f32);
  max(x).backward();
  EXPECT_EQ(values(x.grad()), (Doubles{0, 1, 0}));
  Tensor two = leaf({nan, 1, nan}, f32);
  min(two).backward();
  EXPECT_EQ(values(two.grad()), (Doubles{0.5, 0, 0.5}));
  EXPECT_EQ(values(grad({min(two)}, {two}, {.create_graph = true})[0]), (Doubles{0.5, 0, 0.5}));
}

TEST_P(ReduceGradTest, AnInfiniteGradientReachesOnlyTheWinner) {
  Tensor x = leaf({1, 2, 3}, f32);
  max(x).backward(full({}, inf, on(f32)));
  EXPECT_EQ(values(x.grad()), (Doubles{0, 0, inf}));
}

TEST_P(ReduceGradTest, IndicesAndIntegersAreNotRecorded) {
  const Tensor x = leaf({1, 2, 3});
  EXPECT_FALSE(argmax(x).requires_grad());
  EXPECT_FALSE(sum(gt(x, 0)).requires_grad());
}

}  // namespace
}  // namespace vox
