#pragma once

#include <algorithm>
#include <cstddef>
#include <vector>

namespace vox::cuda {

/// What was worked out for the last few keys, so that it need not be worked out again: choosing and planning
/// a convolution takes some microseconds of the host, and every training step asks for the same few. To be
/// kept thread_local. A key of several parts is a tuple, as keys are compared and nothing else.
template <class Key, class Value, size_t kept = 32>
class Recent {
 public:
  /// make() of the first time, for a key that is among the last ones; else of now, which is remembered in
  /// place of the oldest. Good until the next call.
  template <class Make>
  const Value& of(const Key& key, Make make) {
    const auto found = std::ranges::find(entries_, key, &Entry::key);
    if (found != entries_.end()) return found->value;
    if (entries_.size() < kept) return entries_.emplace_back(Entry{key, make()}).value;
    Entry& oldest = entries_[oldest_];
    oldest = {key, make()};
    oldest_ = (oldest_ + 1) % kept;
    return oldest.value;
  }

 private:
  struct Entry {
    Key key;
    Value value;
  };
  std::vector<Entry> entries_;  // not in the object: a thread's own memory comes out of its stack
  size_t oldest_ = 0;
};

}  // namespace vox::cuda
