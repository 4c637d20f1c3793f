#include "predict.h"

#include <chrono>
#include <cmath>
#include <limits>
#include <map>

#include "architectures.h"

namespace nnunet {

using std::filesystem::path;
using vox::check;

namespace {

// The network's logits of `input`, (C, D, H, W), in host memory; a 2-D network works plane by plane.
vox::Tensor slide(const Model& model, UNet& network, const vox::Tensor& input,
                  const PredictOptions& options) {
  if (options.device.is_cuda() && !input.device().is_cuda()) {
    try {
      return slide(model, network, input.to(options.device), options);
    } catch (const vox::OutOfMemoryError&) {  // then windows go there one by one, and their logits come back
      vox::cuda::empty_cache(options.device);
    }
  }
  vox::nn::SlidingWindowOptions windows{.window = {model.patch.d, model.patch.h, model.patch.w},
                                        .step = options.step,
                                        .batch_size = input.device().is_cuda() ? 2 : 1,
                                        .device = options.device};
  if (options.mirror) windows.mirror = model.mirrored_axes;
  const vox::Device host = vox::Device::cpu();
  if (!model.is_2d()) return vox::nn::sliding_window(input, network, windows).to(host);
  windows.window = {model.patch.h, model.patch.w};
  const auto plane = [&](const vox::Tensor& x) { return network(x.unsqueeze(2)).squeeze(2); };
  std::vector<vox::Tensor> planes;
  for (int64_t d = 0; d < input.size(1); ++d)
    planes.push_back(vox::nn::sliding_window(input.select(1, d), plane, windows).to(host));
  return vox::stack(planes, 1);
}

}  // namespace

vox::Tensor predict_logits(const Model& model, const vox::Tensor& input, const PredictOptions& options) {
  const auto guard = vox::no_grad();
  const Precision precision(options.precision);
  UNet network(model.architecture, model.in_channels(), model.labels.heads);
  network.to(options.device).eval();
  vox::Tensor sum;
  for (const vox::nn::StateDict& weights : model.folds) {
    network.load_state_dict(weights);
    const vox::Tensor logits = slide(model, network, input, options);
    if (sum.defined())
      sum.add_(logits);
    else
      sum = logits;
  }
  return sum.div_(static_cast<double>(model.folds.size()));
}

std::vector<ScanFiles> find_scans(const Model& model, const path& input) {
  check<ModelError>(is_directory(input), "the folder of scans ", input.string(), " does not exist");
  std::map<std::string, std::map<std::string, path>> scans;  // by name and "0000", "0001", ...
  for (const auto& entry : std::filesystem::directory_iterator(input)) {
    std::string name = entry.path().filename().string();
    if (!name.ends_with(model.file_ending)) continue;
    name.resize(name.size() - model.file_ending.size());
    const size_t mark = name.rfind('_');
    const std::string channel = mark == name.npos ? "" : name.substr(mark + 1);
    if (channel.size() == 4 && channel.find_first_not_of("0123456789") == channel.npos)
      scans[name.substr(0, mark)][channel] = entry.path();
  }
  check<ModelError>(!scans.empty(), input.string(), " has no scan: files are named NAME_0000",
                    model.file_ending, ", with 0000, 0001, ... for the channels");
  std::vector<ScanFiles> list;
  for (const auto& [name, files] : scans) {
    list.push_back({.name = name, .channels = {}});
    for (size_t c = 0; c < model.channels.size(); ++c) {
      std::string channel = std::to_string(c);
      channel.insert(0, 4 - channel.size(), '0');
      check<ModelError>(files.contains(channel), "scan ", name, " lacks channel ", channel, " of ",
                        model.channels.size());
      list.back().channels.push_back(files.at(channel));
    }
    check<ModelError>(files.size() == model.channels.size(), "scan ", name, " has ", files.size(),
                      " channels; the model needs ", model.channels.size());
  }
  return list;
}

vox::Image read_scan(const ScanFiles& files) {
  vox::Image scan;
  std::vector<vox::Tensor> channels;
  for (const path& file : files.channels) {
    vox::Image image = vox::read_image(file);
    check<ModelError>(image.data.rank() == 3, file.string(), " has shape ", image.data.shape(),
                      "; a channel has (D, H, W)");
    channels.push_back(image.data.to(vox::f32));
    if (channels.size() == 1) scan = image;
    check<ModelError>(channels.back().shape() == channels.front().shape(), file.string(), " has shape ",
                      channels.back().shape(), ", channel 0 of the scan ", channels.front().shape());
  }
  scan.data = vox::stack(channels);
  constexpr double infinity = std::numeric_limits<double>::infinity();
  if (!std::isfinite(vox::max(scan.data).item()) || !std::isfinite(vox::min(scan.data).item()))
    scan.data = vox::where(vox::lt(vox::abs(scan.data), infinity), scan.data, 0);
  return scan;
}

void predict_folder(const Model& model, const path& input, const path& output, const path& previous,
                    const PredictOptions& options, const std::function<void(const std::string&)>& report) {
  using Clock = std::chrono::steady_clock;
  using Seconds = std::chrono::duration<double>;
  const std::vector<ScanFiles> scans = find_scans(model, input);
  std::filesystem::create_directories(output);
  for (const ScanFiles& files : scans) {
    in_the_name_of(files, [&] {
      const auto start = Clock::now();
      vox::Image scan = read_scan(files);
      vox::Tensor first_stage;
      if (model.is_cascade && !previous.empty())
        first_stage = vox::read_image(previous / (files.name + model.file_ending)).data;
      const Case one = preprocess(model, scan.data, scan.spacing, first_stage);
      const auto middle = Clock::now();
      const vox::Tensor logits = predict_logits(model, one.input, options);
      const Seconds network = Clock::now() - middle;
      scan.data = mask_of(model, one, logits);
      vox::write_image(output / (files.name + model.file_ending), scan);
      const Seconds all = Clock::now() - start;
      report(vox::str(files.name, model.file_ending, ": ", all.count(), " s, of these ", network.count(),
                      " s for the network"));
    });
  }
}

}  // namespace nnunet
