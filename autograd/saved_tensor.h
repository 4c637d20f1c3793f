#pragma once

#include <cstdint>
#include <memory>

#include <voxgrad/autograd/node.h>

namespace vox::autograd {

/// A tensor that a node keeps for its backward; a named member of the node:
///
///     struct Mul : Node { SavedTensor saved_a_{this}, saved_b_{this}; ... };
///
/// It holds memory, never a node. It remembers only that it was input i or output j of its owner, and get()
/// attaches it to the tape again. So a node that saves its own output makes no cycle.
class SavedTensor {
 public:
  explicit SavedTensor(Node* owner);
  SavedTensor(const SavedTensor&) = delete;
  SavedTensor& operator=(const SavedTensor&) = delete;

  /// Saves an input or output of the owner, a tensor outside the tape, or an undefined one.
  void save(const Tensor& t);

  /// The same for a tensor that only the gradient of input i reads; a constant input has none, so nothing is
  /// saved. A layer with a frozen weight keeps no input.
  void save_for(int64_t i, const Tensor& t);

  /// The tensor, on the tape where it was. Throws GradError if it was freed by an earlier backward, or if its
  /// memory was written since it was saved.
  Tensor get() const;

  /// Whether the tensor was an input or output of the owner; a constant otherwise.
  bool is_constant() const { return role_ == Role::outside; }

  /// Drops the tensor; get() throws from now on.
  void release();

  /// The memory that this keeps alive; null if there is none.
  const Storage* storage() const { return data_.defined() ? data_.impl()->storage.get() : nullptr; }

 private:
  enum class Role { outside, input, output };
  Tensor on_tape() const;  // data_ with its place on the tape

  Node* owner_;
  Tensor data_;  // an alias without autograd metadata
  uint64_t version_ = 0;
  Role role_ = Role::outside;
  int64_t index_ = 0;
  bool released_ = false;
};

}  // namespace vox::autograd
