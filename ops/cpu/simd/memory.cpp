// Copies, transpositions and conversions of memory.

#include <voxgrad/core/half.h>
#include <voxgrad/ops/cpu/simd/memory.h>
#include <voxgrad/ops/cpu/simd/stream.h>
#include <voxgrad/ops/cpu/simd/transpose.h>

namespace vox::cpu::simd::VOXGRAD_ISA {

namespace {

void copy(const char* from, char* to, int64_t bytes, bool stream) { copy_run(from, to, bytes, stream); }

template <class T>
void one_by_one(const T* from, int64_t from_step, int64_t rows, int64_t columns, T* to, int64_t to_step) {
  for (int64_t i = 0; i < columns; ++i) {
    for (int64_t r = 0; r < rows; ++r) to[i * to_step + r] = from[r * from_step + i];
  }
}

// ---- float16 ---------------------------------------------------------------------------------------------

void widen(const uint16_t* from, float* to, int64_t n) {
  for (int64_t i = 0; i < n; ++i) to[i] = vox::detail::float16_value(from[i]);
}
void narrow(const float* from, uint16_t* to, int64_t n) {
  for (int64_t i = 0; i < n; ++i) to[i] = vox::detail::float16_bits(from[i]);
}

}  // namespace

const CopyKernels copy_kernels{copy};
const HalfKernels half_kernels{widen, narrow};
const TransposeKernels transpose_kernels{one_by_one<uint8_t>, one_by_one<uint16_t>, transpose<uint32_t>,
                                         transpose<uint64_t>};

}  // namespace vox::cpu::simd::VOXGRAD_ISA
