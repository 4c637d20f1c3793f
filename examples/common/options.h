// The command line of an experiment.
#pragma once

#include <charconv>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <iomanip>
#include <map>
#include <sstream>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <vector>

namespace mri {

/// The options that every experiment has.
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

/// An invalid command line. The message names the argument and says what is allowed.
struct UsageError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

template <class Number>
Number parse_number(const std::string& option, const std::string& text, Number least, Number most) {
  Number value{};
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, value);
  // NaN fails this comparison too.
  if (error == std::errc{} && stop == end && value >= least && value <= most) return value;
  std::ostringstream message;
  message << std::setprecision(15) << option << ": '" << text << "' is not a number from " << least << " to "
          << most;
  throw UsageError(message.str());
}

/// `text`, if it is one of the words.
inline std::string one_of(const std::string& option, const std::string& text,
                          const std::vector<std::string>& words) {
  std::string list;
  for (const std::string& word : words) {
    if (text == word) return text;
    list += (list.empty() ? "" : ", ") + word;
  }
  throw UsageError(option + ": '" + text + "' is not one of " + list);
}

using Setter = std::function<void(const std::string& option, const std::string& value)>;
using Settings = std::map<std::string, Setter>;
using Flags = std::map<std::string, std::function<void()>>;

/// Setters that store any text, one of `words`, or a number from `least` to `most`.
template <class Text>
Setter stored_in(Text& to) {
  return [&to](auto&, auto& value) { to = value; };
}
inline Setter stored_in(std::string& to, const std::vector<std::string>& words) {
  return [&to, words](auto& option, auto& value) { to = one_of(option, value, words); };
}
template <class Number>
Setter stored_in(Number& to, std::type_identity_t<Number> least, std::type_identity_t<Number> most) {
  return [&to, least, most](auto& option, auto& value) { to = parse_number(option, value, least, most); };
}

/// Calls the flag or the setter of each argument, of those from number `first` on.
inline void parse_arguments(int argc, const char* const* argv, int first, const Flags& flags,
                            const Settings& settings) {
  for (int i = first; i < argc; ++i) {
    std::string option = argv[i];
    if (const auto flag = flags.find(option); flag != flags.end()) {
      flag->second();
      continue;
    }
    // Both `--seed 1` and `--seed=1`.
    const size_t equals = option.find('=');
    const bool joined = equals != std::string::npos;
    std::string value = joined ? option.substr(equals + 1) : "";
    if (joined) option.resize(equals);
    const auto setting = settings.find(option);
    if (setting == settings.end()) throw UsageError("unknown option '" + option + "'; --help lists them");
    if (!joined) {
      if (++i == argc) throw UsageError(option + " needs a value");
      value = argv[i];
    }
    if (value.empty()) throw UsageError(option + " needs a value");
    setting->second(option, value);
  }
}

/// Stores the arguments in `options`. `settings` are options of one experiment. Throws UsageError for unknown
/// options, missing values and values out of range.
inline void parse_options(int argc, const char* const* argv, Options& options, Settings settings = {}) {
  bool volume_given = false;
  const Flags flags{
      {"--phantom", [&] { options.phantom = true; }},
      {"--resume", [&] { options.resume = true; }},
      {"--help", [&] { options.help = true; }},
  };
  settings.merge(Settings{
      {"--device", stored_in(options.device, {"cpu", "cuda"})},
      {"--threads", stored_in(options.threads, 1, 1024)},
      {"--seed", stored_in(options.seed, 0, UINT64_MAX)},
      {"--steps", stored_in(options.steps, 1, 10'000'000)},
      {"--stop-after", stored_in(options.stop_after, 1, 10'000'000)},
      {"--minutes", stored_in(options.minutes, 0.01, 100'000)},
      {"--phantom-size", stored_in(options.phantom_size, 64, 512)},
      {"--volume", [&](auto&, auto& v) { options.volume = v, volume_given = true; }},
      {"--unseen", stored_in(options.unseen)},
      {"--out", stored_in(options.out)},
  });
  parse_arguments(argc, argv, 1, flags, settings);
  if (options.phantom && volume_given)
    throw UsageError("--phantom and --volume exclude each other: choose one head");
}

/// The text of `--help`: what the program does, in whole lines, and its options with their defaults. `own`
/// has the lines of the experiment's own options.
inline std::string usage(const std::string& program, const std::string& about, const Options& defaults,
                         const std::string& own = "") {
  return "Usage: " + program + " [options]\n" + about + "\n" + own +
         "  --volume FILE       the scan to train and evaluate on, .nii or .nii.gz\n"
         "                      (default " +
         defaults.volume +
         ")\n"
         "  --unseen FILE       a second scan, only evaluated; 'none' for none\n"
         "                      (default " +
         defaults.unseen +
         ")\n"
         "  --phantom           the analytic Shepp-Logan head instead of a file, and no unseen scan\n"
         "  --phantom-size N    its edge in voxels (default " +
         std::to_string(defaults.phantom_size) +
         ")\n"
         "  --device cpu|cuda   where to train (default cpu)\n"
         "  --threads N         CPU threads (default: all cores)\n"
         "  --steps N           optimiser steps (default " +
         std::to_string(defaults.steps) +
         ")\n"
         "  --minutes M         stop training after M minutes even if steps are left\n"
         "  --stop-after N      stop after step N of them with a checkpoint, as Ctrl-C does\n"
         "  --seed N            of weights and patches; one seed gives one result (default 1)\n"
         "  --out DIR           where pictures, metrics and the checkpoint go (default " +
         defaults.out.string() +
         ")\n"
         "  --resume            go on from the checkpoint in DIR\n"
         "  --help              this text\n";
}

}  // namespace mri
