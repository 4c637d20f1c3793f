// Super-resolution of a head scan, from the file to the picture.
//
//   1. Load a scan; its intensities become 0..1.
//   2. Degrade it: means of 2x2x2 cells are the low resolution. Trilinear interpolation is the method to
//   beat.
//   3. Set planes apart for evaluation, and train a small 3-D network on patches of the others.
//   4. Score both methods on the evaluation planes, and on a scan of another head, even another species.
//   5. Show: slices.png, unseen.png, curves.png, metrics.json, weights.safetensors.
#include <algorithm>
#include <cstdio>
#include <exception>
#include <filesystem>
#include <optional>

#include <voxgrad/core/cuda.h>

#include "comparison.h"
#include "figures.h"
#include "files.h"
#include "infer.h"
#include "intensity.h"
#include "interrupt.h"
#include "nifti.h"
#include "options.h"
#include "phantom.h"
#include "report.h"
#include "resample.h"
#include "train.h"

namespace {

using namespace mri;

vox::Device choose_device(const Options& options) {
  if (options.threads > 0) vox::set_num_threads(options.threads);
  if (options.device == "cpu") return vox::Device::cpu();
  if (!vox::cuda::is_available()) {
    throw std::runtime_error(
        "--device cuda: this build or this machine has no usable CUDA device; use --device cpu");
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

/// The truth, its low resolution, and trilinear interpolation back. Ours is still to come.
Comparison degrade(Volume truth) {
  Comparison head;
  head.low = downsample(truth);
  head.trilinear = upsample_trilinear(head.low);
  head.truth = std::move(truth);
  return head;
}

/// Draws, unless gnuplot is missing: a picture less is no reason to lose the numbers.
template <class Draw>
void try_to_draw(const std::filesystem::path& png, Draw draw) {
  try {
    draw(png);
    std::printf("wrote %s\n", png.c_str());
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s was not drawn: %s\n", png.c_str(), error.what());
  }
}

/// A second scan that takes no part in training.
std::optional<Comparison> evaluate_unseen(const Options& options, SuperResolution& network,
                                          vox::Device device) {
  if (options.phantom || options.unseen == "none") return std::nullopt;
  Comparison head = degrade(load_scan(options.unseen));
  head.ours = super_resolve(network, head.low, device);
  return head;
}

int run(const Options& options) {
  const vox::Device device = choose_device(options);
  std::filesystem::create_directories(options.out);

  // 1 and 2. Load and degrade.
  const int64_t edge = options.phantom_size;
  Comparison head =
      degrade(options.phantom ? crop_to_even(shepp_logan({edge, edge, edge})) : load_scan(options.volume));
  const std::string name = options.phantom ? "Shepp-Logan phantom" : options.volume;
  const Size size = head.truth.size;
  std::printf("%s: %lld x %lld x %lld voxels on %s\n", name.c_str(), static_cast<long long>(size[0]),
              static_cast<long long>(size[1]), static_cast<long long>(size[2]), to_string(device).c_str());

  // 3. Split and train.
  const Split split = split_planes(head.low.size[0], SuperResolution::kReach);
  const auto slab_of = [&](const Comparison& whole) {
    return planes(whole, 2 * split.slab.begin, 2 * split.slab.length());
  };
  const PatchSampler patches(head.low, head.truth, split, options.seed);
  TrainingState state(options.seed, options.steps, device);
  const std::filesystem::path checkpoint = options.out / "checkpoint.safetensors";
  if (options.resume) load_checkpoint(state, checkpoint);

  const Volume slab_truth =
      crop(head.truth, {2 * split.slab.begin, 0, 0}, {2 * split.slab.length(), size[1], size[2]});
  const Mask slab_foreground = foreground(slab_truth);
  const auto evaluate = [&] {
    return psnr(slab_truth, super_resolve(state.network, head.low, split.slab, device), &slab_foreground);
  };
  const TrainingPlan plan{.steps = options.steps,
                          .stop_after = options.stop_after,
                          .minutes = options.minutes,
                          .device = device,
                          .checkpoint = checkpoint};
  if (train(state, patches, plan, evaluate) == Outcome::interrupted) {
    std::printf("stopped after step %lld of %lld; the same command with --resume goes on\n",
                static_cast<long long>(state.step), static_cast<long long>(options.steps));
    return interrupted() ? 130 : 0;  // 128 + SIGINT, as the shell does
  }
  save_weights(state.network, options.out / "weights.safetensors");

  // 4. Score on planes, and on a head, that the network has not seen.
  head.ours = super_resolve(state.network, head.low, device);
  Report report;
  report.device = options.device;
  report.threads = vox::get_num_threads();
  report.seconds = state.seconds;
  report.steps = state.step;
  report.seed = options.seed;
  for (const vox::Tensor& parameter : state.network.parameters()) report.parameters += parameter.numel();
  report.volume = name;
  report.scores = score(slab_of(head));
  std::printf("evaluation slab:\n%s", to_table(report.scores).c_str());
  const std::optional<Comparison> unseen = evaluate_unseen(options, state.network, device);
  if (unseen) {
    report.unseen_volume = options.unseen;
    report.unseen = score(*unseen);
    std::printf("unseen head, %s:\n%s", options.unseen.c_str(), to_table(*report.unseen).c_str());
  }

  // 5. Show.
  write_text(options.out / "metrics.json", to_json(report));
  try_to_draw(options.out / "slices.png", [&](const auto& png) {
    const int64_t begin = 2 * split.slab.begin, end = 2 * split.slab.end;
    draw_slices(head,
                {"Twice the resolution, on planes that were not trained on",
                 {(begin + end) / 2, size[1] / 2, size[2] * 45 / 100},
                 begin,
                 end,
                 report.scores},
                png);
  });
  if (unseen) {
    try_to_draw(options.out / "unseen.png", [&](const auto& png) {
      const Size s = unseen->truth.size;
      draw_slices(*unseen,
                  {"Twice the resolution, of a head that was not trained on",
                   {s[0] / 2, s[1] / 2, s[2] * 45 / 100},
                   0,
                   s[0],
                   *report.unseen},
                  png);
    });
  }
  try_to_draw(options.out / "curves.png", [&](const auto& png) {
    draw_curves(state.history, report.scores.trilinear.foreground.psnr, png);
  });
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
  } catch (const mri::UsageError& error) {
    std::fprintf(stderr, "error: %s\n", error.what());
    return 2;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "error: %s\n", error.what());
    return 1;
  }
}
