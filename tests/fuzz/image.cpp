// vox::read_image on any bytes, in the format that their first ones name: it refuses them with an IoError, or
// what it reads survives vox::write_image and vox::read_image.
#include <voxgrad/image/image.h>

#include <cstdlib>
#include <cstring>
#include <string_view>

#include "tests/fuzz/scratch.h"

namespace {

const char* name_of(std::string_view bytes) {
  if (bytes.starts_with("\x1f\x8b")) return "a.nii.gz";
  if (bytes.starts_with("NRRD")) return "a.nrrd";
  return bytes.starts_with("ObjectType") || bytes.starts_with("NDims") ? "a.mha" : "a.nii";
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const vox::testing::ScratchFolder folder;
  const char* name = name_of({reinterpret_cast<const char*>(data), size});
  vox::Image first;
  try {
    first = vox::read_image(folder.write(name, data, size));
  } catch (const vox::IoError&) {
    return 0;
  }
  if (first.data.numel() > 1 << 20) return 0;
  const std::string copy = folder.write("copy.mha", data, 0);
  vox::write_image(copy, first);
  const vox::Image second = vox::read_image(copy);
  const auto bytes = static_cast<size_t>(first.data.numel() * size_of(first.data.dtype()));
  if (first.data.shape() != second.data.shape() || first.data.dtype() != second.data.dtype() ||
      std::memcmp(first.data.impl()->data(), second.data.impl()->data(), bytes) != 0 ||
      first.spacing != second.spacing || first.origin != second.origin || first.direction != second.direction)
    std::abort();
  return 0;
}
