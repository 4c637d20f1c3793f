// load_npz on bytes that start like a zip archive, load_npy on others: they refuse them with an IoError, or
// read tensors. The seeds were written by NumPy.
#include <voxgrad/core/check.h>
#include <voxgrad/nn/npy.h>

#include <cstdint>
#include <sstream>

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string bytes(reinterpret_cast<const char*>(data), size);
  std::istringstream in(bytes);
  try {
    if (bytes.starts_with("PK"))
      vox::nn::detail::read_npz(in, static_cast<int64_t>(size), "fuzz");
    else
      vox::nn::detail::read_npy(in, static_cast<int64_t>(size), "fuzz").contiguous();
  } catch (const vox::IoError&) {
  }
  return 0;
}
