#pragma once

#include <cstdint>

#include <voxgrad/cuda/runtime/launch.h>
#include <voxgrad/ops/layout.h>
#include <voxgrad/cuda/for_each_index.cuh>

// y = f(x) and y = f(a, b), element by element: memory-bound, each byte read and written once. Two kernels an
// op: *dense*, where a thread moves 16 bytes per operand at a time, and *strided*, where it computes the
// offsets of one element by the divisions of StridedLayout. Both call f on the same numbers. T is what memory
// holds; f is a function of opmath_t<T>, floats where T has 16 bits.

namespace vox::cuda {

/// An input as kernels read it: memory, or a number that came by value.
template <class T>
struct Operand {
  const T* data;  // null: the number
  opmath_t<T> number;
  __device__ opmath_t<T> operator[](int64_t i) const { return data ? data[i] : number; }
};

/// A tensor of another device than the output's is a number operand of ops/kernels.h; it may be
/// of the dtype that T is computed in.
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

/// A packet as f takes it.
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
      const Lanes<T> in = load_lanes(x, p);
      Packet<T> out;
#pragma unroll
      for (int i = 0; i < size; ++i) out.lane[i] = T(f(in.lane[i]));
      reinterpret_cast<Packet<T>*>(y)[p] = out;
    } else {
      for (int64_t i = p * size; i < numel; ++i) y[i] = T(f(x[i]));
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
      const Lanes<T> left = load_lanes(a, p), right = load_lanes(b, p);
      Packet<T> out;
#pragma unroll
      for (int i = 0; i < size; ++i) out.lane[i] = T(f(left.lane[i], right.lane[i]));
      reinterpret_cast<Packet<T>*>(y)[p] = out;
    } else {
      for (int64_t i = p * size; i < numel; ++i) y[i] = T(f(a[i], b[i]));
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
    y[at[0]] = T(f(x[at[1]]));
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
    y[at[0]] = T(f(a[at[1]], b[at[2]]));
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
