#pragma once

#include <cstdint>

#include <voxgrad/cuda/launch.h>
#include <voxgrad/ops/strided.h>
#include <voxgrad/cuda/for_each_index.cuh>

// y = f(x) and y = f(a, b), element by element: memory-bound, each byte read and written once. Two kernels an
// op: *dense*, where a thread moves 16 bytes per operand at a time, and *strided*, where it computes the
// offsets of one element by the divisions of StridedLayout. Both call f on the same numbers.

namespace vox::cuda {

/// An input as kernels read it: memory, or a number that came by value.
template <class T>
struct Operand {
  const T* data;  // null: the number
  T number;
  __device__ T operator[](int64_t i) const { return data ? data[i] : number; }
};

/// A tensor of another device than the output's is a number operand of ops/elementwise_kernels.h.
template <class T>
Operand<T> operand(const Tensor& x, const Tensor& y) {
  if (x.device() == y.device()) return {static_cast<const T*>(x.impl()->data()), T{}};
  return {nullptr, *static_cast<const T*>(x.impl()->data())};
}
/// What Launch is to take note of: nothing for a number.
inline const Tensor* in_memory(const Tensor& x, const Tensor& y) {
  return x.device() == y.device() ? &x : nullptr;
}

template <class T>
struct alignas(16) Packet {
  static constexpr int size = 16 / sizeof(T);
  T lane[size];
};
inline bool is_packet_aligned(const void* p) { return reinterpret_cast<uintptr_t>(p) % 16 == 0; }

template <class T>
__device__ Packet<T> load_packet(const Operand<T>& x, int64_t packet) {
  if (x.data) return reinterpret_cast<const Packet<T>*>(x.data)[packet];
  Packet<T> numbers;
#pragma unroll
  for (T& lane : numbers.lane) lane = x.number;
  return numbers;
}

/// Thread p computes packet p; the last one, if it is not full, element by element.
template <class T, class F>
struct DenseUnary {
  int64_t numel;
  Operand<T> x;
  T* y;
  F f;
  __device__ void operator()(int64_t p) const {
    constexpr int size = Packet<T>::size;
    if ((p + 1) * size <= numel) {
      const Packet<T> in = load_packet(x, p);
      Packet<T> out;
#pragma unroll
      for (int i = 0; i < size; ++i) out.lane[i] = f(in.lane[i]);
      reinterpret_cast<Packet<T>*>(y)[p] = out;
    } else {
      for (int64_t i = p * size; i < numel; ++i) y[i] = f(x[i]);
    }
  }
};
template <class T, class F>
struct DenseBinary {
  int64_t numel;
  Operand<T> a, b;
  T* y;
  F f;
  __device__ void operator()(int64_t p) const {
    constexpr int size = Packet<T>::size;
    if ((p + 1) * size <= numel) {
      const Packet<T> left = load_packet(a, p), right = load_packet(b, p);
      Packet<T> out;
#pragma unroll
      for (int i = 0; i < size; ++i) out.lane[i] = f(left.lane[i], right.lane[i]);
      reinterpret_cast<Packet<T>*>(y)[p] = out;
    } else {
      for (int64_t i = p * size; i < numel; ++i) y[i] = f(a[i], b[i]);
    }
  }
};

template <class T, class F>
struct StridedUnary {
  detail::StridedLayout<2> layout;
  Operand<T> x;
  T* y;
  F f;
  __device__ void operator()(int64_t i) const {
    const auto at = layout.offsets(i);
    y[at[0]] = f(x[at[1]]);
  }
};
template <class T, class F>
struct StridedBinary {
  detail::StridedLayout<3> layout;
  Operand<T> a, b;
  T* y;
  F f;
  __device__ void operator()(int64_t i) const {
    const auto at = layout.offsets(i);
    y[at[0]] = f(a[at[1]], b[at[2]]);
  }
};

/// Whether operand k of the layout can be read, or written, in packets.
template <int N, class T>
bool takes_packets(const detail::StridedLayout<N>& layout, int k, const T* data) {
  return !data || (layout.is_dense(k) && is_packet_aligned(data));
}

/// y = f(x). T may be another type than the tensors' dtype, of the same size (unsigned for signed).
template <class T, class F>
void map(const char* op, F f, const Tensor& x, const Tensor& y) {
  const Launch launch(op, y, {in_memory(x, y)});
  const auto layout = detail::strided_layout(y, x);
  const Operand<T> in = operand<T>(x, y);
  T* const out = static_cast<T*>(y.impl()->data());
  if (layout.rank <= 1 && takes_packets(layout, 0, out) && takes_packets(layout, 1, in.data)) {
    const int64_t packets = layout.numel / Packet<T>::size + (layout.numel % Packet<T>::size != 0);
    for_each_index(launch, packets, DenseUnary<T, F>{layout.numel, in, out, f});
  } else {
    for_each_index(launch, layout.numel, StridedUnary<T, F>{layout, in, out, f});
  }
}

/// y = f(a, b), likewise.
template <class T, class F>
void map(const char* op, F f, const Tensor& a, const Tensor& b, const Tensor& y) {
  const Launch launch(op, y, {in_memory(a, y), in_memory(b, y)});
  const auto layout = detail::strided_layout(y, a, b);
  const Operand<T> left = operand<T>(a, y), right = operand<T>(b, y);
  T* const out = static_cast<T*>(y.impl()->data());
  if (layout.rank <= 1 && takes_packets(layout, 0, out) && takes_packets(layout, 1, left.data) &&
      takes_packets(layout, 2, right.data)) {
    const int64_t packets = layout.numel / Packet<T>::size + (layout.numel % Packet<T>::size != 0);
    for_each_index(launch, packets, DenseBinary<T, F>{layout.numel, left, right, out, f});
  } else {
    for_each_index(launch, layout.numel, StridedBinary<T, F>{layout, left, right, out, f});
  }
}

}  // namespace vox::cuda
