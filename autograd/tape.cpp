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

TapeLine::TapeLine(const Node* n) : node(n), title(n->name() + quoted_names(*n)) {
  for (const TensorSpec& output : n->outputs()) shapes += (shapes.empty() ? "" : " ") + str(output.shape);
  for (const Storage* storage : saved_memory(*n)) saved_bytes += storage->bytes();
}

}  // namespace autograd

std::string tape(const Tensor& output) {
  const autograd::Edge root = autograd::gradient_edge(output);  // may be the only owner of a leaf's node
  const auto nodes = autograd::nodes_of(root);
  if (nodes.empty()) return "(not on the tape)\n";
  const std::vector<autograd::TapeLine> lines(nodes.begin(), nodes.end());
  size_t title_width = 0, shape_width = 0;
  for (const autograd::TapeLine& line : lines) {
    title_width = std::max(title_width, line.title.size());
    shape_width = std::max(shape_width, line.shapes.size());
  }
  TextStream out;
  const int number_width = static_cast<int>(std::to_string(nodes.front()->number()).size());
  for (const autograd::TapeLine& line : lines) {
    out << '#' << std::left << std::setw(number_width) << line.node->number() << ' '
        << std::setw(static_cast<int>(title_width)) << line.title << "  "
        << std::setw(static_cast<int>(shape_width)) << line.shapes << "  saves " << line.saved_bytes << " B";
    if (!line.node->edges().empty()) out << "  ->";
    for (const autograd::Edge& edge : line.node->edges())
      out << ' ' << (edge.node ? "#" + std::to_string(edge.node->number()) : "-");
    out << '\n';
  }
  out << "(#number op \"name\"; shapes of its outputs; memory that its saved tensors keep; -> where the "
         "gradients of its\n inputs go, \"-\" for an input that needs none. AccumulateGrad adds to the "
         "grad() of a leaf.)\n";
  return out.str();
}

}  // namespace vox
