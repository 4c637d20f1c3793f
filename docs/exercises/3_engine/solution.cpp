#include <functional>
#include <map>

#include <voxgrad/autograd/grad_mode.h>
#include <voxgrad/autograd/meta.h>
#include <voxgrad/autograd/node.h>
#include <voxgrad/ops/elementwise.h>

#include "docs/exercises/3_engine/exercise.h"

namespace exercise {

using vox::Tensor;
using vox::autograd::Edge;
using vox::autograd::Gradient;
using vox::autograd::Gradients;
using vox::autograd::Node;

namespace {

/// A node that has received gradients but has not run.
struct Job {
  std::shared_ptr<Node> node;
  Gradients gradients;  // one per output of the node
};
using Pending = std::map<uint64_t, Job, std::greater<>>;  // by number, highest first

void send(Pending& pending, const Edge& to, const Tensor& gradient) {
  Job& job = pending[to.node->number()];
  if (!job.node) job = {to.node, Gradients(to.node->outputs().size())};
  Gradient& slot = job.gradients[static_cast<size_t>(to.output)];
  slot = slot ? *slot + gradient : gradient;
}

}  // namespace

void backward(const Tensor& output, const Tensor& gradient) {
  const auto guard = vox::no_grad();  // the run itself leaves no tape
  Pending pending;
  send(pending, vox::autograd::gradient_edge(output), gradient);
  while (!pending.empty()) {
    const Job job = std::move(pending.begin()->second);
    pending.erase(pending.begin());
    const Gradients results = job.node->backward(job.gradients);
    job.node->release();
    for (size_t i = 0; i < results.size(); ++i) {
      if (results[i] && job.node->needs_grad(static_cast<int64_t>(i)))
        send(pending, job.node->edges()[i], *results[i]);
    }
  }
}

}  // namespace exercise
