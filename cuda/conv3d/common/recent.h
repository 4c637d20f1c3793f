#pragma once

#include <algorithm>
#include <cstddef>
#include <memory>
#include <tuple>
#include <utility>
#include <vector>

namespace vox::cuda::conv {

/// The values of the last keys. Choosing and planning a convolution takes up to some hundred microseconds of
/// the host, and every training step asks for the same ones: a network of 25 convolutions has 75 problems.
/// Keys are only compared, so a tuple serves for a key of several parts.
template <class Key, class Value, size_t kept = 256>
class Recent {
 public:
  /// The cached value, or make(), which then replaces the oldest. The reference is good until the next call.
  template <class Make>
  const Value& of(const Key& key, Make make) {
    const auto found = std::ranges::find(entries_, key, &Entry::key);
    if (found != entries_.end()) return *found->value;
    auto value = std::make_unique<const Value>(make());
    if (entries_.size() < kept) return *entries_.emplace_back(Entry{key, std::move(value)}).value;
    Entry& oldest = entries_[oldest_];
    oldest = {key, std::move(value)};
    oldest_ = (oldest_ + 1) % kept;
    return *oldest.value;
  }

 private:
  struct Entry {
    Key key;
    std::unique_ptr<const Value> value;  // elsewhere, so that a search reads keys only
  };
  std::vector<Entry> entries_;  // on the heap: thread_local objects take space from the thread's stack
  size_t oldest_ = 0;
};

/// make(args...), which each thread keeps for the last arguments. The reference is good until the next call.
template <auto make, class... Args>
const auto& recall(const Args&... args) {
  thread_local Recent<std::tuple<Args...>, decltype(make(args...))> recent;
  return recent.of({args...}, [&] { return make(args...); });
}

}  // namespace vox::cuda::conv
