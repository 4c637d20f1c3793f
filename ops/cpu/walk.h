#pragma once

#include <cstdint>
#include <type_traits>

#include <voxgrad/core/tensor.h>

// Note [Walks]
//
// Elementwise kernels (ops/cpu/simd) need dense runs. A walk turns operands of any strides into runs, in one
// of three modes:
//
//   direct      Along the innermost dimension, which is long, every operand is dense or repeats one element.
//               The kernel reads and writes the tensors themselves.
//   tiles       An input is dense along another dimension than the output, as after permute. Tiles of both
//               dimensions are transposed into a buffer. While the kernel works through one tile row by row,
//               the next tile is transposed into a second buffer.
//   buffered    All other cases (short rows, slices with steps). 1024 elements at a time are gathered, and
//               scattered.
//
// A walk follows the order of the output's memory; elementwise results do not depend on the order. Kernels
// guarantee that an element's bits do not depend on its place in a run.

namespace vox::cpu {

/// The arguments of a kernel: operand k's elements lie at at[k], next to each other (step 1) or all the same
/// (step 0). Operand 0 is the output, of step 1.
struct Run {
  static constexpr int max_operands = 5;
  char* at[max_operands];
  int64_t step[max_operands];
  int64_t n;
  bool stream;  ///< whether results should bypass the cache, see Note [Streaming]

  template <class T>
  T* pointer(int k) const {
    return reinterpret_cast<T*>(at[k]);
  }
};

/// Outputs of at least this size are written past the cache, because they exceed a core's share of it.
inline constexpr int64_t stream_bytes = int64_t{16} << 20;

/// Orders streamed stores before what this thread does next. Call it at the end of a chunk.
void finish_streaming();

using RunFunction = void (*)(const void* f, const Run& run);
void walk(const Tensor* const* operands, int count, RunFunction function, const void* f);

/// Calls f(run) for runs of the output and the inputs, in parallel; together they cover every element once.
/// All have one shape. The output does not overlap itself, and an input is the output itself or does not
/// overlap it.
template <class F, class... Inputs>
void for_runs(const F& f, const Tensor& output, const Inputs&... inputs) {
  const Tensor* operands[] = {&output, &inputs...};
  static_assert(sizeof...(inputs) < Run::max_operands);
  walk(
      operands, 1 + static_cast<int>(sizeof...(inputs)),
      [](const void* body, const Run& run) { (*static_cast<const F*>(body))(run); }, &f);
}

}  // namespace vox::cpu
