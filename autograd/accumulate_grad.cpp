#include <voxgrad/autograd/accumulate_grad.h>
#include <voxgrad/autograd/meta.h>

namespace vox::autograd {

namespace {
void check_unmoved(bool unmoved) {
  check<GradError>(unmoved,
                   "backward: a leaf was moved or cast (Module::to) after this graph had been recorded; "
                   "run the forward again");
}
}  // namespace

AccumulateGrad::AccumulateGrad(const Tensor& leaf) : leaf_(leaf.impl()) {
  add_output_spec(spec_of(leaf));
  hooks(0) = meta_of(leaf).leaf_hooks;
}

Gradients AccumulateGrad::backward(Gradients gradients) {
  const std::lock_guard lock(mutex_);
  if (auto leaf = leaf_.lock()) {
    check_unmoved(spec_of(Tensor(leaf)) == outputs()[0]);
    accumulate(leaf->autograd->grad, std::move(*gradients[0]));
  }
  return {};
}

std::shared_ptr<TensorImpl> AccumulateGrad::leaf_if_alive() {
  const std::lock_guard lock(mutex_);
  return leaf_.lock();
}

Tensor AccumulateGrad::leaf(const Tensor& data) {
  const std::lock_guard lock(mutex_);
  if (auto leaf = leaf_.lock()) {
    // With other memory, the leaf's elements are not those that the forward used.
    check_unmoved(leaf->storage == data.impl()->storage);
    return Tensor(leaf);
  }
  Tensor fresh = detail::alias(data, data.impl()->offset, data.shape(), data.strides());
  AutogradMeta& meta = meta_of(fresh);
  meta.requires_grad = true;
  meta.accumulator = weak_from_this();
  leaf_ = fresh.impl();
  return fresh;
}

}  // namespace vox::autograd
