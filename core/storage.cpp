#include <voxgrad/core/allocator.h>
#include <voxgrad/core/storage.h>

namespace vox {

std::shared_ptr<Storage> Storage::allocate(int64_t bytes, Device device) {
  void* data = bytes > 0 ? detail::allocate(bytes, device) : nullptr;
  return std::shared_ptr<Storage>(new Storage(data, bytes, device, nullptr));
}

std::shared_ptr<Storage> Storage::adopt(void* data, int64_t bytes, Device device,
                                        std::function<void(void*)> deleter) {
  if (!deleter) deleter = [](void*) {};
  return std::shared_ptr<Storage>(new Storage(data, bytes, device, std::move(deleter)));
}

Storage::~Storage() {
  if (deleter_)
    deleter_(data_);
  else if (data_)
    detail::deallocate(data_, device_);
}

}  // namespace vox
