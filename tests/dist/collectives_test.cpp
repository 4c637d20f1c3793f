#include "tests/dist/ranks.h"
#include "tests/support/errors.h"

namespace {

using namespace vox;
using namespace vox::testing;
namespace dist = vox::dist;
using dist::Reduce;

class Collectives : public RanksTest {
 protected:
  Tensor vec(const Doubles& elements, DType dtype = f32) const {
    return from_vector(elements, {static_cast<int64_t>(elements.size())}).to(dtype).to(device);
  }
  const double r = rank, n = size, all = n * (n + 1) / 2;  // 1 + 2 + ... + size
};
INSTANTIATE_TEST_SUITE_P(, Collectives, devices(), device_name);

TEST_P(Collectives, AllReduceCombinesEveryDtype) {
  for (const DType dtype : {f32, f64, i64, u8, bf16, f16}) {
    SCOPED_TRACE(to_string(dtype));
    const Tensor x = vec({r + 1, 5, 2 * r}, dtype);
    EXPECT_EQ(dist::all_reduce(x).dtype(), dtype);
    EXPECT_EQ(values(dist::all_reduce(x)), (Doubles{all, 5 * n, 2 * (all - n)}));
    EXPECT_EQ(values(dist::all_reduce(x, Reduce::max)), (Doubles{n, 5, 2 * n - 2}));
    EXPECT_EQ(values(dist::all_reduce(x, Reduce::min)), (Doubles{1, 5, 0}));
    EXPECT_EQ(values(x), (Doubles{r + 1, 5, 2 * r}));  // is not written to
    if (is_floating(dtype)) {
      EXPECT_EQ(values(dist::all_reduce(x * n, Reduce::mean)), (Doubles{all, 5 * n, 2 * (all - n)}));
    }
  }
  const Tensor mine = vec({rank == 0 ? 1. : 0.}, boolean);
  EXPECT_EQ(dist::all_reduce(mine, Reduce::max).item<bool>(), true);
  EXPECT_EQ(dist::all_reduce(mine, Reduce::min).item<bool>(), size == 1);
}

TEST_P(Collectives, TakeStridedEmptyAndScalarTensors) {
  const Tensor x = vec({0, 1, 2, 3, 4, 5}).reshape({2, 3}) * (r + 1);
  const Tensor sum = dist::all_reduce(x.transpose(0, 1));
  EXPECT_EQ(sum.shape(), (Shape{3, 2}));
  EXPECT_EQ(values(sum), (Doubles{0, 3 * all, all, 4 * all, 2 * all, 5 * all}));
  EXPECT_EQ(dist::all_reduce(zeros({0, 3}, {.device = device})).shape(), (Shape{0, 3}));
  EXPECT_EQ(dist::all_gather(zeros({0, 3}, {.device = device})).shape(), (Shape{0, 3}));
  EXPECT_EQ(values(dist::all_reduce(full({}, 2, {.device = device})))[0], 2 * size);
}

TEST_P(Collectives, BroadcastGatherAndScatter) {
  for (int root = 0; root < size; ++root) {
    const Tensor x = vec({r, r + 10});
    const double from = root;
    EXPECT_EQ(values(dist::broadcast(x, root)), (Doubles{from, from + 10}));
    EXPECT_EQ(values(x), (Doubles{r, r + 10}));
  }
  Doubles gathered, ramp;
  for (int i = 0; i < size; ++i) {
    const double v = i;
    gathered.insert(gathered.end(), {v, -v});
    ramp.insert(ramp.end(), {2 * v, 2 * v + 1});
  }
  EXPECT_EQ(values(dist::all_gather(vec({r, -r}))), gathered);
  EXPECT_EQ(values(dist::reduce_scatter(vec(ramp))), (Doubles{n * 2 * r, n * (2 * r + 1)}));
}

// The gradient is that of the sum of all ranks' losses; each rank weighs its result by rank + 1.
TEST_P(Collectives, GradientsOfTheSumOfAllLosses) {
  const auto gradient = [&](auto f, Doubles x_values) {
    Tensor x = vec(std::move(x_values)).set_requires_grad();
    (f(x) * (r + 1)).sum().backward();
    return values(x.grad());
  };
  EXPECT_EQ(gradient([](const Tensor& x) { return dist::all_reduce(x); }, {1, 2}), (Doubles{all, all}));
  EXPECT_EQ(gradient([&](const Tensor& x) { return dist::all_reduce(x * n, Reduce::mean); }, {1, 2}),
            (Doubles{all, all}));
  const double of_root = rank == size - 1 ? all : 0;
  EXPECT_EQ(gradient([&](const Tensor& x) { return dist::broadcast(x, size - 1); }, {1, 2}),
            (Doubles{of_root, of_root}));
  EXPECT_EQ(gradient([](const Tensor& x) { return dist::all_gather(x); }, {1, 2}), (Doubles{all, all}));
  Doubles weights;
  for (int i = 0; i < size; ++i) weights.push_back(i + 1);
  EXPECT_EQ(gradient([](const Tensor& x) { return dist::reduce_scatter(x); }, Doubles(size, 1)), weights);
}

TEST_P(Collectives, SecondGradient) {
  Tensor x = vec({r + 1}).set_requires_grad();
  const Tensor y = dist::all_reduce(x * x);  // of the sum of all losses: d/dx = 2 x n, d2/dx2 = 2 n
  const Tensor g = grad({y}, {x}, {.create_graph = true})[0];
  EXPECT_EQ(values(g)[0], 2 * (r + 1) * n);
  EXPECT_EQ(values(grad({g}, {x})[0])[0], 2 * size);
}

TEST_P(Collectives, RefuseWhatTheyCannotDo) {
  EXPECT_ERRORS(ValueError, dist::all_reduce({}), dist::broadcast(vec({1}), size),
                dist::broadcast(vec({1}), -1));
  EXPECT_ERRORS(DTypeError, dist::all_reduce(vec({1}, i64), Reduce::mean),
                dist::all_reduce(vec({1}, boolean)));
  EXPECT_THROW(dist::all_reduce(vec({1}).set_requires_grad(), Reduce::max), GradError);
  EXPECT_THROW(dist::all_gather(full({}, 1, {.device = device})), ShapeError);
  if (size > 1) {
    EXPECT_THROW(dist::reduce_scatter(zeros({size + 1}, {.device = device})), ShapeError);
  }
  dist::barrier();
}

TEST_P(Collectives, EqualBitsOnAllRanksAndInAllRuns) {
  Generator generator(static_cast<uint64_t>(rank));
  const Tensor x = randn({100'003}, {.device = device}, generator);
  const Tensor once = dist::all_reduce(x);
  EXPECT_TRUE(same_bits(dist::all_reduce(x), once));
  EXPECT_TRUE(same_bits(dist::broadcast(once), once));
}

TEST(DistInit, MayBeCalledOnce) { EXPECT_THROW(dist::init(), DistError); }

}  // namespace
