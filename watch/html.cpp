// The tape as a graph for Graphviz, and a recording as JSON and as one HTML page: page.html draws the graph
// and steps through the events.
#include <voxgrad/autograd/meta.h>
#include <voxgrad/autograd/tape.h>
#include <voxgrad/watch/node_sources.h>
#include <voxgrad/watch/watch.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <iomanip>
#include <nlohmann/json.hpp>

namespace vox {

namespace {

using nlohmann::json;

constexpr size_t most_nodes = 500;  // of more, nothing can be read

/// JSON text in which invalid UTF-8 is replaced and no `</script>` can occur.
std::string script_text(const json& data) {
  std::string text = data.dump(-1, ' ', false, json::error_handler_t::replace);
  for (size_t at = 0; (at = text.find('<', at)) != std::string::npos;) text.replace(at, 1, "\\u003c");
  return text;
}

/// Text inside the quotes of a label: invalid UTF-8 replaced, then escaped for Graphviz.
std::string in_label(const std::string& text) {
  const std::string valid =
      json::parse(json(text).dump(-1, ' ', false, json::error_handler_t::replace)).get<std::string>();
  std::string escaped;
  for (const char c : valid) {
    if (c == '\\' || c == '"') escaped += '\\';
    if (c == '&')
      escaped += "&amp;";  // Graphviz reads entities such as &lt; in labels
    else
      escaped += static_cast<unsigned char>(c) < 0x20 ? ' ' : c;
  }
  return escaped;
}

json json_of(const TensorSummary& summary) {
  if (!summary.known) return nullptr;
  std::vector<std::string> first;  // as text: JSON has no NaN
  for (const double value : summary.first) {
    char text[32];
    std::snprintf(text, sizeof text, "%.4g", value);
    first.emplace_back(text);
  }
  return {{"shape", str(summary.shape)},
          {"first", first},
          {"norm", str(std::setprecision(4), summary.norm)},
          {"numel", summary.numel},
          {"nans", summary.nans},
          {"infs", summary.infs},
          {"zeros", summary.zeros}};
}

json json_of(const std::vector<TensorSummary>& summaries) {
  json list = json::array();
  for (const TensorSummary& summary : summaries) list.push_back(json_of(summary));
  return list;
}

/// The code of a type of node, and of the base whose backward it uses: {where, code}.
std::pair<std::string, std::string> source_of(const std::string& type) {
  const bool is_template = type.find('<') != std::string::npos;
  const std::string name = type.substr(0, type.find('<'));
  std::string where, code;
  for (const detail::NodeSource& source : detail::node_sources()) {
    const std::string found = source.code;
    if (source.type != name || (found.rfind("struct", 0) == 0 && is_template)) continue;
    if (found.rfind("template", 0) == 0 && !is_template) continue;
    where += (where.empty() ? "" : ", ") + std::string(source.where);
    code += (code.empty() ? "" : "\n\n") + found;
  }
  const size_t colon = code.find(" : ");
  if (colon == std::string::npos) return {where, code};
  const std::string base = code.substr(colon + 3, code.find(' ', colon + 3) - colon - 3);
  const bool is_whole =
      code.find("backward(") != std::string::npos || code.find(" gradient(") != std::string::npos;
  if (!is_whole || code.find(base + "::") != std::string::npos) {
    const auto [base_where, base_code] = source_of(base);
    if (!base_code.empty()) return {where + ", " + base_where, code + "\n\n" + base_code};
  }
  return {where, code};
}

json json_of(const Recording& recording) {
  json nodes = json::object(), constants = json::array(), events = json::array(), problems = json::array();
  for (const auto& [number, node] : recording.nodes) {
    const bool is_linear =
        node.type.starts_with("LinearNode<");  // then compilers name the lambdas differently
    auto [where, code] = source_of(is_linear ? node.op : node.type);
    if (code.find("gradient_formula<") != std::string::npos) {  // ops/elementwise_formulas.h
      const auto [formulas_where, formulas] = source_of("gradient_formula");
      where += ", " + formulas_where, code += "\n\n" + formulas;
    }
    json inputs = json::array();
    for (const Recording::Input& input : node.inputs)
      inputs.push_back({input.node, input.output, input.constant});
    json later = json::array();
    for (const auto& [event, value] : node.later) later.push_back({event, json_of(value)});
    nodes[std::to_string(number)] = {{"label", recording.label(number)},
                                     {"leaf", node.is_leaf},
                                     {"type", is_linear ? "LinearNode" : node.type},
                                     {"where", where},
                                     {"code", code},
                                     {"inputs", inputs},
                                     {"constants", node.constants},
                                     {"later", later},
                                     {"values", json_of(node.values)}};
  }
  for (const Recording::Constant& c : recording.constants)
    constants.push_back({{"label", c.name.empty() ? "constant" : c.name}, {"value", json_of(c.value)}});
  constexpr const char* kinds[] = {"made", "begin", "step", "end"};
  for (const Recording::Event& event : recording.events) {
    json saved = json::array();
    for (const Recording::Saved& s : event.saved) saved.push_back({s.node, json_of(s.value)});
    events.push_back({{"kind", kinds[static_cast<size_t>(event.kind)]},
                      {"node", event.node},
                      {"in", json_of(event.in)},
                      {"out", json_of(event.out)},
                      {"savedTensors", saved},
                      {"gradBefore", json_of(event.grad_before)},
                      {"gradAfter", json_of(event.grad_after)},
                      {"pending", event.pending},
                      {"pendingTotal", event.pending_total},
                      {"saved", event.saved_bytes},
                      {"freed", event.freed_bytes},
                      {"partial", event.partial},
                      {"ran", event.ran},
                      {"threw", event.threw},
                      {"error", event.error},
                      {"depth", event.depth}});
  }
  for (const Recording::Problem& problem : recording.problems())
    problems.push_back({{"event", problem.event}, {"node", problem.node}, {"text", problem.text}});
  return {{"nodes", nodes}, {"constants", constants}, {"events", events}, {"problems", problems}};
}

}  // namespace

std::string tape_dot(const Tensor& output) {
  const autograd::Edge root = autograd::gradient_edge(output);
  std::string dot = "digraph tape {\n  node [shape=box, fontname=\"monospace\"];\n";
  for (const autograd::Node* node : autograd::nodes_of(root)) {
    const autograd::TapeLine line(node);
    dot += str("  n", node->number(), " [label=\"#", node->number(), ' ', in_label(line.title), "\\n",
               line.shapes, line.saved_bytes ? str("\\nsaves ", line.saved_bytes, " B") : "", "\"];\n");
    for (const autograd::Edge& edge : node->edges()) {
      if (edge.node) dot += str("  n", node->number(), " -> n", edge.node->number(), ";\n");
    }
  }
  return dot + "}\n";
}

std::string detail::json_text(const Recording& recording) { return script_text(json_of(recording)); }

void write_html(const Recording& recording, const std::string& path) {
  check<ValueError>(!recording.events.empty(), "write_html: the recording is empty");
  check<ValueError>(recording.nodes.size() <= most_nodes, "write_html: the recording has ",
                    recording.nodes.size(), " nodes; at most ", most_nodes, " can be drawn");
  std::string page = detail::watch_page;
  const auto fill = [&](const std::string& mark, const std::string& text) {
    page.replace(page.find(mark), mark.size(), text);
  };
  fill("{{EDITOR}}", "");
  fill("{{DATA}}", detail::json_text(recording));
  std::ofstream file(path, std::ios::binary);
  file << page;
  file.close();
  check<IoError>(!file.fail(), "write_html: cannot write ", path, ": ", std::strerror(errno));
}

}  // namespace vox
