#pragma once

#include <functional>
#include <string>
#include <tuple>
#include <variant>
#include <vector>

#include "capi/ops.h"
#include "tests/support/devices.h"

// Note [Catalogue]
// One table of samples of the public ops: what is called, on operands of which shapes, numbers and dtypes.
// Tests run all of it: every memory layout (ops/layouts_test.cpp), 16-bit dtypes (ops/half_test.cpp), first
// and second gradients (ops/gradcheck_test.cpp), values by formula (ops/elementwise_test.cpp) and errors
// (ops/messages_test.cpp). A new op is a line in catalogue.cpp.

namespace vox::testing {

using Tensors = std::vector<Tensor>;
using DTypes = std::vector<DType>;

inline const DTypes floating{f32, f64, bf16, f16}, arithmetic{f32, f64, bf16, f16, i64, u8},
    every_dtype{f32, f64, bf16, f16, i64, u8, boolean}, only_stored{i16, u16, i32},
    any_dtype{f32, f64, bf16, f16, i64, u8, boolean, i16, u16, i32};

/// What an operand holds. `numbers` have both signs and are never 0; `bools` and `indices`, 0 to 2, have
/// their own dtype, whatever dtype is tested.
enum class Holds { numbers, positive, bools, indices };

struct Operand {
  Shape shape;
  Holds holds = Holds::numbers;
  bool is_batched = true;    ///< dimension 0 may be empty
  bool is_constant = false;  ///< the op refuses to differentiate it, or is not asked to
};

/// An argument of an op: an operand, a list of operands, or a value that is the same in every run.
class Argument {
 public:
  Argument() = default;
  Argument(Operand operand) : what_(std::move(operand)) {}
  Argument(std::vector<Operand> list) : what_(std::move(list)) {}
  Argument(std::initializer_list<int64_t> list) : what_(capi::Value(list)) {}
  template <class T>
  requires std::is_constructible_v<capi::Value, T> Argument(T value) : what_(capi::Value(value)) {}

 private:
  friend struct Sample;
  std::variant<capi::Value, Operand, std::vector<Operand>> what_;
};

/// How a result in 16 bits agrees with that in f32, rounded once: bit for bit; not in the gradient, if that
/// is made of rounded numbers; or neither, if the op is made of others.
enum class Half { exact, exact_forward, composed };

/// An elementwise op in f64, of its arguments in their order: elements of its operands, and numbers.
using Formula = double (*)(double x, double y, double z);

struct Sample {
  const char* family;
  std::string op;  ///< its name in capi/ops.h
  std::vector<Argument> arguments;
  DTypes dtypes;
  Half half = Half::exact;
  bool any_layout = true;     ///< has the same bits in any layout, as its sums are exact or short
  Formula formula = nullptr;  ///< of an elementwise op
  double ulps = 0;            ///< allowed distance from it in f32 and f64
  size_t result = 0;          ///< which of the op's results counts

  Sample& in_half(Half how) { return half = how, *this; }
  Sample& in_any_order() { return any_layout = false, *this; }
  Sample& takes(size_t which) { return result = which, *this; }

  std::vector<Operand> operands() const;
  Tensor operator()(const Tensors& operands) const;
  /// The formula's value for these elements of the operands.
  double expected(const std::vector<double>& elements) const;
  std::string name() const;  ///< of the op with its values
};

/// The op's result on leaves of these numbers, then the gradients of all operands that have one, where
/// of_result(y) is that of the result.
Tensors differentiated(const Sample& op, const Tensors& operands,
                       const std::function<Tensor(const Tensor&)>& of_result);

/// `small` has few elements, for difference quotients; `large` has more than any kernel buffers at once, in
/// rows long enough to be read in place.
enum class Size { small, large };
const std::vector<Sample>& catalogue(Size size);

/// The samples of a family, on a device.
class CatalogueTest : public ::testing::TestWithParam<std::tuple<Device, const char*>> {
 protected:
  void SetUp() override {
    if (device().is_cuda() && !has_cuda()) GTEST_SKIP() << "no CUDA device";
  }
  static Device device() { return std::get<0>(GetParam()); }
  static std::vector<Sample> samples(Size size);
};
inline auto families() {
  return ::testing::Combine(devices(), ::testing::Values("unary", "binary", "choices", "copies", "shaping",
                                                         "indexing", "reductions", "products", "convolutions",
                                                         "resampling", "losses", "norms"));
}
inline std::string family_name(const ::testing::TestParamInfo<std::tuple<Device, const char*>>& info) {
  const auto& [device, family] = info.param;
  return str(device.is_cpu() ? "cpu_" : "cuda_", family);
}

/// Numbers are n / 4, or n in integers, with an odd n of -11 to 11.
Tensor values_of(const Shape& shape, Holds holds, DType dtype, Device device, int64_t seed);

}  // namespace vox::testing
