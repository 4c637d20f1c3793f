#pragma once

#include <filesystem>
#include <map>
#include <string>

#include <voxgrad/nn/module.h>

namespace vox::nn {

/// Named texts that a file holds beside its tensors.
using Metadata = std::map<std::string, std::string>;

/// Writes `tensors` (any device, strides and dtype) as a safetensors file
/// (https://github.com/huggingface/safetensors), which PyTorch, JAX and NumPy programs read:
///
///     nn::save("net.safetensors", net.state_dict());
///
/// The file appears complete and on disk, or not at all: it is written under another name and renamed. If
/// `path` is a symbolic link, the file that it leads to is replaced. Equal arguments give equal bytes.
///
/// Throws ValueError for an undefined tensor, for the name "__metadata__" (reserved by the format), and for
/// names and metadata that are not UTF-8 or make a header above 100 MB. Throws IoError if `path` is a folder,
/// a pipe or a device, or if the file cannot be written; the message has the system's reason.
void save(const std::filesystem::path& path, const StateDict& tensors, const Metadata& metadata = {});

struct LoadedFile {
  StateDict tensors;
  Metadata metadata;
};

/// Reads a safetensors file onto `device`: `net.load_state_dict(nn::load("net.safetensors").tensors)`.
/// Throws IoError, with the file, the rule and what was found, for everything that the format does not allow
/// (nn/safetensors.h lists the rules), and for dtypes other than F32, F64, BF16, F16, I64, I32, I16, U16, U8
/// and BOOL.
LoadedFile load(const std::filesystem::path& path, Device device = Device::cpu());

}  // namespace vox::nn
