#pragma once

#include <cstdint>
#include <mutex>

namespace vox {

/// The position of a random stream: all that a checkpoint must keep.
struct GeneratorState {
  uint64_t seed = 0;
  uint64_t offset = 0;  ///< number of tensors drawn since the seed was set
  friend bool operator==(const GeneratorState&, const GeneratorState&) = default;
};

/// A stream of random tensors. Element i of a tensor is a function of (seed, offset, i) alone
/// (core/philox.h): equal seeds give equal tensors on every device, with any number of threads. Safe to use
/// from many threads; the order of their calls decides which thread gets which numbers.
class Generator {
 public:
  explicit Generator(uint64_t seed = 0) : state_{seed, 0} {}

  /// Starts the stream of `seed` from its beginning.
  void set_seed(uint64_t seed) { set_state({seed, 0}); }

  GeneratorState state() const {
    const std::lock_guard lock(mutex_);
    return state_;
  }
  void set_state(GeneratorState state) {
    const std::lock_guard lock(mutex_);
    state_ = state;
  }

  /// Returns the place of the next tensor in the stream and moves on by one.
  GeneratorState next() {
    const std::lock_guard lock(mutex_);
    const GeneratorState current = state_;
    ++state_.offset;
    return current;
  }

 private:
  mutable std::mutex mutex_;
  GeneratorState state_;
};

/// The generator that functions use if they are given none. Its seed is 0 until manual_seed() sets it.
Generator& default_generator();

/// Seeds default_generator(). Two runs with one seed draw the same numbers.
void manual_seed(uint64_t seed);

}  // namespace vox
