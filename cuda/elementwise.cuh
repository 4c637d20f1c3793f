#pragma once

#include <algorithm>
#include <cstdint>
#include <utility>

#include <voxgrad/cuda/runtime/launch.h>
#include <voxgrad/ops/layout.h>
#include <voxgrad/cuda/for_each_index.cuh>

// map(): y = f(x...), element by element. Memory bandwidth is the limit: each byte is read and written once.
// Each op has two kernels. In the *dense* one a thread moves 16 bytes per operand at a time. In the *strided*
// one a thread computes the offsets of one element by the divisions of StridedLayout. Both call f on the same
// numbers. T is the type in memory; f is a function of opmath_t<T>, which is float where T has 16 bits.

namespace vox::cuda {

/// An input as kernels read it: memory, or a number passed by value.
template <class T>
struct Operand {
  const T* data;  // null: use the number
  opmath_t<T> number;
  __device__ opmath_t<T> operator[](int64_t i) const { return data ? data[i] : number; }
};

/// A tensor on another device than the output is a number operand (ops/kernels.h). Its dtype may be T or
/// opmath_t<T>.
template <class T>
Operand<T> operand(const Tensor& x, const Tensor& y) {
  if (x.device() == y.device()) return {static_cast<const T*>(x.impl()->data()), opmath_t<T>{}};
  if (is_16_bit_v<T> && x.dtype() == f32)
    return {nullptr, *static_cast<const opmath_t<T>*>(x.impl()->data())};
  return {nullptr, *static_cast<const T*>(x.impl()->data())};
}
/// The tensor for Launch to track; null for a number.
inline const Tensor* in_memory(const Tensor& x, const Tensor& y) {
  return x.device() == y.device() ? &x : nullptr;
}

template <class T>
struct alignas(16) Packet {
  static constexpr int size = 16 / sizeof(T);
  T lane[size];
};
inline bool is_packet_aligned(const void* p) { return reinterpret_cast<uintptr_t>(p) % 16 == 0; }

/// A packet, converted to the type that f computes in.
template <class T>
struct Lanes {
  opmath_t<T> lane[Packet<T>::size];
};
template <class T>
__device__ Lanes<T> load_lanes(const Operand<T>& x, int64_t packet) {
  Lanes<T> lanes;
  if (x.data) {
    const Packet<T> memory = reinterpret_cast<const Packet<T>*>(x.data)[packet];
#pragma unroll
    for (int i = 0; i < Packet<T>::size; ++i) lanes.lane[i] = memory.lane[i];
  } else {
#pragma unroll
    for (auto& lane : lanes.lane) lane = x.number;
  }
  return lanes;
}

/// f(g(0), g(1), ..., g(N - 1))
template <class F, class G, int... k>
__device__ auto call(const F& f, const G& g, std::integer_sequence<int, k...>) {
  return f(g(k)...);
}

/// Thread p computes packet p; the last packet, if it is not full, element by element.
template <class T, int N, class F>
struct DenseMap {
  int64_t numel;
  Operand<T> x[N];
  T* y;
  F f;
  __device__ void operator()(int64_t p) const {
    constexpr int size = Packet<T>::size;
    constexpr std::make_integer_sequence<int, N> operands;
    if ((p + 1) * size <= numel) {
      Lanes<T> in[N];
#pragma unroll
      for (int k = 0; k < N; ++k) in[k] = load_lanes(x[k], p);
      Packet<T> out;
#pragma unroll
      for (int i = 0; i < size; ++i)
        out.lane[i] = T(call(
            f, [&](int k) { return in[k].lane[i]; }, operands));
      reinterpret_cast<Packet<T>*>(y)[p] = out;
    } else {
      for (int64_t i = p * size; i < numel; ++i)
        y[i] = T(call(
            f, [&](int k) { return x[k][i]; }, operands));
    }
  }
};

template <class T, int N, class F>
struct StridedMap {
  detail::StridedLayout<1 + N> layout;
  Operand<T> x[N];
  T* y;
  F f;
  __device__ void operator()(int64_t i) const {
    const auto at = layout.offsets(i);
    const auto element = [&](int k) { return x[k][at[1 + k]]; };
    y[at[0]] = T(call(f, element, std::make_integer_sequence<int, N>{}));
  }
};

/// y = f(x...)
template <class T, class F, class... X>
void map(const char* op, F f, const Tensor& y, const X&... x) {
  constexpr int n = sizeof...(X);
  const Launch launch(op, y, {in_memory(x, y)...});
  const auto layout = detail::strided_layout(y, x...);
  T* const out = static_cast<T*>(y.impl()->data());
  const Operand<T> in[n] = {operand<T>(x, y)...};
  bool dense = layout.rank <= 1 && layout.is_dense(0) && is_packet_aligned(out);
  for (int k = 0; k < n; ++k)
    dense = dense && (!in[k].data || (layout.is_dense(1 + k) && is_packet_aligned(in[k].data)));
  if (dense) {
    DenseMap<T, n, F> run{layout.numel, {}, out, f};
    std::copy_n(in, n, run.x);
    for_each_index(launch, layout.numel / Packet<T>::size + (layout.numel % Packet<T>::size != 0), run);
  } else {
    StridedMap<T, n, F> run{layout, {}, out, f};
    std::copy_n(in, n, run.x);
    for_each_index(launch, layout.numel, run);
  }
}

}  // namespace vox::cuda
