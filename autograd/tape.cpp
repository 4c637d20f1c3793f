#include <voxgrad/autograd/meta.h>
#include <voxgrad/autograd/saved_tensor.h>
#include <voxgrad/autograd/tape.h>

#include <algorithm>
#include <iomanip>
#include <unordered_set>

namespace vox {

namespace autograd {

std::vector<Node*> nodes_of(const Edge& root) {
  std::vector<Node*> found;
  std::unordered_set<Node*> seen;
  const auto visit = [&](Node* node) {
    if (node && seen.insert(node).second) found.push_back(node);
  };
  visit(root.node.get());
  for (size_t i = 0; i < found.size(); ++i) {
    for (const Edge& edge : found[i]->edges()) visit(edge.node.get());
  }
  std::sort(found.begin(), found.end(), [](Node* a, Node* b) { return a->number() > b->number(); });
  return found;
}

std::set<const Storage*> saved_memory(const Node& node) {
  std::set<const Storage*> memory;
  for (const SavedTensor* saved : node.saved()) {
    if (saved->storage()) memory.insert(saved->storage());
  }
  return memory;
}

std::string dot_escaped(const std::string& text) {
  std::string escaped;
  for (const char c : text) {
    if (c == '\\' || c == '"') escaped += '\\';
    if (c == '&')
      escaped += "&amp;";  // Graphviz reads entities such as &lt; in labels
    else
      escaped += static_cast<unsigned char>(c) < 0x20 ? ' ' : c;
  }
  return escaped;
}

}  // namespace autograd

namespace {

using autograd::Edge;
using autograd::Node;

int64_t saved_bytes(const Node& node) {
  int64_t bytes = 0;
  for (const Storage* storage : autograd::saved_memory(node)) bytes += storage->bytes();
  return bytes;
}

/// The op and the names of its outputs.
std::string title(const Node& node) {
  std::string text = node.name();
  for (size_t i = 0; i < node.outputs().size(); ++i) {
    const std::string name = node.output_name(static_cast<int64_t>(i));
    if (!name.empty()) text += " \"" + name + "\"";
  }
  return text;
}

std::string shapes(const Node& node) {
  std::string text;
  for (const autograd::TensorSpec& output : node.outputs())
    text += (text.empty() ? "" : " ") + str(output.shape);
  return text;
}

constexpr char legend[] =
    "(#number op \"name\"; shapes of its outputs; memory that its saved tensors keep; -> where the gradients "
    "of "
    "its\n inputs go, \"-\" for an input that needs none. AccumulateGrad adds to the grad() of a leaf.)\n";

}  // namespace

std::string tape(const Tensor& output) {
  const Edge root = autograd::gradient_edge(output);  // may be the only owner of a leaf's node
  const auto nodes = autograd::nodes_of(root);
  if (nodes.empty()) return "(not on the tape)\n";
  size_t title_width = 0, shape_width = 0;
  for (const Node* node : nodes) {
    title_width = std::max(title_width, title(*node).size());
    shape_width = std::max(shape_width, shapes(*node).size());
  }
  std::ostringstream out;
  const int number_width = static_cast<int>(std::to_string(nodes.front()->number()).size());
  for (const Node* node : nodes) {
    out << '#' << std::left << std::setw(number_width) << node->number() << ' '
        << std::setw(static_cast<int>(title_width)) << title(*node) << "  "
        << std::setw(static_cast<int>(shape_width)) << shapes(*node) << "  saves " << saved_bytes(*node)
        << " B";
    if (!node->edges().empty()) out << "  ->";
    for (const Edge& edge : node->edges())
      out << ' ' << (edge.node ? "#" + std::to_string(edge.node->number()) : "-");
    out << '\n';
  }
  out << legend;
  return out.str();
}

std::string tape_dot(const Tensor& output) {
  const Edge root = autograd::gradient_edge(output);
  std::ostringstream out;
  out << "digraph tape {\n  node [shape=box, fontname=\"monospace\"];\n";
  for (const Node* node : autograd::nodes_of(root)) {
    out << "  n" << node->number() << " [label=\"#" << node->number() << ' '
        << autograd::dot_escaped(title(*node)) << "\\n"
        << shapes(*node);
    if (const int64_t bytes = saved_bytes(*node)) out << "\\nsaves " << bytes << " B";
    out << "\"];\n";
    for (const Edge& edge : node->edges()) {
      if (edge.node) out << "  n" << node->number() << " -> n" << edge.node->number() << ";\n";
    }
  }
  out << "}\n";
  return out.str();
}

}  // namespace vox
