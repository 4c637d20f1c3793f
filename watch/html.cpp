// The tape as a graph, and a recording as one HTML page: Graphviz draws the graph, page.html steps through
// the events.
#include <voxgrad/autograd/meta.h>
#include <voxgrad/autograd/tape.h>
#include <voxgrad/watch/node_sources.h>
#include <voxgrad/watch/watch.h>

#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <iomanip>
#include <nlohmann/json.hpp>

extern char** environ;

namespace vox {

namespace {

using nlohmann::json;

constexpr size_t most_nodes = 500;  // dot takes some 15 seconds for a graph of 400 nodes and 800 edges

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

/// The graph in the direction of the data, from leaves to outputs. The page fills the lines of `room`.
std::string dot_of(const Recording& recording) {
  const std::string room = "grad -0.000, -0.000, -0.000";
  std::string dot =
      "digraph {\n  ranksep=0.35; nodesep=0.4; bgcolor=transparent;\n"
      "  node [shape=box, style=rounded, fontname=\"Helvetica,Arial,sans-serif\", fontsize=15, "
      "margin=\"0.15,0.09\"];\n"
      "  edge [fontname=\"Helvetica,Arial,sans-serif\", fontsize=13, arrowsize=0.7];\n";
  // Fewer rounds of improvement make dot five times as fast on graphs of a hundred nodes.
  if (recording.nodes.size() > 60) dot += "  nslimit=1; nslimit1=1; mclimit=0.3;\n";
  for (const auto& [number, node] : recording.nodes) {
    const std::string id = std::to_string(number);
    std::string shapes;
    for (const TensorSummary& value : node.values) shapes += (shapes.empty() ? "" : " ") + str(value.shape);
    dot += "  n" + id + " [id=\"n" + id + "\", label=\"" + in_label(recording.label(number)) + "\\n" +
           shapes + "\\n" + room + "\\n" + room + "\"];\n";
    for (size_t i = 0; i < node.inputs.size(); ++i) {
      if (const uint64_t from = node.inputs[i].node)
        dot += str("  n", from, " -> n", id, " [id=\"e", id, "_", i, "\", label=\"", room, "\\n", room,
                   "\"];\n");
    }
    for (const uint64_t from : node.constants)
      dot += str("  n", from, " -> n", id, " [class=\"constant\", style=dashed, label=\" constant\"];\n");
  }
  return dot + "}\n";
}

struct CloseFile {
  void operator()(std::FILE* file) const { std::fclose(file); }
};
using File = std::unique_ptr<std::FILE, CloseFile>;

File temporary_file() {
  File file(std::tmpfile());
  check<IoError>(file != nullptr, "write_html: cannot make a temporary file: ", std::strerror(errno));
  return file;
}

/// What `dot -Tsvg` makes of the text, from <svg on. No shell and no file name is involved.
std::string svg_of(const std::string& dot) {
  const File in = temporary_file(), out = temporary_file();
  check<IoError>(std::fwrite(dot.data(), 1, dot.size(), in.get()) == dot.size() && std::fflush(in.get()) == 0,
                 "write_html: cannot write a temporary file: ", std::strerror(errno));
  std::rewind(in.get());

  posix_spawn_file_actions_t files;
  posix_spawn_file_actions_init(&files);
  posix_spawn_file_actions_adddup2(&files, fileno(in.get()), STDIN_FILENO);
  posix_spawn_file_actions_adddup2(&files, fileno(out.get()), STDOUT_FILENO);
  char program[] = "dot", format[] = "-Tsvg";
  char* arguments[] = {program, format, nullptr};
  pid_t child = 0;
  const int error = posix_spawnp(&child, program, &files, nullptr, arguments, environ);
  posix_spawn_file_actions_destroy(&files);
  check<IoError>(error == 0, "write_html: cannot run Graphviz's program `dot`: ", std::strerror(error),
                 "; install it (Debian and Ubuntu: apt install graphviz)");
  int status = 0;
  while (waitpid(child, &status, 0) < 0 && errno == EINTR) continue;
  check<IoError>(WIFEXITED(status) && WEXITSTATUS(status) == 0,
                 "write_html: Graphviz's program `dot` failed");

  std::string svg;
  char buffer[4096];
  std::rewind(out.get());
  while (const size_t bytes = std::fread(buffer, 1, sizeof buffer, out.get())) svg.append(buffer, bytes);
  const size_t start = svg.find("<svg");
  check<IoError>(start != std::string::npos, "write_html: Graphviz's program `dot` wrote no SVG");
  return svg.substr(start);
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
  json nodes = json::object(), events = json::array(), problems = json::array();
  for (const auto& [number, node] : recording.nodes) {
    auto [where, code] = source_of(node.type.starts_with("LinearNode<") ? node.op : node.type);
    if (code.find("gradient_formula<") != std::string::npos) {  // ops/elementwise_formulas.h
      const auto [formulas_where, formulas] = source_of("gradient_formula");
      where += ", " + formulas_where, code += "\n\n" + formulas;
    }
    json inputs = json::array();
    for (const Recording::Input& input : node.inputs) inputs.push_back({input.node, input.output});
    nodes[std::to_string(number)] = {{"label", recording.label(number)},
                                     {"leaf", node.is_leaf},
                                     {"type", node.type},
                                     {"where", where},
                                     {"code", code},
                                     {"inputs", inputs},
                                     {"values", json_of(node.values)}};
  }
  constexpr const char* kinds[] = {"made", "begin", "step", "end"};
  for (const Recording::Event& event : recording.events)
    events.push_back({{"kind", kinds[static_cast<size_t>(event.kind)]},
                      {"node", event.node},
                      {"in", json_of(event.in)},
                      {"out", json_of(event.out)},
                      {"pending", event.pending},
                      {"pendingTotal", event.pending_total},
                      {"saved", event.saved_bytes},
                      {"freed", event.freed_bytes},
                      {"partial", event.partial},
                      {"ran", event.ran},
                      {"threw", event.threw},
                      {"depth", event.depth}});
  for (const Recording::Problem& problem : recording.problems())
    problems.push_back({{"event", problem.event}, {"node", problem.node}, {"text", problem.text}});
  return {{"nodes", nodes}, {"events", events}, {"problems", problems}};
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

void write_html(const Recording& recording, const std::string& path) {
  check<ValueError>(!recording.events.empty(), "write_html: the recording is empty");
  check<ValueError>(recording.nodes.size() <= most_nodes, "write_html: the recording has ",
                    recording.nodes.size(), " nodes; at most ", most_nodes, " can be drawn");
  const std::string page = detail::watch_page, graph_mark = "{{GRAPH}}", data_mark = "{{DATA}}";
  const size_t graph = page.find(graph_mark), data = page.find(data_mark);
  const std::string svg = svg_of(dot_of(recording)), json_data = script_text(json_of(recording));
  std::ofstream file(path, std::ios::binary);
  file << page.substr(0, graph) << svg
       << page.substr(graph + graph_mark.size(), data - graph - graph_mark.size()) << json_data
       << page.substr(data + data_mark.size());
  file.close();
  check<IoError>(!file.fail(), "write_html: cannot write ", path, ": ", std::strerror(errno));
}

}  // namespace vox
