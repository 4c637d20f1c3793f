#pragma once

#include <algorithm>
#include <cstdint>
#include <tuple>
#include <utility>

#include <Eigen/Core>

#include <voxgrad/core/parallel.h>
#include <voxgrad/ops/strided.h>

// Note [Blocks]
//
// An element's result must depend on its operands only. But Eigen's vector exp is not its scalar exp, so a
// loop that computes the last few elements, or strided ones, by scalar code changes bits with the layout.
// Here all elements go through one piece of code: 64 elements in logical order are gathered into a dense
// block, from whatever strides, the block is computed as a whole by Eigen's packets, and scattered. The last
// block is computed whole too; its unused lanes hold leftovers.

namespace vox::cpu {

inline constexpr int64_t block_size = 64;
inline constexpr int64_t block_grain = 256 * block_size;  // some 10 microseconds of the cheaper ops

template <class T>
using Block = Eigen::Array<T, block_size, 1>;

/// S is what memory holds: T, or a 16-bit type where T is float.
template <class T, class S, int N>
void gather(const detail::StridedLayout<N>& layout, int k, const S* data, int64_t begin, int64_t count,
            Block<T>& block) {
  T* to = block.data();
  layout.for_runs(k, begin, count, [&](int64_t offset, int64_t length, int64_t stride) {
    const S* from = data + offset;
    if (stride == 1)
      std::copy_n(from, length, to);
    else
      for (int64_t i = 0; i < length; ++i) to[i] = from[i * stride];
    to += length;
  });
}

template <class T, class S, int N>
void scatter(const detail::StridedLayout<N>& layout, int k, const Block<T>& block, int64_t begin,
             int64_t count, S* data) {
  const T* from = block.data();
  layout.for_runs(k, begin, count, [&](int64_t offset, int64_t length, int64_t stride) {
    S* to = data + offset;
    if (stride == 1)
      std::transform(from, from + length, to, [](T x) { return static_cast<S>(x); });
    else
      for (int64_t i = 0; i < length; ++i) to[i * stride] = static_cast<S>(from[i]);
    from += length;
  });
}

/// Calls f(memory of t) with the type that it holds: T, or a 16-bit one that T is to stand in for.
template <class T, class F>
void with_memory(const Tensor& t, F f) {
  if constexpr (std::is_same_v<T, float>) {
    if (t.dtype() == bf16) return f(detail::mutable_ptr<bfloat16>(t));
    if (t.dtype() == f16) return f(detail::mutable_ptr<float16>(t));
  }
  f(detail::mutable_ptr<T>(t));
}

/// y = f(inputs...) block by block, on all threads: `f(const Block<X>&..., Block<Y>&)`. The types are given
/// by name: `map_blocks<float, float>(y, f, a, b)` has inputs of type float and output of type float. Tensors
/// of bf16 and f16 are read as floats, and rounded into.
template <class Y, class X, class F, class... Inputs>
void map_blocks(const Tensor& y, const F& f, const Inputs&... inputs) {
  constexpr size_t n = sizeof...(inputs);
  const auto layout = detail::strided_layout(y, inputs...);
  const Tensor* data[] = {&inputs...};
  parallel_for(layout.numel, block_grain, [&](int64_t begin, int64_t end) {
    Block<X> in[n];
    Block<Y> out;
    for (Block<X>& block : in) block.setZero();
    for (; begin < end; begin += block_size) {
      const int64_t count = std::min(block_size, end - begin);
      for (size_t k = 0; k < n; ++k) {
        with_memory<X>(*data[k], [&](const auto* memory) {
          gather(layout, static_cast<int>(k) + 1, memory, begin, count, in[k]);
        });
      }
      [&]<size_t... K>(std::index_sequence<K...>) { f(in[K]..., out); }
      (std::make_index_sequence<n>());
      with_memory<Y>(y, [&](auto* memory) { scatter(layout, 0, out, begin, count, memory); });
    }
  });
}

}  // namespace vox::cpu
