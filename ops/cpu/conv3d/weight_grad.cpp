// The gradient of the weights: dot products between rows of `small` and shifted rows of `big`. There are two
// ways.
//
// ByChannels, for operands of some megabytes and whole vectors of channels of small: packed copies of both
// operands are made first. A vector holds channels of small; each position adds one cell of `big` times such
// a vector.
//
// ByPositions, for all others: a vector holds positions. `big` is cut into tiles (Note [Tiles]). `small` is
// copied with the same row length, and zeros where the flat plane of `big` has its halo. A task owns a block
// of the weights (channels of small x channels of big, all taps) over a range of the tiles. simd's contract()
// keeps some sums at a time in registers. The shapes alone determine blocks, ranges and the order in which
// ranges are added up.

#include <voxgrad/core/factories.h>
#include <voxgrad/core/parallel.h>
#include <voxgrad/ops/cpu/conv3d/blocking.h>
#include <voxgrad/ops/cpu/conv3d/tile.h>
#include <voxgrad/ops/cpu/conv3d/ways.h>
#include <voxgrad/ops/cpu/conv3d/winograd.h>

#include <atomic>

namespace vox::cpu {
namespace {

constexpr int64_t most_rows = 64, most_columns = 128;  // channels of small, and of big, in a block
constexpr double most_sums = 80e3;                     // of a block, which stay in the second-level cache
constexpr int64_t tile_bytes = 384 * 1024;             // of a tile of big
constexpr int64_t first_cache = 48 * 1024;  // for the rows of small whose sums are in registers; measured
constexpr int64_t partial_bytes = 32 * 1024 * 1024;  // for the sums of all ranges except the first
constexpr int64_t tasks_wanted = 32;
constexpr int64_t whole_bytes = 64 * 1024 * 1024;  // for packed copies of both operands
constexpr int64_t factor_bytes = 8 * 1024 * 1024;  // of both operands for Note [Winograd]
constexpr int64_t whole_positions = 1024;          // of small in a task's inner loop

int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

/// The gradient in blocks of the channels of a group, with all their taps, each summed over ranges of the
/// positions.
struct Blocks {
  const Conv3dGeometry& g;
  int64_t unit;  // the channels of small of a block are a multiple of it
  int64_t down = 1, across = 1, ranges = 1;

  struct Block {
    int64_t group, row, rows, channel, channels;  // of small and of big, within the group
  };

  int64_t owners() const { return g.groups * down * across; }

  Block block(int64_t owner) const {
    const auto row = [&](int64_t i) { return cut(g.small_per_group() / unit, down, i) * unit; };
    const auto channel = [&](int64_t i) { return cut(g.big_per_group(), across, i); };
    const int64_t r = owner / across % down, c = owner % across;
    return {owner / across / down, row(r), row(r + 1) - row(r), channel(c), channel(c + 1) - channel(c)};
  }

  /// Of the positions of small, or tiles of them, at least one for each range.
  template <class T>
  void choose_ranges(int64_t most) {
    const int64_t bytes = numel() * static_cast<int64_t>(sizeof(T));
    ranges =
        std::clamp<int64_t>(ceil_div(tasks_wanted, owners()), 1, std::min(most, partial_bytes / bytes + 1));
  }

  int64_t numel() const { return g.small_channels * g.big_per_group() * g.taps(); }

  /// Calls task(block, range, sums) for all of them, which writes the sums of a range in an order of its own;
  /// then adds the ranges in their order, and calls order(block, sums, to, step), which writes
  /// to[row * step + channel * taps + tap].
  template <class T, class S, class F, class G>
  Outcome run(S* dweight, const F& task, const G& order) const {
    const Tensor memory = empty({ranges * numel()}, {.dtype = dtype_of<T>()});
    T* partial = detail::mutable_ptr<T>(memory);
    const auto row_of = [&](const Block& b) {
      return (b.group * g.small_per_group() + b.row) * g.big_per_group();
    };
    const auto sums_of = [&](const Block& b) {
      return partial + (row_of(b) + b.rows * b.channel) * g.taps();
    };
    for_tasks(owners() * ranges, 1, [&](int64_t t) {
      const Block b = block(t / ranges);
      task(b, t % ranges, sums_of(b) + t % ranges * numel());
    });
    std::atomic<bool> finite = true;
    parallel_for(numel(), 1 << 11, [&](int64_t begin, int64_t end) {
      for (int64_t range = 1; range < ranges; ++range)
        for (int64_t i = begin; i < end; ++i) partial[i] += partial[range * numel() + i];
      if (!all_finite(partial + begin, end - begin)) finite = false;
    });
    for_tasks(owners(), 1, [&](int64_t owner) {
      const Block b = block(owner);
      const int64_t columns = b.channels * g.taps(), step = g.big_per_group() * g.taps();
      S* to = dweight + (row_of(b) + b.channel) * g.taps();
      if constexpr (std::is_same_v<S, T>) {
        order(b, sums_of(b), to, step);
      } else {
        T* ordered = scratch<T, 2>(b.rows * columns);
        order(b, sums_of(b), ordered, columns);
        for (int64_t r = 0; r < b.rows; ++r) convert_run(ordered + r * columns, to + r * step, columns);
      }
    });
    return finite ? Outcome::done : Outcome::not_finite;
  }
};

template <class S, class T>
class ByPositions {
 public:
  explicit ByPositions(const WeightGrad<S, T>& w) : w_(w), g_(w.g), simd_(conv_kernels.of<T>()) {}

  Outcome run() {
    if (!plan()) return Outcome::unsupported;
    return blocks_.run<T>(
        w_.dweight, [&](const Blocks::Block& b, int64_t range, T* sums) { task(b, range, sums); },
        [&](const Blocks::Block& b, const T* sums, T* to, int64_t step) {
          simd_.order_sums(sums, b.rows, b.channels * g_.taps(), to, step);
        });
  }

 private:
  bool plan() {
    const Lattices lattices = conv3d_lattices(g_);
    for (size_t a = 0; a < 3; ++a) layout_.axes[a] = TileAxis::smaller({lattices[a]});
    blocks_.down = ceil_div(g_.small_per_group(), most_rows);
    const auto rows = static_cast<double>(ceil_div(g_.small_per_group(), blocks_.down));
    // With fewer channels of big in a block, its tile holds more positions, and sums are folded less often.
    TileChoice best;
    for (int64_t most = most_columns; most > 0; most /= 2) {
      const int64_t across = ceil_div(g_.big_per_group(), most);
      const auto channels = static_cast<double>(ceil_div(g_.big_per_group(), across));
      const double sums = rows * channels * static_cast<double>(g_.taps());
      if (sums > most_sums && most > 1) continue;
      const TileChoice choice = choose_tile(
          layout_.axes, {.channels = channels,
                         .products = sums,
                         .per_position = 0.3 * rows,
                         .per_plane = 0,
                         .per_tile = 3000 + 4 * sums,
                         .element = sizeof(T),
                         .bytes = tile_bytes,
                         .positions = first_cache / simd_.rows / static_cast<int64_t>(sizeof(T)),
                         .copies = static_cast<double>(g_.batch * g_.groups * blocks_.down * across)});
      if (choice && (!best || choice.cost < best.cost)) best = choice, blocks_.across = across;
    }
    if (!best) return false;
    layout_.tile = best.tile;
    blocks_.choose_ranges<T>(std::max<int64_t>(g_.batch * layout_.tiles(), 1));
    const std::vector<int64_t> taps = layout_.offsets(lattices[0], lattices[1], lattices[2]);
    for (int64_t c = 0; c < ceil_div(g_.big_per_group(), blocks_.across); ++c)
      for (const int64_t tap : taps) offsets_.push_back(c * layout_.channel() + tap);
    return true;
  }

  /// Computes the sums of one block of the weights over one range of all tiles.
  void task(const Blocks::Block& b, int64_t range, T* sums) {
    std::fill_n(sums, b.rows * b.channels * g_.taps(), T(0));
    const int64_t tiles = g_.batch * layout_.tiles();
    for (int64_t t = cut(tiles, blocks_.ranges, range); t < cut(tiles, blocks_.ranges, range + 1); ++t) {
      const int64_t image = t / layout_.tiles() * g_.groups + b.group;
      const S* small = w_.small + (image * g_.small_per_group() + b.row) * g_.small_cells();
      const S* big = w_.big + (image * g_.big_per_group() + b.channel) * g_.big_cells();
      add_tile(layout_.box(t % layout_.tiles()), small, b.rows, big, b.channels, sums);
    }
  }

  void add_tile(const TileLayout::Box& box, const S* small, int64_t rows, const S* big, int64_t channels,
                T* sums) {
    const int64_t channel = layout_.channel(), slack = 2 * simd_.lanes;
    // One vector loop over all rows of a plane, including the halo's cells between them, or one loop per row,
    // whichever needs fewer vectors.
    const int64_t flat = round_up(layout_.positions(box)), by_row = round_up(box.count[2]);
    const bool rowwise = by_row * box.count[1] < flat;
    const int64_t heights = rowwise ? box.count[1] : 1, widths = rowwise ? by_row : flat;
    const int64_t row = box.count[0] * heights * widths;
    T* x = scratch<T, 2>(channels * channel + slack);
    T* s = scratch<T, 3>(rows * row);
    std::fill_n(x + channels * channel, slack, T(0));
    pack_tile(big, channels, layout_, box, x);
    pack_small(small, rows, box, rowwise ? by_row : layout_.pitch(), heights * widths, s);
    simd_.contract({.small = s,
                    .small_row = row,
                    .big = x,
                    .big_depth = layout_.plane(),
                    .big_height = layout_.pitch(),
                    .offsets = offsets_.data(),
                    .sums = sums,
                    .rows = rows,
                    .columns = channels * g_.taps(),
                    .depths = box.count[0],
                    .heights = heights,
                    .widths = widths});
  }

  int64_t round_up(int64_t n) const { return ceil_div(n, simd_.lanes) * simd_.lanes; }

  /// Copies rows of `small` to a distance of `pitch`, with zeros between them and up to the end of each
  /// plane.
  void pack_small(const S* small, int64_t channels, const TileLayout::Box& box, int64_t pitch, int64_t plane,
                  T* to) const {
    const int64_t width = box.count[2];
    for (int64_t c = 0; c < channels; ++c, small += g_.small_cells())
      for (int64_t d = 0; d < box.count[0]; ++d, to += plane) {
        const S* from = small + ((box.first[0] + d) * g_.small.h + box.first[1]) * g_.small.w + box.first[2];
        for (int64_t h = 0; h < box.count[1]; ++h, from += g_.small.w) {
          T* row = to + h * pitch;
          convert_run(from, row, width);
          std::fill(row + width, h + 1 < box.count[1] ? row + pitch : to + plane, T(0));
        }
      }
  }

  const WeightGrad<S, T>& w_;
  const Conv3dGeometry& g_;
  const simd::ConvKernelsOf<T>& simd_;
  TileLayout layout_;
  Blocks blocks_{g_, 1};
  std::vector<int64_t> offsets_;  // of (channel of big, tap)
};

template <class S, class T>
class ByChannels {
 public:
  /// With `winograd`, uses it where it pays.
  ByChannels(const WeightGrad<S, T>& w, bool winograd) : w_(w), g_(w.g), simd_(conv_kernels.of<T>()) {
    for (size_t a = 0; a < 3; ++a) axes_[a] = {conv3d_lattice(g_, static_cast<int64_t>(a))};
    tiles_.winograd =
        winograd &&
        suits_winograd(axes_, g_.big_per_group(), g_.small_per_group(), g_.batch * g_.small_cells()) &&
        factors_fit();
    TileLayout& layout = tiles_.layout;
    layout.axes = tile_axes(axes_, tiles_.winograd);
    for (int64_t a = 0; a < 3; ++a) layout.tile[a] = layout.axes[static_cast<size_t>(a)].outputs;
    if (tiles_.winograd) kernel_ = {g_.kernel.d, 4, 4}, phases_ = 16;
  }

  bool supported() const {
    const double elements =
        static_cast<double>(tiles_.channel()) * static_cast<double>(g_.batch * g_.big_channels) +
        static_cast<double>(phases_ * positions()) * static_cast<double>(g_.batch * g_.small_channels);
    return g_.small_per_group() % simd_.lanes == 0 && elements * sizeof(T) <= whole_bytes &&
           g_.batch * g_.small_cells() > 0;
  }

  bool uses_winograd() const { return tiles_.winograd; }

  Outcome run() {
    plan();
    big_ = tiles_.pack_whole(w_.big, g_.batch * g_.big_channels);
    pack_small();
    return blocks_.run<T>(
        w_.dweight, [&](const Blocks::Block& b, int64_t range, T* sums) { task(b, range, sums); },
        [&](const Blocks::Block& b, const T* sums, T* to, int64_t step) {
          simd_.transpose(sums, b.rows, b.channels * g_.taps(), b.rows, to, step);
        });
  }

 private:
  void plan() {
    const int64_t vectors = g_.small_per_group() / simd_.lanes, most = most_rows / simd_.lanes;
    blocks_.down = ceil_div(vectors, most);
    const double sums = static_cast<double>(std::min(vectors, most) * simd_.lanes * taps());
    blocks_.across = std::clamp<int64_t>(
        static_cast<int64_t>(static_cast<double>(g_.big_per_group()) * sums / most_sums) + 1, 1,
        g_.big_per_group());
    blocks_.choose_ranges<T>(ceil_div(g_.batch * positions(), 256));
    // Taps of the same (d, h) touch the same positions. Few columns are one group, which also adds products
    // with padding, rather than many groups of too few columns. Taps of different phases multiply different
    // factors of small, so they are never one group.
    const int64_t channels = ceil_div(g_.big_per_group(), blocks_.across), depth = kernel_.d,
                  heights = tiles_.winograd ? 1 : kernel_.h, widths = tiles_.winograd ? 1 : kernel_.w;
    const bool by_row = channels * widths >= 12;
    for (int64_t phase = 0; phase < phases_; ++phase)
      for (int64_t row = 0; row < (by_row ? depth * heights : 1); ++row)
        groups_.push_back(group_of(phase, by_row ? row : 0, by_row ? row + 1 : depth * heights, channels));
  }

  /// Whether the factors of both operands stay in the last cache. Others cost more than they save.
  bool factors_fit() const {
    const int64_t pairs = g_.small.d * ((g_.small.h + 1) / 2) * ((g_.small.w + 1) / 2);
    const double factors = 16.0 * static_cast<double>(g_.batch * pairs) *
                           static_cast<double>(g_.big_channels + g_.small_channels);
    return factors * sizeof(T) <= factor_bytes;
  }
  int64_t taps() const { return kernel_.d * kernel_.h * kernel_.w; }
  /// Positions of small, or of pairs along H and W.
  int64_t positions() const {
    const Triple& size = tiles_.layout.tile;
    return size.d * size.h * size.w;
  }

  /// Some taps of a phase: one row of them, or all. The columns are (channel of big, tap), as offsets in a
  /// tile and as numbers of taps.
  struct Group {
    int64_t phase = 0, per_channel = 0;                        // taps
    int64_t first_d = 0, last_d = 0, first_h = 0, last_h = 0;  // of the taps
    std::vector<int64_t> offsets = {}, taps = {};
  };

  /// The lattices of a phase along an axis: d, h, w.
  const Lattice& lattice(int64_t phase, size_t axis) const {
    const int64_t along[] = {0, phase / 4, phase % 4};
    return axes_[axis][static_cast<size_t>(tiles_.winograd ? along[axis] : 0)];
  }

  Group group_of(int64_t phase, int64_t first_row, int64_t last_row, int64_t channels) const {
    const Lattice &ld = lattice(phase, 0), &lh = lattice(phase, 1), &lw = lattice(phase, 2);
    Group group{.phase = phase,
                .per_channel = (last_row - first_row) * lw.taps,
                .first_d = first_row / lh.taps,
                .last_d = (last_row - 1) / lh.taps,
                .first_h = first_row % lh.taps,
                .last_h = (last_row - 1) % lh.taps};
    const std::vector<int64_t> offsets = tiles_.layout.offsets(ld, lh, lw);
    for (int64_t c = 0; c < channels; ++c)
      for (int64_t tap = first_row * lw.taps; tap < last_row * lw.taps; ++tap) {
        group.offsets.push_back(c * tiles_.channel() + offsets[static_cast<size_t>(tap)]);
        group.taps.push_back(c * taps() + tap * phases_ + phase);
      }
    return group;
  }

  /// Of the positions from `first` to `last`, those that touch big through a group's taps: where they lie in
  /// small, and where in a tile. Returns how many.
  int64_t list(const Group& group, int64_t first, int64_t last, int64_t* in_small, int64_t* in_tile) const {
    const auto inside = [](const Lattice& l, int64_t i, int64_t first_tap, int64_t last_tap) {
      const Lattice::Range touching = l.taps_inside(i);
      return touching.first <= last_tap && first_tap < touching.last;
    };
    const Triple& size = tiles_.layout.tile;
    int64_t n = 0;
    for (int64_t p = first, end = 0; p < last; p = end) {
      const int64_t w = p % size.w, h = p / size.w % size.h, d = p / size.w / size.h;
      end = std::min(last, p + size.w - w);
      if (!inside(lattice(group.phase, 0), d, group.first_d, group.last_d)) continue;
      if (!tiles_.winograd && !inside(lattice(group.phase, 1), h, group.first_h, group.last_h)) continue;
      const int64_t place = d * tiles_.layout.plane() + h * tiles_.layout.pitch() + w - p;
      for (int64_t i = p; i < end; ++i, ++n) in_small[n] = i * g_.small_channels, in_tile[n] = place + i;
    }
    return n;
  }

  /// Copies small as (image, position, channel), or its factors as (image, phase, position, channel).
  void pack_small() {
    const int64_t cells = g_.small_cells(), rows = g_.small_channels, lanes = simd_.lanes,
                  places = phases_ * positions();
    small_ = empty({g_.batch * places * rows}, {.dtype = dtype_of<T>()});
    T* s = detail::mutable_ptr<T>(small_);
    // A task has a plane of a vector of channels.
    const int64_t plane = g_.small.h * g_.small.w, vectors = rows / lanes;
    for_tasks(g_.batch * vectors * g_.small.d, 1 + (1 << 10) / plane, [&](int64_t t) {
      const int64_t d = t % g_.small.d, row = t / g_.small.d % vectors * lanes,
                    image = t / g_.small.d / vectors;
      const S* from = w_.small + (image * rows + row) * cells + d * plane;
      T* to = s + image * places * rows + row;
      T* dense = scratch<T, 2>(lanes * plane);
      for (int64_t lane = 0; lane < lanes; ++lane)
        convert_run(from + lane * cells, dense + lane * plane, plane);
      if (tiles_.winograd) {
        T* by_cell = scratch<T, 3>(lanes * plane);
        simd_.transpose(dense, plane, lanes, plane, by_cell, lanes);
        pack_pairs(by_cell, d, to);
      } else {
        simd_.transpose(dense, plane, lanes, plane, to + d * plane * rows, rows);
      }
    });
  }

  /// Combines the cells (h, w, lane) of a plane of a vector of channels of small to factors (phase, position,
  /// row).
  void pack_pairs(const T* from, int64_t d, T* to) const {
    const int64_t lanes = simd_.lanes, line = g_.small.w * lanes, rows = g_.small_channels;
    const Triple& pairs = tiles_.layout.tile;
    T* const memory = scratch<T, 4>(5 * (line + lanes));
    T *const zeros = memory + 4 * (line + lanes), *half[4];
    std::fill_n(memory, 5 * (line + lanes), T(0));  // also of the cell beyond an odd row
    for (int64_t k = 0; k < 4; ++k) half[k] = memory + k * (line + lanes);
    for (int64_t pair = 0; pair < pairs.h * pairs.w; ++pair) {
      const int64_t w = pair % pairs.w, h = pair / pairs.w, position = d * pairs.h * pairs.w + pair;
      if (w == 0) {
        const T* row = from + 2 * h * line;
        const T* const both[] = {row, 2 * h + 1 < g_.small.h ? row + line : zeros};
        simd_.winograd_output_grads(both, line, half);
      }
      for (int64_t k = 0; k < 4; ++k) {
        const T* const both[] = {half[k] + 2 * w * lanes, half[k] + (2 * w + 1) * lanes};
        T* factors[4];
        for (int64_t i = 0; i < 4; ++i) factors[i] = to + ((4 * k + i) * positions() + position) * rows;
        simd_.winograd_output_grads(both, lanes, factors);
      }
    }
  }

  /// Combines the products of a block of weights, (channel, d, 16 phases, row), to (channel, tap, row).
  void combine(T* sums, int64_t channels, int64_t rows) const {
    for (int64_t i = 0; i < channels * kernel_.d; ++i) {
      T* const m = sums + 16 * i * rows;
      const auto along = [&](int64_t first, int64_t step, int64_t n) {
        T* const four[] = {m + first, m + first + step, m + first + 2 * step, m + first + 3 * step};
        simd_.winograd_weight_grads(four, n);
      };
      along(0, 4 * rows, 4 * rows);
      for (int64_t h = 0; h < 3; ++h) {
        along(4 * h * rows, rows, rows);
        std::copy_n(m + 4 * h * rows, 3 * rows, sums + (9 * i + 3 * h) * rows);
      }
    }
  }

  void task(const Blocks::Block& b, int64_t range, T* result) const {
    const int64_t size = b.channels * taps();
    T* sums = tiles_.winograd ? scratch<T, 5>(b.rows * size) : result;
    std::fill_n(sums, b.rows * size, T(0));
    int64_t* slots = scratch<int64_t, 6>(size);
    int64_t* in_small = scratch<int64_t, 7>(2 * whole_positions);
    int64_t* in_tile = in_small + whole_positions;
    const int64_t cells = positions(), all = g_.batch * cells, end = cut(all, blocks_.ranges, range + 1);
    for (int64_t i = cut(all, blocks_.ranges, range), next = 0; i < end; i = next) {
      const int64_t image = i / cells, first = i % cells;
      next = std::min({end, i + whole_positions, (image + 1) * cells});
      const int64_t channel = (image * g_.groups + b.group) * g_.big_per_group() + b.channel;
      for (const Group& taps : groups_) {
        const int64_t listed = list(taps, first, first + next - i, in_small, in_tile);
        const int64_t count = b.channels * taps.per_channel;
        for (int64_t q = 0; q < count; ++q) slots[q] = taps.taps[static_cast<size_t>(q)] * b.rows;
        simd_.contract_rows({.small = detail::ptr<T>(small_) +
                                      (image * phases_ + taps.phase) * cells * g_.small_channels +
                                      b.group * g_.small_per_group() + b.row,
                             .big = detail::ptr<T>(big_) + channel * tiles_.channel(),
                             .small_places = in_small,
                             .big_places = in_tile,
                             .offsets = taps.offsets.data(),
                             .slots = slots,
                             .sums = sums,
                             .rows = b.rows,
                             .columns = count,
                             .positions = listed,
                             .threes = tiles_.layout.threes(lattice(taps.phase, 2)) == 1});
      }
    }
    if (!tiles_.winograd) return;
    combine(sums, b.channels, b.rows);
    std::copy_n(sums, b.channels * g_.taps() * b.rows, result);
  }

  const WeightGrad<S, T>& w_;
  const Conv3dGeometry& g_;
  const simd::ConvKernelsOf<T>& simd_;
  std::array<std::vector<Lattice>, 3> axes_;  // along D, H, W; with Note [Winograd] four along H and W
  int64_t phases_ = 1;                        // pairs of lattices along H and W
  Triple kernel_ = g_.kernel;
  OperandTiles<T> tiles_;  // of big
  Blocks blocks_{g_, simd_.lanes};
  std::vector<Group> groups_;
  Tensor big_, small_;  // packed
};

}  // namespace

template <class S, class T>
Outcome WeightGrad<S, T>::by_tiles(bool winograd) const {
  ByChannels<S, T> by_channels(*this, winograd);
  const bool supported = by_channels.supported();
  if (winograd && !(supported && by_channels.uses_winograd())) return Outcome::unsupported;
  return supported ? by_channels.run() : ByPositions<S, T>(*this).run();
}

template struct WeightGrad<float, float>;
template struct WeightGrad<double, double>;
template struct WeightGrad<bfloat16, float>;
template struct WeightGrad<float16, float>;

}  // namespace vox::cpu
