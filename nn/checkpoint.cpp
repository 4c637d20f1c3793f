#include <voxgrad/nn/checkpoint.h>

#include <bit>
#include <map>

namespace vox::nn {

void Checkpoint::add_part(Part part) {
  check<ValueError>(!part.name.empty() && part.name.find('.') == std::string::npos,
                    "Checkpoint::add: a name must not be empty or have a dot, got '", part.name, "'");
  for (const Part& other : parts_)
    check<ValueError>(other.name != part.name, "Checkpoint::add: there is a part '", part.name, "' already");
  parts_.push_back(std::move(part));
}

void Checkpoint::add_value(std::string name, std::function<Tensor()> get,
                           std::function<void(const Tensor&)> set) {
  const auto value = [set = std::move(set)](const StateDict& state) {
    const auto found = state.find("value");
    check<ValueError>(found != state.end() && state.size() == 1, "the file has no value of this kind");
    set(found->second);
  };
  add_part({std::move(name), [get = std::move(get)] { return StateDict{{"value", get()}}; }, value});
}

void Checkpoint::add(std::string name, Generator& generator) {
  const auto get = [&generator] {
    const GeneratorState s = generator.state();
    return from_vector<int64_t>({std::bit_cast<int64_t>(s.seed), std::bit_cast<int64_t>(s.offset)}, {2});
  };
  const auto set = [&generator](const Tensor& value) {
    const std::vector<int64_t> s = value.to_vector<int64_t>();
    check<ValueError>(s.size() == 2, "a generator has 2 numbers, got ", s.size());
    generator.set_state({std::bit_cast<uint64_t>(s[0]), std::bit_cast<uint64_t>(s[1])});
  };
  add_value(std::move(name), get, set);
}

void Checkpoint::save(const std::filesystem::path& path, const Metadata& metadata) const {
  StateDict all;
  for (const Part& part : parts_) {
    for (auto& [entry, tensor] : part.get()) all.emplace(part.name + "." + entry, tensor);
  }
  in_the_name_of("Checkpoint::save", [&] { nn::save(path, all, metadata); });
}

Metadata Checkpoint::load(const std::filesystem::path& path) {
  LoadedFile file = nn::load(path);
  std::map<std::string, StateDict> found;
  for (auto& [name, tensor] : file.tensors) {
    const size_t dot = name.find('.');
    const std::string part = name.substr(0, dot);
    found[part].emplace(dot == std::string::npos ? "" : name.substr(dot + 1), tensor);
  }
  for (const Part& part : parts_)
    check<ValueError>(found.contains(part.name) || part.get().empty(), "Checkpoint::load: ", path.string(),
                      ": has no part '", part.name, "'");
  for (const auto& [name, state] : found) {
    const auto known = [&name = name](const Part& part) { return part.name == name; };
    check<ValueError>(std::any_of(parts_.begin(), parts_.end(), known), "Checkpoint::load: ", path.string(),
                      ": has a part '", name, "', which was not added");
  }

  std::vector<StateDict> before(parts_.size());  // what a failure puts back
  for (size_t i = 0; i < parts_.size(); ++i) {
    for (const auto& [entry, tensor] : parts_[i].get()) before[i].emplace(entry, tensor.detach().clone());
  }
  for (size_t i = 0; i < parts_.size(); ++i) {
    try {
      in_the_name_of(str("Checkpoint::load: ", path.string(), ": '", parts_[i].name, "'").c_str(),
                     [&] { parts_[i].set(found[parts_[i].name]); });
    } catch (...) {
      for (size_t k = 0; k < i; ++k) parts_[k].set(before[k]);
      throw;
    }
  }
  return file.metadata;
}

}  // namespace vox::nn
