// 06: models of nnU-Net v2 as a C++ program. You learn to build a network from its description, to load
// PyTorch's weights, and to run it on volumes of any size:
//
//   1. Read the plans, the dataset's description and the weights of all folds (plans.cpp, architectures.h).
//   2. Crop, normalise and resample each scan (preprocess.cpp).
//   3. Average the network's logits over windows, flips and folds (predict.cpp).
//   4. Resample them to the scan's voxels, and write the mask.
//
// And to train such a model: boxes of preprocessed cases, changed at random (sample.cpp), nnU-Net's loss
// (supervision.h), and its schedule (train.cpp).
#include <unistd.h>

#include <cerrno>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <sstream>

#include <voxgrad/voxgrad.h>

#include "../common/options.h"
#include "../common/ranks.h"
#include "predict.h"
#include "train.h"

namespace {

constexpr const char* kUsage =
    "Usage: voxgrad_nnunet predict --model DIR --input DIR --output DIR [options]\n"
    "Writes the mask of each scan in the input folder, as nnUNetv2_predict does.\n"
    "  --model DIR         a model folder of nnU-Net v2: plans.json, dataset.json and fold_N with\n"
    "                      checkpoint_final.safetensors, which convert.py makes from checkpoint_final.pth\n"
    "  --input DIR         scans: NAME_0000.nii.gz, ... for the channels (or .mha, .nrrd: as in training)\n"
    "  --output DIR        where the masks go, NAME.nii.gz\n"
    "  --folds 0,1,...     folds to average (default: all that are there)\n"
    "  --previous DIR      masks of the first stage, for a cascade\n"
    "  --step S            distance of windows, as a share of their size (default 0.5)\n"
    "  --no-mirroring      do not average over flips: 4 to 8 times as fast, and less exact\n"
    "\n"
    "Usage: voxgrad_nnunet train --data DIR --plans FILE --output DIR [options]\n"
    "Trains a model folder, which predict reads, as nnUNetv2_train does.\n"
    "  --data DIR          a raw data set of nnU-Net: imagesTr, labelsTr and dataset.json\n"
    "  --plans FILE        the plans.json that nnUNetv2_plan_and_preprocess wrote\n"
    "  --output DIR        the model folder\n"
    "  --configuration C   of the plans (default 3d_fullres)\n"
    "  --fold N            0 to 4, or all (default 0)\n"
    "  --epochs N          (default 1000)\n"
    "  --iterations N      steps in an epoch (default 250)\n"
    "  --stop-after N      stop when N epochs are finished; --resume goes on\n"
    "  --resume            go on after the last finished epoch\n"
    "  --overwrite         begin anew although the fold has a checkpoint\n"
    "  --seed N            of weights and patches (default 0)\n"
    "  --workers N         threads that prepare patches (default: those of --threads on a GPU, otherwise 1)\n"
    "  --ranks N           processes, each with a GPU and a part of every batch; needs mpirun\n"
    "\n"
    "Options of both:\n"
    "  --device cpu|cuda   where the network runs (default cpu)\n"
    "  --precision P       of its convolutions: f32 (default), tf32 or bf16; predict knows f16 too\n"
    "  --threads N         CPU threads (default: all cores)\n";

struct Arguments {
  std::filesystem::path model, input, previous;
  std::vector<std::string> folds;
  nnunet::PredictOptions predict;
  nnunet::TrainOptions train;  // device, precision and output hold for predict too
  int64_t ranks = 1;
};

using mri::stored_in, mri::UsageError;

Arguments parse(int argc, char** argv, bool trains) {
  Arguments a;
  nnunet::TrainOptions& t = a.train;
  t.workers = 0;
  std::string device = "cpu";
  std::vector<std::string> precisions{"f32", "tf32", "bf16"};
  if (!trains) precisions.emplace_back("f16");
  constexpr int64_t most = 1'000'000'000;
  mri::Settings settings{
      {"--output", stored_in(t.output)},
      {"--device", stored_in(device, {"cpu", "cuda"})},
      {"--precision", stored_in(t.precision, precisions)},
      {"--threads", [](auto& o, auto& v) { vox::set_num_threads(mri::parse_number<int>(o, v, 1, 1024)); }}};
  mri::Settings of_train{{"--data", stored_in(t.data)},
                         {"--plans", stored_in(t.plans)},
                         {"--configuration", stored_in(t.configuration)},
                         {"--fold", stored_in(t.fold)},
                         {"--epochs", stored_in(t.epochs, 1, most)},
                         {"--iterations", stored_in(t.iterations, 1, most)},
                         {"--stop-after", stored_in(t.stop_after, 1, most)},
                         {"--seed", stored_in(t.seed, 0, most)},
                         {"--workers", stored_in(t.workers, 1, most)},
                         {"--ranks", stored_in(a.ranks, 1, most)}};
  mri::Settings of_predict{{"--model", stored_in(a.model)},
                           {"--input", stored_in(a.input)},
                           {"--previous", stored_in(a.previous)},
                           {"--folds",
                            [&](auto&, auto& v) {
                              std::istringstream in(v);
                              for (std::string fold; std::getline(in, fold, ',');) a.folds.push_back(fold);
                            }},
                           {"--step", stored_in(a.predict.step, 0.01, 1)}};
  settings.merge(trains ? of_train : of_predict);
  const mri::Flags of_trains{{"--resume", [&] { t.resume = true; }},
                             {"--overwrite", [&] { t.overwrite = true; }}},
      of_predicts{{"--no-mirroring", [&] { a.predict.mirror = false; }}};
  const mri::Flags& flags = trains ? of_trains : of_predicts;
  mri::parse_arguments(argc, argv, 2, flags, settings);
  if (device == "cuda") t.device = vox::Device::cuda();
  if (t.workers == 0) t.workers = t.device.is_cuda() ? vox::get_num_threads() : 1;
  a.predict.device = t.device, a.predict.precision = t.precision;
  const bool complete = trains ? !t.data.empty() && !t.plans.empty() : !a.model.empty() && !a.input.empty();
  if (!complete || t.output.empty())
    throw UsageError(vox::str(trains ? "--data, --plans" : "--model, --input", " and --output are needed"));
  return a;
}

// Becomes mpirun, which starts this program `ranks` times, without --ranks.
[[noreturn]] void start_ranks(int64_t ranks, [[maybe_unused]] int argc, [[maybe_unused]] char** argv) {
#if VOXGRAD_DIST
  std::vector<std::string> words{"mpirun", "--bind-to", "none", "-n", std::to_string(ranks)};
  if (geteuid() == 0) words.insert(words.begin() + 1, "--allow-run-as-root");
  words.push_back(std::filesystem::read_symlink("/proc/self/exe").string());
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i];
    if (word == "--ranks")
      ++i;
    else if (!word.starts_with("--ranks="))
      words.push_back(word);
  }
  std::vector<char*> list;
  for (std::string& word : words) list.push_back(word.data());
  list.push_back(nullptr);
  execvp(list[0], list.data());
  throw std::runtime_error(vox::str("--ranks: cannot start mpirun: ", std::strerror(errno)));
#else
  throw std::runtime_error(vox::str("--ranks ", ranks, " needs a build with VOXGRAD_DIST"));
#endif
}

void report(const std::string& line) {
  std::printf("%s\n", line.c_str());
  std::fflush(stdout);
}

void train(Arguments a) {
  vox::dist::init();
  if (a.train.device.is_cuda()) a.train.device = vox::Device::cuda(vox::dist::local_rank());
  const nnunet::TrainResult result = nnunet::train(a.train, report);
  if (vox::dist::rank() > 0) return;
  if (std::ssize(result.loss) < a.train.epochs)
    report(vox::str(result.loss.size(), " epochs are finished; --resume goes on"));
  else
    report(vox::str("mean Dice of the validation cases: ", result.validation_dice));
}

}  // namespace

int main(int argc, char** argv) {
  try {
    for (int i = 1; i < argc; ++i)
      if (std::strcmp(argv[i], "--help") == 0) return std::fputs(kUsage, stdout), 0;
    const std::string command = argc > 1 ? argv[1] : "";
    if (command != "predict" && command != "train")
      throw UsageError("the first argument is 'predict' or 'train'; --help lists the rest");
    const Arguments a = parse(argc, argv, command == "train");
    if (a.ranks > 1) start_ranks(a.ranks, argc, argv);
    if (command == "train") {
      train(a);
      return 0;
    }
    const nnunet::Model model = nnunet::read_model(a.model, a.folds);
    report(vox::str(model.configuration, ", ", model.folds.size(), " folds"));
    nnunet::predict_folder(model, a.input, a.train.output, a.previous, a.predict, report);
    return 0;
  } catch (const UsageError& error) {
    std::fprintf(stderr, "voxgrad_nnunet: %s\n", error.what());
    return 2;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "voxgrad_nnunet: %s\n", error.what());
    return 1;
  }
}
