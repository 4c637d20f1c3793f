#include <voxgrad/nn/atomic_file.h>
#include <voxgrad/nn/safetensors.h>
#include <voxgrad/nn/serialize.h>

#include <algorithm>
#include <bit>
#include <fstream>

namespace vox::nn {

static_assert(std::endian::native == std::endian::little, "safetensors files are little-endian");

namespace {

/// The place of a dtype in the order of tensors in a file. Wide elements come first, so that all are aligned;
/// tensors of one dtype are ordered by name. The format's reference implementation uses the same order.
int place_of(DType dtype) {
  constexpr DType order[] = {i64, f64, f32, i32, bf16, f16, u16, i16, u8, boolean};
  return static_cast<int>(std::find(std::begin(order), std::end(order), dtype) - std::begin(order));
}

detail::SafetensorsHeader describe(const StateDict& tensors, const Metadata& metadata) {
  detail::SafetensorsHeader header{metadata, {}};
  for (const auto& [name, t] : tensors) {
    vox::detail::check_defined("nn::save", name.c_str(), t);
    check<ValueError>(name != "__metadata__", "nn::save: the name '__metadata__' belongs to the format");
    header.entries.push_back({name, t.dtype(), t.shape()});
  }
  std::stable_sort(header.entries.begin(), header.entries.end(),
                   [](const auto& a, const auto& b) { return place_of(a.dtype) < place_of(b.dtype); });
  int64_t next = 0;
  for (auto& entry : header.entries) {
    entry.begin = next;
    const int64_t bytes = checked_mul("nn::save", tensors.at(entry.name).numel(), size_of(entry.dtype));
    entry.end = next = checked_add("nn::save", next, bytes);
  }
  return header;
}

/// The next tensor of the data.
Tensor read_tensor(std::ifstream& in, const std::string& where, const detail::SafetensorsEntry& entry) {
  const Tensor t = empty(entry.shape, {entry.dtype});
  const auto* bytes = static_cast<const unsigned char*>(t.impl()->data());
  const int64_t count = entry.end - entry.begin;
  if (count > 0) detail::read_exactly(in, t.impl()->data(), count, where);
  if (entry.dtype == boolean) {
    const auto* bad = std::find_if(bytes, bytes + count, [](unsigned char b) { return b > 1; });
    check<IoError>(bad == bytes + count, where, ": elements of BOOL are 0 or 1, got ",
                   bad == bytes + count ? 0 : int{*bad}, " in ", detail::in_quotes(entry.name));
  }
  return t;
}

}  // namespace

void save(const std::filesystem::path& path, const StateDict& tensors, const Metadata& metadata) {
  const detail::SafetensorsHeader header = describe(tensors, metadata);
  const std::string head = detail::format_header(header);
  detail::AtomicFile file("nn::save", path);
  file.write(head.data(), head.size());
  for (const auto& entry : header.entries) {
    const Tensor t = tensors.at(entry.name).detach().contiguous().to(Device::cpu());
    file.write(t.impl()->data(), static_cast<size_t>(entry.end - entry.begin));
  }
  file.commit();
}

LoadedFile load(const std::filesystem::path& path, Device device) {
  const std::string where = "nn::load: " + path.string();
  auto [file_bytes, in] = detail::InputFile("nn::load", path);
  check<IoError>(file_bytes >= 8, where, ": a file has at least 8 bytes, got ", file_bytes);

  std::string first(8, '\0');
  detail::read_exactly(in, first.data(), 8, where);
  const bool is_zip = first.starts_with("PK\3\4"), is_pickle = first.starts_with("\x80\2");
  check<IoError>(
      !is_zip && !is_pickle, where, ": this is a file of ",
      is_zip ? "torch.save (or another zip archive)" : "torch.save before PyTorch 1.6",
      "; convert it in Python with safetensors.torch.save_file(torch.load(...), ...): see docs/porting.md");
  std::string json(detail::parse_header_length(where, first, file_bytes), '\0');
  detail::read_exactly(in, json.data(), std::ssize(json), where);
  const int64_t data_bytes = file_bytes - 8 - std::ssize(json);
  detail::SafetensorsHeader header = detail::parse_header(where, json, data_bytes);

  LoadedFile loaded{{}, std::move(header.metadata)};
  for (const auto& entry : header.entries)  // in the order of the data
    loaded.tensors.emplace(entry.name, read_tensor(in, where, entry).to(device));
  return loaded;
}

}  // namespace vox::nn
