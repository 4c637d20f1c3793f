#pragma once

#include <voxgrad/ops/cpu/conv3d/blocking.h>
#include <voxgrad/ops/cpu/conv3d/ways.h>
#include <voxgrad/ops/cpu/conv3d/winograd.h>

namespace vox::cpu {

/// One combination of phases along D, H and W.
struct Phase {
  const Lattice *d, *h, *w;
  std::vector<simd::TapOffsets> offsets;
  int64_t weights;  // where its packed weights begin, in taps
  int64_t threes;   // TileLayout::threes()

  int64_t taps() const { return static_cast<int64_t>(offsets.size()); }
};

/// How the work of a Correlation is cut, from the shapes alone: into boxes of outputs, slices of blocks of
/// output channels and, for small tiles, chunks of input channels.
template <class S, class T>
struct CorrelatePlan {
  static constexpr int64_t tile_bytes =
      384 * 1024;  // leaves room for weights in a second-level cache of 1 MB
  static constexpr int64_t winograd_tile_bytes = 3 * 1024 * 1024;  // four times the cells; measured
  static constexpr int64_t whole_input_bytes = 32 * 1024 * 1024;
  static constexpr int64_t unshared_bytes = 4 * 1024 * 1024;  // of such an input without halo
  static constexpr int64_t most_positions = 1024;  // of a plane of a box of it, whose sums are in that cache
  static constexpr int64_t packed_weight_bytes = 16 * 1024 * 1024;
  static constexpr int64_t cached_weight_bytes = 192 * 1024;  // of a block of output channels, in that cache
  static constexpr size_t most_phases = 64;                   // along W, whose sums are kept at the same time
  static constexpr int64_t boxes_wanted = 16, tasks_wanted = 24;
  static constexpr double call_cost = 150;  // of one call of correlate(), in multiply-adds of vectors

  const Correlation<S, T>& c;
  std::array<std::vector<Lattice>, 3> axes;  // the phases along D, H, W
  Triple kernel;                             // of the packed weights
  int64_t taps = 0;                          // of all phases together
  std::vector<Phase> phases;                 // (d, h, w)
  std::vector<size_t> first_phase;  // numbers of the first phases of those that share D and H; last, all

  bool by_rows;        // whether vectors hold output channels instead of positions
  int64_t rows;        // output channels of a block, at most
  int64_t blocks;      // of output channels, per group
  int64_t slices = 1;  // of blocks, per group

  OperandTiles<T> tiles;  // the memory that boxes read
  TileLayout boxes;       // its tiles are the boxes
  bool whole = false;     // whether all tasks share one tile, of the whole input
  int64_t chunk = 0;      // input channels of a tile

  CorrelatePlan(const Correlation<S, T>& correlation, bool winograd)
      : c(correlation), axes(c.phases), kernel(c.kernel) {
    const auto& simd = conv_kernels.of<T>();
    by_rows = c.out_channels % simd.lanes == 0;
    tiles.winograd = winograd && by_rows &&
                     suits_winograd(axes, c.in_channels, c.out_channels,
                                    c.batch * c.out_size.d * c.out_size.h * c.out_size.w);
    tiles.layout.axes = tile_axes(axes, tiles.winograd);
    if (tiles.winograd) kernel.h = kernel.w = 4;
    for (const Lattice& d : axes[0])
      for (const Lattice& h : axes[1])
        for (const Lattice& w : axes[2]) taps += d.taps * h.taps * w.taps;
    rows = by_rows ? 2 * simd.lanes : simd.rows;
    blocks = (c.out_channels + rows - 1) / rows;
  }

  /// Chooses tiles and boxes. Returns false if even the smallest tile is too large.
  bool choose() {
    if (!choose_whole() && !choose_tiles()) return false;
    // With few boxes, threads share the output channels of one box. With many weights, their packed copy is
    // made in several passes. With several chunks of input channels, sums stay in memory between chunks.
    const int64_t tasks = c.batch * c.groups * boxes.tiles();
    const int64_t block_weights = c.in_channels * taps * rows * static_cast<int64_t>(sizeof(T));
    slices = std::clamp<int64_t>(tasks_wanted / std::max<int64_t>(tasks, 1), 1, blocks);
    slices = std::max(slices, std::min(blocks, blocks * block_weights / packed_weight_bytes + 1));
    if (chunk < c.in_channels && !whole) slices = std::max(slices, (blocks + 3) / 4);
    find_phases();
    return true;
  }

  /// The first output channel of a block and of a slice, and the first block of a slice.
  int64_t block_begin(int64_t block) const {
    return by_rows ? std::min(block * rows, c.out_channels) : cut(c.out_channels, blocks, block);
  }
  int64_t slice_begin(int64_t slice) const { return cut(blocks, slices, slice); }
  int64_t slice_output(int64_t slice) const { return block_begin(slice_begin(slice)); }

 private:
  /// One tile of the whole input, which all tasks share, if it is small enough. Boxes are some planes, or
  /// some rows of one.
  bool choose_whole() {
    TileLayout& layout = tiles.layout;
    for (int64_t a = 0; a < 3; ++a) layout.tile[a] = layout.axes[static_cast<size_t>(a)].outputs;
    const double elements =
        static_cast<double>(tiles.channel()) * static_cast<double>(c.batch * c.groups * c.in_channels);
    const int64_t w = layout.tile.w;
    if (elements * sizeof(T) > static_cast<double>(whole_input_bytes) || w > most_positions) return false;
    // Boxes without halo share no cells: tiles that stay in the nearest caches cost less than a large copy.
    const bool shared = std::any_of(layout.axes.begin(), layout.axes.end(),
                                    [](const TileAxis& axis) { return axis.halo > 0; });
    if (!shared && !tiles.winograd && elements * sizeof(T) > unshared_bytes) return false;
    boxes = layout;
    boxes.tile.h = std::min(layout.tile.h, most_positions / w);
    const int64_t tasks = c.batch * c.groups * boxes.tiles(1) * blocks;
    boxes.tile.d = std::clamp<int64_t>(layout.tile.d * tasks / boxes_wanted, 1, layout.tile.d);
    // The planes of a box share the weights of some channels at a time, if those of all are too many.
    chunk = c.in_channels;
    const int64_t weights = taps * rows * static_cast<int64_t>(sizeof(T));  // bytes, per input channel
    if (by_rows && !tiles.winograd && boxes.tile.d > 1 && c.in_channels * weights > 2 * cached_weight_bytes)
      chunk = std::max<int64_t>(1, cached_weight_bytes / weights);
    return whole = true;
  }

  bool choose_tiles() {
    size_t all_phases = 1;
    for (const auto& along_axis : axes) all_phases *= along_axis.size();
    // With fewer input channels at a time, a tile can hold a larger box, with less halo.
    TileChoice best;
    const int64_t most_chunks = tiles.winograd ? 1 : c.in_channels;
    for (int64_t chunks = 1; chunks <= most_chunks; chunks *= 2) {
      const int64_t channels = (c.in_channels + chunks - 1) / chunks;
      const auto outputs = static_cast<double>(c.out_channels);
      TileChoice choice =
          choose_tile(tiles.layout.axes,
                      {.channels = static_cast<double>(channels),
                       .products = outputs * static_cast<double>(taps * channels),
                       .per_position = outputs * (chunks > 1 ? 0.3 : 0.1),
                       .per_plane = call_cost * static_cast<double>(blocks) * static_cast<double>(all_phases),
                       .per_tile = 3000,
                       .element = sizeof(T),
                       .bytes = tiles.winograd ? winograd_tile_bytes : tile_bytes,
                       .positions = 4096,
                       .copies = static_cast<double>(c.batch * c.groups)});
      choice.cost *= static_cast<double>(chunks);
      if (choice && (!best || choice.cost < best.cost)) best = choice, chunk = channels;
      if (best && (chunks >= 16 || all_phases > most_phases)) break;
    }
    if (!best) return false;
    tiles.layout.tile = best.tile;
    boxes = tiles.layout;
    return true;
  }

  void find_phases() {
    int64_t weights = 0;
    for (const Lattice& d : axes[0])
      for (const Lattice& h : axes[1]) {
        first_phase.push_back(phases.size());
        for (const Lattice& w : axes[2]) {
          std::vector<simd::TapOffsets> offsets;
          for (const int64_t x : tiles.layout.offsets(d, h, w))
            offsets.push_back({x, static_cast<int64_t>(offsets.size())});
          phases.push_back({&d, &h, &w, std::move(offsets), weights, tiles.layout.threes(w)});
          weights += d.taps * h.taps * w.taps;
        }
      }
    first_phase.push_back(phases.size());
  }
};

}  // namespace vox::cpu
