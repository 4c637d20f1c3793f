#pragma once

#include <cstdint>

// The tensor-core instructions of a warpgroup: Hopper only (code=sm_90a), so that every kernel that uses them
// keeps its body within #ifdef __CUDA_ARCH_FEAT_SM90_ALL. PTX ISA, "Asynchronous Warpgroup Level Matrix
// Instructions".
//
// All 128 threads of a warpgroup, four warps from a warp whose number is a multiple of 4, call them together:
//
//   wgmma_fence();                    // once before the first, and after registers were written by hand
//   wgmma<Operand::tf32, 48>(...);    // as many as one likes: they run one after the other, asynchronously
//   wgmma_commit();                   // closes a group
//   wgmma_wait<0>();                  // at most so many groups still run; then accumulators may be read
//
// What ordinary stores wrote to shared memory is seen by them after fence_proxy_async() in each thread that
// wrote and a barrier.

namespace vox::cuda::ptx {

/// What the factors are: tf32 (bits of an f32, 8 of them to a k), bf16 or f16 (16 to a k). Sums are f32.
enum class Operand { tf32, bf16, f16 };

/// How a 16-bit matrix lies in shared memory: with k contiguous, or with its rows (m or n) contiguous. TF32
/// is k-major only.
enum class Major { k, mn };

/// Names a matrix in shared memory without swizzle. It consists of core matrices, 8 rows of 16 bytes, each
/// 128 contiguous bytes. For a k-major one a row is an m (or n), `k_bytes` is the distance from one core
/// matrix to the next along k, and `mn_bytes` along m (or n): the "leading" and the "stride" offset of the
/// PTX ISA. (For a matrix that is contiguous in m or n, see there.) Everything is a multiple of 16 bytes,
/// and below 256 KiB.
__device__ __forceinline__ uint64_t shared_matrix(const void* start, uint32_t k_bytes, uint32_t mn_bytes) {
  const auto address = static_cast<uint32_t>(__cvta_generic_to_shared(start));
  return uint64_t{(address & 0x3ffff) >> 4} | uint64_t{k_bytes >> 4} << 16 | uint64_t{mn_bytes >> 4} << 32;
}

/// The same matrix `bytes` further on, a multiple of 16.
__device__ __forceinline__ uint64_t moved(uint64_t matrix, uint32_t bytes) { return matrix + (bytes >> 4); }

__device__ __forceinline__ void wgmma_fence() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
__device__ __forceinline__ void wgmma_commit() {
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}
template <int running>
__device__ __forceinline__ void wgmma_wait() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(running) : "memory");
}

/// Makes what this thread stored to shared memory visible to wgmma and bulk copies.
__device__ __forceinline__ void fence_proxy_async() {
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

/// Gives registers of the calling warpgroup back, or asks for more; a multiple of 8.
template <int registers>
__device__ __forceinline__ void shrink_registers_to() {
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(registers));
}
template <int registers>
__device__ __forceinline__ void grow_registers_to() {
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(registers));
}

namespace detail {

template <int n>
struct Wgmma;

// Inline PTX wants each accumulator by name: "%0, %1, ..." and "+f"(d[0]), "+f"(d[1]), ...

#define VOX_NAMES_4 "%0,%1,%2,%3"
#define VOX_NAMES_8 VOX_NAMES_4 ",%4,%5,%6,%7"
#define VOX_NAMES_12 VOX_NAMES_8 ",%8,%9,%10,%11"
#define VOX_NAMES_16 VOX_NAMES_12 ",%12,%13,%14,%15"
#define VOX_NAMES_20 VOX_NAMES_16 ",%16,%17,%18,%19"
#define VOX_NAMES_24 VOX_NAMES_20 ",%20,%21,%22,%23"
#define VOX_NAMES_32 VOX_NAMES_24 ",%24,%25,%26,%27,%28,%29,%30,%31"
#define VOX_NAMES_36 VOX_NAMES_32 ",%32,%33,%34,%35"
#define VOX_NAMES_40 VOX_NAMES_36 ",%36,%37,%38,%39"
#define VOX_NAMES_48 VOX_NAMES_40 ",%40,%41,%42,%43,%44,%45,%46,%47"
#define VOX_NAMES_64 VOX_NAMES_48 ",%48,%49,%50,%51,%52,%53,%54,%55,%56,%57,%58,%59,%60,%61,%62,%63"
#define VOX_NAMES_72 VOX_NAMES_64 ",%64,%65,%66,%67,%68,%69,%70,%71"
#define VOX_NAMES_80 VOX_NAMES_72 ",%72,%73,%74,%75,%76,%77,%78,%79"
#define VOX_NAMES_96 VOX_NAMES_80 ",%80,%81,%82,%83,%84,%85,%86,%87,%88,%89,%90,%91,%92,%93,%94,%95"
#define VOX_NAMES_128                                                                       \
  VOX_NAMES_96                                                                              \
  ",%96,%97,%98,%99,%100,%101,%102,%103,%104,%105,%106,%107,%108,%109,%110,%111,%112,%113," \
  "%114,%115,%116,%117,%118,%119,%120,%121,%122,%123,%124,%125,%126,%127"

#define VOX_SUMS_4_FROM(i) "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3])
#define VOX_SUMS_8_FROM(i) VOX_SUMS_4_FROM(i), VOX_SUMS_4_FROM(i + 4)
#define VOX_SUMS_16_FROM(i) VOX_SUMS_8_FROM(i), VOX_SUMS_8_FROM(i + 8)
#define VOX_SUMS_4 VOX_SUMS_4_FROM(0)
#define VOX_SUMS_8 VOX_SUMS_8_FROM(0)
#define VOX_SUMS_12 VOX_SUMS_8, VOX_SUMS_4_FROM(8)
#define VOX_SUMS_16 VOX_SUMS_16_FROM(0)
#define VOX_SUMS_20 VOX_SUMS_16, VOX_SUMS_4_FROM(16)
#define VOX_SUMS_24 VOX_SUMS_16, VOX_SUMS_8_FROM(16)
#define VOX_SUMS_32 VOX_SUMS_16, VOX_SUMS_16_FROM(16)
#define VOX_SUMS_36 VOX_SUMS_32, VOX_SUMS_4_FROM(32)
#define VOX_SUMS_40 VOX_SUMS_32, VOX_SUMS_8_FROM(32)
#define VOX_SUMS_48 VOX_SUMS_32, VOX_SUMS_16_FROM(32)
#define VOX_SUMS_64 VOX_SUMS_48, VOX_SUMS_16_FROM(48)
#define VOX_SUMS_72 VOX_SUMS_64, VOX_SUMS_8_FROM(64)
#define VOX_SUMS_80 VOX_SUMS_64, VOX_SUMS_16_FROM(64)
#define VOX_SUMS_96 VOX_SUMS_80, VOX_SUMS_16_FROM(80)
#define VOX_SUMS_128 VOX_SUMS_96, VOX_SUMS_16_FROM(96), VOX_SUMS_16_FROM(112)

// The instruction with n columns: r = n / 2 accumulators a thread, and the numbers that follow r.
#define VOX_WGMMA(n, r, r1, r2, r3, r4, r5, r6)                                                              \
  template <>                                                                                                \
  struct Wgmma<n> {                                                                                          \
    template <Operand operand, Major a_major, Major b_major>                                                 \
    static __device__ __forceinline__ void run(float* d, uint64_t a, uint64_t b, int accumulate) {           \
      if constexpr (operand == Operand::tf32)                                                                \
        asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %" #r2 ", 0;\nwgmma.mma_async.sync.aligned.m64n" #n   \
                     "k8.f32.tf32.tf32 {" VOX_NAMES_##r "}, %" #r ", %" #r1 ", p, 1, 1;\n}"                  \
                     : VOX_SUMS_##r                                                                          \
                     : "l"(a), "l"(b), "r"(accumulate));                                                     \
      else if constexpr (operand == Operand::bf16)                                                           \
        asm volatile(                                                                                        \
            "{\n.reg .pred p;\nsetp.ne.b32 p, %" #r2 ", 0;\nwgmma.mma_async.sync.aligned.m64n" #n            \
            "k16.f32.bf16.bf16 {" VOX_NAMES_##r "}, %" #r ", %" #r1 ", p, 1, 1, %" #r3 ", %" #r4 ";\n}"      \
            : VOX_SUMS_##r                                                                                   \
            : "l"(a), "l"(b), "r"(accumulate), "n"(a_major == Major::mn), "n"(b_major == Major::mn));        \
      else                                                                                                   \
        asm volatile(                                                                                        \
            "{\n.reg .pred p;\nsetp.ne.b32 p, %" #r2 ", 0;\nwgmma.mma_async.sync.aligned.m64n" #n            \
            "k16.f32.f16.f16 {" VOX_NAMES_##r "}, %" #r ", %" #r1 ", p, 1, 1, %" #r3 ", %" #r4 ";\n}"        \
            : VOX_SUMS_##r                                                                                   \
            : "l"(a), "l"(b), "r"(accumulate), "n"(a_major == Major::mn), "n"(b_major == Major::mn));        \
    }                                                                                                        \
    template <Operand operand, Major b_major>                                                                \
    static __device__ __forceinline__ void run(float* d, const uint32_t (&a)[4], uint64_t b,                 \
                                               int accumulate) {                                             \
      if constexpr (operand == Operand::tf32)                                                                \
        asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %" #r5 ", 0;\nwgmma.mma_async.sync.aligned.m64n" #n   \
                     "k8.f32.tf32.tf32 {" VOX_NAMES_##r "}, {%" #r ", %" #r1 ", %" #r2 ", %" #r3 "}, %" #r4  \
                                                        ", p, 1, 1;\n}"                                      \
                     : VOX_SUMS_##r                                                                          \
                     : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(accumulate));                 \
      else if constexpr (operand == Operand::bf16)                                                           \
        asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %" #r5 ", 0;\nwgmma.mma_async.sync.aligned.m64n" #n   \
                     "k16.f32.bf16.bf16 {" VOX_NAMES_##r "}, {%" #r ", %" #r1 ", %" #r2 ", %" #r3 "}, %" #r4 \
                                                         ", p, 1, 1, %" #r6 ";\n}"                           \
                     : VOX_SUMS_##r                                                                          \
                     : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(accumulate),                  \
                       "n"(b_major == Major::mn));                                                           \
      else                                                                                                   \
        asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %" #r5 ", 0;\nwgmma.mma_async.sync.aligned.m64n" #n   \
                     "k16.f32.f16.f16 {" VOX_NAMES_##r "}, {%" #r ", %" #r1 ", %" #r2 ", %" #r3 "}, %" #r4   \
                                                       ", p, 1, 1, %" #r6 ";\n}"                             \
                     : VOX_SUMS_##r                                                                          \
                     : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(accumulate),                  \
                       "n"(b_major == Major::mn));                                                           \
    }                                                                                                        \
  };

VOX_WGMMA(8, 4, 5, 6, 7, 8, 9, 10)
VOX_WGMMA(16, 8, 9, 10, 11, 12, 13, 14)
VOX_WGMMA(24, 12, 13, 14, 15, 16, 17, 18)
VOX_WGMMA(32, 16, 17, 18, 19, 20, 21, 22)
VOX_WGMMA(40, 20, 21, 22, 23, 24, 25, 26)
VOX_WGMMA(48, 24, 25, 26, 27, 28, 29, 30)
VOX_WGMMA(64, 32, 33, 34, 35, 36, 37, 38)
VOX_WGMMA(72, 36, 37, 38, 39, 40, 41, 42)
VOX_WGMMA(80, 40, 41, 42, 43, 44, 45, 46)
VOX_WGMMA(96, 48, 49, 50, 51, 52, 53, 54)
VOX_WGMMA(128, 64, 65, 66, 67, 68, 69, 70)
VOX_WGMMA(144, 72, 73, 74, 75, 76, 77, 78)
VOX_WGMMA(160, 80, 81, 82, 83, 84, 85, 86)
VOX_WGMMA(192, 96, 97, 98, 99, 100, 101, 102)
VOX_WGMMA(256, 128, 129, 130, 131, 132, 133, 134)

#undef VOX_WGMMA

}  // namespace detail

/// d (64 x n, f32) = a (64 x k) * b (k x n), plus d itself if `accumulate` (of all threads alike). k is 32
/// bytes of the operand. `d` points to n / 2 registers of the thread, and has to be an array, or a part of
/// one that begins at a compile-time index. With warp = thread / 32 within the warpgroup, row = lane / 4 and
/// pair = lane % 4, d[4 j + 2 h + e] is element (16 warp + row + 8 h, 8 j + 2 pair + e).
template <Operand operand, int n, Major a_major = Major::k, Major b_major = Major::k>
__device__ __forceinline__ void wgmma(float* d, uint64_t a, uint64_t b, bool accumulate = true) {
  detail::Wgmma<n>::template run<operand, a_major, b_major>(d, a, b, accumulate);
}

/// The same with a from registers: for TF32 a thread holds (row, pair), (row + 8, pair), (row, pair + 4),
/// (row + 8, pair + 4) of its warp's 16 x 8; for 16 bits, pairs of neighbours in k at (row, 2 pair), (row +
/// 8, 2 pair), (row, 2 pair + 8), (row + 8, 2 pair + 8) of its warp's 16 x 16. The registers must not be
/// written before wgmma_wait has seen the instruction off.
template <Operand operand, int n, Major b_major = Major::k>
__device__ __forceinline__ void wgmma(float* d, const uint32_t (&a)[4], uint64_t b, bool accumulate = true) {
  detail::Wgmma<n>::template run<operand, b_major>(d, a, b, accumulate);
}

}  // namespace vox::cuda::ptx
