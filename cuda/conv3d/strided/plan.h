#pragma once

// The kernel argument of the strided kernels. The host builds it and passes it by value.
//
// Note [Phases]
//   On an axis, tap k touches the fine cell o = i * s - p + k * d of coarse cell i. Written o = s * (i + q) +
//   r with 0 <= r < s, tap k belongs to phase r of the fine grid and, seen from the coarse grid, is a shift
//   by q. conv3d reads phases as if they were further input channels; conv_transpose3d writes phases as if
//   they were further output channels. Either way the work is a list of (shift, phase), each a plain matrix
//   product, and no product with an inserted zero is ever computed. A phase that no tap belongs to is dead:
//   its outputs are the bias.
//
// Cells, the rows of the products, are those of the coarse grid. In a plane (one depth) they are numbered row
// after row, `pitch` to a row, so a shift by (h, w) is h * pitch + w positions further on for all of them.
// The pitch is so long that no shift reads data of the next row.

#include <voxgrad/cuda/conv3d/model/jobs.h>
#include <voxgrad/ops/conv3d_geometry.h>

#include <algorithm>
#include <cstdint>
#include <optional>
#include <utility>

namespace vox::cuda::conv::strided {

/// The largest numbers of slots of accumulators, of kinds and of products in a plan.
inline constexpr int most_slots = 8, most_kinds = 32, most_items = 352;

/// One axis.
struct Axis {
  int in, out, cells;     ///< extents of input, output and the coarse grid
  int in_step, out_step;  ///< distance of cells: the stride on the fine side, 1 on the other
  int padding, dilation, stride, kernel;
};

/// The input that is in shared memory at one time, and its items. conv3d has a kind for each phase along d
/// and h; conv_transpose3d has one for each block of phases, or several if not all shifts fit in one.
struct Kind {
  uint16_t first[most_slots + 1];  ///< each slot's first item in Plan::item, and the end
  int phase_d, phase_h;            ///< of the input
  int low_d, low_h;                ///< the lowest shifts
  int planes, plane;               ///< depths, and positions in each
  int begin;                       ///< bytes into the stage
  int phase_pitch,
      granule_pitch;  ///< positions from one phase along w, or one granule of channels, to the next
  int weights;        ///< offset in bytes of its weights in those of a block of columns
  int stage_weights;  ///< bytes of weights of one stage
};

/// A product: the tile of cells at a shift times the weights of a tap. Both offsets are in units of 16 bytes.
struct Item {
  uint32_t position;  ///< in the stage
  uint32_t weights;   ///< in the weights of the stage
};

/// Two phases along d and h.
struct PhasePair {
  int8_t d, h;
};

struct Plan {
  Axis d, h, w;
  int batch, groups, in_per_group, out_per_group;
  int in_channel, out_channel;  ///< cells
  int pitch, low_w;
  int origin_w;    ///< elements of a row's first cell that lie before the output's row, 0 or 1
  int half_items;  ///< bit i: some items have no tap for their phase i (Form::wide)
  int per_pitch;   ///< 2^20 / pitch + 1
  int phases_w;    ///< number of live phases along w
  int lanes_w;     ///< producer lanes for each position: the input's phases along w, rounded up to a power of
                   ///< two
  int8_t phase_w[4];  ///< the live phases
  int rows;           ///< number of live pairs of phases (conv_transpose3d; else 1)
  PhasePair row[4];
  int dead_row;     ///< the phase along h without taps, if others have some, or -1
  int dead_depths;  ///< phases along d without taps
  int8_t dead_depth[2];
  int row_blocks, kinds;  ///< conv3d has one block of rows
  int first_kind[5];      ///< first kind of each block of rows, and the end
  int channel_blocks;
  int depths;  ///< number of depths of a tile
  int plane_tiles, depth_blocks;
  int k_steps, k_blocks;                  ///< k-steps (one instruction each) in a stage; stages of a kind
  int stages, stage_bytes, weight_bytes;  ///< the ring; resident weights, 0 if they come with the stages
  int window_bytes, zero_bytes;           ///< in a stage: where windows end, and zeros from there on
  int block_weights;                      ///< bytes of all weights of a (group, block of channels)
  int table_bytes;                        ///< of the table of offsets of a group of producers
  int shared_bytes;
  bool transposed;
  Kind kind[most_kinds];
  Item item[most_items];

  constexpr int tiles() const { return batch * depth_blocks * plane_tiles; }
  constexpr int items() const { return kinds == 0 ? 0 : kind[kinds - 1].first[most_slots]; }
  /// Where the weights of an item lie among all packed ones, in bytes.
  constexpr int64_t weights_at(int group, int block, int k_block, int number) const {
    int k = 0;
    while (number >= kind[k].first[most_slots]) ++k;
    return int64_t{group * channel_blocks + block} * block_weights + kind[k].weights +
           int64_t{k_block} * kind[k].stage_weights + int64_t{item[number].weights} * 16;
  }
};

/// A tile: its image, and its first depth and position. Numbers are unsigned, because a signed division takes
/// some thirty dependent instructions.
struct Tile {
  int image, depth, position;
};
constexpr Tile tile_of(int number, int positions, const Plan& p) {
  const auto [image, depths, tile] = digits(static_cast<unsigned>(number), {p.depth_blocks, p.plane_tiles});
  return {image, depths * p.depths, tile * positions};
}

/// A position as a row of cells and a column of the pitch.
struct Place {
  int row, column;
};
constexpr Place place_of(int position, const Plan& p) {
  const auto [row, column] = digits(static_cast<unsigned>(position), {p.pitch});
  return {row, column};
}

/// positions / pitch, for up to 256 positions more than a pitch.
constexpr int rows_in(int positions, const Plan& p) {
  return p.pitch >= 512 ? positions >= p.pitch : positions * p.per_pitch >> 20;
}

/// The taps of the items, for packing.
struct ItemTaps {
  uint16_t of[most_items];
  uint16_t second[most_items];  ///< of the second phase along w, if items are for both (Form::wide)
};
inline constexpr uint16_t no_tap = 0xffff;

/// Bytes of a number as the tensor cores read it, and in tensors. 32 bytes of each row are an instruction's
/// k. `scaled` numbers are two parts of 16 bits in the input and three in the weights; the weights of every
/// stage end with zeros as long as a part of an item (f16x3.cuh).
struct Bytes {
  int operand = 4, storage = 4;
  bool scaled = false;
  friend bool operator==(const Bytes&, const Bytes&) = default;
};

/// How a block's sums lie in registers, and how they leave them.
enum class Form {
  rows,  ///< cells x channels for each phase (store/rows.cuh)
  wide,  ///< (both phases along w of each channel) x cells (store/wide.cuh)
};

/// What a block of the kernel computes at once: warpgroups times `tiles` times 64 cells, `slots` phases times
/// `channels`. In wide form a slot is a pair of phases along d and h, for both phases along w.
struct TileShape {
  int channels, slots, tiles;
  Bytes bytes = {};
  Form form = Form::rows;
  friend bool operator==(const TileShape&, const TileShape&) = default;
};

/// A plan and its tile. There is none if a stride is longer than the kernel's limit, if the window of a tile
/// does not fit shared memory, or if numbers do not fit their types.
struct Planned {
  TileShape tile;
  Plan plan;
  ItemTaps taps;
};
std::optional<Planned> make_plan(const Conv3dGeometry& g, bool transposed, const TileShape& tile);

/// The tiles that there are kernels for, apart from the wide ones: `channels` are 8, 16, 32, 48 or 64, with
/// one phase or several.
constexpr TileShape shape_of(int channels, bool several, Bytes bytes = {}) {
  if (!several) return {channels, 1, channels <= 32 ? 4 : 2, bytes};
  return {channels, channels <= 16 ? 8 : channels == 32 ? 4 : 2, channels == 8 ? 4 : 2, bytes};
}

/// Calls f.template operator()<channels, slots, tiles>() with the values of a tile. `tiles_of_64` is the
/// number of tiles for which a kernel has registers with 64 channels and two slots.
template <int tiles_of_64, class F>
void visit_tile_shape(const TileShape& t, F f) {
  const auto one = [&]<int channels, bool several>() {
    constexpr TileShape s = shape_of(channels, several);
    if (t.channels == channels && (t.slots > 1) == several)
      f.template operator()<channels, s.slots, several && channels == 64 ? tiles_of_64 : s.tiles>();
  };
  [&]<int... channels>(std::integer_sequence<int, channels...>) {
    (one.template operator()<channels, false>(), ...);
    (one.template operator()<channels, true>(), ...);
  }
  (std::integer_sequence<int, 8, 16, 32, 48, 64>{});
}

/// Weights of an item for one k-step, in rows of 32 bytes.
constexpr int weight_rows_of(const TileShape& t) {
  return t.form == Form::wide ? 2 * t.channels : t.channels;
}

/// The tile for a geometry, and the plan with it.
TileShape tile_for(const Conv3dGeometry& g, bool transposed, Bytes bytes = {});
std::optional<Planned> make_tiled_plan(const Conv3dGeometry& g, bool transposed, const Bytes& bytes);

// ---- Scaled pairs of f16 numbers (f16x3.cuh) --------------------------------------------------------------

inline constexpr int scaled_tiles_of_64 = 1;  ///< with several slots: totals and sums both take registers

/// How many instructions a sum may hold before it moves, for each kind and slot.
struct MostInSum {
  uint8_t of[most_kinds][most_slots];
};

/// A plan, with and without instructions in place of items.
struct ScaledPlanned {
  Planned items;
  Plan instructions;
  MostInSum most_in_sum;
};

/// Every tap is one instruction for high low' + low high'. Two taps share one instruction for high high'; a
/// last odd one is paired with zeros. In a sum the small products come first, because each addition truncates
/// the sum so far. Nothing if there are too many instructions, or if a partner does not lie behind its tap.
std::optional<ScaledPlanned> make_scaled_plan(const Conv3dGeometry& g, bool transposed);

// ---- How sums are stored (store/rows.cuh) -----------------------------------------------------------------

/// Positions from one instruction's 8 cells to its next 8. A warp's 16 rows of `tiles` instructions are then
/// 16 * tiles neighbours: row 8 h + i of instruction t is cell 8 (tiles h + t) + i.
constexpr int cells_apart(int tiles) { return 8 * tiles; }

/// Whether both phases along w of a cell are an aligned word of 16-bit numbers, if the output is aligned.
constexpr bool phases_are_words(int storage_bytes, const Plan& p) {
  return storage_bytes == 2 && p.w.out_step == 2 && p.w.out % 2 == 0;
}

/// An element of a row of the output: its cell among those of a warp, and its phase along w.
struct Element {
  int cell, phase;
};
/// A warp stores a channel in chunks of 32 neighbours of 1 or 2 phases along w. Value i of a chunk is, in the
/// lanes that have cell `row` of every 8, that of the lane's channel. After the exchange it is in lane i of
/// these four lanes, which then has it for the channels of all four.
constexpr Element element_of(int phases, int chunk, int row, int i) {
  if (phases == 1) return {8 * (4 * chunk + i) + row, 0};
  return {8 * (2 * chunk + i / 2) + row, i % 2};
}
constexpr int chunks_of(int tiles, int phases) { return (tiles * phases + 1) / 2; }

/// Where an element is stored, counted in elements of a channel, at the first phases along d and h; and
/// whether it exists there: bit 2 d + h is for phases (d, h).
struct Target {
  uint32_t offset, exists;
};
/// The target of an element of a warp with `cells` cells from `first` on.
constexpr Target target_of(const Element& element, int cells, const Place& first, int depth, const Plan& p) {
  const int along = first.column + element.cell, further = rows_in(along, p), row = first.row + further,
            column = along - further * p.pitch, w = column * p.w.out_step + element.phase;
  const int d = depth * p.d.out_step, h = row * p.h.out_step;
  const bool inside = element.cell < cells && column < p.w.cells && w < p.w.out && d < p.d.out && h < p.h.out;
  const uint32_t exists = 1 | (h + 1 < p.h.out) << 1, both = exists | (d + 1 < p.d.out ? exists << 2 : 0);
  return {static_cast<uint32_t>((d * p.h.out + h) * p.w.out + w), inside ? both : 0};
}

/// Integers from `first` to before `end`.
struct Interval {
  int first, end;
};
/// The rows of cells for which a warp with `cells` cells from a position on fills the row of the output that
/// has no taps, if there is one. What the warp stores in a channel is then one run.
constexpr Interval filled_rows(int position, int cells, const Plan& p) {
  if (p.dead_row < 0) return {0, 0};
  const int anchor = p.dead_row == 0 ? 0 : p.w.cells - 1;
  const auto rows_before = [&](int end) {
    return end > anchor ? std::min(place_of(end - anchor - 1, p).row + 1, p.h.cells) : 0;
  };
  return {rows_before(position), rows_before(position + cells)};
}
/// Part i of `parts` of the integers from 0 to before `end`.
constexpr Interval part_of(int end, int i, int parts) {
  const auto cut = [&](int k) { return static_cast<int>(int64_t{end} * k / parts); };
  return {cut(i), cut(i + 1)};
}
/// A part of a depth without taps, moved to whole sectors, except at both ends of the depth. `misaligned`
/// elements lie between the depth and the sector boundary before it.
constexpr Interval in_sectors(const Interval& part, int elements, int misaligned, int per_sector) {
  const auto cut = [&](int x) {
    return x == elements ? x : std::max((x + misaligned) / per_sector * per_sector - misaligned, 0);
  };
  return {cut(part.first), cut(part.end)};
}

}  // namespace vox::cuda::conv::strided
