#include "train.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <optional>

#include <voxgrad/nn/atomic_file.h>

#include "../common/pictures.h"
#include "architectures.h"
#include "preprocess.h"
#include "sample.h"
#include "supervision.h"

namespace nnunet {

using std::filesystem::path;
using vox::check, vox::Tensor;
namespace data = vox::data;
namespace dist = vox::dist;

namespace {

std::vector<int64_t> allowed_labels(const Labels& labels) {
  std::vector<int64_t> allowed = labels.foreground;
  allowed.insert(allowed.begin(), 0);
  if (labels.ignore) allowed.push_back(*labels.ignore);
  return allowed;
}

Model model_of(const TrainOptions& o) {
  check<ModelError>(is_directory(o.data / "imagesTr") && is_directory(o.data / "labelsTr"), o.data.string(),
                    " is not a raw data set of nnU-Net: it has no imagesTr or no labelsTr");
  Model model = read_plans(o.plans, o.data / "dataset.json", o.configuration);
  check<ModelError>(!model.is_cascade, "configuration ", o.configuration,
                    " is the second stage of a cascade; allowed are others");
  for (const int64_t label : allowed_labels(model.labels))
    check<ModelError>(label >= 0 && label < Volume::kOutside, "dataset.json names label ", label,
                      "; labels for training are below ", Volume::kOutside, ", from 0 on");
  for (int64_t axis = 0; axis < (model.is_2d() ? 2 : 3); ++axis) model.mirrored_axes.push_back(axis);
  return model;
}

struct LabelledScan {
  vox::Image scan;
  Tensor label;  // (D, H, W), i64
};
// Throws ModelError for labels that dataset.json does not name, and for another geometry than the scan's.
LabelledScan read_labelled(const TrainOptions& o, const Model& model, const ScanFiles& files) {
  const path file = o.data / "labelsTr" / (files.name + model.file_ending);
  const vox::Image scan = read_scan(files), image = vox::read_image(file);
  check<ModelError>(image.data.shape() == scan.data[0].shape(), file.string(), ": the labels have shape ",
                    image.data.shape(), ", the scan ", scan.data[0].shape());
  for (size_t axis = 0; axis < 3; ++axis)
    for (size_t i = 0; i < 3; ++i)
      check<ModelError>(std::abs(image.spacing[axis] / scan.spacing[axis] - 1) < 1e-3 &&
                            std::abs(image.direction[axis][i] - scan.direction[axis][i]) < 1e-2 &&
                            std::abs(image.origin[i] - scan.origin[i]) < 0.1 * scan.spacing[axis],
                        file.string(),
                        ": the labels have another spacing, origin or direction than the scan: ",
                        "along axis ", axis, " spacing ", image.spacing[axis], ", the scan ",
                        scan.spacing[axis], "; origin ", image.origin[i], ", the scan ", scan.origin[i],
                        "; direction ", image.direction[axis][i], ", the scan ", scan.direction[axis][i]);
  const std::vector<int64_t> allowed = allowed_labels(model.labels);
  std::array<bool, Volume::kOutside> known{};
  for (const int64_t label : allowed) known[static_cast<size_t>(label)] = true;
  for (const float value : image.data.to(vox::f32).to_vector<float>()) {
    if (value >= 0 && value < Volume::kOutside && value == std::floor(value) &&
        known[static_cast<size_t>(value)])
      continue;
    std::string list;
    for (const int64_t label : allowed) list += vox::str(list.empty() ? "" : ", ", label);
    throw ModelError(vox::str(file.string(), ": a voxel has label ", value, "; dataset.json allows ", list));
  }
  return {scan, image.data.to(vox::i64)};
}

// The named cases, read and preprocessed by several threads.
std::vector<Volume> load(const TrainOptions& o, const Model& model, const std::vector<ScanFiles>& files) {
  const auto get = [&](int64_t i, vox::Generator&) -> data::Sample {
    const ScanFiles& one = files[static_cast<size_t>(i)];
    const LabelledScan read = read_labelled(o, model, one);
    return in_the_name_of(one, [&]() -> data::Sample {
      const Case scan = preprocess(model, read.scan.data, read.scan.spacing, {}, read.label);
      return {scan.input, scan.labels};
    });
  };
  std::vector<Volume> volumes;
  for (const data::Sample& batch : data::Loader(std::ssize(files), get, {.threads = o.workers}).epoch())
    volumes.push_back(in_the_name_of(files[volumes.size()],
                                     [&] { return make_volume(batch[0][0], batch[1][0], model.labels); }));
  return volumes;
}

// He's initialisation; a residual block starts as its shortcut.
void initialise(UNet& network) {
  const auto guard = vox::no_grad();
  for (auto& [name, parameter] : network.named_parameters()) {
    if (parameter.rank() == 5) vox::nn::init::kaiming_normal_(parameter);
    if (parameter.rank() == 1 && !name.ends_with("norm.weight")) parameter.zero_();
    if (name.ends_with("conv2.norm.weight")) parameter.zero_();
  }
}

// Voxels (3, heads), f64: of mask and label together, of the mask, and of the label.
Tensor count(const Labels& labels, const Tensor& mask, const Tensor& label) {
  const Tensor counts = labels.ignore ? vox::ne(label, *labels.ignore).to(vox::f32).unsqueeze(1)
                                      : vox::ones({}, {.device = label.device()});
  const Tensor wanted = heads_of(labels, label) * counts, given = mask * counts;
  const vox::Shape voxels{0, 2, 3, 4};
  return vox::stack({vox::sum(given * wanted, voxels), vox::sum(given, voxels), vox::sum(wanted, voxels)})
      .to(vox::f64);
}
// The mean Dice of the foreground heads that occur; NaN if none does.
double dice_of(const Labels& labels, const Tensor& counts) {
  const std::vector<double> n = counts.to(vox::Device::cpu()).to_vector<double>();
  const auto heads = static_cast<size_t>(labels.heads);
  double sum = 0, some = 0;
  for (size_t h = labels.has_regions() ? 0 : 1; h < heads; ++h)
    if (n[heads + h] + n[2 * heads + h] > 0) sum += 2 * n[h] / (n[heads + h] + n[2 * heads + h]), ++some;
  return some > 0 ? sum / some : std::numeric_limits<double>::quiet_NaN();
}
Tensor hard(const Labels& labels, const Tensor& logits) {
  return labels.has_regions() ? vox::gt(logits, 0).to(vox::f32)
                              : heads_of(labels, vox::argmax(logits, 1).to(vox::i64));
}

// Masks of whole cases, which the ranks share out; returns the mean Dice.
double validate(const TrainOptions& o, const Model& model, const std::vector<ScanFiles>& files,
                const path& folder, const std::function<void(const std::string&)>& report) {
  std::filesystem::create_directories(folder);
  double sum = 0, cases = 0;
  for (size_t i = static_cast<size_t>(dist::rank()); i < files.size();
       i += static_cast<size_t>(dist::size())) {
    LabelledScan one = read_labelled(o, model, files[i]);
    const Case scan = preprocess(model, one.scan.data, one.scan.spacing);
    one.scan.data = mask_of(
        model, scan, predict_logits(model, scan.input, {.device = o.device, .precision = o.precision}));
    vox::write_image(folder / (files[i].name + model.file_ending), one.scan);
    const Tensor mask = heads_of(model.labels, one.scan.data.to(vox::i64).unsqueeze(0));
    const double dice = dice_of(model.labels, count(model.labels, mask, one.label.unsqueeze(0)));
    report(vox::str(files[i].name, ": Dice ", dice));
    if (!std::isnan(dice)) sum += dice, ++cases;
  }
  const Tensor all = dist::all_reduce(vox::from_vector<double>({sum, cases}, {2}));
  return all[0].item() / all[1].item();
}

}  // namespace

TrainResult train(const TrainOptions& o, const std::function<void(const std::string&)>& report) {
  Model model = model_of(o);
  const path folder = o.output / ("fold_" + o.fold), latest = folder / "checkpoint_latest.safetensors",
             final = folder / "checkpoint_final.safetensors";
  check<ModelError>(!o.resume || exists(latest), "there is no ", latest.string(), " to resume from");
  check<ModelError>(o.resume || o.overwrite || !(exists(latest) || exists(final)), folder.string(),
                    " has a trained model: --resume goes on, --overwrite begins anew");
  const std::vector<ScanFiles> scans = find_scans(model, o.data / "imagesTr");
  std::vector<std::string> names;
  for (const ScanFiles& scan : scans) {
    names.push_back(scan.name);
    const path label = o.data / "labelsTr" / (scan.name + model.file_ending);
    check<ModelError>(exists(label), "case ", scan.name, " has no labels: there is no ", label.string());
  }
  check<ModelError>(model.batch_size >= dist::size(), "the plan's batch of ", model.batch_size,
                    " is too small for ", dist::size(), " ranks");
  const Split parts = split(o.data, names, o.fold);
  const auto files_of = [&](const std::vector<std::string>& list) {
    std::vector<ScanFiles> files;
    for (const ScanFiles& scan : scans)
      if (std::find(list.begin(), list.end(), scan.name) != list.end()) files.push_back(scan);
    return files;
  };
  const std::vector<ScanFiles> validation_files = files_of(parts.validation);
  const std::vector<Volume> training = load(o, model, files_of(parts.training)),
                            validation = load(o, model, validation_files);

  const bool is_first = dist::rank() == 0;

  vox::manual_seed(static_cast<uint64_t>(o.seed));
  UNet network(model.architecture, model.in_channels(), model.labels.heads);
  initialise(network);
  network.to(o.device);
  vox::optim::SGD sgd(network.parameters(),
                      {.lr = 1e-2, .momentum = 0.99, .weight_decay = 3e-5, .nesterov = true});
  TrainResult result;
  int64_t epoch = 0, seed = o.seed, epochs = o.epochs, iterations = o.iterations;
  vox::nn::Checkpoint checkpoint;
  checkpoint.add("network", network);
  checkpoint.add("optimizer", sgd);
  checkpoint.add("epoch", epoch);
  checkpoint.add("seed", seed);
  checkpoint.add("epochs", epochs);
  checkpoint.add("iterations", iterations);
  checkpoint.add("loss", result.loss);
  checkpoint.add("dice", result.dice);
  if (o.resume) checkpoint.load(latest);
  check<ModelError>(seed == o.seed && epochs == o.epochs && iterations == o.iterations, latest.string(),
                    " is of a run with seed ", seed, ", ", epochs, " epochs and ", iterations,
                    " iterations; this one has ", o.seed, ", ", o.epochs, " and ", o.iterations);
  dist::DataParallel parallel(network);
  if (is_first) {
    std::filesystem::create_directories(folder);
    mri::write_text(o.output / "plans.json", vox::nn::detail::read_whole("train", o.plans));
    mri::write_text(o.output / "dataset.json", vox::nn::detail::read_whole("train", o.data / "dataset.json"));
  }

  // This rank's part of each batch.
  const int64_t first = model.batch_size * dist::rank() / dist::size(),
                part = model.batch_size * (dist::rank() + 1) / dist::size() - first;
  const double share = static_cast<double>(part) / static_cast<double>(model.batch_size);
  const Augmentation augmentation(model);
  const auto batches = [&](const std::vector<Volume>& volumes, bool augment, int64_t count) {
    const auto get = [&, augment](int64_t i, vox::Generator& random) {
      const int64_t case_number =
          vox::randint(0, std::ssize(volumes), {}, {vox::i64}, random).item<int64_t>();
      const Volume& volume = volumes[static_cast<size_t>(case_number)];
      const double place = static_cast<double>(first + i % part),
                   size = static_cast<double>(model.batch_size);
      const bool foreground = place >= std::nearbyint(size * (1 - 0.33));
      return augment ? augmentation.patch(volume, foreground, random)
                     : augmentation.plain_patch(volume, foreground, random);
    };
    const auto rank = static_cast<uint64_t>(dist::rank());
    return data::Loader(count * part, get,
                        {.batch_size = part,
                         .seed = static_cast<uint64_t>(o.seed) * 8192 + 2 * rank + augment,
                         .threads = o.workers,
                         .device = o.device});
  };
  const data::Loader training_batches = batches(training, true, o.iterations),
                     validation_batches = batches(validation, false, o.validation_iterations);

  std::optional<vox::nn::CsvLog> csv;
  std::optional<vox::nn::TensorBoardLog> board;
  std::optional<vox::nn::Progress> progress;
  if (is_first) {
    csv.emplace(folder / "progress.csv", std::vector<std::string>{"epoch", "lr", "loss", "dice"}, epoch);
    board.emplace(folder);
    progress.emplace(o.epochs * o.iterations, vox::nn::ProgressOptions{.done = epoch * o.iterations});
  }
  const Precision precision(o.precision);
  const int64_t last = o.stop_after > 0 ? std::min(o.stop_after, o.epochs) : o.epochs;
  for (std::string text; epoch < last;) {
    const double lr = vox::optim::polynomial_lr(epoch, {.base_lr = 1e-2, .total_steps = o.epochs});
    sgd.set_lr(lr);
    network.train();
    Tensor sum = vox::zeros({}, {.device = o.device});
    int64_t step = epoch * o.iterations;
    for (const data::Sample& batch : training_batches.epoch(epoch)) {
      sgd.zero_grad();
      const Tensor loss =
          deep_loss(model.labels, model.batch_dice, network.forward(batch[0], true), batch[1].to(vox::i64));
      parallel.backward(loss, {.share = share});
      vox::optim::clip_grad_norm_(network.parameters(), 12);
      sgd.step();
      sum = sum + loss.detach();
      if (progress) progress->update(++step, text);
    }
    const auto guard = vox::no_grad();
    network.eval();
    Tensor counts = vox::zeros({3, model.labels.heads}, {vox::f64, o.device});
    for (const data::Sample& batch : validation_batches.epoch(epoch))
      counts = counts + count(model.labels, hard(model.labels, network(batch[0])), batch[1].to(vox::i64));
    result.loss.push_back(dist::all_reduce(sum * share).item() / static_cast<double>(o.iterations));
    check<ModelError>(std::isfinite(result.loss.back()), "the loss of epoch ", epoch + 1, " is ",
                      result.loss.back(), "; the last checkpoint is of the epoch before");
    result.dice.push_back(dice_of(model.labels, dist::all_reduce(counts)));
    ++epoch;
    text = vox::str("loss ", result.loss.back(), "  Dice ", result.dice.back());
    if (!is_first) continue;
    csv->row({static_cast<double>(epoch), lr, result.loss.back(), result.dice.back()});
    board->scalar("loss", epoch, result.loss.back());
    board->scalar("dice", epoch, result.dice.back());
    checkpoint.save(latest);
  }
  progress.reset();
  result.validation_dice = std::numeric_limits<double>::quiet_NaN();
  if (epoch < o.epochs) return result;
  const std::string axes = model.is_2d() ? "[0, 1]" : "[0, 1, 2]";
  model.folds = {network.state_dict()};
  if (is_first)
    vox::nn::save(final, model.folds[0],
                  {{"trainer", "voxgrad"}, {"configuration", o.configuration}, {"mirrored_axes", axes}});
  result.validation_dice = validate(o, model, validation_files, folder / "validation", report);
  return result;
}

}  // namespace nnunet
