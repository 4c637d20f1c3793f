#include <voxgrad/ops/cpu/convert_run.h>
#include <voxgrad/ops/cpu/isa.h>
#include <voxgrad/ops/cpu/simd/elementwise.h>
#include <voxgrad/ops/cpu/walk.h>
#include <voxgrad/ops/kernels.h>
#include <voxgrad/ops/layout.h>

#include <algorithm>
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

constexpr int64_t buffer_elements = 512;
using Buffer = float[buffer_elements];

/// Elements first, first + 1, ... of operand k as floats. If an operand repeats its element (step 0), the
/// result holds that element once, so read it with step r.step[k]. A number operand is a float already.
template <class S>
const float* floats(const Run& r, int k, bool is_number, int64_t first, int64_t n, Buffer& buffer) {
  if (is_number) return r.pointer<float>(k);
  const S* from = r.pointer<S>(k) + first * r.step[k];
  convert_run(from, buffer, r.step[k] == 0 ? 1 : n);
  return buffer;
}

/// Calls f(first, count) for parts of a run that fit a buffer.
template <class F>
void for_parts(int64_t n, F f) {
  for (int64_t first = 0; first < n; first += buffer_elements) f(first, std::min(buffer_elements, n - first));
}

/// Calls f(S{}) with the 16-bit type of the dtype.
template <class F>
void visit_16_bit(DType dtype, F f) {
  dtype == bf16 ? f(bfloat16{}) : f(float16{});
}

void unary_16_bit(simd::UnaryRun<float> kernel, const Tensor& x, const Tensor& y, float p, float q) {
  visit_16_bit(y.dtype(), [&]<class S>(S) {
    for_runs(
        [=](const Run& r) {
          if (r.step[1] == 0) {
            const float in = *r.pointer<S>(1);
            float out;
            kernel(&in, &out, 1, p, q, false);
            std::fill_n(r.pointer<S>(0), r.n, S(out));
            return;
          }
          for_parts(r.n, [&](int64_t first, int64_t n) {
            Buffer in, out;
            kernel(floats<S>(r, 1, false, first, n, in), out, n, p, q, false);
            convert_run(out, r.pointer<S>(0) + first, n);
          });
        },
        y, x);
  });
}

void binary_16_bit(simd::BinaryRun<float> kernel, const Tensor& a, const Tensor& b, const Tensor& y, float p,
                   float q) {
  const bool a_number = a.dtype() != y.dtype(), b_number = b.dtype() != y.dtype();
  visit_16_bit(y.dtype(), [&]<class S>(S) {
    for_runs(
        [=](const Run& r) {
          for_parts(r.n, [&](int64_t first, int64_t n) {
            Buffer left, right, out;
            kernel(floats<S>(r, 1, a_number, first, n, left), r.step[1],
                   floats<S>(r, 2, b_number, first, n, right), r.step[2], out, n, p, q, false);
            convert_run(out, r.pointer<S>(0) + first, n);
          });
        },
        y, a, b);
  });
}

void compare_16_bit(simd::CompareRun<float> kernel, const Tensor& a, const Tensor& b, const Tensor& y) {
  visit_16_bit(a.dtype(), [&]<class S>(S) {
    for_runs(
        [=](const Run& r) {
          for_parts(r.n, [&](int64_t first, int64_t n) {
            Buffer left, right;
            kernel(floats<S>(r, 1, false, first, n, left), r.step[1], floats<S>(r, 2, false, first, n, right),
                   r.step[2], r.pointer<uint8_t>(0) + first, n);
          });
        },
        y, a, b);
  });
}

/// `where` only moves elements, so their type does not matter.
void where_16_bit(const Run& r) {
  const auto* condition = r.pointer<uint8_t>(1);
  const auto *a = r.pointer<uint16_t>(2), *b = r.pointer<uint16_t>(3);
  auto* y = r.pointer<uint16_t>(0);
  for (int64_t i = 0; i < r.n; ++i) y[i] = condition[i * r.step[1]] ? a[i * r.step[2]] : b[i * r.step[3]];
}

// ---- All other dtypes ------------------------------------------------------------------------------------

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
      if constexpr (std::is_same_v<T, float>) {
        if (is_16_bit(y.dtype())) return binary_16_bit(kernel, a, b, y, first, second);
      }
      for_runs(
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
      if constexpr (std::is_same_v<T, float>) {
        if (is_16_bit(x.dtype())) return unary_16_bit(kernel, x, y, first, second);
      }
      for_runs(
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
    if constexpr (std::is_same_v<T, float>) {
      if (is_16_bit(a.dtype())) return compare_16_bit(kernel, a, b, y);
    }
    for_runs(
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
