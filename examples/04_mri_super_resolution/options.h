// The command line of the experiment.
#pragma once

#include <cstdint>
#include <filesystem>
#include <stdexcept>
#include <string>

namespace mri {

struct Options {
  std::string device = "cpu";
  int threads = 0;  ///< 0: all cores
  uint64_t seed = 1;
  int64_t steps = 2400;
  int64_t stop_after = 0;  ///< Stop after this step as Ctrl-C would; 0: never.
  double minutes = 0;      ///< Stop training after this long; 0: never.
  std::string volume = "/usr/share/mricron/templates/ch2bet.nii.gz";
  std::string unseen = "/usr/share/mricron/templates/inia19-t1-brain.nii.gz";
  bool phantom = false;
  int64_t phantom_size = 128;
  std::filesystem::path out = "out";
  bool resume = false;
  bool help = false;
};

/// A command line that cannot be obeyed; the message says which argument and what is allowed.
struct UsageError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// Throws UsageError for unknown options, missing values and values out of range.
Options parse_options(int argc, const char* const* argv);

/// The text of `--help`.
std::string usage();

}  // namespace mri
