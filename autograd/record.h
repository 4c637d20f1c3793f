#pragma once

#include <algorithm>
#include <memory>
#include <span>

#include <voxgrad/autograd/grad_mode.h>
#include <voxgrad/autograd/meta.h>
#include <voxgrad/autograd/saved_tensor.h>

namespace vox::autograd {

/// Whether an op of `input` is recorded: whether grad mode is on and the input, if defined, requires grad.
inline bool is_recorded(const Tensor& input) {
  return grad_enabled() && input.defined() && input.requires_grad();
}

/// How an op enters the tape, after its forward:
///
///     Tensor y = ...;
///     if (auto node = record<MulNode>({a, b}, y)) {   // null if nothing is recorded
///       node->saved_a_.save(a);
///       node->saved_b_.save(b);
///     }
///     return y;
///
/// Makes an N of `arguments`, with edges to the nodes of `inputs` (an undefined input has none). It becomes
/// the node of `output`, which must be a new tensor of floating dtype. Null if is_recorded() holds for no
/// input. A node that is named by its call gets the name as an argument, because observers ask for it at
/// once.
template <class N, class... Arguments>
std::shared_ptr<N> record(std::span<const Tensor> inputs, std::span<const Tensor> outputs,
                          const Arguments&... arguments) {
  if (std::none_of(inputs.begin(), inputs.end(), is_recorded)) return nullptr;
  std::vector<Edge> edges;  // before the node: a leaf's AccumulateGrad takes the smaller number
  edges.reserve(inputs.size());
  for (const Tensor& input : inputs) edges.push_back(gradient_edge(input));
  auto node = make_node<N>(arguments...);
  node->set_edges(std::move(edges), inputs);
  for (const Tensor& output : outputs) node->add_output(output);
  return node;
}

template <class N, class... Arguments>
std::shared_ptr<N> record(std::initializer_list<Tensor> inputs, const Tensor& output,
                          const Arguments&... arguments) {
  return record<N>(std::span<const Tensor>(inputs.begin(), inputs.size()),
                   std::span<const Tensor>(&output, 1), arguments...);
}

}  // namespace vox::autograd
