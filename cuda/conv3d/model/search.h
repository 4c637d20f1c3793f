#pragma once

#include <limits>
#include <optional>
#include <utility>

namespace vox::cuda::conv {

/// The candidate of the least predicted time; the first among equals. `Time` is double, or int64_t where
/// times are whole cycles.
template <class Candidate, class Time = double>
class Least {
 public:
  /// Whether the candidate is the best so far.
  bool offer(const Candidate& candidate, Time time) {
    if (!(time < time_)) return false;
    time_ = time;
    best_ = candidate;
    return true;
  }
  Time time() const { return time_; }  ///< of the best; the largest number before the first offer
  const std::optional<Candidate>& best() const { return best_; }

 private:
  std::optional<Candidate> best_;
  Time time_ = std::numeric_limits<Time>::max();
};

}  // namespace vox::cuda::conv
