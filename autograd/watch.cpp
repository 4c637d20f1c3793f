// The recorder behind a Watch: Note [Watching].
#include <voxgrad/autograd/accumulate_grad.h>
#include <voxgrad/autograd/grad_plan.h>
#include <voxgrad/autograd/saved_tensor.h>
#include <voxgrad/autograd/tape.h>
#include <voxgrad/autograd/watch.h>
#include <voxgrad/autograd/watched_run.h>
#include <voxgrad/core/type_name.h>

#include <cmath>
#include <cstdlib>
#include <exception>
#include <map>
#include <typeinfo>
#include <unordered_map>

namespace vox {
namespace autograd {

Glimpse glimpse_of(const Tensor& t) {
  Glimpse glimpse{.known = true, .shape = t.shape(), .numel = t.numel()};
  const Tensor host = t.detach().to(Device::cpu()).contiguous();
  double squares = 0;
  visit_dtype(host.dtype(), [&]<class T>(T) {
    const T* elements = detail::ptr<T>(host);
    for (int64_t i = 0; i < glimpse.numel; ++i) {
      double value = static_cast<double>(elements[i]);
      if (std::isnan(value)) value = std::nan("");  // its sign says nothing
      if (glimpse.first.size() < Glimpse::shown) glimpse.first.push_back(value);
      glimpse.nans += std::isnan(value);
      glimpse.infs += std::isinf(value);
      glimpse.zeros += value == 0;
      squares += value * value;
    }
  });
  glimpse.norm = glimpse.nans ? std::nan("") : std::sqrt(squares);
  return glimpse;
}

namespace {

std::vector<Glimpse> glimpses_of(const Gradients& gradients) {
  std::vector<Glimpse> glimpses;
  for (const Gradient& g : gradients) glimpses.push_back(g && g->defined() ? glimpse_of(*g) : Glimpse());
  return glimpses;
}

}  // namespace

/// Writes a Recording, and counts the memory that saved tensors keep.
class Recorder {
 public:
  Recording recording;
  int depth = 0;  // number of engine runs that are active, one inside the other

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
      record.inputs.push_back({edge.node ? edge.node->number() : 0, edge.output});
    }
    return record;
  }

  void made(Node& maker, const Tensor& t) {
    account_for_last();
    const bool is_first = maker.outputs().size() == 1;
    Recording::Node& record = node(maker);
    record.values.resize(maker.outputs().size());
    record.values.back() = glimpse_of(t);
    note_memory(t, maker.number());
    if (!is_first) return;
    last_ = maker.weak_from_this();
    recording.events.push_back(
        {.kind = Recording::Kind::made, .node = maker.number(), .saved_bytes = live_, .depth = depth});
  }

  /// Counts the saved memory of all living nodes again, because nodes may have been deleted since.
  void take_stock(const std::vector<Edge>& roots) {
    last_.reset();
    saved_.clear();
    users_.clear();
    live_ = 0;
    for (const Edge& root : roots) {
      for (Node* n : nodes_of(root)) look_at_leaf(*n), node(*n);
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
      std::string& name = recording.nodes[n->number()].name;
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
    for (const SavedTensor* saved : n.saved()) {
      const auto source =
          saved->storage() && saved->is_constant() ? makers_.find(saved->storage()) : makers_.end();
      if (source != makers_.end() && source->second.memory.lock().get() == saved->storage())
        recording.nodes[n.number()].constants.insert(source->second.node);
    }
  }

  /// Counts the memory of the node that was made last, which has saved its tensors by now.
  void account_for_last() {
    if (const std::shared_ptr<Node> last = last_.lock()) {
      account_for(*last);
      recording.events[last_event()].saved_bytes = live_;
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

  int64_t live() const { return live_; }

 private:
  struct Maker {
    std::weak_ptr<Storage> memory;
    uint64_t node;
  };

  void note_memory(const Tensor& t, uint64_t maker) {
    Maker& first = makers_[t.impl()->storage.get()];
    if (first.memory.expired()) first = {t.impl()->storage, maker};  // else t is a view of what `first` made
  }

  void look_at_leaf(Node& n) {
    auto* accumulator = dynamic_cast<AccumulateGrad*>(&n);
    if (!accumulator || recording.nodes.contains(n.number())) return;
    Recording::Node& record = node(n);
    record.is_leaf = true;
    const std::shared_ptr<TensorImpl> leaf = accumulator->leaf_if_alive();
    if (!leaf) return;
    record.leaf = leaf;
    record.values[0] = glimpse_of(Tensor(leaf));
    note_memory(Tensor(leaf), n.number());
  }

  size_t last_event() const { return recording.events.size() - 1; }

  std::vector<std::weak_ptr<Node>> alive_;            // all nodes of the recording that may be alive
  std::weak_ptr<Node> last_;                          // the node of the last event, if that is `made`
  std::unordered_map<const Storage*, Maker> makers_;  // the node that made the memory
  std::unordered_map<uint64_t, std::vector<std::pair<const Storage*, int64_t>>> saved_;  // by node
  std::unordered_map<const Storage*, int64_t> users_;  // how many nodes save it
  int64_t live_ = 0;
};

void watch_output(Node& node, const Tensor& t) {
  const std::shared_ptr<Recorder> recorder = *running_watch;
  recorder->made(node, t);
}

void WatchedRun::begin(const std::vector<Edge>& roots, bool partial) {
  const std::shared_ptr<Recorder> recorder = *running_watch;
  recorder->account_for_last();
  recorder->take_stock(roots);
  for (const Edge& root : roots) {
    if (!running_plan || running_plan->wants(*root.node)) pending_.insert(root.node->number());
  }
  recorder->recording.events.push_back({.kind = Recording::Kind::begin,
                                        .pending = {pending_.begin(), pending_.end()},
                                        .pending_total = pending_.size(),
                                        .saved_bytes = recorder->live(),
                                        .partial = partial,
                                        .depth = recorder->depth++});
  exceptions_ = std::uncaught_exceptions();
  recorder_ = recorder;
}

void WatchedRun::end() {
  recorder_->account_for_last();
  recorder_->recording.events.push_back({.kind = Recording::Kind::end,
                                         .saved_bytes = recorder_->live(),
                                         .threw = std::uncaught_exceptions() > exceptions_,
                                         .depth = --recorder_->depth});
}

void WatchedRun::record_arrived(Node& node, const Gradients& gradients) {
  recorder_->account_for_last();
  pending_.erase(node.number());
  step_ = recorder_->recording.events.size();
  recorder_->recording.events.push_back({.kind = Recording::Kind::step,
                                         .node = node.number(),
                                         .in = glimpses_of(gradients),
                                         .saved_bytes = recorder_->live(),
                                         .depth = recorder_->depth - 1});
  note_pending();
}

void WatchedRun::record_ran(Node& node, const Gradients& results) {
  recorder_->account_for_last();
  Recording::Event& step = recorder_->recording.events[step_];
  step.ran = true;
  step.out = glimpses_of(results);
  for (size_t i = 0; i < results.size(); ++i) {
    if (results[i] && node.needs_grad(static_cast<int64_t>(i)))
      pending_.insert(node.edges()[i].node->number());
  }
  const int64_t before = recorder_->live();
  recorder_->account_for_release(node);
  step.saved_bytes = recorder_->live();
  step.freed_bytes = before - step.saved_bytes;
  note_pending();
}

void WatchedRun::note_pending() {
  Recording::Event& step = recorder_->recording.events[step_];
  step.pending_total = pending_.size();
  step.pending.clear();
  for (const uint64_t number : pending_) {
    if (step.pending.size() == 16) break;
    step.pending.push_back(number);
  }
}

}  // namespace autograd

Watch::Watch() : recorder_(std::make_shared<autograd::Recorder>()), previous_(autograd::running_watch) {
  autograd::running_watch = &recorder_;
}

Watch::~Watch() { autograd::running_watch = previous_; }

const Recording& Watch::recording() const {
  recorder_->account_for_last();
  recorder_->refresh([](autograd::Node&) {});
  return recorder_->recording;
}

}  // namespace vox
