#include <voxgrad/core/generator.h>

namespace vox {

Generator& default_generator() {
  static Generator generator;
  return generator;
}

void manual_seed(uint64_t seed) { default_generator().set_seed(seed); }

}  // namespace vox
