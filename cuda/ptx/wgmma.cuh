#pragma once

#include <cstdint>

#include <voxgrad/cuda/ptx/shared.cuh>

// The tensor-core instructions of a warpgroup. They exist on Hopper only (code=sm_90a), so every kernel that
// uses them keeps its body within #ifdef __CUDA_ARCH_FEAT_SM90_ALL. PTX ISA, "Asynchronous Warpgroup Level
// Matrix Instructions".
//
// All 128 threads of a warpgroup (four warps, the first with a number that is a multiple of 4) call them
// together:
//
//   wgmma_fence();                    // before the first, and after other writes to its registers
//   wgmma<Operand::tf32, 48>(...);    // any number: they run one after the other, asynchronously
//   wgmma_commit();                   // closes a group
//   wgmma_wait<0>();                  // at most so many groups still run; then accumulators may be read
//
// To make ordinary stores to shared memory visible to them, use a barrier between the writers and the
// warpgroup, and fence_proxy_async(): either in each writing thread before the barrier, or in each thread of
// the warpgroup after it (where the fence would make writers wait longer).

namespace vox::cuda::ptx {

/// The type of the factors: tf32 (an f32 whose low bits are ignored; k is 8), bf16 or f16 (k is 16). Sums are
/// f32.
enum class Operand { tf32, bf16, f16 };

/// Describes a matrix in shared memory that is contiguous in k, without swizzle. It consists of core
/// matrices: 8 rows (each an m, or n) of 16 bytes, 128 contiguous bytes in all. `k_bytes` is the distance
/// from one core matrix to the next along k, and `mn_bytes` along m (or n): the "leading" and the "stride"
/// offset of the PTX ISA. All are multiples of 16 bytes, and below 256 KiB.
__device__ __forceinline__ uint64_t shared_matrix(const void* start, uint32_t k_bytes, uint32_t mn_bytes) {
  const uint32_t address = shared_address_of(start);
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

/// Releases registers of the calling warpgroup, or requests more; a multiple of 8.
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

// Inline PTX names each accumulator: "%0, %1, ..." and "+f"(d[0]), "+f"(d[1]), ...

#define VOX_NAMES_4 "%0,%1,%2,%3"
#define VOX_NAMES_8 VOX_NAMES_4 ",%4,%5,%6,%7"
#define VOX_NAMES_12 VOX_NAMES_8 ",%8,%9,%10,%11"
#define VOX_NAMES_16 VOX_NAMES_12 ",%12,%13,%14,%15"
#define VOX_NAMES_24 VOX_NAMES_16 ",%16,%17,%18,%19,%20,%21,%22,%23"
#define VOX_NAMES_32 VOX_NAMES_24 ",%24,%25,%26,%27,%28,%29,%30,%31"
#define VOX_NAMES_36 VOX_NAMES_32 ",%32,%33,%34,%35"
#define VOX_NAMES_40 VOX_NAMES_36 ",%36,%37,%38,%39"
#define VOX_NAMES_48 VOX_NAMES_40 ",%40,%41,%42,%43,%44,%45,%46,%47"
#define VOX_NAMES_64 \
  VOX_NAMES_48       \
  ",%48,%49,%50,%51,%52,%53,%54,%55,%56,%57,%58,%59,%60,%61,%62,%63"
#define VOX_NAMES_72                                 \
  VOX_NAMES_48                                       \
  ",%48,%49,%50,%51,%52,%53,%54,%55,%56,%57,%58,%59" \
  ",%60,%61,%62,%63,%64,%65,%66,%67,%68,%69,%70,%71"
#define VOX_NAMES_80 VOX_NAMES_72 ",%72,%73,%74,%75,%76,%77,%78,%79"
#define VOX_NAMES_96                                 \
  VOX_NAMES_80                                       \
  ",%80,%81,%82,%83,%84,%85,%86,%87,%88,%89,%90,%91" \
  ",%92,%93,%94,%95"
#define VOX_NAMES_128                                   \
  VOX_NAMES_96                                          \
  ",%96,%97,%98,%99,%100,%101,%102,%103,%104,%105,%106" \
  ",%107,%108,%109,%110,%111,%112,%113,%114,%115,%116"  \
  ",%117,%118,%119,%120,%121,%122,%123,%124,%125,%126,%127"

#define VOX_SUMS_4_FROM(i) "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3])
#define VOX_SUMS_8_FROM(i) VOX_SUMS_4_FROM(i), VOX_SUMS_4_FROM(i + 4)
#define VOX_SUMS_4 VOX_SUMS_4_FROM(0)
#define VOX_SUMS_8 VOX_SUMS_8_FROM(0)
#define VOX_SUMS_12 VOX_SUMS_8, VOX_SUMS_4_FROM(8)
#define VOX_SUMS_16 VOX_SUMS_8, VOX_SUMS_8_FROM(8)
#define VOX_SUMS_24 VOX_SUMS_16, VOX_SUMS_8_FROM(16)
#define VOX_SUMS_32 VOX_SUMS_24, VOX_SUMS_8_FROM(24)
#define VOX_SUMS_36 VOX_SUMS_32, VOX_SUMS_4_FROM(32)
#define VOX_SUMS_40 VOX_SUMS_32, VOX_SUMS_8_FROM(32)
#define VOX_SUMS_48 VOX_SUMS_40, VOX_SUMS_8_FROM(40)
#define VOX_SUMS_64 VOX_SUMS_48, VOX_SUMS_8_FROM(48), VOX_SUMS_8_FROM(56)
#define VOX_SUMS_72 VOX_SUMS_64, VOX_SUMS_8_FROM(64)
#define VOX_SUMS_80 VOX_SUMS_72, VOX_SUMS_8_FROM(72)
#define VOX_SUMS_96 VOX_SUMS_80, VOX_SUMS_8_FROM(80), VOX_SUMS_8_FROM(88)
#define VOX_SUMS_128 \
  VOX_SUMS_96, VOX_SUMS_8_FROM(96), VOX_SUMS_8_FROM(104), VOX_SUMS_8_FROM(112), VOX_SUMS_8_FROM(120)

// The instruction with n columns: `types` names k and the factors, `from` the operands that are the factors,
// and `adds` the one that says whether to add to the sums; `majors`, of the 16-bit forms only, says whether
// the matrices are contiguous in m and n instead of k.
#define VOX_ISSUE(n, r, types, from, adds, majors, ...)                                                      \
  asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %" #adds ", 0;\nwgmma.mma_async.sync.aligned.m64n" #n types \
               " {" VOX_NAMES_##r "}, " from ", p, 1, 1" majors ";\n}"                                       \
               : VOX_SUMS_##r                                                                                \
               : __VA_ARGS__)
// The same for each type of factors.
#define VOX_ISSUE_TYPES(n, r, from, adds, majors, ...)                     \
  if constexpr (operand == Operand::tf32)                                  \
    VOX_ISSUE(n, r, "k8.f32.tf32.tf32", from, adds, "", __VA_ARGS__);      \
  else if constexpr (operand == Operand::bf16)                             \
    VOX_ISSUE(n, r, "k16.f32.bf16.bf16", from, adds, majors, __VA_ARGS__); \
  else                                                                     \
    VOX_ISSUE(n, r, "k16.f32.f16.f16", from, adds, majors, __VA_ARGS__)

// With n columns: r = n / 2 accumulators of a thread, and the operand numbers that follow r.
#define VOX_WGMMA(n, r, r1, r2, r3, r4, r5)                                                             \
  template <>                                                                                           \
  struct Wgmma<n> {                                                                                     \
    template <Operand operand, bool mn_major>                                                           \
    static __device__ __forceinline__ void run(float* d, uint64_t a, uint64_t b, int accumulate) {      \
      VOX_ISSUE_TYPES(n, r, "%" #r ", %" #r1, r2, ", %" #r3 ", %" #r3, "l"(a), "l"(b), "r"(accumulate), \
                      "n"(int{mn_major}));                                                              \
    }                                                                                                   \
    template <Operand operand>                                                                          \
    static __device__ __forceinline__ void run(float* d, const uint32_t (&a)[4], uint64_t b,            \
                                               int accumulate) {                                        \
      VOX_ISSUE_TYPES(n, r, "{%" #r ", %" #r1 ", %" #r2 ", %" #r3 "}, %" #r4, r5, ", 0", "r"(a[0]),     \
                      "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(accumulate));                        \
    }                                                                                                   \
  };

VOX_WGMMA(8, 4, 5, 6, 7, 8, 9)
VOX_WGMMA(16, 8, 9, 10, 11, 12, 13)
VOX_WGMMA(24, 12, 13, 14, 15, 16, 17)
VOX_WGMMA(32, 16, 17, 18, 19, 20, 21)
VOX_WGMMA(48, 24, 25, 26, 27, 28, 29)
VOX_WGMMA(64, 32, 33, 34, 35, 36, 37)
VOX_WGMMA(72, 36, 37, 38, 39, 40, 41)
VOX_WGMMA(80, 40, 41, 42, 43, 44, 45)
VOX_WGMMA(96, 48, 49, 50, 51, 52, 53)
VOX_WGMMA(128, 64, 65, 66, 67, 68, 69)
VOX_WGMMA(144, 72, 73, 74, 75, 76, 77)
VOX_WGMMA(160, 80, 81, 82, 83, 84, 85)
VOX_WGMMA(192, 96, 97, 98, 99, 100, 101)
VOX_WGMMA(256, 128, 129, 130, 131, 132, 133)

#undef VOX_WGMMA
#undef VOX_ISSUE_TYPES
#undef VOX_ISSUE
#undef VOX_NAMES_4
#undef VOX_NAMES_8
#undef VOX_NAMES_12
#undef VOX_NAMES_16
#undef VOX_NAMES_24
#undef VOX_NAMES_32
#undef VOX_NAMES_36
#undef VOX_NAMES_40
#undef VOX_NAMES_48
#undef VOX_NAMES_64
#undef VOX_NAMES_72
#undef VOX_NAMES_80
#undef VOX_NAMES_96
#undef VOX_NAMES_128
#undef VOX_SUMS_4_FROM
#undef VOX_SUMS_8_FROM
#undef VOX_SUMS_4
#undef VOX_SUMS_8
#undef VOX_SUMS_12
#undef VOX_SUMS_16
#undef VOX_SUMS_24
#undef VOX_SUMS_32
#undef VOX_SUMS_36
#undef VOX_SUMS_40
#undef VOX_SUMS_48
#undef VOX_SUMS_64
#undef VOX_SUMS_72
#undef VOX_SUMS_80
#undef VOX_SUMS_96
#undef VOX_SUMS_128

}  // namespace detail

/// d (64 x n, f32; n is one of those above) = a (64 x k) * b (k x n), plus d itself if `accumulate`, which is
/// the same in all threads. k is 32 bytes of the operand. `d` points to n / 2 registers of the thread: it
/// must be an array, or a part of one that begins at a compile-time index. With warp = thread / 32 within the
/// warpgroup, row = lane / 4 and pair = lane % 4, d[4 j + 2 h + e] is element (16 warp + row + 8 h, 8 j + 2
/// pair + e).
template <Operand operand, int n>
__device__ __forceinline__ void wgmma(float* d, uint64_t a, uint64_t b, bool accumulate = true) {
  detail::Wgmma<n>::template run<operand, false>(d, a, b, accumulate);
}

/// The same, of 16-bit numbers that are contiguous in m in a, and in n in b.
template <Operand operand, int n>
__device__ __forceinline__ void wgmma_mn_major(float* d, uint64_t a, uint64_t b, bool accumulate = true) {
  static_assert(operand != Operand::tf32);
  detail::Wgmma<n>::template run<operand, true>(d, a, b, accumulate);
}

/// The same with a from registers. A thread holds four words of its warp's 16 rows: (row, pair), (row + 8,
/// pair), (row, pair + 4), (row + 8, pair + 4). A word is one TF32 number, or two neighbours of 16 bits. The
/// registers must not be written before wgmma_wait has confirmed that the instruction is done.
template <Operand operand, int n>
__device__ __forceinline__ void wgmma(float* d, const uint32_t (&a)[4], uint64_t b, bool accumulate = true) {
  detail::Wgmma<n>::template run<operand>(d, a, b, accumulate);
}

}  // namespace vox::cuda::ptx
