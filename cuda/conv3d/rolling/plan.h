#pragma once

#include <voxgrad/cuda/conv3d/flat/plan.h>
#include <voxgrad/cuda/conv3d/model/jobs.h>

// How the rolling kernel cuts a flat product (flat/plan.h) whose cells have stride 1 on all axes.
//
// Output depth j of a tile is the sum over planes v = j .. j + taps - 1, where plane v is input cell v + base
// along d. A block marches through the planes of a tile and keeps sums for `taps` depths, in slots. Depth j
// has slot j % taps, to which plane v adds its tap (v - slot) mod taps. After plane v, depth v - (taps - 1)
// is complete.
//
// The depths of all tiles, one after the other, are numbered; these numbers are called steps. Every block
// takes a piece of this sequence. A march that begins in the middle of a tile has taps - 1 planes that serve
// only the depths from there on, so pieces are cut such that the longest has as few planes as possible. A sum
// does not depend on where its march began.

namespace vox::cuda::conv::rolling {

struct Plan {
  static constexpr int most_blocks = 192;  // a bound, since the cuts are a kernel argument

  flat::Product product;
  int64_t planes;  ///< of the longest piece
  int blocks;
  int64_t cuts[most_blocks + 1];  ///< block b has the steps cuts[b] .. cuts[b + 1] - 1
};

/// The product of conv3d, or of conv_transpose3d, with `shared` bytes of shared memory divided. Nothing if it
/// does not fit, has a stride or dilation along d, or has another number of taps along d than the tile.
std::optional<flat::Product> cut_product(const Conv3dGeometry& g, bool transposed,
                                         const flat::TileShape& tile, int64_t shared);

constexpr int64_t steps_of(const flat::Product& p) {
  return int64_t{p.groups} * p.channel_blocks * p.tiles * p.d.cells;
}

/// The steps of a product, cut for a machine.
Plan make_plan(const flat::Product& p, const Machine& machine);

/// The cycles that a plan's products take with operands in shared memory, or its loads if those take longer,
/// at `load_cycles` for a position of a window.
int64_t cycles(const Plan& plan, const flat::TileShape& tile, int load_cycles);

/// The same for the flat kernel, whose blocks take tiles of some depths in turn.
int64_t flat_cycles(const flat::Product& p, const flat::TileShape& tile, const Machine& machine,
                    int load_cycles);

/// The part of a piece of steps that lies in one tile.
struct March {
  int group, channel_block, tile;
  int first, end;              ///< depths that are stored
  int first_plane, end_plane;  ///< of the planes first .. end + taps - 2, those inside the input

  constexpr int planes() const { return end_plane > first_plane ? end_plane - first_plane : 0; }
};

/// The march that begins with this step and continues to `end`, or to the last depth of its tile.
constexpr March march_at(int64_t step, int64_t end, const flat::Product& p) {
  const auto [group, channel_block, tile, first] = digits(step, {p.channel_blocks, p.tiles, p.d.cells});
  March m{group, channel_block, tile, first, 0, 0, 0};
  m.end = end - step < p.d.cells - first ? first + static_cast<int>(end - step) : p.d.cells;
  const int last = m.end + p.d.taps - 1, inside = p.d.in_cells - p.d.base;
  m.first_plane = first < -p.d.base ? -p.d.base : first;
  m.end_plane = last < inside ? last : inside;
  return m;
}

/// f(march) for each march of a block's piece of the depths, in order.
template <class F>
constexpr void for_each_march(const Plan& plan, int block, F f) {
  const int64_t end = plan.cuts[block + 1];
  for (int64_t step = plan.cuts[block]; step < end;) {
    const March m = march_at(step, end, plan.product);
    f(m);
    step += m.end - m.first;
  }
}

}  // namespace vox::cuda::conv::rolling
