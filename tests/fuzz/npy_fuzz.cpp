#include <voxgrad/core/check.h>
#include <voxgrad/nn/npy.h>

#include <cstdint>
#include <sstream>

// Bytes as an .npz file if they start like one, else as an .npy file. Whatever they are, only IoError may
// come out. The seeds in corpus/npy were written by NumPy.

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string bytes(reinterpret_cast<const char*>(data), size);
  std::istringstream in(bytes);
  try {
    if (bytes.starts_with("PK"))
      vox::nn::detail::read_npz(in, static_cast<int64_t>(size), "fuzz");
    else
      vox::nn::detail::read_npy(in, static_cast<int64_t>(size), "fuzz");
  } catch (const vox::IoError&) {
  }
  return 0;
}
