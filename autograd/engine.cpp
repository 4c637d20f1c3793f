#include <voxgrad/autograd/autocast_scope.h>
#include <voxgrad/autograd/engine.h>
#include <voxgrad/autograd/grad_mode.h>
#include <voxgrad/autograd/grad_plan.h>
#include <voxgrad/autograd/meta.h>
#include <voxgrad/autograd/running.h>
#include <voxgrad/core/new_tensor.h>

#include <map>

namespace vox {
namespace autograd {
namespace {

/// A node that has received gradients but has not run yet.
struct Job {
  std::shared_ptr<Node> node;
  Gradients gradients;
};
using Pending = std::map<uint64_t, Job, std::greater<>>;  // by number, highest first

/// `from` names the sender in errors.
void send(Pending& pending, GradPlan* plan, const Edge& to, Tensor gradient, const auto& from) {
  const TensorSpec& expected = to.node->outputs()[static_cast<size_t>(to.output)];
  check<GradError>(gradient.defined(), "backward of ", from,
                   ": returned an undefined tensor as a gradient; std::nullopt stands for none");
  const TensorSpec got = spec_of(gradient);
  check<GradError>(got == expected, "backward of ", from, ": returned a gradient of shape ", got.shape,
                   ", dtype ", got.dtype, " on ", got.device, " for an input of shape ", expected.shape,
                   ", dtype ", expected.dtype, " on ", expected.device);
  if (plan && plan->stops_at(to, gradient)) return;
  Job& job = pending[to.node->number()];
  if (!job.node) job = {to.node, Gradients(to.node->outputs().size())};
  Gradient& slot = job.gradients[static_cast<size_t>(to.output)];
  if (slot)
    accumulate(*slot, std::move(gradient));
  else
    slot = std::move(gradient);
}

/// The engine: takes the node with the highest number, runs it, and sends on the gradients that it returns,
/// until none is pending. `plan` is null in backward().
void walk(Pending& pending, Tensor::BackwardOptions options, GradPlan* plan, Run& observed) {
  while (!pending.empty()) {
    Job job = std::move(pending.begin()->second);
    pending.erase(pending.begin());
    observed.takes(*job.node);
    job.node->run_hooks(job.gradients);
    observed.arrived(*job.node, job.gradients);
    if (plan) {
      plan->capture(*job.node, job.gradients);
      if (plan->ends_at(*job.node)) continue;
    } else {
      job.node->retain_gradients(job.gradients);
    }
    Gradients results = job.node->backward(std::move(job.gradients));
    const auto& edges = job.node->edges();
    check<GradError>(results.size() == edges.size(), "backward of ", *job.node, ": returned ", results.size(),
                     " gradients for ", edges.size(), " inputs");
    if (!options.retain_graph && !options.create_graph) job.node->release();
    observed.ran(*job.node, results);
    for (size_t i = 0; i < edges.size(); ++i) {
      if (results[i] && job.node->needs_grad(static_cast<int64_t>(i)))
        send(pending, plan, edges[i], std::move(*results[i]), *job.node);
    }
  }
}

/// Sends the gradients to `roots`, and walks from there.
void run(const std::vector<Edge>& roots, std::vector<Tensor> gradients, Tensor::BackwardOptions options,
         GradPlan* plan) {
  const GradModeGuard grad_mode(options.create_graph);
  const AutocastScope no_autocast(std::nullopt);
  Run observed(roots, plan);
  try {
    Pending pending;
    for (size_t i = 0; i < roots.size(); ++i) {
      if (!plan || plan->wants(*roots[i].node))
        send(pending, plan, roots[i], std::move(gradients[i]), "the caller");
    }
    walk(pending, options, plan, observed);
  } catch (const std::exception& error) {
    observed.failed(error.what());
    throw;
  }
}

/// Checks the caller's gradient for `output`. If the caller gave none and `output` has one element, returns
/// 1.
Tensor root_gradient(const char* function, const Tensor& output, const Tensor& gradient) {
  check<GradError>(is_floating(output.dtype()), function, ": the output", Quoted{output}, " has dtype ",
                   output.dtype(),
                   "; only floating dtypes have gradients, so comparisons and argmax have none");
  check<GradError>(
      output.requires_grad(), function, ": the output", Quoted{output},
      " does not require grad: no input of its ops did, they ran under no_grad(), an op between ",
      "has no gradient (a comparison, argmax, a cast to integers), or it comes from a gradient, ",
      "which the tape records only with {.create_graph = true}");
  if (!gradient.defined()) {
    check<GradError>(output.numel() == 1, function,
                     ": a gradient may be left out only for a tensor of one element, ", "got shape ",
                     output.shape(), " (pass a gradient of this shape, or reduce with sum() first)");
    return full(output.shape(), 1, output.options());
  }
  detail::check_same_dtype(function, output, gradient);
  detail::check_same_device(function, output, gradient);
  check<ShapeError>(output.shape() == gradient.shape(), function,
                    ": the gradient must have the output's shape ", output.shape(), ", got ",
                    gradient.shape());
  return gradient;
}

}  // namespace

std::vector<Arrival> gradients_at(const std::vector<Edge>& ends, const std::vector<Edge>& roots,
                                  std::vector<Tensor> seeds, bool create_graph) {
  GradPlan plan(roots, ends, true);
  run(roots, std::move(seeds), {.create_graph = create_graph}, &plan);
  return std::move(plan.arrived);
}

}  // namespace autograd

void Tensor::backward(const Tensor& gradient, BackwardOptions options) const {
  checked("backward");
  Tensor seed = autograd::root_gradient("backward", *this, gradient);
  std::vector<Tensor> seeds;
  seeds.push_back(std::move(seed));
  autograd::run({autograd::gradient_edge(*this)}, std::move(seeds), options, nullptr);
}

std::vector<Tensor> grad(const std::vector<Tensor>& outputs, const std::vector<Tensor>& inputs,
                         const GradOptions& options) {
  using namespace autograd;
  check<ValueError>(!outputs.empty() && !inputs.empty(), "grad: needs at least one output and one input");
  check<ValueError>(options.grad_outputs.empty() || options.grad_outputs.size() == outputs.size(),
                    "grad: got ", options.grad_outputs.size(), " grad_outputs for ", outputs.size(),
                    " outputs");
  std::vector<Edge> roots, requested;
  std::vector<Tensor> seeds;
  for (size_t i = 0; i < outputs.size(); ++i) {
    detail::check_defined("grad", "outputs", outputs[i]);
    seeds.push_back(
        root_gradient("grad", outputs[i], options.grad_outputs.empty() ? Tensor() : options.grad_outputs[i]));
    roots.push_back(gradient_edge(outputs[i]));
  }
  for (const Tensor& input : inputs) {
    detail::check_defined("grad", "inputs", input);
    check<GradError>(input.requires_grad(), "grad: an input", Quoted{input}, " of shape ", input.shape(),
                     " does not require grad");
    requested.push_back(gradient_edge(input));
  }

  GradPlan plan(roots, std::move(requested));
  run(roots, std::move(seeds), {.retain_graph = options.retain_graph, .create_graph = options.create_graph},
      &plan);

  std::vector<Tensor> results;
  for (size_t i = 0; i < inputs.size(); ++i) {
    check<GradError>(plan.captured[i] || options.allow_unused, "grad: no output depends on input ", i,
                     Quoted{inputs[i]}, " of shape ", inputs[i].shape(),
                     "; pass {.allow_unused = true} to get an undefined tensor for it");
    Tensor result;
    if (plan.captured[i]) {
      const GradModeGuard grad_mode(options.create_graph);
      accumulate(result, std::move(*plan.captured[i]));
    }
    results.push_back(result);
  }
  return results;
}

}  // namespace vox
