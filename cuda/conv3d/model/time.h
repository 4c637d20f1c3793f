#pragma once

#include <array>
#include <string_view>

namespace vox::cuda::conv {

/// What a kernel does for a problem, as its plan says it. Cycles, rounds and stages are those of the
/// multiprocessor that has most to do. They need not be exact, only proportional to what the kernel does:
/// their price is fitted.
struct Work {
  double products = 0;  ///< cycles of the instructions that multiply
  double loads = 0;     ///< cycles in which warps load operands to shared memory or registers
  double rounds = 0;    ///< tiles, one after the other
  double stages = 0;    ///< of the pipeline: one wait each
  double stores = 0;    ///< sums that leave the registers; partial sums of a weight gradient
  double bytes = 0;     ///< that all blocks read from memory and write to it
  double weights = 0;   ///< numbers of the weight, which are packed before
};

/// The names of the kinds of work, and how much there is of each, in the same order.
inline constexpr std::array<std::string_view, 7> kinds_of_work{"products", "loads", "rounds", "stages",
                                                               "stores",   "bytes", "weights"};
constexpr std::array<double, 7> amounts(const Work& w) {
  return {w.products, w.loads, w.rounds, w.stages, w.stores, w.bytes, w.weights};
}

/// What work costs a kernel, in microseconds of an H200.
struct Prices {
  std::string_view kernel, pass;
  double launch;  ///< what every call costs
  Work each;      ///< one unit of each kind of work
};

/// Predicted microseconds. All that a kernel does is added up, although it overlaps in part: with prices that
/// are fitted to a sum, sums choose as well as maxima, and the price of one kind of work can be read.
constexpr double predicted_time(const Work& work, const Prices& price) {
  double microseconds = price.launch;
  for (size_t kind = 0; kind < kinds_of_work.size(); ++kind)
    microseconds += amounts(work)[kind] * amounts(price.each)[kind];
  return microseconds;
}

}  // namespace vox::cuda::conv
