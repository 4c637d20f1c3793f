#include <voxgrad/ops/cpu/simd/copy.h>
#include <voxgrad/ops/cpu/simd/stream.h>

namespace vox::cpu::simd::VOXGRAD_ISA {
namespace {

void copy(const char* from, char* to, int64_t bytes, bool stream) { copy_run(from, to, bytes, stream); }

}  // namespace

const CopyKernels copy_kernels{copy};

}  // namespace vox::cpu::simd::VOXGRAD_ISA
