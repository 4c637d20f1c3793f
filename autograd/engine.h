#pragma once

#include <vector>

#include <voxgrad/core/tensor.h>

namespace vox {

struct GradOptions {
  detail::ByName by_name{};
  std::vector<Tensor> grad_outputs = {};  ///< one per output; may be left out for outputs of one element
  bool retain_graph = false;              ///< keep saved tensors for another backward
  bool create_graph = false;              ///< record the backward itself; implies retain_graph
  bool allow_unused = false;              ///< an input that no output depends on gives an undefined tensor
};

/// Gradients of sum_k <grad_outputs[k], outputs[k]> with respect to `inputs` (leaves or not), in their order.
/// Runs only the nodes that lead to the inputs and changes no grad(). Throws GradError for an input that
/// does not require grad, or that no output depends on (unless allow_unused).
std::vector<Tensor> grad(const std::vector<Tensor>& outputs, const std::vector<Tensor>& inputs,
                         const GradOptions& options = {});

}  // namespace vox
