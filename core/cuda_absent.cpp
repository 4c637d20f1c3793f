// The functions of vox::cuda that core and users call, for a build without CUDA. Compiled instead of cuda/.

#include <voxgrad/core/check.h>
#include <voxgrad/core/cuda.h>
#include <voxgrad/core/cuda_memory.h>

namespace vox::cuda {

namespace {

[[noreturn]] void absent(const char* function) {
  throw DeviceError(str(function,
                        ": this build of voxgrad has no CUDA; use Device::cpu(), or configure with ",
                        "-DVOXGRAD_CUDA=ON on a machine with the CUDA toolkit (nvcc) and build again"));
}

}  // namespace

/// Empty, because no stream can be made.
class StreamImpl {};

bool is_available() noexcept { return false; }
int device_count() noexcept { return 0; }

void check_device(const char* function, int) { absent(function); }
void* allocate(int64_t, int) { absent("allocate"); }
void deallocate(void*, int) noexcept {}
void* allocate_pinned(int64_t) { absent("allocate_pinned"); }
void deallocate_pinned(void*) noexcept {}
void copy(void*, int, const void*, int, int64_t, CopyKind) { absent("copy"); }

void synchronize(Device) { absent("synchronize"); }
MemoryStats memory_stats(Device) { absent("memory_stats"); }
void reset_peak_memory_stats(Device) { absent("reset_peak_memory_stats"); }
void empty_cache(Device) { absent("empty_cache"); }

Stream::Stream(Device) { absent("Stream"); }
Stream Stream::borrow(void*, Device) { absent("Stream::borrow"); }
Device Stream::device() const { absent("Stream::device"); }
void* Stream::native_handle() const { absent("Stream::native_handle"); }
void Stream::synchronize() const { absent("Stream::synchronize"); }
void Stream::wait(const Stream&) const { absent("Stream::wait"); }
Stream current_stream(Device) { absent("current_stream"); }

StreamGuard::StreamGuard(Stream stream) : stream_(stream), previous_(nullptr) { absent("StreamGuard"); }
StreamGuard::~StreamGuard() = default;

}  // namespace vox::cuda
