#include "checkpoint.h"

#include <stdexcept>
#include <string>
#include <utility>

#include <voxgrad/nn/serialize.h>

namespace mri {
namespace {

using vox::nn::StateDict;

const std::string kNetwork = "network.", kOptimizer = "optimizer.";

template <class T>
void put(StateDict& dict, const std::string& name, const std::vector<T>& values) {
  dict[name] = vox::from_vector<T>(values, {static_cast<int64_t>(values.size())});
}

template <class T>
std::vector<T> get(const StateDict& dict, const std::string& name) {
  const auto found = dict.find(name);
  if (found == dict.end())
    throw std::runtime_error("load_checkpoint: there is no '" + name + "' in the file");
  return found->second.to_vector<T>();
}

template <class T>
T get_one(const StateDict& dict, const std::string& name) {
  const std::vector<T> values = get<T>(dict, name);
  if (values.size() != 1) throw std::runtime_error("load_checkpoint: '" + name + "' is not one number");
  return values[0];
}

// A dict inside a dict is a prefix of names.
void put_all(StateDict& dict, const std::string& prefix, const StateDict& inner) {
  for (const auto& [name, tensor] : inner) dict[prefix + name] = tensor;
}

StateDict get_all(const StateDict& dict, const std::string& prefix) {
  StateDict inner;
  for (const auto& [name, tensor] : dict) {
    if (name.starts_with(prefix)) inner[name.substr(prefix.size())] = tensor;
  }
  return inner;
}

SuperResolution make_network(uint64_t seed, vox::Device device) {
  vox::manual_seed(seed);
  SuperResolution network;
  network.to(device);
  return network;
}

}  // namespace

TrainingState::TrainingState(uint64_t seed_, int64_t steps_, vox::Device device)
    : seed(seed_), steps(steps_), network(make_network(seed_, device)), optimizer(network.parameters()) {}

void save_checkpoint(const TrainingState& state, const std::filesystem::path& path) {
  StateDict dict;
  put_all(dict, kNetwork, state.network.state_dict());
  put_all(dict, kOptimizer, state.optimizer.state_dict());
  put<int64_t>(dict, "run.seed", {static_cast<int64_t>(state.seed)});
  put<int64_t>(dict, "run.steps", {state.steps});
  put<int64_t>(dict, "run.step", {state.step});
  put<double>(dict, "run.seconds", {state.seconds});
  put(dict, "history.loss", state.history.loss);
  put(dict, "history.evaluated_steps", state.history.evaluated_steps);
  put(dict, "history.evaluated_psnr", state.history.evaluated_psnr);
  vox::nn::save(path, dict);
}

void load_checkpoint(TrainingState& state, const std::filesystem::path& path) {
  if (!std::filesystem::exists(path)) {
    throw std::runtime_error("load_checkpoint: there is no " + path.string() + " to resume from");
  }
  const StateDict dict = vox::nn::load(path).tensors;
  const auto seed = static_cast<uint64_t>(get_one<int64_t>(dict, "run.seed"));
  const auto steps = get_one<int64_t>(dict, "run.steps");
  if (seed != state.seed || steps != state.steps) {
    throw std::runtime_error("load_checkpoint: " + path.string() + " is of a run with --seed " +
                             std::to_string(seed) + " --steps " + std::to_string(steps) +
                             ", this one has --seed " + std::to_string(state.seed) + " --steps " +
                             std::to_string(state.steps));
  }
  state.step = get_one<int64_t>(dict, "run.step");
  state.seconds = get_one<double>(dict, "run.seconds");
  state.history = {get<float>(dict, "history.loss"), get<int64_t>(dict, "history.evaluated_steps"),
                   get<float>(dict, "history.evaluated_psnr")};
  if (state.step < 0 || state.step > steps || static_cast<int64_t>(state.history.loss.size()) != state.step ||
      state.history.evaluated_steps.size() != state.history.evaluated_psnr.size()) {
    throw std::runtime_error("load_checkpoint: " + path.string() + " contradicts itself");
  }
  state.network.load_state_dict(get_all(dict, kNetwork));
  state.optimizer.load_state_dict(get_all(dict, kOptimizer));
}

void save_weights(const SuperResolution& network, const std::filesystem::path& path) {
  vox::nn::save(path, network.state_dict());
}

}  // namespace mri
