#include "plans.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>

#include <voxgrad/nn/atomic_file.h>

namespace nnunet {
namespace {

using Json = nlohmann::ordered_json;  // the order of regions counts
using std::filesystem::path;

template <class... Parts>
[[noreturn]] void refuse(const Parts&... parts) {
  throw ModelError(vox::str(parts...));
}

Json read_json(const path& file) {
  if (!exists(file)) refuse("cannot read ", file.string(), ": a model folder of nnU-Net has it");
  return Json::parse(vox::nn::detail::read_whole("plans", file));
}

bool has(const Json& json, const char* key) { return json.contains(key) && !json.at(key).is_null(); }

// The configuration `name` over those that it inherits from.
Json resolve(const Json& plans, const std::string& name, std::set<std::string> seen = {}) {
  const Json& all = plans.at("configurations");
  if (!all.contains(name)) refuse("plans.json: there is no configuration '", name, "'");
  if (!seen.insert(name).second) refuse("plans.json: configuration '", name, "' inherits from itself");
  Json own = all.at(name);
  if (!own.contains("inherits_from")) return own;
  Json result = resolve(plans, own.at("inherits_from"), seen);
  result.update(own);
  return result;
}

// Kernels and strides are numbers, or lists of 2 or 3.
vox::Triple triple(const Json& json, int64_t dims) {
  const auto list = json.is_array() ? json.get<std::vector<int64_t>>()
                                    : std::vector<int64_t>(static_cast<size_t>(dims), json.get<int64_t>());
  if (static_cast<int64_t>(list.size()) != dims)
    refuse("plans.json: expected ", dims, " numbers, got ", json.dump());
  return dims == 3 ? vox::Triple(list[0], list[1], list[2]) : vox::Triple(1, list[0], list[1]);
}

template <class T, class F>
std::vector<T> per_stage(const Json& json, size_t stages, F convert) {
  std::vector<T> list;
  for (size_t s = 0; s < stages; ++s) list.push_back(convert(json.is_array() ? json.at(s) : json));
  return list;
}

// Plans of nnU-Net before 2.4 name the parts of the network in the configuration itself.
Json architecture_of(const Json& configuration) {
  if (configuration.contains("architecture")) return configuration.at("architecture");
  const Json& blocks = configuration.at("n_conv_per_stage_encoder");
  const int64_t base = configuration.at("UNet_base_num_features"),
                most = configuration.at("unet_max_num_features");
  std::vector<int64_t> features;
  for (size_t s = 0; s < blocks.size(); ++s) features.push_back(std::min(base << s, most));
  const std::string name = configuration.at("UNet_class_name");
  return {{"network_class_name", name},
          {"arch_kwargs",
           {{"n_stages", blocks.size()},
            {"features_per_stage", features},
            {"kernel_sizes", configuration.at("conv_kernel_sizes")},
            {"strides", configuration.at("pool_op_kernel_sizes")},
            {name == "PlainConvUNet" ? "n_conv_per_stage" : "n_blocks_per_stage", blocks},
            {"n_conv_per_stage_decoder", configuration.at("n_conv_per_stage_decoder")},
            {"conv_bias", true},
            {"norm_op", "torch.nn.InstanceNorm"},
            {"norm_op_kwargs", {{"eps", 1e-5}, {"affine", true}}},
            {"nonlin", "torch.nn.LeakyReLU"}}}};
}

// Refuses arguments that are not read: they may change the network.
void only_known(const char* what, const Json& arguments, const std::set<std::string>& known) {
  for (const auto& [name, value] : arguments.items())
    if (!known.contains(name))
      refuse("plans.json: ", what, " has the argument ", name, " = ", value.dump(),
             ", which is not supported");
}

Architecture read_architecture(const Json& configuration, int64_t dims) {
  const Json json = architecture_of(configuration);
  const std::string name = json.at("network_class_name");
  Architecture a;
  a.residual = name.ends_with("ResidualEncoderUNet");
  if (!a.residual && !name.ends_with("PlainConvUNet"))
    refuse("plans.json: the network is ", name, "; allowed are PlainConvUNet and ResidualEncoderUNet");
  const Json& kwargs = json.at("arch_kwargs");
  if (kwargs.at("n_stages").get<int64_t>() < 2) refuse("plans.json: n_stages must be at least 2");
  const size_t stages = kwargs.at("n_stages");
  only_known("arch_kwargs", kwargs,
             {"n_stages", "features_per_stage", a.residual ? "n_blocks_per_stage" : "n_conv_per_stage",
              "n_conv_per_stage_decoder", "kernel_sizes", "strides", "conv_bias", "norm_op", "norm_op_kwargs",
              "dropout_op", "stem_channels", "bottleneck_channels", "nonlin", "nonlin_kwargs", "nonlin_first",
              // These change no result:
              "conv_op", "dropout_op_kwargs", "deep_supervision"});
  const auto number = [](const Json& j) { return j.get<int64_t>(); };
  const auto sizes = [&](const Json& j) { return triple(j, dims); };
  a.features = per_stage<int64_t>(kwargs.at("features_per_stage"), stages, number);
  a.blocks =
      per_stage<int64_t>(kwargs.at(a.residual ? "n_blocks_per_stage" : "n_conv_per_stage"), stages, number);
  a.decoder_convs = per_stage<int64_t>(kwargs.at("n_conv_per_stage_decoder"), stages - 1, number);
  a.kernel_sizes = per_stage<vox::Triple>(kwargs.at("kernel_sizes"), stages, sizes);
  a.strides = per_stage<vox::Triple>(kwargs.at("strides"), stages, sizes);
  a.conv_bias = kwargs.value("conv_bias", false);
  const std::string norm = kwargs.at("norm_op").is_null() ? "none" : kwargs.at("norm_op");
  if (norm.find("InstanceNorm") == norm.npos)
    refuse("plans.json: the norm is ", norm, "; allowed is InstanceNorm");
  if (const Json& norm_kwargs = kwargs.at("norm_op_kwargs"); norm_kwargs.is_object()) {
    only_known("norm_op_kwargs", norm_kwargs, {"eps", "affine", "momentum"});
    a.eps = norm_kwargs.value("eps", 1e-5);
    a.affine = norm_kwargs.value("affine", false);
  }
  for (const char* absent : {"dropout_op", "stem_channels", "bottleneck_channels"})
    if (has(kwargs, absent))
      refuse("plans.json: ", absent, " is ", kwargs.at(absent).dump(), "; allowed is null");
  if (kwargs.value("nonlin_first", false)) refuse("plans.json: nonlin_first is true; allowed is false");
  const std::string activation = kwargs.at("nonlin").is_null() ? "none" : kwargs.at("nonlin");
  if (activation != "torch.nn.ReLU" && activation != "torch.nn.LeakyReLU")
    refuse("plans.json: the activation is ", activation,
           "; allowed are torch.nn.LeakyReLU and torch.nn.ReLU");
  if (has(kwargs, "nonlin_kwargs")) {
    only_known("nonlin_kwargs", kwargs.at("nonlin_kwargs"), {"negative_slope", "inplace"});
    a.slope = kwargs.at("nonlin_kwargs").value("negative_slope", 0.01);
  }
  if (activation == "torch.nn.ReLU") a.slope = 0;
  return a;
}

Labels read_labels(const Json& dataset) {
  Labels labels;
  std::set<int64_t> all;
  bool has_regions = false;
  for (const auto& [name, value] : dataset.at("labels").items()) {
    if (name == "ignore") {
      labels.ignore = value.get<int64_t>();
      continue;
    }
    const auto members =
        value.is_array() ? value.get<std::set<int64_t>>() : std::set<int64_t>{value.get<int64_t>()};
    all.insert(members.begin(), members.end());
    has_regions |= value.is_array() && value.size() > 1;
    if (members != std::set<int64_t>{0}) labels.regions.emplace_back(members.begin(), members.end());
  }
  for (const int64_t label : all)
    if (label != 0) labels.foreground.push_back(label);
  if (!has_regions) {
    labels.regions.clear();
    if (all.empty() || *all.rbegin() != std::ssize(all) - 1 || *all.begin() != 0 ||
        labels.ignore.value_or(std::ssize(all)) != std::ssize(all))
      refuse("dataset.json: the labels are ", dataset.at("labels").dump(),
             "; allowed are 0, 1, ... without a gap, and the next one for ignore");
  }
  labels.heads = has_regions ? std::ssize(labels.regions) : static_cast<int64_t>(all.size());
  if (has_regions) {
    labels.region_order = dataset.at("regions_class_order").get<std::vector<int64_t>>();
    if (std::ssize(labels.region_order) != labels.heads)
      refuse("dataset.json: regions_class_order has ", labels.region_order.size(), " entries for ",
             labels.heads, " regions");
  }
  return labels;
}

Channel::Scheme scheme_of(const std::string& name) {
  using enum Channel::Scheme;
  if (name == "ZScoreNormalization") return z_score;
  if (name == "CTNormalization") return ct;
  if (name == "NoNormalization") return none;
  if (name == "RescaleTo01Normalization") return rescale_to_01;
  if (name == "RGBTo01Normalization") return rgb_to_01;
  refuse("plans.json: unknown normalisation ", name);
}

std::vector<Channel> read_channels(const Json& plans, const Json& configuration, size_t count) {
  const Json& schemes = configuration.at("normalization_schemes");
  if (schemes.size() != count)
    refuse("plans.json has ", schemes.size(), " normalisation schemes, dataset.json ", count, " channels");
  const char* const key = plans.contains("foreground_intensity_properties_per_channel")
                              ? "foreground_intensity_properties_per_channel"
                              : "foreground_intensity_properties_by_modality";
  std::vector<Channel> channels;
  for (size_t c = 0; c < count; ++c) {
    Channel channel{.scheme = scheme_of(schemes.at(c)),
                    .use_mask = configuration.at("use_mask_for_norm").at(c)};
    if (channel.scheme == Channel::Scheme::ct) {
      const Json& of = plans.at(key).at(std::to_string(c));
      channel.mean = of.at("mean"), channel.deviation = of.at("std");
      channel.low = of.at("percentile_00_5"), channel.high = of.at("percentile_99_5");
    }
    channels.push_back(channel);
  }
  return channels;
}

Resampling read_resampling(const Json& configuration, const std::string& key) {
  const std::string function = configuration.at(key);
  if (function != "resample_data_or_seg_to_shape")
    refuse("plans.json: ", key, " is ", function, "; allowed is resample_data_or_seg_to_shape");
  const Json& kwargs = configuration.at(key + "_kwargs");
  Resampling r{kwargs.value("order", 3), kwargs.value("order_z", 0), {}};  // the function's defaults
  if (!kwargs.contains("force_separate_z") || has(kwargs, "force_separate_z"))
    r.force_separate_z = kwargs.value("force_separate_z", false);
  return r;
}

std::vector<std::string> find_folds(const path& folder) {
  std::vector<std::string> folds;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    const std::string name = entry.path().filename().string();
    if (name.starts_with("fold_") && name != "fold_all" &&
        exists(entry.path() / "checkpoint_final.safetensors"))
      folds.push_back(name.substr(5));
  }
  std::sort(folds.begin(), folds.end());
  if (folds.empty() && exists(folder / "fold_all" / "checkpoint_final.safetensors"))
    refuse(folder.string(), " has weights of all cases alone, which --folds all takes");
  if (folds.empty())
    refuse(folder.string(), ": no fold_N/checkpoint_final.safetensors; `python3 convert.py ", folder.string(),
           "` makes them from checkpoint_final.pth");
  return folds;
}

// The weights of all folds, and what their files say about the training.
void read_folds(const path& folder, const std::vector<std::string>& folds, Model& model) {
  for (const std::string& fold : folds) {
    if (std::count(folds.begin(), folds.end(), fold) > 1)
      refuse("fold ", fold, " is named twice; each counts once");
    const path file = folder / ("fold_" + fold) / "checkpoint_final.safetensors";
    if (!exists(file)) refuse("fold ", fold, " is missing: there is no ", file.string());
    vox::nn::LoadedFile loaded = vox::nn::load(file);
    const auto fact = [&](const char* name) {
      const auto found = loaded.metadata.find(name);
      if (found == loaded.metadata.end()) refuse(file.string(), " has no '", name, "': convert.py writes it");
      return found->second;
    };
    if (model.configuration.empty()) {
      model.configuration = fact("configuration");
      model.mirrored_axes = Json::parse(fact("mirrored_axes")).get<std::vector<int64_t>>();
    } else if (model.configuration != fact("configuration")) {
      refuse(file.string(), " is of configuration ", fact("configuration"), ", another fold of ",
             model.configuration);
    }
    for (auto& [name, weight] : loaded.tensors)  // of 2-D kernels
      if (weight.rank() == 4) weight = weight.unsqueeze(2);
    model.folds.push_back(std::move(loaded.tensors));
  }
}

void read(const path& plans_file, const path& dataset_file, Model& model) {
  const Json plans = read_json(plans_file), dataset = read_json(dataset_file);
  const Json configuration = resolve(plans, model.configuration);
  model.transpose_forward = plans.at("transpose_forward").get<std::array<int64_t, 3>>();
  model.transpose_backward = plans.at("transpose_backward").get<std::array<int64_t, 3>>();
  const auto dims = static_cast<int64_t>(configuration.at("patch_size").size());
  if (dims != 2 && dims != 3) refuse("plans.json: patch_size has ", dims, " numbers; allowed are 2 and 3");
  model.patch = triple(configuration.at("patch_size"), dims);
  model.spacing = configuration.at("spacing").get<std::vector<double>>();
  if (std::ssize(model.spacing) != dims ||
      !std::ranges::all_of(model.spacing, [](double s) { return s > 0; }))
    refuse("plans.json: spacing must have ", dims, " positive numbers, got ",
           configuration.at("spacing").dump());
  if (const std::string reader = plans.value("image_reader_writer", "SimpleITKIO");
      reader != "SimpleITKIO" && reader != "NibabelIO")
    refuse("plans.json: image_reader_writer is ", reader, "; allowed are SimpleITKIO and NibabelIO");
  const Json& names =
      dataset.contains("channel_names") ? dataset.at("channel_names") : dataset.at("modality");
  model.channels = read_channels(plans, configuration, names.size());
  model.data = read_resampling(configuration, "resampling_fn_data");
  model.segmentation = read_resampling(configuration, "resampling_fn_seg");
  model.logits = read_resampling(configuration, "resampling_fn_probabilities");
  model.architecture = read_architecture(configuration, dims);
  model.labels = read_labels(dataset);
  model.is_cascade = has(configuration, "previous_stage");
  model.file_ending = dataset.at("file_ending");
  model.batch_size = configuration.value("batch_size", 2);
  model.batch_dice = configuration.value("batch_dice", false);
}

// Calls f; errors of Json become `refuse(where, ...)`.
template <class F>
void reading(const std::string& where, F f) {
  try {
    f();
  } catch (const Json::exception& error) {
    refuse(where, " is not as nnU-Net v2 writes it: ", error.what());
  }
}

}  // namespace

Model read_plans(const path& plans, const path& dataset, const std::string& configuration) {
  Model model;
  model.configuration = configuration;
  reading(plans.string() + " or " + dataset.string(), [&] { read(plans, dataset, model); });
  return model;
}

Split split(const path& folder, std::vector<std::string> names, const std::string& fold) {
  std::sort(names.begin(), names.end());
  if (fold == "all") return {names, names};
  if (fold.empty() || fold.size() > 3 || fold.find_first_not_of("0123456789") != fold.npos)
    refuse("the fold is a number or 'all', got '", fold, "'");
  const size_t number = std::stoul(fold);
  Split result;
  if (const path file = folder / "splits_final.json"; exists(file)) {
    reading(file.string(), [&] {
      const Json splits = read_json(file);
      if (number >= splits.size()) refuse(file.string(), " has ", splits.size(), " folds, got fold ", fold);
      splits[number].at("train").get_to(result.training);
      splits[number].at("val").get_to(result.validation);
    });
    for (const auto& list : {result.training, result.validation})
      for (const std::string& name : list)
        if (!std::binary_search(names.begin(), names.end(), name))
          refuse(file.string(), " names case ", name, ", which is not in imagesTr");
  } else {
    if (number > 4) refuse("the fold is from 0 to 4 without a splits_final.json, got ", fold);
    for (size_t i = 0; i < names.size(); ++i)
      (i % 5 == number ? result.validation : result.training).push_back(names[i]);
  }
  if (result.training.empty() || result.validation.empty())
    refuse("fold ", fold, " has ", result.training.size(), " cases for training and ",
           result.validation.size(), " for validation; at least 1 of each are needed, or fold all");
  return result;
}

Model read_model(const path& folder, std::vector<std::string> folds) {
  if (!is_directory(folder)) refuse("the model folder ", folder.string(), " does not exist");
  Model model;
  reading(folder.string() + ": plans.json or dataset.json", [&] {
    const path plans = folder / "plans.json", dataset = folder / "dataset.json";
    for (const path& file : {plans, dataset}) read_json(file);
    read_folds(folder, folds.empty() ? find_folds(folder) : folds, model);
    read(plans, dataset, model);
  });
  return model;
}

}  // namespace nnunet
