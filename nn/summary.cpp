#include <voxgrad/autograd/grad_mode.h>
#include <voxgrad/nn/summary.h>

#include <algorithm>
#include <array>
#include <set>

namespace vox::nn {

namespace {

/// Adds a call of `module` to its row.
void record(Summary::Row& row, const Module& module, bool is_leaf, std::span<const Tensor> inputs,
            std::span<const Tensor> outputs) {
  ++row.calls;
  if (outputs.empty() || !outputs[0].defined()) return;
  row.output = outputs[0].shape();
  if (!is_leaf) return;  // its children count
  const auto shares_memory = [](const Tensor& y) {
    return [&y](const Tensor& x) { return x.defined() && x.impl()->storage == y.impl()->storage; };
  };
  for (const Tensor& y : outputs) {
    if (y.defined() && std::none_of(inputs.begin(), inputs.end(), shares_memory(y)))
      row.bytes += y.numel() * size_of(y.dtype());
  }
  if (!inputs.empty() && inputs[0].defined())
    row.multiply_adds += module.multiply_adds(inputs[0], outputs[0]);
}

/// "12,345,678"
std::string with_commas(int64_t number) {
  std::string text = std::to_string(number);
  for (size_t i = text.size(); i > 3;) text.insert(i -= 3, ",");
  return text;
}

}  // namespace

Summary detail::summarize(Module& network, const std::function<void()>& call) {
  struct Hooked {
    Module* module;
    bool was_training;
    int64_t hook;
  };
  struct AllHooked : std::vector<Hooked> {
    ~AllHooked() {
      for (const Hooked& h : *this) {
        h.module->training_ = h.was_training;  // not train(), which allocates
        h.module->remove_forward_hook(h.hook);
      }
    }
  } hooked;
  const auto modules = network.named_modules();
  hooked.reserve(modules.size());  // so that a hook that was added is in the list
  std::set<const TensorImpl*> seen;
  Summary summary;
  summary.rows.reserve(modules.size());  // the hooks refer to rows
  for (const auto& [name, module] : modules) {
    const bool is_leaf = module->named_modules().size() == 1;
    Summary::Row row;
    bool has_own = false;
    for (const auto& [parameter, t] : module->named_parameters()) {
      if (parameter.find('.') != std::string::npos) continue;  // a child's
      has_own = true;
      if (seen.insert(t.impl().get()).second) row.parameters += t.numel();
    }
    const std::string layer = module->describe();
    row.name = name, row.layer = layer.substr(0, layer.find('('));
    Summary::Row* const kept = is_leaf || has_own ? &summary.rows.emplace_back(row) : nullptr;
    const auto hook = [=](Module& m, std::span<const Tensor> inputs, std::span<Tensor> outputs) {
      if (kept) record(*kept, m, is_leaf, inputs, outputs);
    };
    hooked.push_back({module, module->is_training(), module->register_forward_hook(hook)});
  }
  network.eval();
  const auto guard = no_grad();
  call();
  return summary;
}

Summary::Row Summary::total() const {
  Row sum{.name = "total"};
  for (const Row& row : rows) {
    sum.parameters += row.parameters;
    sum.bytes += row.bytes;
    sum.multiply_adds += row.multiply_adds;
  }
  return sum;
}

std::ostream& operator<<(std::ostream& out, const Summary& summary) {
  using Line = std::array<std::string, 6>;
  std::vector<Line> lines{{"name", "layer", "output", "parameters", "bytes", "multiply-adds"}};
  const auto add = [&](const Summary::Row& row, const std::string& output) {
    lines.push_back({row.name, row.layer, output, with_commas(row.parameters), with_commas(row.bytes),
                     with_commas(row.multiply_adds)});
  };
  for (const Summary::Row& row : summary.rows) add(row, row.calls == 0 ? "not called" : str(row.output));
  add(summary.total(), "");
  for (size_t i = 0; i < lines[0].size(); ++i) {
    size_t width = 0;
    for (const Line& line : lines) width = std::max(width, line[i].size());
    for (Line& line : lines) line[i].insert(i < 3 ? line[i].size() : 0, width - line[i].size(), ' ');
  }
  for (const Line& line : lines) {
    for (const std::string& cell : line) out << (&cell == &line[0] ? "" : "  ") << cell;
    out << (&line == &lines.back() ? "" : "\n");
  }
  return out;
}

}  // namespace vox::nn
