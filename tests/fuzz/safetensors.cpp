// nn::load on any bytes: it refuses them with an IoError, or what it reads survives nn::save and nn::load.
#include <voxgrad/nn/serialize.h>

#include <cstdlib>
#include <cstring>

#include "tests/fuzz/scratch.h"

namespace {

bool same(const vox::Tensor& a, const vox::Tensor& b) {
  if (a.dtype() != b.dtype() || a.shape() != b.shape()) return false;
  const auto bytes = static_cast<size_t>(a.numel() * size_of(a.dtype()));
  return bytes == 0 || std::memcmp(a.impl()->data(), b.impl()->data(), bytes) == 0;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const vox::testing::ScratchFolder folder;
  const std::string path = folder.write("a.safetensors", data, size);
  vox::nn::LoadedFile first;
  try {
    first = vox::nn::load(path);
  } catch (const vox::IoError&) {
    return 0;
  }
  vox::nn::save(path, first.tensors, first.metadata);
  const vox::nn::LoadedFile second = vox::nn::load(path);
  if (second.metadata != first.metadata || second.tensors.size() != first.tensors.size()) std::abort();
  for (const auto& [name, tensor] : first.tensors) {
    if (!same(tensor, second.tensors.at(name))) std::abort();
  }
  return 0;
}
