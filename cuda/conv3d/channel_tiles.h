#pragma once

#include <cstdint>
#include <type_traits>

namespace vox::cuda {

/// Calls `f` with the number of tiles of 8 channels in a block, at most `most` (4 or 8), as a
/// std::integral_constant: the fewest blocks, and then the least padding that the instantiations allow.
template <int most = 8, class F>
void visit_channel_tiles(int64_t channels, F f) {
  const int64_t tiles = (channels + 7) / 8, blocks = (tiles + most - 1) / most;
  const int64_t per_block = (tiles + blocks - 1) / blocks;
  if (per_block <= 1) return f(std::integral_constant<int, 1>{});
  if (per_block <= 2) return f(std::integral_constant<int, 2>{});
  if (per_block <= 3) return f(std::integral_constant<int, 3>{});
  if (most == 4 || per_block <= 4) return f(std::integral_constant<int, 4>{});
  if constexpr (most > 4) {
    if (per_block <= 6) return f(std::integral_constant<int, 6>{});
    f(std::integral_constant<int, 8>{});
  }
}

}  // namespace vox::cuda
