// 06: models of nnU-Net v2 as a C++ program. You learn to build a network from its description, to load
// PyTorch's weights, and to run it on volumes of any size:
//
//   1. Read the plans, the dataset's description and the weights of all folds (plans.cpp, architectures.h).
//   2. Crop, normalise and resample each scan (preprocess.cpp).
//   3. Average the network's logits over windows, flips and folds (predict.cpp).
//   4. Resample them to the scan's voxels, and write the mask.
#include <cstdio>
#include <cstring>
#include <functional>
#include <map>
#include <sstream>

#include <voxgrad/voxgrad.h>

#include "predict.h"

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
    "  --device cpu|cuda   where the network runs (default cpu)\n"
    "  --precision P       of its convolutions: f32 (default), tf32, bf16 or f16\n"
    "  --step S            distance of windows, as a share of their size (default 0.5)\n"
    "  --no-mirroring      do not average over flips: 4 to 8 times as fast, and less exact\n"
    "  --threads N         CPU threads (default: all cores)\n";

struct UsageError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

struct Arguments {
  std::filesystem::path model, input, output, previous;
  std::vector<std::string> folds;
  nnunet::PredictOptions options;
};

double number(const std::string& option, const std::string& text, double least, double most) {
  std::istringstream in(text);
  double value = 0;
  if (!(in >> value) || !in.eof() || !(value >= least && value <= most))
    throw UsageError(vox::str(option, ": '", text, "' is not a number from ", least, " to ", most));
  return value;
}

std::string one_of(const std::string& option, const std::string& text,
                   std::initializer_list<const char*> allowed) {
  std::string list;
  for (const char* const word : allowed) {
    if (text == word) return text;
    list += list.empty() ? word : std::string(", ") + word;
  }
  throw UsageError(option + ": '" + text + "' is not one of " + list);
}

Arguments parse(int argc, char** argv) {
  Arguments a;
  const std::map<std::string, std::function<void(const std::string&, const std::string&)>> settings{
      {"--model", [&](auto&, auto& v) { a.model = v; }},
      {"--input", [&](auto&, auto& v) { a.input = v; }},
      {"--output", [&](auto&, auto& v) { a.output = v; }},
      {"--previous", [&](auto&, auto& v) { a.previous = v; }},
      {"--folds",
       [&](auto&, auto& v) {
         std::istringstream in(v);
         for (std::string fold; std::getline(in, fold, ',');) a.folds.push_back(fold);
       }},
      {"--device",
       [&](auto& o, auto& v) {
         a.options.device =
             one_of(o, v, {"cpu", "cuda"}) == "cuda" ? vox::Device::cuda() : vox::Device::cpu();
       }},
      {"--precision",
       [&](auto& o, auto& v) {
         a.options.precision = one_of(o, v, {"f32", "tf32", "bf16", "f16"});
       }},
      {"--step", [&](auto& o, auto& v) { a.options.step = number(o, v, 0.01, 1); }},
      {"--threads", [&](auto& o, auto& v) { vox::set_num_threads(static_cast<int>(number(o, v, 1, 1024))); }},
  };
  if (argc < 2 || std::strcmp(argv[1], "predict") != 0) throw UsageError("the first argument is 'predict'");
  for (int i = 2; i < argc; ++i) {
    const std::string option = argv[i];
    if (option == "--no-mirroring") {
      a.options.mirror = false;
      continue;
    }
    const auto setting = settings.find(option);
    if (setting == settings.end()) throw UsageError("unknown option '" + option + "'");
    if (i + 1 == argc) throw UsageError(option + " needs a value");
    setting->second(option, argv[++i]);
  }
  if (a.model.empty() || a.input.empty() || a.output.empty())
    throw UsageError("--model, --input and --output are needed");
  return a;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    if (argc > 1 && std::strcmp(argv[1], "--help") == 0) return std::fputs(kUsage, stdout), 0;
    const Arguments a = parse(argc, argv);
    const nnunet::Model model = nnunet::read_model(a.model, a.folds);
    std::printf("%s, %zu folds\n", model.configuration.c_str(), model.folds.size());
    nnunet::predict_folder(model, a.input, a.output, a.previous, a.options, [](const std::string& line) {
      std::printf("%s\n", line.c_str());
      std::fflush(stdout);
    });
    return 0;
  } catch (const UsageError& error) {
    std::fprintf(stderr, "voxgrad_nnunet: %s; --help lists the options\n", error.what());
    return 2;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "voxgrad_nnunet: %s\n", error.what());
    return 1;
  }
}
