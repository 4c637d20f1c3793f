// Super-resolution of a head scan, from the file to the picture:
//
//   1. Load a scan; its intensities become 0..1.
//   2. Degrade it to means of 2x2x2 cells. Trilinear interpolation back is the method to beat.
//   3. Set planes apart for evaluation, and train a small 3-D network on patches of the others.
//   4. Evaluate both methods on the planes set apart, and on a head of another species.
//   5. Show slices.png, unseen.png, curves.png and metrics.json.
#include <cstdio>
#include <exception>
#include <filesystem>
#include <optional>
#include <stdexcept>
#include <utility>

#include <voxgrad/voxgrad.h>

#include "figures.h"
#include "metrics.h"
#include "network.h"
#include "options.h"
#include "patches.h"
#include "train.h"
#include "volume.h"

namespace {

using namespace mri;

vox::Device choose_device(const Options& options) {
  if (options.threads > 0) vox::set_num_threads(options.threads);
  if (options.device == "cpu") return vox::Device::cpu();
  if (!vox::cuda::is_available()) {
    throw std::runtime_error("--device cuda: this build or this machine has no usable GPU; use --device cpu");
  }
  return vox::Device::cuda();
}

Volume load_scan(const std::string& path) {
  if (path.starts_with("/usr/share/mricron/") && !std::filesystem::exists(path)) {
    throw std::runtime_error(path +
                             " is not there. On Debian and Ubuntu: apt install mricron-data. Or run with "
                             "--volume FILE for another scan, or with --phantom, which needs no file");
  }
  return crop_to_even(normalise(read_nifti(path)));
}

// The truth, its low resolution, and trilinear interpolation back. The network's result comes later.
Comparison degrade(Volume truth) {
  Comparison head;
  head.low = downsample(truth);
  head.trilinear = upsample_trilinear(head.low);
  head.truth = std::move(truth);
  return head;
}

Comparison load_head(const Options& options) {
  const int64_t edge = options.phantom_size;
  return degrade(options.phantom ? crop_to_even(shepp_logan({edge, edge, edge})) : load_scan(options.volume));
}

// The second head is not used in training. If the user gives a scan of their own, this one may be missing.
std::optional<Comparison> load_unseen(const Options& options) {
  const bool is_default = options.unseen == Options{}.unseen;
  const bool own_volume = options.phantom || options.volume != Options{}.volume;
  if (options.unseen == "none" || (is_default && options.phantom)) return std::nullopt;
  if (is_default && own_volume && !std::filesystem::exists(options.unseen)) return std::nullopt;
  return degrade(load_scan(options.unseen));
}

// PSNR in the foreground of the slab, which curves.png shows.
double score_slab(SuperResolution& network, const Comparison& head, Range slab, vox::Device device) {
  const Volume ours = super_resolve(network, head.low, slab, device);
  const Volume truth = crop(head.truth, {2 * slab.begin, 0, 0}, ours.size);
  const Mask mask = foreground(truth);
  return psnr(truth, ours, &mask);
}

void make_folder(const std::filesystem::path& folder) {
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  if (!error && std::filesystem::is_directory(folder)) return;
  const std::string reason = error ? error.message() : "it is a file";
  throw std::runtime_error("--out: cannot make the folder " + folder.string() + ": " + reason +
                           "; choose another");
}

struct Results {
  Report report;
  Comparison head;  ///< the whole head; scored on the planes of the slab
  Split split;
  std::optional<Comparison> unseen;  ///< the second head, all of which was scored
  History history;
};

// If a picture fails, the numbers must still be written.
template <class Draw>
void try_to_draw(const std::filesystem::path& png, Draw draw) {
  try {
    draw(png);
    std::printf("wrote %s\n", png.c_str());
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s was not drawn: %s\n", png.c_str(), error.what());
  }
}

// The voxel where the drawn planes cross: in the middle of the scored planes, and beside the cleft between
// the hemispheres.
Size view_point(const Size& size, int64_t begin, int64_t end) {
  return {(begin + end) / 2, size[1] / 2, size[2] * 45 / 100};
}

// Prints the scores and writes metrics.json, slices.png, unseen.png and curves.png. A picture that cannot be
// drawn, because gnuplot is missing for example, is reported on stderr and left out.
void show(const Results& results, const std::filesystem::path& folder) {
  const Report& report = results.report;
  std::printf("%s, planes not trained on:\n%s", report.volume.c_str(), to_table(report.scores).c_str());
  if (report.unseen) {
    std::printf("%s, unseen:\n%s", report.unseen_volume.c_str(), to_table(*report.unseen).c_str());
  }
  write_text(folder / "metrics.json", to_json(report));

  try_to_draw(folder / "slices.png", [&](const std::filesystem::path& png) {
    const int64_t begin = 2 * results.split.slab.begin, end = 2 * results.split.slab.end;
    const SliceFigure figure{"Twice the resolution, on planes that were not trained on",
                             view_point(results.head.truth.size, begin, end), begin, end, report.scores};
    draw_slices(results.head, figure, png);
  });
  if (results.unseen) {
    try_to_draw(folder / "unseen.png", [&](const std::filesystem::path& png) {
      const Size size = results.unseen->truth.size;
      const SliceFigure figure{"Twice the resolution, of a head that was not trained on",
                               view_point(size, 0, size[0]), 0, size[0], *report.unseen};
      draw_slices(*results.unseen, figure, png);
    });
  }
  try_to_draw(folder / "curves.png", [&](const std::filesystem::path& png) {
    draw_curves(results.history, report.scores.trilinear.foreground.psnr, png);
  });
}

int run(const Options& options) {
  const vox::Device device = choose_device(options);
  make_folder(options.out);
  Results results;

  // 1 and 2. Load and degrade.
  Comparison& head = results.head = load_head(options);
  results.unseen = load_unseen(options);
  Report& report = results.report;
  report.volume = options.phantom ? "Shepp-Logan phantom" : options.volume;
  report.unseen_volume = options.unseen;

  // 3. Split and train.
  const Split split = results.split = split_planes(head.low.size[0], SuperResolution::kReach);
  const PatchSampler patches(head.low, head.truth, split, options.seed);
  TrainingState state(options.seed, options.steps, device);
  SuperResolution& network = state.network;
  for (const vox::Tensor& parameter : network.parameters()) report.parameters += parameter.numel();
  const TrainingPlan plan{.steps = options.steps,
                          .stop_after = options.stop_after,
                          .minutes = options.minutes,
                          .device = device,
                          .checkpoint = options.out / "checkpoint.safetensors"};
  if (options.resume) load_checkpoint(state, plan.checkpoint);

  std::printf("%s: %lld x %lld x %lld voxels; %lld parameters; training on %s\n", report.volume.c_str(),
              static_cast<long long>(head.truth.size[0]), static_cast<long long>(head.truth.size[1]),
              static_cast<long long>(head.truth.size[2]), static_cast<long long>(report.parameters),
              to_string(device).c_str());
  std::fflush(stdout);
  const auto evaluate = [&] { return score_slab(network, head, split.slab, device); };
  if (train(state, patches, plan, evaluate) == Outcome::interrupted) {
    std::printf("stopped after step %lld of %lld; the same command with --resume goes on\n",
                static_cast<long long>(state.step), static_cast<long long>(options.steps));
    return interrupted() ? 130 : 0;  // 128 + SIGINT, as in shells
  }
  save_weights(network, options.out / "weights.safetensors");

  // 4. Evaluate on planes and on a head that the network has not seen.
  head.ours = super_resolve(network, head.low, device);
  report.scores = score(planes(head, 2 * split.slab.begin, 2 * split.slab.length()));
  if (results.unseen) {
    results.unseen->ours = super_resolve(network, results.unseen->low, device);
    report.unseen = score(*results.unseen);
  }
  report.device = options.device;
  report.threads = vox::get_num_threads();
  report.seconds = state.seconds;
  report.steps = state.step;
  report.seed = options.seed;

  // 5. Show.
  results.history = state.history;
  show(results, options.out);
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    const mri::Options options = mri::parse_options(argc, argv);
    if (options.help) {
      std::fputs(mri::usage().c_str(), stdout);
      return 0;
    }
    mri::catch_interrupts();
    return run(options);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "error: %s\n", error.what());
    return dynamic_cast<const mri::UsageError*>(&error) ? 2 : 1;
  }
}
