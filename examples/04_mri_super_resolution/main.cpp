// 04: super-resolution of a head scan. You learn how to train on volumes and how to evaluate honestly:
//
//   1. Load a scan; its intensities become 0..1.
//   2. Degrade it to means of 2x2x2 cells. Trilinear interpolation back is the method to beat.
//   3. Set planes apart for evaluation, and train a small 3-D network on patches of the others.
//   4. Evaluate both methods on the planes set apart, and on a head of another species.
//   5. Show slices.png, unseen.png, curves.png and metrics.json.
#include <cstdio>
#include <filesystem>
#include <optional>
#include <utility>

#include <voxgrad/voxgrad.h>

#include "../common/pictures.h"
#include "../common/program.h"
#include "../common/training.h"
#include "figures.h"
#include "metrics.h"
#include "network.h"
#include "patches.h"

namespace {

using namespace mri;

// The truth, its low resolution, and trilinear interpolation back. The network's result comes later.
Comparison degrade(Volume truth) {
  Comparison head;
  head.low = downsample(truth);
  head.trilinear = upsample_trilinear(head.low);
  head.truth = std::move(truth);
  return head;
}

// PSNR in the foreground of the slab, which curves.png shows.
double score_slab(SuperResolution& network, const Comparison& head, Range slab, vox::Device device) {
  const Volume ours = super_resolve(network, head.low, slab, device);
  const Volume truth = crop(head.truth, {2 * slab.begin, 0, 0}, ours.size);
  const Mask mask = foreground(truth);
  return psnr(truth, ours, &mask);
}

struct Results {
  Report report;
  Comparison head;  ///< the whole head; scored on the planes of the slab
  Split split;
  std::optional<Comparison> unseen;  ///< the second head, scored on all planes
  History history;
};

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
    const CurveFigure figure{
        "training loss (mean squared error of a batch of patches)",
        "PSNR in the foreground of the evaluation slab (dB)",
        "set yrange [*:*]; set offsets 0, 0, 0.3, 0.3; set format y '%.1f'; set key right center",
        "trilinear", report.scores.trilinear.foreground.psnr};
    draw_curves(results.history, figure, png);
  });
}

int run(const Options& options) {
  const vox::Device device = choose_device(options);
  make_folder(options.out);
  Results results;

  // 1 and 2. Load and degrade.
  Comparison& head = results.head = degrade(load_head(options));
  if (auto unseen = load_unseen(options)) results.unseen = degrade(std::move(*unseen));

  // 3. Split and train.
  const Split split = results.split = split_planes(head.low.size[0], SuperResolution::kReach);
  const PatchSampler patches(head.low, head.truth, split, options.seed);
  vox::manual_seed(options.seed);
  SuperResolution network;
  network.to(device);
  vox::optim::Adam optimizer(network.parameters());
  TrainingState state{network, optimizer, options.seed, options.steps};

  TrainingPlan plan{.stop_after = options.stop_after,
                    .minutes = options.minutes,
                    .score_unit = "dB",
                    .checkpoint = options.out / "checkpoint.safetensors"};
  if (options.resume) load_checkpoint(state, plan.checkpoint);
  const vox::data::Loader loader((options.steps + 1) * PatchSampler::kBatchSize,
                                 [&](int64_t i, vox::Generator&) { return patches.sample(i); },
                                 {.batch_size = PatchSampler::kBatchSize, .device = device});
  auto batches = loader.epoch(0, state.step + 1);  // batch number s is that of step s
  plan.take_step = [&](int64_t step) {
    const vox::data::Sample batch = *batches.next();
    optimizer.zero_grad();
    vox::Tensor loss = vox::mse_loss(network(batch[0]), batch[1]);
    loss.backward();
    optimizer.set_lr(vox::optim::cosine_lr(step - 1, {.base_lr = 1e-3, .total_steps = options.steps}));
    optimizer.step();
    return loss.item();
  };
  plan.evaluate = [&] { return score_slab(network, head, split.slab, device); };
  print_start(facts_of(options, state), head.truth.size);
  if (train(state, plan) == Outcome::interrupted) return report_interruption(state);
  vox::nn::save(options.out / "weights.safetensors", network.state_dict());

  // 4. Evaluate on planes and on a head that the network has not seen.
  Report& report = results.report;
  static_cast<RunFacts&>(report) = facts_of(options, state);
  head.ours = super_resolve(network, head.low, device);
  report.scores = score(planes(head, 2 * split.slab.begin, 2 * split.slab.length()));
  if (results.unseen) {
    results.unseen->ours = super_resolve(network, results.unseen->low, device);
    report.unseen = score(*results.unseen);
  }

  // 5. Show.
  results.history = state.history;
  show(results, options.out);
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  mri::Options options;
  return mri::run_program(
      argc, argv,
      {"04_mri_super_resolution",
       "Trains a small 3-D network to double the resolution of a head scan, and compares it\n"
       "with trilinear interpolation on a part of the head, and on another head, that it has\n"
       "not seen.\n"},
      options, {}, [&] { return run(options); });
}
