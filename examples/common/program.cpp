#include "program.h"

#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <stdexcept>

namespace mri {

vox::Device choose_device(const Options& options) {
  if (options.threads > 0) vox::set_num_threads(options.threads);
  if (options.device == "cpu") return vox::Device::cpu();
  if (!vox::cuda::is_available()) {
    throw std::runtime_error("--device cuda: this build or this machine has no usable GPU; use --device cpu");
  }
  return vox::Device::cuda();
}

namespace {

Volume load_scan(const std::string& path) {
  if (path.starts_with("/usr/share/mricron/") && !std::filesystem::exists(path)) {
    throw std::runtime_error(path +
                             " is not there. On Debian and Ubuntu: apt install mricron-data. Or run with "
                             "--volume FILE for another scan, or with --phantom, which needs no file");
  }
  return crop_to_even(normalise(read_scan(path)));
}

}  // namespace

Volume load_head(const Options& options) {
  const int64_t edge = options.phantom_size;
  return options.phantom ? crop_to_even(shepp_logan({edge, edge, edge})) : load_scan(options.volume);
}

std::optional<Volume> load_unseen(const Options& options) {
  const bool is_default = options.unseen == Options{}.unseen;
  const bool own_volume = options.phantom || options.volume != Options{}.volume;
  if (options.unseen == "none" || (is_default && options.phantom)) return std::nullopt;
  if (is_default && own_volume && !std::filesystem::exists(options.unseen)) return std::nullopt;
  return load_scan(options.unseen);
}

void make_folder(const std::filesystem::path& folder) {
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  // A folder that exists may still refuse files. Better to report that now than after the training.
  std::string probe = (folder / ".voxgrad_XXXXXX").string();
  const int descriptor = error ? -1 : mkstemp(probe.data());
  if (descriptor < 0) {
    throw std::runtime_error("--out: cannot write into the folder " + folder.string() + ": " +
                             (error ? error.message() : std::strerror(errno)) + "; choose another");
  }
  close(descriptor);
  unlink(probe.c_str());
}

RunFacts facts_of(const Options& options, const TrainingState& state) {
  RunFacts facts;
  facts.device = options.device;
  facts.threads = vox::get_num_threads();
  facts.seconds = state.seconds;
  facts.steps = state.step;
  facts.seed = options.seed;
  for (const vox::Tensor& parameter : state.network.parameters()) facts.parameters += parameter.numel();
  facts.volume = options.phantom ? "Shepp-Logan phantom" : options.volume;
  facts.unseen_volume = options.unseen;
  return facts;
}

void print_start(const RunFacts& facts, const Size& size) {
  std::printf("%s: %lld x %lld x %lld voxels; %lld parameters; training on %s\n", facts.volume.c_str(),
              static_cast<long long>(size[0]), static_cast<long long>(size[1]),
              static_cast<long long>(size[2]), static_cast<long long>(facts.parameters),
              facts.device.c_str());
  std::fflush(stdout);
}

void try_to_draw(const std::filesystem::path& png,
                 const std::function<void(const std::filesystem::path&)>& draw) {
  try {
    draw(png);
    std::printf("wrote %s\n", png.c_str());
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s was not drawn: %s\n", png.c_str(), error.what());
  }
}

int report_interruption(const TrainingState& state) {
  std::printf("stopped after step %lld of %lld; the same command with --resume goes on\n",
              static_cast<long long>(state.step), static_cast<long long>(state.steps));
  return interrupted() ? 130 : 0;  // 128 + SIGINT, as in shells
}

int run_program(int argc, const char* const* argv, const About& about, Options& options,
                const Settings& settings, const std::function<int()>& experiment) {
  const std::string help = usage(about.name, about.purpose, options, about.own_options);
  try {
    parse_options(argc, argv, options, settings);
    catch_interrupts();
    if (!options.help) return experiment();
    std::fputs(help.c_str(), stdout);
    return 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "error: %s\n", error.what());
    return dynamic_cast<const UsageError*>(&error) ? 2 : 1;
  }
}

}  // namespace mri
