#include <voxgrad/ops/precision.h>

#include <atomic>

namespace vox {

namespace {
std::atomic<Float32Precision> of_process{Float32Precision::highest};
thread_local int of_thread = -1;  // this thread's Float32Precision, or -1 to use that of the process
}  // namespace

void set_float32_precision(Float32Precision precision) { of_process = precision; }

Float32Precision float32_precision() {
  return of_thread < 0 ? of_process.load() : static_cast<Float32Precision>(of_thread);
}

PrecisionGuard::PrecisionGuard(Float32Precision precision) : previous_(of_thread) {
  of_thread = static_cast<int>(precision);
}
PrecisionGuard::~PrecisionGuard() { of_thread = previous_; }

}  // namespace vox
