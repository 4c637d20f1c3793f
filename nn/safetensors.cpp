#include <voxgrad/nn/atomic_file.h>
#include <voxgrad/nn/safetensors.h>

#include <nlohmann/json.hpp>

#include <algorithm>
#include <set>
#include <tuple>

namespace vox::nn::detail {

namespace {

using Json = nlohmann::json;

constexpr const char* metadata_name = "__metadata__";

struct DTypeName {
  DType dtype;
  const char* name;
};
constexpr DTypeName dtype_names[] = {{f32, "F32"},      {f64, "F64"},   {i64, "I64"}, {u8, "U8"},
                                     {boolean, "BOOL"}, {bf16, "BF16"}, {f16, "F16"}, {i16, "I16"},
                                     {u16, "U16"},      {i32, "I32"}};

const char* name_of(DType dtype) {
  for (const DTypeName& d : dtype_names) {
    if (d.dtype == dtype) return d.name;
  }
  throw DTypeError("safetensors: corrupt dtype value");
}

/// A JSON string literal.
std::string literal(const std::string& text) {
  try {
    return Json(text).dump();
  } catch (const Json::exception&) {
    throw ValueError(str("nn::save: names and metadata must be UTF-8, got ", in_quotes(text)));
  }
}

/// Receives the header piece by piece and refuses everything that is not allowed at that point. A parsed
/// object would hide duplicate names (it keeps the last), deep nesting could exhaust the stack, and where
/// memory is short its destructor, which allocates, would end the process.
class HeaderReader final : public nlohmann::json_sax<Json> {
 public:
  explicit HeaderReader(const std::string& where) : where_(where) {}

  SafetensorsHeader take() { return std::move(header_); }

  bool start_object(std::size_t) override {
    switch (place_) {
      case Place::start:
        return go(Place::top);
      case Place::metadata:
        return go(Place::in_metadata);
      case Place::tensor:
        entry_ = {};
        entry_.name = name_;
        fields_.clear();
        return go(Place::in_tensor);
      default:
        return unexpected("an object");
    }
  }

  bool key(std::string& text) override {
    switch (place_) {
      case Place::top:
        refuse_unless(names_.insert(text).second, "no name comes twice", in_quotes(text));
        name_ = text;
        return go(text == metadata_name ? Place::metadata : Place::tensor);
      case Place::in_metadata:
        refuse_unless(!header_.metadata.contains(text), "no name of __metadata__ comes twice",
                      in_quotes(text));
        name_ = text;
        return go(Place::metadata_value);
      default:  // in_tensor
        refuse_unless(text == "dtype" || text == "shape" || text == "data_offsets",
                      "a tensor has the fields dtype, shape and data_offsets only",
                      in_quotes(text) + " in " + in_quotes(name_));
        refuse_unless(fields_.insert(text).second, "no field of a tensor comes twice",
                      in_quotes(text) + " in " + in_quotes(name_));
        return go(text == "dtype" ? Place::dtype : text == "shape" ? Place::shape : Place::offsets);
    }
  }

  bool string(std::string& text) override {
    if (place_ == Place::metadata_value) {
      header_.metadata.emplace(name_, text);
      return go(Place::in_metadata);
    }
    if (place_ != Place::dtype) return unexpected("the text " + in_quotes(text));
    const auto* found = std::find_if(std::begin(dtype_names), std::end(dtype_names),
                                     [&](const DTypeName& d) { return text == d.name; });
    refuse_unless(found != std::end(dtype_names),
                  "dtype is one of F32, F64, BF16, F16, I64, I32, I16, U16, U8 and BOOL",
                  in_quotes(text) + " of " + in_quotes(name_));
    entry_.dtype = found->dtype;
    return go(Place::in_tensor);
  }

  bool start_array(std::size_t) override {
    if (place_ == Place::shape) return go(Place::in_shape);
    if (place_ == Place::offsets) {
      offsets_ = 0;
      return go(Place::in_offsets);
    }
    return unexpected("an array");
  }

  bool number_unsigned(uint64_t value) override {
    if (place_ != Place::in_shape && place_ != Place::in_offsets)
      return unexpected("the number " + std::to_string(value));
    refuse_unless(value <= static_cast<uint64_t>(INT64_MAX), "numbers are below 2^63",
                  std::to_string(value) + " in " + in_quotes(name_));
    const auto number = static_cast<int64_t>(value);
    if (place_ == Place::in_shape) {
      refuse_unless(entry_.shape.rank() < max_rank, "a tensor has at most 8 dimensions",
                    "more in " + in_quotes(name_));
      entry_.shape.push_back(number);
    } else {
      refuse_unless(offsets_ < 2, "data_offsets are two numbers", "more in " + in_quotes(name_));
      (offsets_++ == 0 ? entry_.begin : entry_.end) = number;
    }
    return true;
  }

  bool end_array() override {
    refuse_unless(place_ != Place::in_offsets || offsets_ == 2, "data_offsets are two numbers",
                  std::to_string(offsets_) + " in " + in_quotes(name_));
    return go(Place::in_tensor);
  }

  bool end_object() override {
    if (place_ == Place::in_tensor) {
      refuse_unless(fields_.size() == 3, "a tensor has the fields dtype, shape and data_offsets",
                    std::to_string(fields_.size()) + " of them in " + in_quotes(name_));
      header_.entries.push_back(std::move(entry_));
    }
    return go(place_ == Place::top ? Place::end : Place::top);
  }

  bool null() override { return unexpected("null"); }
  bool boolean(bool value) override { return unexpected(value ? "true" : "false"); }
  bool number_integer(int64_t value) override {
    return unexpected("the signed number " + std::to_string(value));
  }
  bool number_float(double, const std::string& text) override {
    return unexpected("the number " + in_quotes(text));
  }
  bool binary(Json::binary_t&) override { return unexpected("binary data"); }

  bool parse_error(std::size_t position, const std::string&, const Json::exception& error) override {
    refuse("the header is JSON in UTF-8", str("at byte ", position, ": ", in_quotes(error.what())));
  }

  void refuse_unless(bool ok, const char* rule, const std::string& got) const {
    if (!ok) refuse(rule, got);
  }
  [[noreturn]] void refuse(const std::string& rule, const std::string& got) const {
    throw IoError(str(where_, ": ", rule, ", got ", got));
  }

 private:
  enum class Place {
    start,           // before everything: the object
    top,             // between tensors: a name
    metadata,        // after the name __metadata__: its object
    in_metadata,     // within it: a name
    metadata_value,  // after one: its text
    tensor,          // after a tensor's name: its object
    in_tensor,       // within it: a field's name
    dtype,           // after one: its value
    shape,
    offsets,
    in_shape,  // within the array
    in_offsets,
    end
  };

  bool go(Place place) {
    place_ = place;
    return true;
  }

  bool unexpected(const std::string& got) const {
    switch (place_) {
      case Place::start:
        refuse("the header is a JSON object", got);
      case Place::metadata:
        refuse("__metadata__ is an object of texts", got);
      case Place::metadata_value:
        refuse("values of __metadata__ are texts", got + " for " + in_quotes(name_));
      case Place::tensor:
        refuse("a tensor is an object", got + " for " + in_quotes(name_));
      case Place::dtype:
        refuse("dtype is a text", got + " in " + in_quotes(name_));
      case Place::shape:
      case Place::in_shape:
        refuse("shape is an array of whole numbers >= 0", got + " in " + in_quotes(name_));
      default:
        refuse("data_offsets is an array of two whole numbers >= 0", got + " in " + in_quotes(name_));
    }
  }

  const std::string& where_;
  Place place_ = Place::start;
  std::set<std::string> names_;
  std::string name_;
  SafetensorsEntry entry_;
  std::set<std::string> fields_;
  int offsets_ = 0;
  SafetensorsHeader header_;
};

}  // namespace

std::string in_quotes(std::string_view text) {
  constexpr size_t longest = 120;
  return "'" + std::string(text.substr(0, longest)) + (text.size() > longest ? "...'" : "'");
}

std::string format_header(const SafetensorsHeader& header) {
  std::string json = "{";
  const auto separate = [&json] {
    if (json.back() != '{') json += ',';
  };
  if (!header.metadata.empty()) {
    json += str(literal(metadata_name), ":{");
    for (const auto& [name, text] : header.metadata) {
      separate();
      json += literal(name) + ":" + literal(text);
    }
    json += '}';
  }
  for (const SafetensorsEntry& entry : header.entries) {
    separate();
    json += literal(entry.name) + ":{\"dtype\":\"" + name_of(entry.dtype) + "\",\"shape\":[";
    for (int64_t i = 0; i < entry.shape.rank(); ++i)
      json += (i > 0 ? "," : "") + std::to_string(entry.shape[i]);
    json += str("],\"data_offsets\":[", entry.begin, ',', entry.end, "]}");
  }
  json += '}';
  json.append((8 - json.size() % 8) % 8, ' ');
  check<ValueError>(json.size() <= static_cast<size_t>(max_header_bytes),
                    "nn::save: names, shapes and metadata must fit into ", max_header_bytes, " bytes, got ",
                    json.size());
  std::string length(8, '\0');
  for (size_t i = 0; i < 8; ++i) length[i] = static_cast<char>(json.size() >> (8 * i) & 0xff);
  return length + json;
}

size_t parse_header_length(const std::string& where, const std::string& first, int64_t file_bytes) {
  const uint64_t length = number_at(first, 0, 8);
  check<IoError>(length <= static_cast<uint64_t>(max_header_bytes), where, ": the header has at most ",
                 max_header_bytes, " bytes, got ", length, " (is it a safetensors file?)");
  check<IoError>(static_cast<int64_t>(length) <= file_bytes - 8, where,
                 ": the header must end within the file, got a header of ", length, " bytes in a file of ",
                 file_bytes);
  return length;
}

SafetensorsHeader parse_header(const std::string& where, std::string_view json, int64_t data_bytes) {
  HeaderReader reader(where);
  reader.refuse_unless(json.starts_with('{'), "the header starts with '{'",
                       json.empty() ? "an empty header" : in_quotes(json.substr(0, 8)));
  // The parser stops at a zero byte and ignores the rest.
  reader.refuse_unless(json.find('\0') == json.npos, "the header is JSON in UTF-8", "a zero byte");
  Json::sax_parse(json.begin(), json.end(), &reader);
  SafetensorsHeader header = reader.take();

  auto& entries = header.entries;
  std::sort(entries.begin(), entries.end(), [](const SafetensorsEntry& a, const SafetensorsEntry& b) {
    return std::tie(a.begin, a.end, a.name) < std::tie(b.begin, b.end, b.name);
  });
  int64_t covered = 0;
  for (const SafetensorsEntry& entry : entries) {
    const std::string range = str('[', entry.begin, ',', entry.end, "] of ", in_quotes(entry.name));
    reader.refuse_unless(entry.begin <= entry.end, "data_offsets are in ascending order", range);
    reader.refuse_unless(entry.begin == covered, "tensors follow each other without holes or overlaps",
                         str(range, " where ", covered, " is next"));
    reader.refuse_unless(entry.end <= data_bytes, "data_offsets end within the data",
                         str(range, " with ", data_bytes, " bytes of data"));
    const int64_t size = size_of(entry.dtype);
    reader.refuse_unless(is_countable(entry.shape, size) &&
                             checked_numel("nn::load", entry.shape) * size == entry.end - entry.begin,
                         "data_offsets span the tensor's elements",
                         str(range, " for shape ", entry.shape, " of ", entry.dtype));
    covered = entry.end;
  }
  reader.refuse_unless(covered == data_bytes, "tensors reach to the end of the file",
                       str(data_bytes - covered, " bytes after the last one"));
  return header;
}

}  // namespace vox::nn::detail
