// The recorder behind a Watch: Note [Watching].
#include <voxgrad/autograd/accumulate_grad.h>
#include <voxgrad/autograd/grad_plan.h>
#include <voxgrad/autograd/meta.h>
#include <voxgrad/autograd/running.h>
#include <voxgrad/autograd/saved_tensor.h>
#include <voxgrad/autograd/tape.h>
#include <voxgrad/core/type_name.h>
#include <voxgrad/watch/watch.h>

#include <cmath>
#include <exception>
#include <typeinfo>
#include <unordered_map>

namespace vox {
namespace autograd {

TensorSummary summary_of(const Tensor& t) {
  TensorSummary summary{.known = true, .shape = t.shape(), .numel = t.numel()};
  const Tensor host = t.detach().to(Device::cpu()).contiguous();
  double squares = 0;
  visit_storage(host.dtype(), [&]<class T>(T) {
    const T* elements = detail::ptr<T>(host);
    for (int64_t i = 0; i < summary.numel; ++i) {
      double value = static_cast<double>(elements[i]);
      if (std::isnan(value)) value = std::nan("");  // its sign says nothing
      if (summary.first.size() < TensorSummary::shown) summary.first.push_back(value);
      summary.nans += std::isnan(value);
      summary.infs += std::isinf(value);
      summary.zeros += value == 0;
      squares += value * value;
    }
  });
  summary.norm = summary.nans ? std::nan("") : std::sqrt(squares);
  return summary;
}

namespace {

std::vector<TensorSummary> summaries_of(const Gradients& gradients) {
  std::vector<TensorSummary> summaries;
  for (const Gradient& g : gradients)
    summaries.push_back(g && g->defined() ? summary_of(*g) : TensorSummary());
  return summaries;
}

}  // namespace

/// Writes a Recording, and counts the memory that saved tensors keep.
class Recorder final : public Observer {
 public:
  Recording recording;

  void reads(Node& maker, std::span<const Tensor> inputs) override {
    account_for_last();
    Recording::Node& record = node(maker);
    for (size_t i = 0; i < inputs.size(); ++i) {
      if (!inputs[i].defined() || record.inputs[i].node) continue;
      if (const uint64_t source = maker_of(inputs[i]))
        record.constants.insert(source);
      else
        record.inputs[i].constant = constant(inputs[i]);
    }
  }

  void recorded(Node& maker, const Tensor& t) override {
    const bool is_first = maker.outputs().size() == 1;
    Recording::Node& record = node(maker);
    record.values.resize(maker.outputs().size());
    record.values.back() = summary_of(t);
    note_memory(t, maker.number());
    if (!is_first) return;
    last_ = maker.weak_from_this();
    add_event({.kind = Recording::Kind::made, .node = maker.number(), .depth = depth()});
  }

  void began(const std::vector<Edge>& roots, const GradPlan* plan) override {
    account_for_last();
    take_stock(roots);
    Run run{.exceptions = std::uncaught_exceptions()};
    for (const Edge& root : roots) {
      if (!plan || plan->wants(*root.node)) run.pending.insert(root.node->number());
    }
    add_event({.kind = Recording::Kind::begin,
               .pending = first_of(run.pending),
               .pending_total = run.pending.size(),
               .partial = plan != nullptr,
               .depth = depth()});
    runs_.push_back(std::move(run));
  }

  void arrived(Node& node, const Gradients& gradients) override {
    account_for_last();
    Run& run = runs_.back();
    run.pending.erase(node.number());
    run.step = recording.events.size();
    add_event({.kind = Recording::Kind::step,
               .node = id(node.number()),
               .in = summaries_of(gradients),
               .saved = saved_of(node),
               .grad_before = grad_of(node),
               .depth = depth() - 1});
    note_pending(run);
  }

  void ran(Node& node, const Gradients& results) override {
    account_for_last();
    Run& run = runs_.back();
    for (size_t i = 0; i < results.size(); ++i) {
      if (results[i] && node.needs_grad(static_cast<int64_t>(i)))
        run.pending.insert(node.edges()[i].node->number());
    }
    const int64_t before = live_;
    account_for_release(node);
    Recording::Event& step = recording.events[run.step];
    step.ran = true;
    step.out = summaries_of(results);
    step.grad_after = grad_of(node);
    step.saved_bytes = live_;
    step.freed_bytes = before - live_;
    note_pending(run);
  }

  void failed(const char* error, uint64_t node) override {
    runs_.back().error = error;
    runs_.back().failed_at = recording.nodes.contains(id(node)) ? id(node) : 0;
  }

  void ended() override {
    account_for_last();
    const Run run = std::move(runs_.back());
    runs_.pop_back();
    add_event({.kind = Recording::Kind::end,
               .node = run.failed_at,
               .threw = std::uncaught_exceptions() > run.exceptions,
               .error = run.error,
               .depth = depth()});
  }

  /// Brings the recording up to date: the memory that the last op saves, and names, which may be given at any
  /// time.
  void finish() {
    account_for_last();
    refresh([](Node&) {});
  }

 private:
  struct Maker {
    std::weak_ptr<Storage> memory;
    uint64_t node;
  };
  /// A run of the engine that has not ended.
  struct Run {
    std::set<uint64_t, std::greater<>> pending = {};
    size_t step = 0;  // the event of the node that runs
    int exceptions = 0;
    std::string error = {};
    uint64_t failed_at = 0;
  };

  int depth() const { return static_cast<int>(runs_.size()); }

  void add_event(Recording::Event event) {
    event.saved_bytes = live_;
    recording.events.push_back(std::move(event));
  }

  void note_pending(const Run& run) {
    Recording::Event& step = recording.events[run.step];
    step.pending_total = run.pending.size();
    step.pending = first_of(run.pending);
  }

  /// The first 16 of the pending nodes, as the recording calls them.
  std::vector<uint64_t> first_of(const std::set<uint64_t, std::greater<>>& pending) const {
    std::vector<uint64_t> first;
    for (const uint64_t number : pending) {
      if (first.size() == 16) break;
      first.push_back(id(number));
    }
    return first;
  }

  /// The number under which the recording has the node.
  uint64_t id(uint64_t number) const {
    const auto found = same_leaf_.find(number);
    return found == same_leaf_.end() ? number : found->second;
  }

  Recording::Node& node(Node& node) {
    const auto [found, is_new] = recording.nodes.try_emplace(node.number());
    Recording::Node& record = found->second;
    if (!is_new) return record;
    record.op = node.name();
    record.type = detail::type_name(typeid(node));
    alive_.emplace_back(node.weak_from_this());
    for (const TensorSpec& spec : node.outputs()) record.values.push_back({.shape = spec.shape});
    for (const Edge& edge : node.edges()) {
      if (edge.node) look_at_leaf(*edge.node);
      record.inputs.push_back({edge.node ? id(edge.node->number()) : 0, edge.output});
    }
    return record;
  }

  /// Counts the saved memory of all living nodes again, because nodes may have been deleted since.
  void take_stock(const std::vector<Edge>& roots) {
    last_.reset();
    saved_.clear();
    users_.clear();
    live_ = 0;
    for (const Edge& root : roots) {
      for (Node* n : nodes_of(root)) {
        if (!look_at_leaf(*n)) node(*n);
      }
    }
    refresh([this](Node& n) { account_for(n); });
  }

  /// Reads the names of all living nodes, because names may be given at any time, and calls also(node) for
  /// each.
  template <class F>
  void refresh(F also) {
    std::erase_if(alive_, [](const std::weak_ptr<Node>& n) { return n.expired(); });
    for (const std::weak_ptr<Node>& weak : alive_) {
      const std::shared_ptr<Node> n = weak.lock();
      std::string& name = recording.nodes[id(n->number())].name;
      name.clear();
      for (size_t i = 0; i < n->outputs().size() && name.empty(); ++i)
        name = n->output_name(static_cast<int64_t>(i));
      also(*n);
    }
  }

  /// Counts the memory that `n` saves, once per node.
  void account_for(Node& n) {
    const auto [entry, is_new] = saved_.try_emplace(n.number());
    if (!is_new) return;
    for (const Storage* memory : saved_memory(n)) {
      entry->second.emplace_back(memory, memory->bytes());
      if (users_[memory]++ == 0) live_ += memory->bytes();
    }
  }

  /// Counts the memory of the node that was made last, which has saved its tensors by now.
  void account_for_last() {
    if (const std::shared_ptr<Node> last = last_.lock()) {
      account_for(*last);
      recording.events.back().saved_bytes = live_;
    }
    last_.reset();
  }

  /// Subtracts `n`'s memory if it was released.
  void account_for_release(Node& n) {
    const auto entry = saved_.find(n.number());
    if (entry == saved_.end() || !saved_memory(n).empty()) return;
    for (const auto& [memory, bytes] : entry->second) {
      if (--users_[memory] == 0) live_ -= bytes;
    }
    entry->second.clear();
  }

  void note_memory(const Tensor& t, uint64_t maker) {
    Maker& first = makers_[t.impl()->storage.get()];
    if (first.memory.expired()) first = {t.impl()->storage, maker};  // else t is a view of what `first` made
  }

  /// The node that made the memory of t; 0 if that is not known.
  uint64_t maker_of(const Tensor& t) const {
    const auto found = makers_.find(t.impl()->storage.get());
    return found != makers_.end() && found->second.memory.lock() == t.impl()->storage ? found->second.node
                                                                                      : 0;
  }

  /// The index of t in recording.constants. A tensor that was written since it was met counts as another one.
  int64_t constant(const Tensor& t) {
    const auto [found, is_new] = constants_.try_emplace({t.impl().get(), t.impl()->storage->version()});
    auto& [tensor, index] = found->second;
    if (is_new || tensor.lock() != t.impl()) {
      tensor = t.impl();
      index = static_cast<int64_t>(recording.constants.size());
      recording.constants.push_back({t.name(), summary_of(t)});
    }
    return index;
  }

  std::vector<Recording::Saved> saved_of(const Node& n) const {
    std::vector<Recording::Saved> saved;
    for (const SavedTensor* s : n.saved()) {
      if (!s->storage()) continue;
      Recording::Saved& found = saved.emplace_back();
      try {
        const Tensor t = s->get();
        const Edge edge = gradient_edge(t);
        found = {edge.node ? id(edge.node->number()) : 0, summary_of(t)};
      } catch (const GradError&) {  // written since
      }
    }
    return saved;
  }

  static TensorSummary grad_of(Node& n) {
    auto* accumulator = dynamic_cast<AccumulateGrad*>(&n);
    const std::shared_ptr<TensorImpl> leaf = accumulator ? accumulator->leaf_if_alive() : nullptr;
    return leaf && leaf->autograd->grad.defined() ? summary_of(leaf->autograd->grad) : TensorSummary();
  }

  /// Whether n belongs to a leaf. If it is new, records it, or the leaf's value if an earlier graph had the
  /// leaf.
  bool look_at_leaf(Node& n) {
    auto* accumulator = dynamic_cast<AccumulateGrad*>(&n);
    if (!accumulator) return false;
    if (recording.nodes.contains(id(n.number()))) return true;
    const std::shared_ptr<TensorImpl> leaf = accumulator->leaf_if_alive();
    for (const auto& [number, record] : recording.nodes) {
      if (!leaf || !record.is_leaf || record.leaf.lock() != leaf) continue;
      same_leaf_[n.number()] = number;
      recording.nodes[number].later.emplace_back(recording.events.size(), summary_of(Tensor(leaf)));
      return true;
    }
    Recording::Node& record = node(n);
    record.is_leaf = true;
    if (!leaf) return true;
    record.leaf = leaf;
    record.values[0] = summary_of(Tensor(leaf));
    note_memory(Tensor(leaf), n.number());
    return true;
  }

  std::vector<std::weak_ptr<Node>> alive_;            // all nodes of the recording that may be alive
  std::weak_ptr<Node> last_;                          // the node of the last event, if that is `made`
  std::unordered_map<const Storage*, Maker> makers_;  // the node that made the memory
  std::unordered_map<uint64_t, std::vector<std::pair<const Storage*, int64_t>>> saved_;  // by node
  std::unordered_map<const Storage*, int64_t> users_;  // how many nodes save it
  int64_t live_ = 0;
  std::map<uint64_t, uint64_t> same_leaf_;  // later nodes of a leaf: the number of its first one
  std::map<std::pair<const TensorImpl*, uint64_t>, std::pair<std::weak_ptr<TensorImpl>, int64_t>> constants_;
  std::vector<Run> runs_;  // the innermost last
};

}  // namespace autograd

Watch::Watch()
    : recorder_(std::make_shared<autograd::Recorder>()),
      outer_(std::exchange(autograd::running.observer, recorder_.get())) {}

Watch::~Watch() { autograd::running.observer = outer_; }

const Recording& Watch::recording() const {
  recorder_->finish();
  return recorder_->recording;
}

}  // namespace vox
