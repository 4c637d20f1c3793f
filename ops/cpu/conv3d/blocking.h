#pragma once

#include <voxgrad/ops/cpu/conv3d/tile.h>

namespace vox::cpu {

/// The cost of one tile, for the choice of its shape. The unit is one multiply-add of vectors of the widest
/// instruction set. Coarse on purpose: it must rank a tile of 1 row against one of 10, not predict times.
struct TileCosts {
  double channels;      ///< input channels that a tile holds
  double products;      ///< multiply-adds per position and tile
  double per_position;  ///< all other cost of a position
  double per_plane;     ///< cost of one plane of outputs, whatever its size
  double per_tile;      ///< cost of a tile, whatever its size
  int64_t element;      ///< bytes of one element
  int64_t bytes;        ///< target for a tile's memory; only the smallest tile may exceed it
  int64_t positions;    ///< at most so many in a tile
  double copies;        ///< how often each tile is computed, for groups, batch and slices
};

/// A tile's shape, and the cost of all tiles.
struct TileChoice {
  Triple tile{0, 0, 0};
  double cost = 0;

  explicit operator bool() const { return tile.w != 0; }
};

/// The cheapest tile whose axes are cut evenly. It depends on shapes alone; along W it keeps up to 256
/// outputs uncut. None if the smallest tile is larger than 8 times `bytes`.
TileChoice choose_tile(const std::array<TileAxis, 3>& axes, const TileCosts& costs);

/// The beginning of range i if [0, n) is cut into `parts` ranges of nearly equal length.
inline int64_t cut(int64_t n, int64_t parts, int64_t i) { return n / parts * i + n % parts * i / parts; }

}  // namespace vox::cpu
