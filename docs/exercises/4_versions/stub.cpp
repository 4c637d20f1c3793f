#include "docs/exercises/4_versions/exercise.h"

namespace exercise {

void Saved::save(const vox::Tensor& t) {
  // To do: remember the version too, and do not keep the tensor's node alive.
  tensor_ = t;
}

vox::Tensor Saved::get() const {
  // To do: throw vox::GradError if the memory was written in place since save().
  return tensor_;
}

}  // namespace exercise
