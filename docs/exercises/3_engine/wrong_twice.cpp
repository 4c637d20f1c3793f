// Runs a node for each gradient that arrives, without waiting for the others.
#include <deque>

#include <voxgrad/autograd/grad_mode.h>
#include <voxgrad/autograd/meta.h>
#include <voxgrad/autograd/node.h>

#include "docs/exercises/3_engine/exercise.h"

void exercise::backward(const vox::Tensor& output, const vox::Tensor& gradient) {
  using namespace vox::autograd;
  const auto guard = vox::no_grad();
  std::deque<std::pair<Edge, vox::Tensor>> queue{{gradient_edge(output), gradient}};
  for (; !queue.empty(); queue.pop_front()) {
    const auto [edge, arrived] = queue.front();
    Gradients gradients(edge.node->outputs().size());
    gradients[static_cast<size_t>(edge.output)] = arrived;
    const Gradients results = edge.node->backward(gradients);
    edge.node->release();
    for (size_t i = 0; i < results.size(); ++i)
      if (results[i] && edge.node->needs_grad(static_cast<int64_t>(i)))
        queue.emplace_back(edge.node->edges()[i], *results[i]);
  }
}
