#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <ostream>
#include <set>
#include <string>
#include <vector>

#include <voxgrad/core/tensor.h>

// Note [Watching]
//
// A Watch on a thread makes a Recording of what happens on this thread's tape: every node that an op leaves
// (`made`), and every step of every backward. It keeps numbers about tensors, never tensors, so memory is
// freed and gradients are summed as without it. It copies each tensor to the host to look at it, which is
// slow.
//
//     vox::Watch watch;
//     const Tensor loss = ...;                       // recorded, so that the values are known
//     loss.backward();
//     std::cout << watch.recording();                // as text
//     vox::write_html(watch.recording(), "run.html");  // as a page to step through
//     std::cout << watch.recording().why(x);         // why x.grad() is undefined, zero or NaN
//
// Without a Watch, an op that is recorded and a backward each test one pointer (autograd/running.h).

namespace vox {

/// What a recording keeps of a tensor.
struct TensorSummary {
  bool known = false;  ///< if false, the elements were not read
  Shape shape = {};
  std::vector<double> first = {};  ///< the first elements in row-major order, at most `shown`
  double norm = 0;                 ///< Euclidean
  int64_t numel = 0, nans = 0, infs = 0, zeros = 0;

  static constexpr size_t shown = 6;
  bool finite() const { return nans + infs == 0; }
  bool all_zero() const { return known && numel > 0 && zeros == numel; }
};
std::ostream& operator<<(std::ostream& out, const TensorSummary& summary);

namespace autograd {
class Observer;
class Recorder;
TensorSummary summary_of(const Tensor& t);
}  // namespace autograd

/// What happened on a thread's tape. Nodes are named by their numbers, which are never used twice. A leaf
/// gets a node in every graph; here the first one stands for all.
struct Recording {
  struct Input {
    uint64_t node = 0;  ///< where the input's gradient goes; 0: it needs none
    int64_t output = 0;
    int64_t constant = -1;  ///< of an input that needs no gradient: its index in `constants`; -1: not known
  };
  /// A tensor that ops read and that needs no gradient, such as data or a target.
  struct Constant {
    std::string name;
    TensorSummary value;
  };
  struct Node {
    std::string op, name;               ///< name: of its first output with a name
    std::string type;                   ///< the C++ type of the node
    bool is_leaf = false;               ///< an AccumulateGrad
    std::vector<Input> inputs;          ///< of the op
    std::vector<TensorSummary> values;  ///< of its outputs; known if the Watch saw the forward, or of leaves
    std::set<uint64_t> constants;       ///< nodes whose outputs it read under detach()
    std::weak_ptr<TensorImpl> leaf;
    /// Of a leaf: its values when later graphs met it, each with the event from which on it holds.
    std::vector<std::pair<size_t, TensorSummary>> later = {};
  };
  /// A tensor that a node saved, as a step found it.
  struct Saved {
    uint64_t node = 0;         ///< whose output it is; 0: a constant
    TensorSummary value = {};  ///< not known if its memory was written since it was saved
  };
  enum class Kind { made, begin, step, end };
  struct Event {
    Kind kind = Kind::made;
    uint64_t node = 0;  ///< made, step: the node
    std::vector<TensorSummary> in = {},
                               out = {};  ///< step: gradients of the node's outputs, and those of its inputs
    std::vector<uint64_t> pending =
        {};  ///< nodes that have a gradient and wait, the next one first; for a step at most 16
    size_t pending_total = 0;
    std::vector<Saved> saved = {};                    ///< step: what the node has saved
    TensorSummary grad_before = {}, grad_after = {};  ///< step of a leaf: its grad(); not known if undefined
    int64_t saved_bytes = 0;  ///< memory that saved tensors of the watched tape keep, after this event
    int64_t freed_bytes = 0;  ///< how much less that is than before this step
    bool partial = false;     ///< begin: the run is that of vox::grad: only nodes that lead to its inputs
    bool ran = false;         ///< step: false if vox::grad took the gradient and ended here, or it threw
    bool threw = false;       ///< end: an exception ended the run, at `node` if that is not 0
    std::string error = {};   ///< end: its text
    int depth = 0;            ///< 0 for a backward, 1 for one that runs inside it, ...
  };
  /// Something that deserves attention, such as a NaN, and the event and node where it appeared.
  struct Problem {
    size_t event;
    uint64_t node;
    std::string text;
  };

  std::map<uint64_t, Node> nodes;
  std::vector<Constant> constants;
  std::vector<Event> events;

  /// The first NaN or infinity, the first zero gradient, a leaf that no backward reached, a gradient that was
  /// added to that of an earlier backward, the node where an exception ended a backward.
  std::vector<Problem> problems() const;

  /// Why x.grad() is undefined, zero or NaN: the path and the node where it was lost.
  std::string why(const Tensor& x) const;

  /// `mul #2 "y"`
  std::string label(uint64_t node) const;
};

/// Text: one line per event and gradient, then the problems.
std::ostream& operator<<(std::ostream& out, const Recording& recording);

/// The graph of vox::tape for Graphviz: `dot -Tsvg`.
std::string tape_dot(const Tensor& output);

/// Writes one HTML page that needs no other file and no network: the graph, stepped with arrow keys, values
/// and gradients, the code of each node, memory over time, problems. Throws IoError if the file cannot be
/// written, and ValueError for an empty recording or more than 500 nodes.
void write_html(const Recording& recording, const std::string& path);

/// Why t.grad() is undefined, zero or NaN, as far as the tensor itself knows. A Recording knows more.
std::string why(const Tensor& t);

/// Records this thread's tape while it lives. If there are several, the innermost one records.
class Watch {
 public:
  Watch();
  ~Watch();
  Watch(const Watch&) = delete;
  Watch& operator=(const Watch&) = delete;

  /// What was seen so far.
  const Recording& recording() const;

 private:
  std::shared_ptr<autograd::Recorder> recorder_;
  autograd::Observer* outer_;  // what observed this thread before
};

}  // namespace vox
