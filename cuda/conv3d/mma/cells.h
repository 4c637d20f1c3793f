#pragma once

#include <algorithm>
#include <cstdint>

#include <voxgrad/cuda/conv3d/common/integers.h>

namespace vox::cuda::conv::mma {

// The cells that a block copies or stores are the same for all its jobs, but for where they begin. So a block
// has a table of them, and a job only says where the first one is, and which of the others exist.

/// A cell of a window or a box: its coordinates in it, and how far it is from the first one.
struct CellEntry {
  uint32_t coordinates;
  int offset;  ///< cells of the tensor
};

/// Coordinates in one word: fields of 5, 6, 6 and 9 bits, with a bit between them.
struct Coordinates {
  struct Limit {
    int n, d, h, w;
  };
  static constexpr Limit limit{1 << 5, 1 << 6, 1 << 6, 1 << 9};  ///< of extents
  static constexpr uint32_t guards = 1u << 29 | 1u << 23 | 1u << 16 | 1u << 9;
  static constexpr uint32_t beyond = (1u << 30) - 1 - guards;  ///< all fields at their largest

  static constexpr uint32_t of(int n, int d, int h, int w) {
    return static_cast<uint32_t>(n << 24 | d << 17 | h << 10 | w);
  }
  static constexpr int image_of(uint32_t c) { return static_cast<int>(c >> 24); }
  /// Whether low <= c <= high in all fields: then no difference borrows its guard.
  static constexpr bool within(uint32_t c, uint32_t low, uint32_t high) {
    return (((c | guards) - low) & ((high | guards) - c) & guards) == guards;
  }
};

/// The cells that exist, whose coordinates are between two, and the number of the first one in the tensor.
struct CellRange {
  uint32_t low, high;
  int64_t first;  ///< may not exist

  constexpr bool holds(const CellEntry& cell) const {
    return Coordinates::within(cell.coordinates, low, high);
  }
};

/// Coordinates along an axis of the cells that exist, `unit` apart from `begin` on, of `extent` ones.
struct Existing {
  int low, high;

  constexpr bool any() const { return low <= high; }
};
constexpr Existing existing(int begin, int size, int extent, const Divisor& unit) {
  const int low = begin < 0 ? unit.quotient(unit.divisor - 1 - begin) : 0;
  const int high = begin < size ? unit.quotient(size - 1 - begin) : -1;
  return {low, std::min(high, extent - 1)};
}
/// Of images 0 to last_n; no cell if an axis has none.
constexpr CellRange range_of(int last_n, const Existing& d, const Existing& h, const Existing& w,
                             int64_t first) {
  if (!d.any() || !h.any() || !w.any()) return {Coordinates::beyond, 0, first};
  return {Coordinates::of(0, d.low, h.low, w.low), Coordinates::of(last_n, d.high, h.high, w.high), first};
}

}  // namespace vox::cuda::conv::mma
