// What a program does around its experiment: device, scans, output folder, pictures that may fail, exit
// status.
#pragma once

#include <filesystem>
#include <functional>
#include <optional>
#include <string>

#include <voxgrad/voxgrad.h>

#include "options.h"
#include "training.h"
#include "volume.h"

namespace mri {

/// What a report says about the run.
struct RunFacts {
  std::string device;
  int threads = 0;
  double seconds = 0;  ///< Spent training, over all resumed runs.
  int64_t steps = 0;
  uint64_t seed = 0;
  int64_t parameters = 0;
  std::string volume, unseen_volume;
};
RunFacts facts_of(const Options& options, const TrainingState& state);

/// Sets the number of threads and returns the device. Throws std::runtime_error if there is no GPU.
vox::Device choose_device(const Options& options);

/// The head of --volume or --phantom, with even sizes and intensities in 0..1.
Volume load_head(const Options& options);

/// The head of --unseen. If the user gives a scan of their own, it may be missing.
std::optional<Volume> load_unseen(const Options& options);

/// Makes `folder`. Throws std::runtime_error if that fails, or if files cannot be written to it.
void make_folder(const std::filesystem::path& folder);

/// Prints what is trained, and on what.
void print_start(const RunFacts& facts, const Size& size);

/// Calls draw(png). If it throws, because gnuplot is missing for example, the reason goes to stderr.
void try_to_draw(const std::filesystem::path& png,
                 const std::function<void(const std::filesystem::path&)>& draw);

/// Says how to go on after an interruption, and returns the exit status.
int report_interruption(const TrainingState& state);

/// For the text of --help: what the program does, in whole lines, and the lines of its own options.
struct About {
  std::string name, purpose, own_options = "";
};

/// The whole of main(): stores the arguments in `options`, runs `experiment`, which returns the exit status,
/// and reports what it throws, with status 2 for a wrong command line and 1 otherwise. `settings` are options
/// of this program.
int run_program(int argc, const char* const* argv, const About& about, Options& options,
                const Settings& settings, const std::function<int()>& experiment);

}  // namespace mri
