#include <voxgrad/ops/cpu/convert_run.h>
#include <voxgrad/ops/cpu/isa.h>
#include <voxgrad/ops/cpu/simd/elementwise.h>
#include <voxgrad/ops/cpu/walk.h>
#include <voxgrad/ops/kernels.h>
#include <voxgrad/ops/layout.h>

#include <algorithm>
#include <array>
#include <type_traits>

// Elementwise arithmetic and functions: calls the kernel of the dtype and the instruction set run by run
// (Note [Walks]).

namespace vox::cpu {
namespace {

constexpr ByIsa kernels = VOX_BY_ISA(elementwise_kernels);

template <class Kernel>
Kernel present(const char* function, Kernel kernel) {
  check<DTypeError>(kernel != nullptr, function, ": this op has no kernel for integers");
  return kernel;
}

// ---- bf16 and f16: through the kernels of f32, in buffers that fit the first-level cache ------------------

/// f, a function of runs of f32, for runs whose operand k is of type S where is_narrow[k]. A repeated element
/// (step 0) stays one. Other inputs are floats already (numbers), and another output is bool.
template <class S, class F, size_t operands>
auto through_floats(const F& f, const std::array<bool, operands>& is_narrow) {
  return [=](const Run& r) {
    constexpr int64_t buffer_elements = 512;
    float buffers[operands][buffer_elements];
    for (int64_t first = 0; first < r.n; first += buffer_elements) {
      Run part = r;
      part.n = std::min(buffer_elements, r.n - first);
      part.stream = false;
      for (size_t k = 0; k < operands; ++k) {
        const int operand = static_cast<int>(k);
        if (is_narrow[k]) part.at[k] = reinterpret_cast<char*>(buffers[k]);
        if (is_narrow[k] && k > 0)
          convert_run(r.pointer<S>(operand) + first * r.step[k], buffers[k], r.step[k] == 0 ? 1 : part.n);
      }
      if (!is_narrow[0]) part.at[0] += first;  // bool
      f(part);
      if (is_narrow[0]) convert_run(buffers[0], r.pointer<S>(0) + first, part.n);
    }
  };
}

/// Calls f(run) for runs of T; 16-bit operands are floats in these runs.
template <class T, class F, class... Inputs>
void for_runs_of(const F& f, const Tensor& y, const Inputs&... inputs) {
  if constexpr (std::is_same_v<T, float>) {
    const std::array is_narrow{is_16_bit(y.dtype()), is_16_bit(inputs.dtype())...};
    const bool is_bf16 = y.dtype() == bf16 || ((inputs.dtype() == bf16) || ...);
    if (is_bf16) return for_runs(through_floats<bfloat16>(f, is_narrow), y, inputs...);
    if (std::ranges::count(is_narrow, true) > 0)
      return for_runs(through_floats<float16>(f, is_narrow), y, inputs...);
  }
  for_runs(f, y, inputs...);
}

/// `where` only moves elements, so their type does not matter.
void where_16_bit(const Run& r) {
  const auto* condition = r.pointer<uint8_t>(1);
  const auto *a = r.pointer<uint16_t>(2), *b = r.pointer<uint16_t>(3);
  auto* y = r.pointer<uint16_t>(0);
  for (int64_t i = 0; i < r.n; ++i) y[i] = condition[i * r.step[1]] ? a[i * r.step[2]] : b[i * r.step[3]];
}

// ---- The kernels' entry points ---------------------------------------------------------------------------

/// y = kernel(a, b), with the kernel that `choose` takes from the table of y's dtype.
template <class Choose>
void of_two(const char* function, const Tensor& a, const Tensor& b, const Tensor& y, Scalar p, Scalar q,
            Choose choose) {
  visit_opmath(y.dtype(), [&]<class T>(T) {
    if constexpr (std::is_same_v<T, bool>) {
      throw DTypeError(str(function, ": no arithmetic on dtype bool"));
    } else {
      const auto kernel = present(function, choose(kernels.of<T>()));
      const T first = detail::element<T>(p), second = detail::element<T>(q);
      for_runs_of<T>(
          [=](const Run& r) {
            kernel(r.pointer<T>(1), r.step[1], r.pointer<T>(2), r.step[2], r.pointer<T>(0), r.n, first,
                   second, r.stream);
          },
          y, a, b);
    }
  });
}

/// A type of the same size for dtypes that are only moved.
template <class T>
using Moved = std::conditional_t<std::is_same_v<T, bool>, uint8_t, T>;

}  // namespace

void unary(Unary op, const Tensor& x, const Tensor& y, Scalar p, Scalar q) {
  visit_opmath(x.dtype(), [&]<class T>(T) {
    if constexpr (std::is_same_v<T, bool>) {
      throw DTypeError("unary: no arithmetic on dtype bool");
    } else {
      const auto kernel = present("unary", kernels.of<T>().unary[static_cast<int>(op)]);
      const T first = detail::element<T>(p), second = detail::element<T>(q);
      for_runs_of<T>(
          [=](const Run& r) {
            if (r.step[1] == 1) return kernel(r.pointer<T>(1), r.pointer<T>(0), r.n, first, second, r.stream);
            kernel(r.pointer<T>(1), r.pointer<T>(0), 1, first, second, false);
            std::fill_n(r.pointer<T>(0) + 1, r.n - 1, *r.pointer<T>(0));
          },
          y, x);
    }
  });
}

void unary_gradient(Unary op, const Tensor& g, const Tensor& kept, const Tensor& grad_x, Scalar p, Scalar q) {
  of_two("unary_gradient", g, kept, grad_x, p, q,
         [=](const auto& table) { return table.gradient[static_cast<int>(op)]; });
}

void binary(Binary op, const Tensor& a, const Tensor& b, const Tensor& y, Scalar p) {
  of_two("binary", a, b, y, p, 0, [=](const auto& table) { return table.binary[static_cast<int>(op)]; });
}

void compare(Comparison op, const Tensor& a, const Tensor& b, const Tensor& y) {
  visit_opmath(a.dtype(), [&]<class E>(E) {
    using T = Moved<E>;
    const auto kernel = kernels.of<T>().compare[static_cast<int>(op)];
    for_runs_of<T>(
        [=](const Run& r) {
          kernel(r.pointer<T>(1), r.step[1], r.pointer<T>(2), r.step[2], r.pointer<uint8_t>(0), r.n);
        },
        y, a, b);
  });
}

void where(const Tensor& condition, const Tensor& a, const Tensor& b, const Tensor& y) {
  if (size_of(y.dtype()) == 2) return for_runs([](const Run& r) { where_16_bit(r); }, y, condition, a, b);
  visit_opmath(y.dtype() == i32 ? f32 : y.dtype(), [&]<class E>(E) {
    using T = Moved<E>;
    const auto kernel = kernels.of<T>().where;
    for_runs(
        [=](const Run& r) {
          kernel(r.pointer<uint8_t>(1), r.step[1], r.pointer<T>(2), r.step[2], r.pointer<T>(3), r.step[3],
                 r.pointer<T>(0), r.n, r.stream);
        },
        y, condition, a, b);
  });
}

}  // namespace vox::cpu
