#include "tests/support/catalogue.h"
#include "tests/support/test.h"

#if defined(__GLIBC__)
#include <malloc.h>
#endif

// Every op of the catalogue, on every dtype that it takes, with operands in every layout of
// tests/support/layouts.h: each operand in turn, all together, and all empty; then its gradients, for a
// gradient of the result in every layout. The expected results are those on dense copies, bit for bit.
// HACKING.md promises that for elements. Sums over several dimensions may be added in another order, but the
// values here are quarters of small whole numbers, so their sums are exact in any order, and the same rule
// applies.

namespace vox {
namespace {

/// Fills the memory that the next allocations on a GPU get, or the stack of the next calls, with
/// unwritten_byte. A kernel that reads unwritten memory then computes NaN.
[[gnu::noinline]] void poison(Device device) {
  if (device.is_cuda()) {
    for (const int64_t bytes : {512, 8192, 65536, 1 << 20})
      full({bytes}, unwritten_byte, {.dtype = u8, .device = device});
    return;
  }
  unsigned char stack[128 << 10];
  std::memset(stack, unwritten_byte, sizeof stack);
  asm volatile("" : : "r"(stack) : "memory");
}

/// Makes glibc fill every heap block that it hands out with `byte`, or stops that.
void poison_heap([[maybe_unused]] std::optional<unsigned char> byte) {
#if defined(__GLIBC__)
  mallopt(M_PERTURB, byte ? 0x100 | (*byte ^ 0xff) : 0);  // it takes the complement; 0 means none
#endif
}

/// The result and the gradients of all operands that have one; or the message of an error.
struct Outcome {
  Tensors tensors;
  std::string error;
};

Outcome run(const Sample& op, const Tensors& operands, const Tensor& gradient = {}) {
  Outcome outcome;
  try {
    poison(operands[0].device());
    outcome.tensors = differentiated(op, operands, [&](const Tensor& y) {
      poison(y.device());
      return gradient.defined() ? gradient : values_of(y.shape(), Holds::numbers, y.dtype(), y.device(), 9);
    });
  } catch (const Error& error) {
    outcome.error = error.what();
  }
  return outcome;
}

void expect_same(const Outcome& got, const Outcome& expected, const std::string& what) {
  EXPECT_EQ(got.error, expected.error) << what;
  ASSERT_EQ(got.tensors.size(), expected.tensors.size()) << what;
  for (size_t i = 0; i < got.tensors.size(); ++i)
    EXPECT_TRUE(same_bits(got.tensors[i], expected.tensors[i]))
        << what << ": " << (i == 0 ? std::string("result") : str("gradient ", i - 1));
}

/// Whether there is no infinity, and no NaN, which unwritten memory would cause.
bool is_finite(const Tensor& t) {
  const Doubles values = t.detach().to(Device::cpu()).to(f64).to_vector<double>();
  return std::all_of(values.begin(), values.end(), [](double v) { return std::isfinite(v); });
}

/// The layouts of an operand, and the operand in one of them: in dense memory if it has no such layout.
using Layouts = std::vector<LaidOut>;
const LaidOut& find(const Layouts& list, const std::string& layout) {
  for (const LaidOut& l : list) {
    if (l.layout == layout) return l;
  }
  return list[0];
}

/// Runs op with each operand in each layout, then with all of them in that layout.
void check_operands(const Sample& op, const std::vector<Layouts>& operands, const std::string& name) {
  const auto check = [&](const std::string& layout, size_t first, size_t last, const std::string& what) {
    Tensors laid_out, dense;
    for (size_t k = 0; k < operands.size(); ++k) {
      const LaidOut& operand = find(operands[k], first <= k && k < last ? layout : "contiguous");
      laid_out.push_back(operand.tensor), dense.push_back(operand.dense);
    }
    const Outcome expected = run(op, dense);
    expect_same(run(op, laid_out), expected, what);
    if (dense[0].numel() == 0) return;  // some ops refuse this, and a mean of nothing is NaN
    EXPECT_EQ(expected.error, "") << what;
    for (const Tensor& t : expected.tensors) EXPECT_TRUE(is_finite(t)) << what << ", dense";
  };
  for (size_t k = 0; k < operands.size(); ++k) {
    for (const LaidOut& l : operands[k]) check(l.layout, k, k + 1, str(name, ", operand ", k, " ", l.layout));
  }
  for (const LaidOut& l : operands[0]) {
    if (operands.size() > 1) check(l.layout, 0, operands.size(), str(name, ", all operands ", l.layout));
  }
}

void check_gradients(const Sample& op, const Tensors& operands, const std::string& name) {
  const Tensor y = run(op, operands).tensors.at(0);
  if (!y.requires_grad()) return;
  for (const LaidOut& g : layouts(values_of(y.shape(), Holds::numbers, y.dtype(), y.device(), 4)))
    expect_same(run(op, operands, g.tensor), run(op, operands, g.dense), str(name, ", gradient ", g.layout));
}

std::vector<Layouts> operands_of(const Sample& op, DType dtype, Device device, bool empty = false) {
  std::vector<Layouts> list;
  for (auto& [shape, holds, is_batched, is_constant] : op.operands()) {
    if (empty && is_batched) shape[0] = 0;
    list.push_back(layouts(values_of(shape, holds, dtype, device, std::ssize(list))));
  }
  return list;
}

Tensors dense(const std::vector<Layouts>& operands) {
  Tensors list;
  for (const Layouts& operand : operands) list.push_back(operand[0].dense);
  return list;
}

void check(const Sample& op, DType dtype, Device device) {
  const std::string name = str(op.name(), " of ", dtype);
  const std::vector<Layouts> operands = operands_of(op, dtype, device);
  ASSERT_NO_FATAL_FAILURE(check_operands(op, operands, name));
  ASSERT_NO_FATAL_FAILURE(check_gradients(op, dense(operands), name));
  ASSERT_NO_FATAL_FAILURE(check_operands(op, operands_of(op, dtype, device, true), name + ", empty"));
}

class LayoutsTest : public CatalogueTest {
 protected:
  void SetUp() override {
    CatalogueTest::SetUp();
    poison_heap(unwritten_byte);
  }
  void TearDown() override { poison_heap(std::nullopt); }
};
INSTANTIATE_TEST_SUITE_P(, LayoutsTest, families(), family_name);

TEST_P(LayoutsTest, DoNotChangeABit) {
  for (const Sample& op : samples(Size::large)) {
    for (const DType dtype : op.dtypes) {
      if (op.any_layout) check(op, dtype, device());
    }
  }
}

TEST_P(LayoutsTest, AndThreadsDoNotEither) {
  if (device().is_cuda()) GTEST_SKIP() << "threads of the CPU";
  const int before = get_num_threads();
  for (const Sample& op : samples(Size::large)) {
    for (const DType dtype : op.dtypes) {
      const Tensors operands = dense(operands_of(op, dtype, device()));
      set_num_threads(1);
      const Outcome alone = run(op, operands);
      for (const int threads : {2, 5}) {
        set_num_threads(threads);
        expect_same(run(op, operands), alone, str(op.name(), " of ", dtype, " on ", threads, " threads"));
      }
    }
  }
  set_num_threads(before);
}

/// Second gradients, too, read and write memory.
void run_second_gradients(const Sample& op, Tensors leaves, const std::string& name) {
  Tensors wanted;
  for (size_t k = 0; k < leaves.size(); ++k) {
    leaves[k] = leaves[k].clone();
    if (is_floating(leaves[k].dtype()) && !op.operands()[k].is_constant)
      wanted.push_back(leaves[k].set_requires_grad());
  }
  const Tensor y = op(leaves);
  if (!y.requires_grad()) return;
  const Tensor g = ones_like(y.detach()).set_requires_grad();
  for (const Tensor& first : grad({y}, wanted, {.grad_outputs = {g}, .create_graph = true})) {
    if (!first.requires_grad()) continue;  // it is 0
    const Tensor second =
        grad({first}, {g}, {.grad_outputs = {ones_like(first.detach())}, .retain_graph = true})[0];
    EXPECT_TRUE(is_finite(second)) << name;
  }
}

class LayoutsSanitize : public CatalogueTest {};
INSTANTIATE_TEST_SUITE_P(, LayoutsSanitize, families(), family_name);

TEST_P(LayoutsSanitize, EveryKernel) {
  for (const Sample& op : samples(Size::small)) {
    for (const DType dtype : {f32, bf16}) {
      if (!std::count(op.dtypes.begin(), op.dtypes.end(), dtype)) continue;
      std::vector<Layouts> operands = operands_of(op, dtype, device());
      for (Layouts& list : operands) list.resize(std::min<size_t>(list.size(), 3));  // unaligned, strided
      if (op.any_layout) check_operands(op, operands, str(op.name(), " of ", dtype));
      run_second_gradients(op, dense(operands), str(op.name(), " of ", dtype));
    }
  }
}

/// An op that writes into `target`, of the dtype under test, and reads `source`.
struct Write {
  std::string name;
  std::function<void(Tensor& target, const Tensor& source)> f;
  DTypes targets;
  std::optional<DType> source = {};  ///< that of the target if not given
};

std::vector<unsigned char> bytes_of(const Tensor& dense) {
  const Tensor host = dense.to(Device::cpu());
  std::vector<unsigned char> bytes(static_cast<size_t>(host.numel() * size_of(host.dtype())));
  if (!bytes.empty()) std::memcpy(bytes.data(), host.impl()->data(), bytes.size());
  return bytes;
}

/// The expected memory of `target` after a write that makes its elements those of `elements`; all else is
/// unchanged.
std::vector<unsigned char> written(const LaidOut& target, const Tensor& elements) {
  std::vector<unsigned char> memory = bytes_of(target.memory);
  const std::vector<unsigned char> from = bytes_of(elements);
  const auto size = static_cast<size_t>(size_of(elements.dtype()));
  const Tensor& t = target.tensor;
  size_t i = 0;
  for_each_place(t.shape(), [&](const Shape& index) {
    const auto place = static_cast<size_t>(t.impl()->offset + place_of(index, t.strides()));
    std::memcpy(memory.data() + place * size, from.data() + i++ * size, size);
  });
  return memory;
}

void check_write(const Write& op, const LaidOut& target, const LaidOut& source, const std::string& what) {
  Tensor expected = target.dense.clone(), memory = target.memory.clone();
  op.f(expected, source.dense);
  const Tensor& t = target.tensor;
  Tensor view = vox::detail::alias(memory, t.impl()->offset, t.shape(), t.strides());
  if (!target.is_writable) {
    EXPECT_THROW(op.f(view, source.tensor), ValueError) << what;
    return;
  }
  poison(t.device());
  op.f(view, source.tensor);
  EXPECT_TRUE(bytes_of(memory) == written(target, expected)) << what;
}

DEVICE_SUITE(LayoutsInPlaceTest);

TEST_P(LayoutsInPlaceTest, DoNotChangeABit) {
  const Shape box{3, 10, 40};
  std::vector<Write> ops{{"add_", [](Tensor& t, const Tensor& s) { t.add_(s); }, arithmetic},
                         {"add_ of 3 times", [](Tensor& t, const Tensor& s) { t.add_(s, 3); }, arithmetic},
                         {"mul_", [](Tensor& t, const Tensor& s) { t.mul_(s); }, arithmetic},
                         {"mul_ by 3", [](Tensor& t, const Tensor&) { t.mul_(3); }, arithmetic},
                         {"fill_", [](Tensor& t, const Tensor&) { t.fill_(1); }, any_dtype}};
  for (const DType from : any_dtype)
    ops.push_back(
        {str("copy_ from ", from), [](Tensor& t, const Tensor& s) { t.copy_(s); }, any_dtype, from});
  for (const Write& op : ops) {
    for (const DType dtype : op.targets) {
      for (const Shape& shape : {box, Shape{0, 10, 40}}) {
        const auto targets = layouts(values_of(shape, Holds::numbers, dtype, device(), 1));
        const auto sources =
            layouts(values_of(shape, Holds::numbers, op.source.value_or(dtype), device(), 2));
        for (const LaidOut& target : targets) {
          for (const LaidOut& source : sources)
            check_write(op, target, source,
                        str(op.name, " of ", dtype, " ", shape, ", target ", target.layout, ", source ",
                            source.layout));
        }
      }
    }
  }
}

}  // namespace
}  // namespace vox
