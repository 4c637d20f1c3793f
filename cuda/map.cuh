#pragma once

#include <algorithm>
#include <cstdint>
#include <utility>

#include <voxgrad/cuda/runtime/launch.h>
#include <voxgrad/ops/layout.h>
#include <voxgrad/cuda/for_each_index.cuh>
#include <voxgrad/cuda/packet.cuh>

// map(): y = f(x...), element by element, for any number of inputs, of any types and strides. Memory
// bandwidth is the limit: each byte is read and written once. f is a function of the inputs' opmath_t, which
// is float for 16-bit types; its result is converted to the type of y.
//
// Each op has two kernels. In the first a thread computes a packet of consecutive elements, with loads and
// stores of 16 bytes. That needs rows of whole packets: along the innermost dimension every operand is dense
// or repeats one element, and the rows begin at multiples of 16 bytes. So dense tensors, broadcast operands
// and most slices of volumes qualify. In the second kernel a thread computes one element. Both call f on the
// same numbers.

namespace vox::cuda {

/// An input as kernels read it: memory, or a number passed by value.
template <class T>
struct Operand {
  const T* data;  // null: use the number
  opmath_t<T> number;

  /// n elements from data[at] on, which follow each other (step 1) or are all the same (step 0).
  template <int n>
  __device__ Packet<opmath_t<T>, n> load(int64_t at, int64_t step) const {
    Packet<opmath_t<T>, n> result;
    if (data && (n == 1 || step == 1)) {
      const auto memory = *reinterpret_cast<const Packet<T, n>*>(data + at);
#pragma unroll
      for (int i = 0; i < n; ++i) result.lane[i] = memory.lane[i];
    } else {
      const opmath_t<T> repeated = data ? opmath_t<T>(data[at]) : number;
#pragma unroll
      for (int i = 0; i < n; ++i) result.lane[i] = repeated;
    }
    return result;
  }
};

/// The tensors of a map, with the types of their elements.
template <class T>
struct In {
  const Tensor& tensor;
};
template <class T>
struct Out {
  const Tensor& tensor;
};

/// A tensor on another device than the output is a number operand (ops/kernels.h). Its dtype may be T or
/// opmath_t<T>.
template <class T>
Operand<T> operand(const In<T>& x, const Tensor& y) {
  const void* data = x.tensor.impl()->data();
  if (x.tensor.device() == y.device()) return {static_cast<const T*>(data), opmath_t<T>{}};
  if (is_16_bit_v<T> && x.tensor.dtype() == f32) return {nullptr, *static_cast<const opmath_t<T>*>(data)};
  return {nullptr, *static_cast<const T*>(data)};
}
/// The tensor for Launch to track; null for a number.
inline const Tensor* in_memory(const Tensor& x, const Tensor& y) {
  return x.device() == y.device() ? &x : nullptr;
}

template <int k, class T>
struct Input {
  Operand<T> x;
};

/// Thread p computes elements p * size to p * size + size - 1. If a dense tensor ends with less than a
/// packet, the last thread computes its elements one by one.
template <int size, class F, class Y, class Operands, class... X>
struct Map;
template <int size, class F, class Y, int... k, class... X>
struct Map<size, F, Y, std::integer_sequence<int, k...>, X...> : Input<k, X>... {
  detail::StridedLayout<1 + sizeof...(X)> layout;
  Y* y;
  F f;

  Map(const decltype(layout)& l, Y* out, F function, const Operand<X>&... x)
      : Input<k, X>{x}..., layout(l), y(out), f(function) {}

  __device__ void operator()(int64_t p) const {
    const int64_t first = p * size;
    if (layout.numel - first >= size) {
      compute<size>(first);
    } else {
      for (int64_t i = first; i < layout.numel; ++i) compute<1>(i);
    }
  }

 private:
  template <int n>
  __device__ void compute(int64_t i) const {
    const auto at = layout.offsets(i);
    store<n>(at[0], static_cast<const Input<k, X>&>(*this).x.template load<n>(at[1 + k],
                                                                              layout.strides[1 + k][0])...);
  }
  template <int n, class... C>
  __device__ void store(int64_t at, const Packet<C, n>&... x) const {
    Packet<Y, n> out;
#pragma unroll
    for (int i = 0; i < n; ++i) out.lane[i] = Y(f(x.lane[i]...));
    *reinterpret_cast<Packet<Y, n>*>(y + at) = out;
  }
};

/// Whether operand k of the layout can be moved in packets of `size` elements.
template <int size, int N, class T>
bool moves_in_packets(const detail::StridedLayout<N>& layout, int k, const T* data) {
  const int64_t* strides = layout.strides[k];
  if (!data || (k > 0 && strides[0] == 0)) return true;  // a number, or an input that repeats one element
  bool moves = strides[0] == 1 && is_packet_aligned<T, size>(data);
  for (int d = 1; d < layout.rank; ++d) moves = moves && strides[d] % size == 0;
  return moves;
}

/// y = f(x...)
template <class F, class Y, class... X>
void map(const char* op, F f, Out<Y> y, In<X>... x) {
  // As many elements as the smallest type has in 16 bytes, but no more than 8, to spare registers.
  constexpr int size = std::min<int>(8, 16 / std::min({sizeof(Y), sizeof(X)...}));
  using Operands = std::make_integer_sequence<int, sizeof...(X)>;
  const Launch launch(op, y.tensor, {in_memory(x.tensor, y.tensor)...});
  const auto layout = detail::strided_layout(y.tensor, x.tensor...);
  Y* const out = static_cast<Y*>(y.tensor.impl()->data());
  [[maybe_unused]] int k = 0;
  const bool in_packets = (layout.rank <= 1 || layout.sizes[0] % size == 0) &&
                          moves_in_packets<size>(layout, 0, out) &&
                          (moves_in_packets<size>(layout, ++k, operand(x, y.tensor).data) && ...);
  if (in_packets)
    for_each_index(launch, layout.numel / size + (layout.numel % size != 0),
                   Map<size, F, Y, Operands, X...>(layout, out, f, operand(x, y.tensor)...));
  else
    for_each_index(launch, layout.numel,
                   Map<1, F, Y, Operands, X...>(layout, out, f, operand(x, y.tensor)...));
}

}  // namespace vox::cuda
