#pragma once

#include <cstdint>
#include <limits>

namespace vox::cuda::conv {

/// What plans and predictions of time need to know about a GPU. Plans are plain host values, so tests make
/// them for any machine, on any machine.
struct Machine {
  int multiprocessors;
  int64_t block_shared_bytes;           ///< shared memory of a block, at most
  int64_t multiprocessor_shared_bytes;  ///< of all its blocks, each of which takes 1 KB more
  bool wgmma;                           ///< this build's wgmma kernels can run: Hopper, architecture 90a

  friend bool operator==(const Machine&, const Machine&) = default;
};

/// The machine of the measurements. Choices count with it on all GPUs, and so do plans of weight gradients,
/// so that the bits of their sums do not depend on the GPU. (dense counts with the GPU's own.)
inline constexpr Machine h200{.multiprocessors = 132,
                              .block_shared_bytes = 227 << 10,
                              .multiprocessor_shared_bytes = 228 << 10,
                              .wgmma = true};

/// Shared memory that a block has on every GPU since sm_80, with two blocks on a multiprocessor where it has
/// 164 KB or more.
inline constexpr int64_t any_block_shared_bytes = 96 << 10;

/// What blocks may count with on every GPU since sm_80.
inline constexpr Machine since_sm_80{.multiprocessors = 132,
                                     .block_shared_bytes = any_block_shared_bytes,
                                     .multiprocessor_shared_bytes = 164 << 10,
                                     .wgmma = false};

/// Shared memory that the system takes for each block of a multiprocessor.
inline constexpr int system_bytes_of_block = 1024;

/// Shared memory of a block that its barriers take.
inline constexpr int barrier_bytes = 1024;

/// The largest number of kernels that count in 32 bits.
inline constexpr int64_t most_int = std::numeric_limits<int>::max();

}  // namespace vox::cuda::conv
