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

/// Empty, because no stream or graph can be made.
class StreamImpl {};
class GraphImpl {};

bool is_available() noexcept { return false; }
int device_count() noexcept { return 0; }

void check_device(const char* function, int) { absent(function); }
void* allocate(int64_t, int) { absent("allocate"); }
void deallocate(void*, int) noexcept {}
int device_of(const char* function, const void*) { absent(function); }
void note_use(const void*, int) { absent("note_use"); }
void* allocate_pinned(int64_t) { absent("allocate_pinned"); }
void deallocate_pinned(void*) noexcept {}
void copy(void*, int, const void*, int, int64_t, CopyKind) { absent("copy"); }

std::string device_name(Device) { absent("device_name"); }
DeviceMemory device_memory(Device) { absent("device_memory"); }

Event::Event(Device) { absent("Event"); }
void Event::record() const { absent("Event::record"); }
void Event::record(const Stream&) const { absent("Event::record"); }
bool Event::is_done() const { absent("Event::is_done"); }
void Event::synchronize() const { absent("Event::synchronize"); }
double Event::milliseconds_since(const Event&) const { absent("Event::milliseconds_since"); }
Graph::Graph(const std::function<void()>&, Device) { absent("Graph"); }
void Graph::replay() const { absent("Graph::replay"); }

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

StreamGuard::StreamGuard(Stream stream) : stream_(stream), previous_(nullptr) {
  static_cast<void>(previous_);  // Clang warns of a private member that no function uses
  absent("StreamGuard");
}
StreamGuard::~StreamGuard() = default;

}  // namespace vox::cuda
