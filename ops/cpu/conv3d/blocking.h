#pragma once

#include <voxgrad/ops/cpu/conv3d/tile.h>

namespace vox::cpu {

/// What one tile costs, for the choice of its shape, in multiply-adds of vectors of the lanes of the widest
/// instruction set. Coarse on purpose: it must rank 1 row against 10, not predict.
struct TileCosts {
  double channels;      ///< input channels that a tile holds
  double products;      ///< multiply-adds per position and tile
  double per_position;  ///< the same for what else a position costs
  double per_plane;     ///< the same for one plane of outputs, whatever its size
  double per_tile;      ///< the same for what does not depend on its size
  int64_t element;      ///< bytes
  int64_t bytes;        ///< at most, for a tile
  int64_t positions;    ///< at most, for a tile
  double copies;        ///< tiles are computed that many times, for groups, batch, slices
};

/// A tile's shape, and the cost of all tiles.
struct TileChoice {
  Triple tile{0, 0, 0};
  double cost = 0;

  explicit operator bool() const { return tile.w != 0; }
};

/// The cheapest tile of evenly cut axes. Depends on shapes alone; of W it keeps up to 256 outputs. None if
/// the smallest one is larger than 8 times `bytes`.
TileChoice choose_tile(const std::array<TileAxis, 3>& axes, const TileCosts& costs);

/// Cuts [0, n) into `parts` ranges of nearly the same length: the beginning of range i.
inline int64_t cut(int64_t n, int64_t parts, int64_t i) { return n / parts * i + n % parts * i / parts; }

}  // namespace vox::cpu
