#include <voxgrad/core/allocator.h>
#include <voxgrad/core/check.h>
#include <voxgrad/core/storage.h>

namespace vox {

namespace {
/// There is one CPU. cuda::allocate() and from_blob() check the indices of CUDA devices.
void check_cpu_index(Device device) {
  check<DeviceError>(device.is_cuda() || device.index == 0, "Storage: a CPU device has index 0, got ",
                     device.index);
}
}  // namespace

std::shared_ptr<Storage> Storage::allocate(int64_t bytes, Device device) {
  check_cpu_index(device);
  std::shared_ptr<Storage> storage(new Storage(nullptr, bytes, device, nullptr, false));
  if (bytes > 0) storage->data_ = detail::allocate(bytes, device);  // last: what was made before owns it
  return storage;
}

std::shared_ptr<Storage> Storage::adopt(void* data, int64_t bytes, Device device,
                                        std::function<void(void*)> deleter, bool read_only) {
  check_cpu_index(device);
  if (!deleter) deleter = [](void*) {};
  return std::shared_ptr<Storage>(new Storage(data, bytes, device, std::move(deleter), read_only));
}

Storage::~Storage() {
  if (deleter_)
    deleter_(data_);
  else if (data_)
    detail::deallocate(data_, bytes_, device_);
}

}  // namespace vox
