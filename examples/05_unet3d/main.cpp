// 05: segmentation of the ventricles in a head scan. You learn to build a 3-D U-Net and to train it on
// patches:
//
//   1. Load a scan, label its ventricles by intensity and morphology, and halve the resolution of both.
//   2. Set coronal planes apart for evaluation, and train a 3-D U-Net on patches of the others.
//   3. Evaluate it on the planes set apart, and on a head of another species.
//   4. Show slab.png, unseen.png, curves.png and metrics.json.
#include <algorithm>
#include <cstdio>
#include <optional>
#include <string>
#include <utility>

#include <voxgrad/voxgrad.h>

#include "../common/pictures.h"
#include "../common/program.h"
#include "../common/ranks.h"
#include "../common/training.h"
#include "labels.h"
#include "loss.h"
#include "report.h"
#include "sampler.h"
#include "unet.h"

namespace {

using namespace unet;
using std::filesystem::path;

struct Options : mri::Options {
  Options() {
    steps = 400;
    out = "out/unet3d";
  }
  std::string dtype = "f32";
  int64_t batch = Sampler::kBatchSize;
};

constexpr int64_t kGap = 4;  // coronal planes on each side of the slab that are neither trained on nor scored

// The mask at half the resolution: 1 where at least half of a 2x2x2 cell is 1.
Mask halve(const Mask& mask, const mri::Volume& like) {
  mri::Volume volume(like.size);
  std::copy(mask.begin(), mask.end(), volume.voxels.begin());
  volume = downsample(volume);
  Mask half;
  for (const float part : volume.voxels) half.push_back(part >= 0.5f);
  return half;
}

Segmented label(const mri::Volume& scan) {
  const Labels labels = label_ventricles(scan);
  mri::Volume half = downsample(scan);
  const mri::Box box = mri::whole(half.size);
  return {std::move(half), halve(labels.ventricles, scan), halve(labels.dark, scan), {}, box};
}

void print(const std::string& name, const Scores& scores) {
  std::printf("%s: Dice %.4f; of all dark voxels %.4f\n", name.c_str(), scores.ours, scores.threshold);
}

int run(const Options& options) {
  vox::dist::init();
  const bool is_first = vox::dist::rank() == 0;
  if (options.batch < vox::dist::size())
    throw mri::UsageError("--batch must be at least the number of ranks, " +
                          std::to_string(vox::dist::size()));
  vox::Device device = mri::choose_device(options);
  if (device.is_cuda()) device = vox::Device::cuda(vox::dist::local_rank());
  // Parameters stay f32, so that small updates are not lost; under this guard they are cast on the way.
  const auto casts = [&] { return vox::autocast(vox::bf16, options.dtype == "bf16"); };
  mri::make_folder(options.out);

  // 1. Load and label.
  Segmented head = label(load_head(options));
  std::optional<Segmented> unseen;
  if (auto scan = load_unseen(options)) unseen = label(*scan);

  // 2. Split and train.
  const mri::Split split = mri::split_planes(head.scan.size[1], kGap, 45, 55);
  head.box.begin[1] = split.slab.begin;
  head.box.end[1] = split.slab.end;
  const Sampler sampler(head.scan, head.label, split, options.seed);
  vox::manual_seed(options.seed);
  UNet network;
  network.to(device);
  vox::optim::SGD optimizer(network.parameters(), {.momentum = 0.9, .weight_decay = 3e-5, .nesterov = true});
  vox::dist::DataParallel parallel(network);
  mri::TrainingState state{network, optimizer, options.seed, options.steps};

  mri::TrainingPlan plan{.stop_after = options.stop_after,
                         .minutes = options.minutes,
                         .score_unit = "Dice",
                         .checkpoint = is_first ? options.out / "checkpoint.safetensors" : path(),
                         .any = vox::dist::any};
  if (options.resume) load_checkpoint(state, options.out / "checkpoint.safetensors");
  // Each rank computes a part of every batch.
  const int64_t first = options.batch * vox::dist::rank() / vox::dist::size(),
                last = options.batch * (vox::dist::rank() + 1) / vox::dist::size();
  const double share = static_cast<double>(last - first) / static_cast<double>(options.batch);
  const vox::data::Loader loader(
      (options.steps + 1) * options.batch,
      [&](int64_t i, vox::Generator&) { return sampler.sample(i / options.batch, i % options.batch); },
      {.batch_size = options.batch, .device = device});
  auto batches = loader.epoch(0, state.step + 1);  // batch number s is that of step s
  plan.take_step = [&](int64_t step) {
    const auto guard = casts();
    const vox::data::Sample batch = *batches.next();
    optimizer.zero_grad();
    const vox::Tensor scores = network(batch[0].slice(0, first, last));
    const vox::Tensor loss = segmentation_loss(scores, batch[1].slice(0, first, last));
    parallel.backward(loss, {.share = share});
    optimizer.set_lr(vox::optim::cosine_lr(step - 1, {.base_lr = 0.1, .total_steps = options.steps}));
    optimizer.step();
    return vox::dist::all_reduce(loss.detach() * share).item();
  };
  const auto segment_box = [&](Segmented& s, const mri::Box& box) {
    const auto guard = casts();
    s.ours = segment(network, s.scan, box, sampler.patch(), device);
  };
  plan.evaluate = [&] {
    if (!is_first) return 0.0;
    segment_box(head, head.box);
    return score(head).ours;
  };
  if (is_first) print_start(facts_of(options, state), head.scan.size);
  const mri::Outcome outcome = train(state, plan);
  if (!is_first) return 0;
  if (outcome == mri::Outcome::interrupted) return report_interruption(state);
  vox::nn::save(options.out / "weights.safetensors", network.state_dict());

  // 3. Evaluate. The picture shows the whole head, the score counts the slab.
  Report report{facts_of(options, state), options.dtype, {}, {}};
  segment_box(head, mri::whole(head.scan.size));
  report.scores = score(head);
  print(report.volume + ", planes not trained on", report.scores);
  if (unseen) {
    segment_box(*unseen, unseen->box);
    report.unseen = score(*unseen);
    print(report.unseen_volume + ", unseen", *report.unseen);
  }

  // 4. Show.
  mri::write_text(options.out / "metrics.json", to_json(report));
  mri::try_to_draw(options.out / "slab.png", [&](const path& png) {
    draw_overlays(head,
                  mri::format("Ventricles; Dice %.3f between the dashed lines, which training never saw",
                              report.scores.ours),
                  png);
  });
  if (unseen) {
    mri::try_to_draw(options.out / "unseen.png", [&](const path& png) {
      draw_overlays(
          *unseen,
          mri::format("Ventricles of a head that was not trained on; Dice %.3f", report.unseen->ours), png);
    });
  }
  mri::try_to_draw(options.out / "curves.png", [&](const path& png) {
    draw_curves(state.history,
                {"training loss (cross entropy + soft Dice of a batch of patches)",
                 "Dice on planes that were not trained on",
                 "set yrange [0:1]; set format y '%.1f'; set key bottom right", "all dark voxels",
                 report.scores.threshold},
                png);
  });
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  Options options;
  return mri::run_program(
      argc, argv,
      {"05_unet3d",
       "Trains a 3-D U-Net to segment the ventricles in a head scan, and scores it on planes and\n"
       "on another head that it has not seen.\n",
       "  --dtype f32|bf16    what the network computes in (default f32)\n"
       "  --batch N           patches in a step, of all ranks together (default 2)\n"},
      options,
      {{"--dtype", mri::stored_in(options.dtype, {"f32", "bf16"})},
       {"--batch", mri::stored_in(options.batch, 1, 1024)}},
      [&] { return run(options); });
}
