#pragma once

#include <filesystem>
#include <map>
#include <string>

#include <voxgrad/nn/module.h>

namespace vox::nn {

/// Texts that travel with the tensors of a file.
using Metadata = std::map<std::string, std::string>;

/// Writes `tensors` (any device, strides and dtype) as a safetensors file
/// (https://github.com/huggingface/safetensors), which PyTorch, JAX and NumPy programs read:
///
///     nn::save("net.safetensors", net.state_dict());
///
/// The file appears under its name complete and on disk, or not at all: it is written beside it and renamed.
/// A symbolic link is followed: it stays, and what it leads to is replaced. Equal arguments give equal bytes.
///
/// Throws ValueError for an undefined tensor, for the name "__metadata__" (the format's own), for names and
/// metadata that are not UTF-8 or make a header above 100 MB; IoError where `path` is anything but a regular
/// file or a new name (a folder, a pipe, a device), and, naming the system's reason, where the file cannot be
/// written.
void save(const std::filesystem::path& path, const StateDict& tensors, const Metadata& metadata = {});

struct LoadedFile {
  StateDict tensors;
  Metadata metadata;
};

/// Reads a safetensors file onto `device`: `net.load_state_dict(nn::load("net.safetensors").tensors)`.
/// Throws IoError, with the file, the rule and what was found, for everything that the format does not allow
/// (nn/safetensors.h lists the rules), and for dtypes other than F32, F64, BF16, F16, I64, U8 and BOOL.
LoadedFile load(const std::filesystem::path& path, Device device = Device::cpu());

}  // namespace vox::nn
