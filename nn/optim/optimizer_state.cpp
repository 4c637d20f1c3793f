#include <voxgrad/core/factories.h>
#include <voxgrad/nn/optim/optimizer.h>

#include <algorithm>

namespace vox::optim {

namespace {

const Tensor& entry(const Optimizer::State& state, const char* name) {
  const auto found = state.find(name);
  check<ValueError>(found != state.end(), "Optimizer::load_state_dict: '", name, "' is missing");
  return found->second;
}

}  // namespace

Optimizer::State Optimizer::state_dict() const {
  std::vector<int64_t> updates;
  for (const Tensor& t : updates_) updates.push_back(t.defined() ? t.item<int64_t>() : 0);
  State state;
  state.emplace(
      "step", full({}, std::max(steps_, *std::max_element(updates.begin(), updates.end())), {.dtype = i64}));
  state.emplace("updates", from_vector(updates, {static_cast<int64_t>(updates.size())}));
  for (const auto& [name, list] : buffers_) {
    for (size_t i = 0; i < list.size(); ++i) {
      if (list[i].defined()) state.emplace(std::to_string(i) + "." + name, list[i].clone());
    }
  }
  return state;
}

void Optimizer::load_state_dict(const State& state) {
  const Tensor &step_entry = entry(state, "step"), &updates_entry = entry(state, "updates");
  check<DTypeError>(step_entry.dtype() == i64, "Optimizer::load_state_dict: 'step' must have dtype i64, got ",
                    step_entry.dtype());
  const int64_t steps =
      in_the_name_of("Optimizer::load_state_dict: 'step'", [&] { return step_entry.item<int64_t>(); });
  constexpr int64_t most_steps = int64_t{1} << 62;  // more than any run has, and far from overflow
  check<ValueError>(steps >= 0 && steps <= most_steps, "Optimizer::load_state_dict: 'step' must be in [0, ",
                    most_steps, "], got ", steps);
  const std::vector<int64_t> updates = in_the_name_of("Optimizer::load_state_dict: 'updates'",
                                                      [&] { return updates_entry.to_vector<int64_t>(); });
  check<ValueError>(updates.size() == parameters_.size(), "Optimizer::load_state_dict: 'updates' is of ",
                    updates.size(), " parameters, this optimiser has ", parameters_.size());
  for (int64_t count : updates)
    check<ValueError>(count >= 0 && count <= steps, "Optimizer::load_state_dict: 'updates' must be in [0, ",
                      steps, "], got ", count);

  std::map<std::string, std::vector<Tensor>> buffers;
  std::vector<size_t> found_of(parameters_.size(), 0);
  size_t used = 2;  // "step" and "updates"
  for (const std::string& name : buffer_names()) {
    auto& list = buffers[name];
    list.resize(parameters_.size());
    for (size_t i = 0; i < parameters_.size(); ++i) {
      const std::string key = std::to_string(i) + "." + name;
      const auto found = state.find(key);
      if (found == state.end()) continue;
      ++used, ++found_of[i];
      const Tensor& p = parameters_[i];
      detail::check_defined("Optimizer::load_state_dict", key.c_str(), found->second);
      check<ShapeError>(found->second.shape() == p.shape(), "Optimizer::load_state_dict: '", key,
                        "' belongs to a parameter of shape ", p.shape(), ", got ", found->second.shape());
      check<DTypeError>(found->second.dtype() == opmath(p.dtype()), "Optimizer::load_state_dict: '", key,
                        "' belongs to a parameter of dtype ", p.dtype(), " and must be ", opmath(p.dtype()),
                        ", got ", found->second.dtype());
      list[i] = found->second.detach().to(p.device()).clone();
    }
  }
  for (size_t found : found_of)
    check<ValueError>(found == 0 || found == buffer_names().size(),
                      "Optimizer::load_state_dict: a parameter must have all of its buffers or none, got ",
                      found, " of ", buffer_names().size());
  check<ValueError>(used == state.size(), "Optimizer::load_state_dict: ", state.size() - used,
                    " entries belong to another kind of optimiser or to other parameters");
  std::vector<Tensor> counts;
  for (size_t i = 0; i < updates.size(); ++i)
    counts.push_back(full({}, updates[i], {i64, parameters_[i].device()}));
  buffers_ = std::move(buffers);
  updates_ = std::move(counts);
  steps_ = steps;
}

}  // namespace vox::optim
