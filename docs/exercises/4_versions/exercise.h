#pragma once

#include <cstdint>

#include <voxgrad/core/tensor.h>

namespace exercise {

/// A tensor that a node keeps for its backward. It shares the tensor's memory and keeps no node alive.
class Saved {
 public:
  void save(const vox::Tensor& t);

  /// The tensor. Throws vox::GradError if its memory was written in place since it was saved.
  vox::Tensor get() const;

 private:
  vox::Tensor tensor_;
  uint64_t version_ = 0;
};

}  // namespace exercise
