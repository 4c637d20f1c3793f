#include <voxgrad/ops/cpu/simd/copy.h>
#include <voxgrad/ops/cpu/simd/stream.h>

namespace vox::cpu::simd::VOXGRAD_ISA {
namespace {

void copy(const char* from, char* to, int64_t bytes, bool stream) {
  const int64_t before = static_cast<int64_t>((0 - reinterpret_cast<uintptr_t>(to)) % cache_line);
  const int64_t lines = (bytes - before) / cache_line * cache_line;
  if (!stream || lines <= 0) {
    std::memcpy(to, from, static_cast<size_t>(bytes));
    return;
  }
  std::memcpy(to, from, static_cast<size_t>(before));
  stream_lines(to + before, from + before, lines);
  std::memcpy(to + before + lines, from + before + lines, static_cast<size_t>(bytes - before - lines));
}

}  // namespace

const CopyKernels copy_kernels{copy};

}  // namespace vox::cpu::simd::VOXGRAD_ISA
