#include <voxgrad/autograd/meta.h>
#include <voxgrad/autograd/saved_tensor.h>

#include <algorithm>

namespace vox::autograd {

SavedTensor::SavedTensor(Node* owner) : owner_(owner) { owner->saved_.push_back(this); }

void SavedTensor::save(const Tensor& t) {
  if (!t.defined()) return;
  data_ = detail::alias(t, t.impl()->offset, t.shape(), t.strides());
  version_ = t.impl()->storage->version();

  const Edge edge = gradient_edge(t);
  if (!edge.node) return;
  if (edge.node.get() == owner_) {
    role_ = Role::output;
    index_ = edge.output;
    return;
  }
  const auto& edges = owner_->edges();
  const auto input = std::find(edges.begin(), edges.end(), edge);
  check<GradError>(
      input != edges.end(), *owner_,
      ": only inputs and outputs of a node can be saved on the tape (save a detach() of others)");
  role_ = Role::input;
  index_ = input - edges.begin();
}

void SavedTensor::save_for(int64_t i, const Tensor& t) {
  if (owner_->edges()[static_cast<size_t>(i)].node) save(t);
}

Tensor SavedTensor::get() const {
  check<GradError>(
      !released_, "backward: ", *owner_,
      " ran before and freed its saved tensors; pass {.retain_graph = true} to every backward but the last");
  if (!data_.defined()) return {};
  const Tensor t = on_tape();
  const uint64_t version = data_.impl()->storage->version();
  check<GradError>(version == version_, "backward: a tensor", Quoted{t}, " of shape ", data_.shape(),
                   " that ", *owner_, " saved was written in place since (version ", version, ", saved at ",
                   version_, "); write to a clone() of it, or after backward");
  return t;
}

Tensor SavedTensor::on_tape() const {
  switch (role_) {
    case Role::input:
      return reattach(owner_->edges()[static_cast<size_t>(index_)], data_);
    case Role::output:
      return reattach({owner_->shared_from_this(), index_}, data_);
    case Role::outside:
      break;
  }
  return data_;
}

void SavedTensor::release() {
  data_ = {};
  released_ = true;
}

}  // namespace vox::autograd
