// A recording in words: text, problems, and why a gradient is what it is.
#include <voxgrad/autograd/meta.h>
#include <voxgrad/watch/watch.h>

#include <algorithm>
#include <iomanip>
#include <set>
#include <sstream>

namespace vox {

std::ostream& operator<<(std::ostream& out, const TensorSummary& summary) {
  TextStream text;
  text << summary.shape << std::setprecision(4);
  if (!summary.known) return out << text.str();
  const bool one = summary.shape.rank() == 0;
  text << (one ? " " : " [");
  for (size_t i = 0; i < summary.first.size(); ++i) text << (i ? ", " : "") << summary.first[i];
  if (summary.numel > static_cast<int64_t>(summary.first.size())) text << ", ...";
  if (!one) text << "]";
  if (summary.numel > 1) {
    text << ", norm " << summary.norm;
    if (summary.nans) text << ", " << summary.nans << " NaN";
    if (summary.infs) text << ", " << summary.infs << " inf";
    if (summary.zeros) text << ", " << summary.zeros << " of " << summary.numel << " zero";
  }
  return out << text.str();
}

std::string Recording::label(uint64_t number) const {
  const auto found = nodes.find(number);
  if (found == nodes.end()) return str("#", number);
  const Node& node = found->second;
  return str(node.is_leaf ? "leaf" : node.op, " #", number,
             node.name.empty() ? "" : " \"" + node.name + "\"");
}

namespace {

using Event = Recording::Event;
using Kind = Recording::Kind;

template <class Range, class F>
std::string listed(const Range& range, F text_of) {
  std::string text;
  for (const auto& item : range) text += (text.empty() ? "" : ", ") + text_of(item);
  return text;
}

template <class P>
bool any(const std::vector<TensorSummary>& summaries, P p) {
  return std::any_of(summaries.begin(), summaries.end(),
                     [&](const TensorSummary& g) { return g.known && p(g); });
}
bool has_nan(const TensorSummary& g) { return g.nans > 0; }
bool has_inf(const TensorSummary& g) { return g.infs > 0; }
bool not_finite(const TensorSummary& g) { return !g.finite(); }
bool not_zero(const TensorSummary& g) { return g.zeros < g.numel; }

/// What a recording implies about the paths of gradients.
class Paths {
 public:
  explicit Paths(const Recording& recording) : r_(recording) {
    size_t begin = 0;
    for (size_t e = 0; e < r_.events.size(); ++e) {
      const Event& event = r_.events[e];
      if (event.kind == Kind::begin) reached_.insert(event.pending.begin(), event.pending.end());
      if (event.kind == Kind::begin && event.partial) partial_ = true;
      if (event.kind == Kind::end && event.threw) threw_ = true;
      if (event.kind == Kind::begin && event.depth == 0) begin = e;
      if (event.kind == Kind::step) step_of_[event.node] = {e, begin};
    }
    for (auto n = r_.nodes.rbegin(); n != r_.nodes.rend(); ++n) {  // every edge leads to a lower number
      for (size_t i = 0; i < n->second.inputs.size(); ++i) {
        const uint64_t input = n->second.inputs[i].node;
        if (input) users_[input].push_back({n->first, i});
        if (reached_.contains(n->first)) reached_.insert(input);
      }
    }
  }

  /// The last step that took the node; null if none did.
  const Event* step(uint64_t node) const {
    const auto found = step_of_.find(node);
    return found == step_of_.end() ? nullptr : &r_.events[found->second.event];
  }

  /// A gradient that a step returned for input `input` of its node.
  struct Sent {
    uint64_t node;
    size_t input;
    const Event* step;
    const TensorSummary& gradient() const { return step->out[input]; }
  };
  /// What arrived at output `output` of `node` in the backward that took it last.
  std::vector<Sent> sent_to(uint64_t node, int64_t output) const {
    std::vector<Sent> sent;
    const auto users = users_.find(node);
    if (users == users_.end()) return sent;
    for (const auto& [user, input] : users->second) {
      const Event* from = step(user);
      const bool known = from && input < from->out.size() && from->out[input].known &&
                         step_of_.at(user).event >= step_of_.at(node).begin;
      if (known && r_.nodes.at(user).inputs[input].output == output) sent.push_back({user, input, from});
    }
    return sent;
  }

  /// Why no step took this node.
  std::string not_reached(uint64_t target) const {
    std::set<uint64_t> leading{target}, ends{target};  // nodes that lead to the target; those without users
    for (auto n = r_.nodes.lower_bound(target); n != r_.nodes.end(); ++n) {
      for (const Recording::Input& input : n->second.inputs) {
        if (!leading.contains(input.node)) continue;
        leading.insert(n->first);
        ends.insert(n->first);
        ends.erase(input.node);
      }
    }
    if (reached_.contains(target)) {
      for (const uint64_t node : leading) {
        const Event* from = step(node);
        for (size_t i = 0; from && i < from->out.size(); ++i) {
          if (leading.contains(r_.nodes.at(node).inputs[i].node) && !from->out[i].known)
            return r_.label(node) + " returned no gradient for it";
        }
      }
      if (threw_) return "the backward ended by an exception before it";
      return partial_ ? "vox::grad was asked for other inputs, and runs only what leads to them"
                      : "the backward has not come to it yet";
    }
    std::string text;
    for (const auto& [number, node] : r_.nodes) {
      for (const uint64_t constant : node.constants) {
        if (leading.contains(constant))
          text +=
              r_.label(number) + " uses " + r_.label(constant) + " as a constant: detach() cut the path; ";
      }
    }
    if (!text.empty()) return "no path leads to it from the output; " + text.substr(0, text.size() - 2);
    return "no path leads to it from the output: its tape ends at " +
           listed(ends, [&](uint64_t n) { return r_.label(n); }) +
           ", and what comes after was not recorded (detach(), no_grad(), an op without a gradient such as a "
           "comparison), or does not lead to the output";
  }

  /// Follows gradients with property `bad` against their direction, from the gradient of an output to the
  /// nodes that received a good gradient and returned a bad one. Returns a sentence about these.
  template <class P>
  std::string origin(uint64_t node, int64_t output, P bad, const char* what) const {
    std::set<std::pair<uint64_t, int64_t>> seen{{node, output}};
    std::vector<std::pair<uint64_t, int64_t>> todo{{node, output}};
    std::string text;
    for (size_t next = 0; next < todo.size(); ++next) {
      const auto [to, slot] = todo[next];
      const std::vector<Sent> all = sent_to(to, slot);
      const bool none_bad =
          std::none_of(all.begin(), all.end(), [&](const Sent& s) { return bad(s.gradient()); });
      if (all.empty())
        text += "; the caller's gradient for " + r_.label(to) + " is " + what;
      else if (none_bad)
        text += "; the gradients that " + listed(all, [&](const Sent& s) { return r_.label(s.node); }) +
                " sent to " + r_.label(to) + " are not, but their sum, or what a hook made of it, is";
      for (const Sent& s : all) {
        if (!bad(s.gradient())) continue;
        const std::vector<TensorSummary>& in = s.step->in;
        const bool born =
            std::none_of(in.begin(), in.end(), [&](const TensorSummary& g) { return g.known && bad(g); });
        if (born) {
          text += "; it comes from " + r_.label(s.node) + ", which takes " +
                  listed(in, [](const TensorSummary& g) { return g.known ? str(g) : "nothing"; }) +
                  " and returns " + str(s.gradient()) + values_of(s.node);
        }
        for (size_t i = 0; !born && i < in.size(); ++i) {
          const std::pair<uint64_t, int64_t> from{s.node, i};
          if (in[i].known && bad(in[i]) && seen.insert(from).second) todo.push_back(from);
        }
      }
    }
    return text;
  }

 private:
  /// The values that decide the derivative: those of the node's inputs and outputs.
  std::string values_of(uint64_t number) const {
    const Recording::Node& node = r_.nodes.at(number);
    std::string text;
    for (const Recording::Input& input : node.inputs) {
      if (!input.node) continue;
      const TensorSummary& value = r_.nodes.at(input.node).values[static_cast<size_t>(input.output)];
      if (value.known) text += "; its input " + r_.label(input.node) + " is " + str(value);
    }
    if (node.values[0].known) text += "; its output is " + str(node.values[0]);
    return text;
  }

  const Recording& r_;
  std::set<uint64_t> reached_;  // nodes on a path from an output of a backward
  struct Step {
    size_t event, begin;  // begin: of the outermost backward
  };
  std::map<uint64_t, Step> step_of_;
  std::map<uint64_t, std::vector<std::pair<uint64_t, size_t>>> users_;  // by node: (user, input number)
  bool threw_ = false, partial_ = false;
};

void add_new(const std::vector<TensorSummary>& before, const std::vector<TensorSummary>& after,
             const char* verb, std::vector<std::string>& texts) {
  const bool nan = any(after, has_nan) && !any(before, has_nan);
  const bool inf = any(after, has_inf) && !any(before, not_finite);
  if (nan || inf) texts.push_back(str(nan ? "NaN" : "infinity", " first ", verb, " here"));
}

}  // namespace

std::vector<Recording::Problem> Recording::problems() const {
  std::vector<Problem> found;
  bool has_run = false;
  size_t last_end = 0;
  std::set<uint64_t> taken;  // leaves that the outermost backward has taken
  for (size_t e = 0; e < events.size(); ++e) {
    const Event& event = events[e];
    std::vector<std::string> texts;
    if (event.kind == Kind::made) {
      std::vector<TensorSummary> inputs;
      for (const Input& input : nodes.at(event.node).inputs) {
        if (input.node) inputs.push_back(nodes.at(input.node).values[static_cast<size_t>(input.output)]);
      }
      add_new(inputs, nodes.at(event.node).values, "computed", texts);
    } else if (event.kind == Kind::step) {
      const auto& inputs = nodes.at(event.node).inputs;
      if (nodes.at(event.node).is_leaf && taken.insert(event.node).second && event.ran &&
          any({event.grad_before}, not_zero))
        texts.push_back("this gradient is added to that of an earlier backward: no zero_grad() since");
      add_new(event.in, event.out, "in a gradient", texts);
      for (size_t i = 0; i < event.out.size(); ++i) {
        if (inputs[i].node && event.out[i].all_zero() && any(event.in, not_zero))
          texts.push_back("the gradient for " + label(inputs[i].node) + " is zero from here on");
      }
    } else if (event.kind == Kind::begin) {
      if (event.depth == 0) taken.clear();
    } else {
      has_run = true;
      last_end = e;
      if (event.threw)
        found.push_back({e, event.node,
                         str("an exception ended the backward", event.node ? " here: " : ": ", event.error)});
    }
    for (const std::string& text : texts) found.push_back({e, event.node, text});
  }
  if (!has_run) return found;
  const Paths paths(*this);
  for (const auto& [number, node] : nodes) {
    if (node.is_leaf && !paths.step(number))
      found.push_back({last_end, number, "not reached: " + paths.not_reached(number)});
  }
  return found;
}

std::ostream& operator<<(std::ostream& out, const Recording& r) {
  const auto label = [&](uint64_t n) { return r.label(n); };
  const auto named = [&](const Recording::Input& i) -> std::string {
    const bool has_name = i.constant >= 0 && !r.constants[static_cast<size_t>(i.constant)].name.empty();
    return has_name ? "\"" + r.constants[static_cast<size_t>(i.constant)].name + "\"" : "-";
  };
  for (const Event& event : r.events) {
    TextStream text;
    if (event.kind == Kind::made) {
      const Recording::Node& node = r.nodes.at(event.node);
      text << "made " << label(event.node) << " of "
           << listed(node.inputs, [&](const auto& i) { return i.node ? label(i.node) : named(i); }) << ": "
           << listed(node.values, [](const TensorSummary& g) { return str(g); });
    } else if (event.kind == Kind::begin) {
      text << (event.partial ? "grad" : "backward") << " from " << listed(event.pending, label) << "; "
           << event.saved_bytes << " B saved";
    } else if (event.kind == Kind::end) {
      text << "end" << (event.threw ? " by an exception" : "") << "; " << event.saved_bytes << " B saved";
    } else {
      const auto& inputs = r.nodes.at(event.node).inputs;
      text << "  " << label(event.node) << " takes "
           << listed(event.in, [](const TensorSummary& g) { return g.known ? str(g) : "nothing"; });
      for (size_t i = 0; i < event.out.size(); ++i) {
        if (event.out[i].known && inputs[i].node)
          text << "\n    -> " << label(inputs[i].node) << ": " << event.out[i];
      }
      if (event.grad_before.known)
        text << "\n    grad() was " << event.grad_before << " and is " << event.grad_after;
      text << "\n    pending: " << (event.pending.empty() ? "nothing" : listed(event.pending, label));
      if (event.pending_total > event.pending.size())
        text << " and " << event.pending_total - event.pending.size() << " more";
      text << "; freed " << event.freed_bytes << " B, " << event.saved_bytes << " B saved";
    }
    const std::string indent(static_cast<size_t>(4 * event.depth), ' ');
    std::istringstream lines(text.str());
    for (std::string line; std::getline(lines, line);) out << indent << line << '\n';
  }
  for (const Recording::Problem& problem : r.problems())
    out << "! " << (problem.node ? label(problem.node) + ": " : "") << problem.text << '\n';
  return out;
}

std::string Recording::why(const Tensor& x) const {
  if (!x.defined()) return vox::why(x);
  uint64_t number = 0;
  size_t output = 0;
  if (x.is_leaf()) {
    for (const auto& [n, node] : nodes) {
      if (node.is_leaf && node.leaf.lock() == x.impl()) number = n;  // the latest
    }
  } else if (nodes.contains(x.impl()->autograd->node->number())) {
    number = x.impl()->autograd->node->number();
    output = static_cast<size_t>(x.impl()->autograd->output);
  }
  if (!number) return vox::why(x) + "; the recording saw no op that used it";
  const Paths paths(*this);
  const std::string who = label(number);
  const Event* step = paths.step(number);
  if (!step) return who + " got no gradient: " + paths.not_reached(number);
  const TensorSummary& gradient = step->in[output];
  if (!gradient.known) return who + " got no gradient: only other outputs of its op did";
  const auto slot = static_cast<int64_t>(output);
  if (!gradient.finite())
    return who + " got a gradient that is not finite, " + str(gradient) +
           paths.origin(number, slot, not_finite, "not finite");
  if (gradient.all_zero())
    return who + " got a zero gradient, " + str(gradient) +
           paths.origin(
               number, slot, [](const TensorSummary& g) { return g.all_zero(); }, "zero");
  std::string text = who + " got the gradient " + str(gradient);
  if (!x.grad().defined())
    text += step->ran ? "; " + vox::why(x) : "; vox::grad returned it and keeps no grad()";
  return text;
}

std::string why(const Tensor& t) {
  if (!t.defined()) return "the tensor is undefined";
  const std::string who = str("the tensor", autograd::Quoted{t});
  if (const Tensor g = t.grad(); g.defined()) {
    const TensorSummary summary = autograd::summary_of(g);
    if (!summary.finite() || summary.all_zero())
      return who + " has the gradient " + str(summary) +
             "; a vox::Watch around forward and backward knows where " + "that began";
    return who + " has the gradient " + str(summary);
  }
  if (!is_floating(t.dtype()))
    return who + " has no gradient: its dtype is " + str(t.dtype()) + ", not floating";
  if (!t.requires_grad())
    return who +
           " has no gradient: it does not require grad. Either set_requires_grad() was not called before "
           "the " +
           "forward, or an op made it from inputs that do not require grad, under no_grad(), or as detach(), "
           "or an op has no gradient (a comparison, argmax, a cast to integers)";
  const AutogradMeta& meta = *t.impl()->autograd;
  if (meta.node) {
    const auto& hooks = meta.node->hooks(meta.output);
    const bool retains = hooks && std::any_of(hooks->retained.begin(), hooks->retained.end(),
                                              [&](const auto& h) { return h.lock() == t.impl(); });
    return who + " has no gradient: " +
           (retains ? str("no backward has reached ", *meta.node, " since retain_grad()")
                    : str("it is not a leaf, but the output of ", *meta.node,
                          "; call retain_grad() before backward to keep its gradient"));
  }
  if (const auto accumulator = meta.accumulator.lock())
    return who + str(" has no gradient: a tape leads to it (", *accumulator,
                     "), but no backward has reached it since grad() was last cleared");
  return who +
         " has no gradient: no tape leads to it now. Either no op used it since it requires grad (perhaps " +
         "only its detach(), or only under no_grad()), or no backward reached it before its tape was freed, "
         "or " +
         "zero_grad() has cleared it";
}

}  // namespace vox
