#pragma once

#include <cstdint>
#include <limits>
#include <type_traits>

#include <voxgrad/core/dtype.h>
#include <voxgrad/core/host_device.h>
#include <voxgrad/ops/kernels.h>

// A reduction as an Op, for the loops of both the CPU and CUDA. An Op has
//   Acc                 the type of partial results
//   init()              the Acc of no elements
//   lift(x, i)          the Acc of element number i of its row
//   combine(a, b)       the Acc of both; returns the other one if one is init()
//   finish(a, length)   the result

namespace vox::detail {

template <class T>
VOX_HOST_DEVICE constexpr bool is_nan(T x) {
  if constexpr (std::is_floating_point_v<T>)
    return x != x;
  else
    return false;
}

/// Integers add as uint64_t: a sum beyond 64 bits wraps instead of being undefined.
template <class T, bool is_mean>
struct SumOp {
  static constexpr bool integral = !std::is_floating_point_v<T>;
  using Acc = std::conditional_t<integral, uint64_t, T>;
  using Result = std::conditional_t<integral, int64_t, T>;
  VOX_HOST_DEVICE static constexpr Acc init() { return 0; }
  VOX_HOST_DEVICE static constexpr Acc lift(T x, int64_t) { return static_cast<Acc>(x); }
  VOX_HOST_DEVICE static constexpr Acc combine(Acc a, Acc b) { return a + b; }
  VOX_HOST_DEVICE static constexpr Result finish(Acc a, int64_t length) {
    if constexpr (is_mean)
      return a / static_cast<T>(length);
    else
      return static_cast<Result>(a);
  }
};

/// Whether b beats a: larger (or smaller), or NaN where a is not. No branches, so that loops vectorise.
template <class T, bool is_max>
VOX_HOST_DEVICE constexpr bool beats(T b, T a) {
  return (is_max ? b > a : b < a) | (is_nan(b) & !is_nan(a));
}

/// The value that every other value beats or equals.
template <class T, bool is_max>
VOX_HOST_DEVICE constexpr T weakest() {
  using L = std::numeric_limits<T>;
  if constexpr (L::has_infinity)
    return is_max ? -L::infinity() : L::infinity();
  else
    return is_max ? L::lowest() : L::max();
}

template <class T, bool is_max>
struct ExtremumOp {
  using Acc = T;
  using Result = T;
  VOX_HOST_DEVICE static constexpr Acc init() { return weakest<T, is_max>(); }
  VOX_HOST_DEVICE static constexpr Acc lift(T x, int64_t) { return x; }
  VOX_HOST_DEVICE static constexpr Acc combine(Acc a, Acc b) { return beats<T, is_max>(b, a) ? b : a; }
  VOX_HOST_DEVICE static constexpr Result finish(Acc a, int64_t) { return a; }
};

template <class T, bool is_max>
struct ArgExtremumOp {
  struct Acc {
    T value;
    int64_t index;
  };
  using Result = int64_t;
  VOX_HOST_DEVICE static constexpr Acc init() {
    return {weakest<T, is_max>(), std::numeric_limits<int64_t>::max()};
  }
  VOX_HOST_DEVICE static constexpr Acc lift(T x, int64_t i) { return {x, i}; }
  VOX_HOST_DEVICE static constexpr Acc combine(Acc a, Acc b) {
    const bool take_b =
        beats<T, is_max>(b.value, a.value) || (!beats<T, is_max>(a.value, b.value) && b.index < a.index);
    return take_b ? b : a;
  }
  VOX_HOST_DEVICE static constexpr Result finish(Acc a, int64_t) { return a.index; }
};

/// The number of elements, their mean, and the sum of (x - mean)^2, combined as by Chan, Golub and LeVeque
/// (1979): nothing cancels if the mean is large. It has no finish(), because there are two results.
template <class T>
struct VarMeanOp {
  struct Acc {
    T count, mean, m2;
  };
  VOX_HOST_DEVICE static constexpr Acc init() { return {0, 0, 0}; }
  VOX_HOST_DEVICE static constexpr Acc lift(T x, int64_t) { return {1, x, 0}; }
  VOX_HOST_DEVICE static constexpr Acc combine(Acc a, Acc b) {
    if (a.count == 0) return b;
    if (b.count == 0) return a;
    const T count = a.count + b.count, share = b.count / count, apart = b.mean - a.mean;
    return {count, a.mean + apart * share, a.m2 + b.m2 + apart * apart * (a.count * share)};
  }
  /// The Acc of `count` elements from the sums of x - shift and of its square, where shift is one of them.
  VOX_HOST_DEVICE static constexpr Acc of_shifted(T count, T shift, T sum, T squares) {
    if (count == 0) return init();
    const T mean = sum / count, m2 = squares - sum * mean;
    return {count, shift + mean, m2 < 0 ? T(0) : m2};
  }
};

/// Element i of a row as an Acc. The elements of a row of block results are Accs already.
template <class Op, class In>
VOX_HOST_DEVICE constexpr typename Op::Acc lift(In x, int64_t i) {
  if constexpr (std::is_same_v<In, typename Op::Acc>)
    return x;
  else
    return Op::lift(x, i);
}

/// Calls `f.operator()<Op, T>()` with the operation and the element type of a reduction, for dtypes of 32
/// bits or more and the integers. A bool is a byte, 0 or 1.
template <class F>
void visit_reduction(ReduceKind kind, DType dtype, F f) {
  if (kind == ReduceKind::mean)
    return visit_floating("mean", opmath(dtype),
                          [&]<class T>(T) { f.template operator()<SumOp<T, true>, T>(); });
  visit_opmath(dtype, [&]<class E>(E) {
    using T = std::conditional_t<std::is_same_v<E, bool>, uint8_t, E>;
    switch (kind) {
      case ReduceKind::sum:
        return f.template operator()<SumOp<T, false>, T>();
      case ReduceKind::max:
        return f.template operator()<ExtremumOp<T, true>, T>();
      case ReduceKind::min:
        return f.template operator()<ExtremumOp<T, false>, T>();
      case ReduceKind::argmax:
        return f.template operator()<ArgExtremumOp<T, true>, T>();
      case ReduceKind::argmin:
        return f.template operator()<ArgExtremumOp<T, false>, T>();
      default:
        return;  // mean is above; the others are made of these
    }
  });
}

}  // namespace vox::detail
