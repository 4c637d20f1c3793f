#include <voxgrad/autograd/meta.h>
#include <voxgrad/autograd/saved_tensor.h>
#include <voxgrad/autograd/tape.h>

#include <algorithm>
#include <iomanip>
#include <set>

namespace vox {

namespace {

using autograd::Edge;
using autograd::Node;

/// All nodes that `root` leads to, highest number first. `root` keeps them alive.
std::vector<const Node*> nodes_of(const Edge& root) {
  std::vector<const Node*> found;
  std::set<const Node*> seen;
  const auto visit = [&](const Node* node) {
    if (node && seen.insert(node).second) found.push_back(node);
  };
  visit(root.node.get());
  for (size_t i = 0; i < found.size(); ++i) {
    for (const Edge& edge : found[i]->edges()) visit(edge.node.get());
  }
  std::sort(found.begin(), found.end(),
            [](const Node* a, const Node* b) { return a->number() > b->number(); });
  return found;
}

/// The size of the memory that the node's saved tensors keep alive, however many of them share it.
int64_t saved_bytes(const Node& node) {
  std::set<const Storage*> counted;
  int64_t bytes = 0;
  for (const autograd::SavedTensor* saved : node.saved()) {
    const Storage* storage = saved->storage();
    if (storage && counted.insert(storage).second) bytes += storage->bytes();
  }
  return bytes;
}

std::string shapes(const Node& node) {
  std::string text;
  for (const autograd::TensorSpec& output : node.outputs())
    text += (text.empty() ? "" : " ") + str(output.shape);
  return text;
}

}  // namespace

std::string tape(const Tensor& output) {
  const Edge root = autograd::gradient_edge(output);  // may be the only owner of a leaf's node
  const auto nodes = nodes_of(root);
  if (nodes.empty()) return "(not on the tape)\n";
  size_t name_width = 0, shape_width = 0;
  for (const Node* node : nodes) {
    name_width = std::max(name_width, std::string(node->name()).size());
    shape_width = std::max(shape_width, shapes(*node).size());
  }
  std::ostringstream out;
  const int number_width = static_cast<int>(std::to_string(nodes.front()->number()).size());
  for (const Node* node : nodes) {
    out << '#' << std::left << std::setw(number_width) << node->number() << ' '
        << std::setw(static_cast<int>(name_width)) << node->name() << "  "
        << std::setw(static_cast<int>(shape_width)) << shapes(*node) << "  saves " << saved_bytes(*node)
        << " B";
    if (!node->edges().empty()) out << "  ->";
    for (const Edge& edge : node->edges())
      out << ' ' << (edge.node ? "#" + std::to_string(edge.node->number()) : "-");
    out << '\n';
  }
  return out.str();
}

std::string tape_dot(const Tensor& output) {
  const Edge root = autograd::gradient_edge(output);
  std::ostringstream out;
  out << "digraph tape {\n  node [shape=box, fontname=\"monospace\"];\n";
  for (const Node* node : nodes_of(root)) {
    out << "  n" << node->number() << " [label=\"#" << node->number() << ' ' << node->name() << "\\n"
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
