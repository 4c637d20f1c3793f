#pragma once

#include <cstdint>

namespace vox::cuda {

/// The weight is (small channels, big channels of a group, taps): its row of taps from channel `in` of a
/// group to channel `out`. conv_transpose3d reads small, conv3d big. `p` knows how many channels a group has.
template <class Problem, class Channel>
__device__ __forceinline__ int64_t weight_row(const Problem& p, bool transposed, int64_t group, Channel in,
                                              Channel out) {
  return transposed ? (group * p.in_per_group + in) * p.out_per_group + out
                    : (group * p.out_per_group + out) * p.in_per_group + in;
}

}  // namespace vox::cuda
