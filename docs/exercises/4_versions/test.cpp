#include <voxgrad/autograd/record.h>
#include <voxgrad/core/factories.h>
#include <voxgrad/ops/elementwise.h>

#include "docs/exercises/4_versions/exercise.h"
#include "docs/exercises/steps.h"

using exercise::expect;
using exercise::Saved;
using vox::Tensor;

namespace {

Tensor numbers() { return vox::from_vector<double>({1, 2, 3}, {3}); }

bool throws(const Saved& saved) {
  try {
    saved.get();
  } catch (const vox::GradError&) {
    return true;
  }
  return false;
}

STEP("get() returns the tensor, on the same memory") {
  const Tensor t = numbers();
  Saved saved;
  saved.save(t);
  exercise::expect_close("get()", saved.get(), t);
  expect(saved.get().data<double>() == t.data<double>(),
         "get() is a copy: it must share the tensor's memory");
}

STEP("a write is noticed") {
  Tensor t = numbers();
  Saved saved;
  saved.save(t);
  t.add_(1);
  expect(throws(saved), "t.add_(1) after save(t): get() must throw vox::GradError");
}

STEP("a write to a view is noticed") {
  const Tensor t = numbers();
  Saved saved;
  saved.save(t);
  t.slice(0, 0, 1).fill_(7);
  expect(throws(saved), "a view of t was written after save(t): get() must throw vox::GradError");
}

STEP("a write to the base of a saved view is noticed") {
  Tensor t = numbers();
  Saved saved;
  saved.save(t.slice(0, 0, 1));
  t.fill_(7);
  expect(throws(saved), "a view of t was saved and t was written: get() must throw vox::GradError");
}

STEP("writes before save() do not count") {
  Tensor t = numbers();
  t.add_(1);
  Saved saved;
  saved.save(t);
  expect(!throws(saved), "t was written before save(t), not after: get() must not throw");
  t.add_(1);
  saved.save(t);
  expect(!throws(saved), "t was saved again after the write: get() must not throw");
}

STEP("writes to a clone do not count") {
  const Tensor t = numbers();
  Saved saved;
  saved.save(t);
  t.clone().add_(1);
  expect(!throws(saved), "a clone of t was written, which is other memory: get() must not throw");
}

/// y = exp(x), which keeps its own output for the gradient g * y.
struct ExpNode final : vox::autograd::Node {
  Saved saved_y_;
  const char* name() const override { return "exercise_exp"; }
  vox::autograd::Gradients backward(vox::autograd::Gradients gradients) override {
    return {*gradients[0] * saved_y_.get()};
  }
};

Tensor exp_op(const Tensor& x) {
  const Tensor y = vox::exp(x.detach());
  if (auto node = vox::autograd::record<ExpNode>({x}, y)) node->saved_y_.save(y);
  return y;
}

/// Until then, a Saved that keeps its own node alive is a leak.
void break_cycle(const std::shared_ptr<vox::autograd::Node>& node) {
  if (node) static_cast<ExpNode&>(*node).saved_y_ = {};
}

STEP("a node computes its gradient from it") {
  const Tensor x = numbers().set_requires_grad(), y = exp_op(x);
  y.sum().backward();
  break_cycle(y.impl()->autograd->node);
  exercise::expect_close("the gradient of exp", x.grad(), vox::exp(numbers()));
}

STEP("a node that saves its own output can be freed") {
  const Tensor x = numbers().set_requires_grad();
  Tensor y = exp_op(x);
  const std::weak_ptr<vox::autograd::Node> node = y.impl()->autograd->node;
  y = {};
  const bool freed = node.expired();
  break_cycle(node.lock());
  expect(freed, "a node that saved its own output is still alive after the output is gone: the saved tensor ",
         "keeps the node, and the node keeps the saved tensor");
}

}  // namespace
