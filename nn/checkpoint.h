#pragma once

#include <filesystem>
#include <functional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include <voxgrad/core/factories.h>
#include <voxgrad/core/generator.h>
#include <voxgrad/nn/serialize.h>

namespace vox::nn {

/// All that a training run must keep, in one safetensors file. A run that is saved, loaded into a new process
/// and continued gives the same bits as an unbroken one:
///
///     nn::Checkpoint run;
///     run.add("network", net);                   // and "ema", ema; "scaler", scaler; ...
///     run.add("optimizer", adam);
///     run.add("random", default_generator());    // dropout draws from it
///     run.add("step", step);                     // int64_t; learning rates are functions of it
///     if (resume) run.load("run.safetensors");
///     for (; step < steps; ++step) { ...; if (step % 1000 == 0) run.save("run.safetensors"); }
///
/// A loader needs no state: its batches are a function of (seed, epoch, index). Nor do schedules that are
/// functions of the step (nn/optim/schedule.h).
///
/// The parts are references: they must live as long as the Checkpoint. In the file, an entry of a part is
/// named "part.entry", so that the file of a run also serves as the network's.
class Checkpoint {
 public:
  /// Any object with state_dict() and load_state_dict(): modules, optimisers, GradScaler and your own.
  template <class Part>
  requires requires(Part& part) { part.load_state_dict(part.state_dict()); }
  void add(std::string name, Part& part) {
    add_part({std::move(name), [&part] { return StateDict(part.state_dict()); },
              [&part](const StateDict& state) { part.load_state_dict(state); }});
  }
  void add(std::string name, Generator& generator);
  /// int64_t or double.
  template <class T>
  requires std::is_same_v<T, int64_t> || std::is_same_v<T, double>
  void add(std::string name, T& number) {
    const auto take = [&number](const Tensor& value) {
      number = value.reshape({}).template to_vector<T>().front();
    };
    add_value(
        std::move(name), [&number] { return full({}, number, {.dtype = dtype_of<T>()}); }, take);
  }
  /// A history: int64_t, float, double or uint8_t.
  template <class T>
  void add(std::string name, std::vector<T>& list) {
    const auto take = [&list](const Tensor& value) { list = value.to_vector<T>(); };
    add_value(
        std::move(name), [&list] { return from_vector(list, {static_cast<int64_t>(list.size())}); }, take);
  }

  /// Writes the file completely or not at all; until then an older file of this name stays. Throws as
  /// nn::save does.
  void save(const std::filesystem::path& path, const Metadata& metadata = {}) const;

  /// Loads all parts, and returns the file's metadata. Throws IoError for files that nn::load refuses,
  /// ValueError if the file has not exactly these parts, and what a part throws; then nothing has changed.
  Metadata load(const std::filesystem::path& path);

 private:
  struct Part {
    std::string name;
    std::function<StateDict()> get;
    std::function<void(const StateDict&)> set;
  };
  void add_part(Part part);  // ValueError unless the name is new, not empty and without a dot
  void add_value(std::string name, std::function<Tensor()> get, std::function<void(const Tensor&)> set);

  std::vector<Part> parts_;
};

}  // namespace vox::nn
