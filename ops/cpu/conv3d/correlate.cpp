// The forward ops. Each tile of the input (Note [Tiles]) serves all phases and output channels.
//
// A task owns one box of outputs of one image and group, for a slice of the output channels. It reads a tile
// of its own, or, of an input of some megabytes, the one tile of the whole input. For every phase it takes
// the output channels in blocks. simd's correlate() or correlate_rows() sums one plane of a block at a time,
// in memory that stays in the nearest caches; then the rows are stored. A sum takes the bias, then channel by
// channel, tap by tap, whatever the box and the loop. So the bits of an output do not depend on the tiling.

#include <voxgrad/core/factories.h>
#include <voxgrad/core/parallel.h>
#include <voxgrad/ops/cpu/conv3d/blocking.h>
#include <voxgrad/ops/cpu/conv3d/tile.h>
#include <voxgrad/ops/cpu/conv3d/ways.h>
#include <voxgrad/ops/cpu/conv3d/winograd.h>

#include <atomic>
#include <span>
#include <tuple>
#include <type_traits>

namespace vox::cpu {
namespace {

constexpr int64_t tile_bytes = 384 * 1024;  // leaves room for weights in a second-level cache of 1 MB
constexpr int64_t winograd_tile_bytes = 3 * 1024 * 1024;  // four times the cells, with less halo; measured
constexpr int64_t packed_weight_bytes = 16 * 1024 * 1024;
constexpr int64_t cached_weight_bytes = 192 * 1024;  // of a block of output channels, in a second-level cache
constexpr int64_t whole_input_bytes = 32 * 1024 * 1024;
constexpr int64_t pair_bytes = 384 * 1024;  // of the sums of the 16 phases of Note [Winograd], in that cache
constexpr int64_t unshared_bytes = 4 * 1024 * 1024;  // of an input that is copied as a whole without halo
constexpr int64_t boxes_wanted = 16, tasks_wanted = 24;
constexpr int64_t long_row =
    8;  // cells; correlate_rows() takes shorter rows together, with the halo between them
constexpr double call_cost = 150;  // of one call of correlate(), in multiply-adds of vectors

int64_t round_up(int64_t n, int64_t to) { return (n + to - 1) / to * to; }

constexpr size_t most_phases = 64;  // along W, whose sums are kept at the same time

/// One combination of phases along D, H and W.
struct Phase {
  const Lattice *d, *h, *w;
  std::vector<simd::TapOffsets> offsets;
  int64_t weights;  // where its packed weights begin, in taps

  int64_t taps() const { return static_cast<int64_t>(offsets.size()); }
};

template <class S, class T>
class Run {
 public:
  Run(const Correlation<S, T>& c, bool winograd)
      : c_(c), simd_(conv_kernels.of<T>()), axes_(c.phases), kernel_(c.kernel) {
    by_rows_ = c.out_channels % simd_.lanes == 0;
    winograd_ = winograd && by_rows_ &&
                suits_winograd(axes_, c.in_channels, c.out_channels,
                               c.batch * c.out_size.d * c.out_size.h * c.out_size.w);
    layout_.axes = tile_axes(axes_, winograd_);
    if (winograd_) kernel_.h = kernel_.w = 4;
    for (const Lattice& d : axes_[0])
      for (const Lattice& h : axes_[1])
        for (const Lattice& w : axes_[2]) taps_ += d.taps * h.taps * w.taps;
    rows_ = by_rows_ ? 2 * simd_.lanes : simd_.rows;
    blocks_ = (c.out_channels + rows_ - 1) / rows_;
    for (int64_t i = 0; i <= blocks_; ++i)
      block_begin_.push_back(by_rows_ ? std::min(i * rows_, c.out_channels)
                                      : cut(c.out_channels, blocks_, i));
  }

  bool uses_winograd() const { return winograd_; }

  bool plan() {
    if (!plan_whole() && !plan_tiles()) return false;
    // With few boxes, threads share the output channels of one box. With many weights, their packed copy is
    // made in several passes. With several chunks of input channels, sums stay in memory between chunks.
    const int64_t tasks = c_.batch * c_.groups * boxes_.tiles();
    const int64_t block_weights = c_.in_channels * taps_ * rows_ * static_cast<int64_t>(sizeof(T));
    slices_ = std::clamp<int64_t>(tasks_wanted / std::max<int64_t>(tasks, 1), 1, blocks_);
    slices_ = std::max(slices_, std::min(blocks_, blocks_ * block_weights / packed_weight_bytes + 1));
    if (chunk_ < c_.in_channels && !whole_) slices_ = std::max(slices_, (blocks_ + 3) / 4);
    find_phases();
    return true;
  }

  /// One tile of the whole input, which all tasks share, if it is small enough. Boxes are some planes, or
  /// some rows of one.
  bool plan_whole() {
    for (int64_t a = 0; a < 3; ++a) layout_.tile[a] = layout_.axes[static_cast<size_t>(a)].outputs;
    const double elements =
        static_cast<double>(channel_step()) * static_cast<double>(c_.batch * c_.groups * c_.in_channels);
    const int64_t w = layout_.tile.w, most = 1024;  // positions of a plane of a box, whose sums are in L2
    if (elements * sizeof(T) > static_cast<double>(whole_input_bytes) || w > most) return false;
    // Boxes without halo share no cells: tiles that stay in the nearest caches cost less than a large copy.
    const bool shared = std::any_of(layout_.axes.begin(), layout_.axes.end(),
                                    [](const TileAxis& axis) { return axis.halo > 0; });
    if (!shared && !winograd_ && elements * sizeof(T) > unshared_bytes) return false;
    boxes_ = layout_;
    boxes_.tile.h = std::min(layout_.tile.h, most / w);
    const int64_t tasks = c_.batch * c_.groups * boxes_.tiles(1) * blocks_;
    boxes_.tile.d = std::clamp<int64_t>(layout_.tile.d * tasks / boxes_wanted, 1, layout_.tile.d);
    // The planes of a box share the weights of some channels at a time, if those of all are too many.
    chunk_ = c_.in_channels;
    const int64_t weights = taps_ * rows_ * static_cast<int64_t>(sizeof(T));  // bytes, per input channel
    if (by_rows_ && !winograd_ && boxes_.tile.d > 1 && c_.in_channels * weights > 2 * cached_weight_bytes)
      chunk_ = std::max<int64_t>(1, cached_weight_bytes / weights);
    whole_ = true;
    return true;
  }

  bool plan_tiles() {
    size_t phases = 1;
    for (const auto& along_axis : axes_) phases *= along_axis.size();
    // With fewer input channels at a time, a tile can hold a larger box, with less halo.
    TileChoice best;
    const int64_t most_chunks = winograd_ ? 1 : c_.in_channels;
    for (int64_t chunks = 1; chunks <= most_chunks; chunks *= 2) {
      const int64_t channels = (c_.in_channels + chunks - 1) / chunks;
      const auto outputs = static_cast<double>(c_.out_channels);
      TileChoice choice = choose_tile(
          layout_.axes, {.channels = static_cast<double>(channels),
                         .products = outputs * static_cast<double>(taps_ * channels),
                         .per_position = outputs * (chunks > 1 ? 0.3 : 0.1),
                         .per_plane = call_cost * static_cast<double>(blocks_) * static_cast<double>(phases),
                         .per_tile = 3000,
                         .element = sizeof(T),
                         .bytes = winograd_ ? winograd_tile_bytes : tile_bytes,
                         .positions = 4096,
                         .copies = static_cast<double>(c_.batch * c_.groups)});
      choice.cost *= static_cast<double>(chunks);
      if (choice && (!best || choice.cost < best.cost)) best = choice, chunk_ = channels;
      if (best && (chunks >= 16 || phases > most_phases)) break;
    }
    if (!best) return false;
    layout_.tile = best.tile;
    boxes_ = layout_;
    return true;
  }

  /// Computes the outputs. Returns false if they are wrong: the padding's zeros times a weight that is not
  /// finite are NaN, but the definition skips them; or see Note [Winograd].
  bool run() {
    const int64_t slice_bytes =
        c_.out_channels * c_.in_channels * taps_ * static_cast<int64_t>(sizeof(T)) / slices_;
    const int64_t all = c_.groups * slices_;
    const int64_t at_once =
        std::clamp<int64_t>(packed_weight_bytes / std::max<int64_t>(slice_bytes, 1), 1, all);
    const int64_t tiles = boxes_.tiles();
    // Tasks must be long enough to be worth sharing out.
    const double work = static_cast<double>(c_.out_channels * c_.in_channels * std::max<int64_t>(taps_, 1)) *
                        static_cast<double>(boxes_.tile.d * boxes_.tile.h * boxes_.tile.w) /
                        static_cast<double>(slices_);
    const int64_t grain = std::max<int64_t>(1, static_cast<int64_t>(200e3 / work));
    if (whole_) pack_input();
    for (int64_t first = 0; first < all && finite_; first += at_once) {
      const int64_t count = std::min(at_once, all - first);
      pack_weights(first, count);
      parallel_for(c_.batch * count * tiles, grain, [&](int64_t begin, int64_t end) {
        for (int64_t t = begin; t < end; ++t) {
          const int64_t slice = first + t / tiles % count;
          box(t / tiles / count, slice / slices_, slice % slices_, t % tiles);
        }
      });
    }
    return finite_;
  }

 private:
  void find_phases() {
    int64_t weights = 0;
    for (const Lattice& d : axes_[0])
      for (const Lattice& h : axes_[1]) {
        first_phase_.push_back(phases_.size());
        for (const Lattice& w : axes_[2]) {
          std::vector<simd::TapOffsets> offsets;
          for (const int64_t x : layout_.offsets(d, h, w))
            offsets.push_back({x, static_cast<int64_t>(offsets.size())});
          phases_.push_back({&d, &h, &w, std::move(offsets), weights});
          weights += d.taps * h.taps * w.taps;
        }
      }
    first_phase_.push_back(phases_.size());
  }

  int64_t block_begin(int64_t block) const { return block_begin_[static_cast<size_t>(block)]; }
  int64_t slice_begin(int64_t slice) const { return cut(blocks_, slices_, slice); }
  int64_t slice_output(int64_t slice) const { return block_begin(slice_begin(slice)); }
  int64_t weights_of(int64_t slice_of_all) const {  // weights before the slice, in units of (tap, in channel)
    return slice_of_all / slices_ * c_.out_channels + slice_output(slice_of_all % slices_);
  }

  /// Where the packed weights of a block begin: (slice, phase, block), each (in channel, tap, row).
  int64_t packed_at(int64_t group, int64_t slice, const Phase& phase, int64_t block) const {
    const int64_t begin = slice_output(slice), end = slice_output(slice + 1);
    return c_.in_channels * ((weights_of(group * slices_ + slice) - packed_from_) * taps_ +
                             phase.weights * (end - begin) + phase.taps() * (block_begin(block) - begin));
  }

  void pack_weights(int64_t first, int64_t count) {
    packed_from_ = weights_of(first);
    const int64_t size = (weights_of(first + count) - packed_from_) * taps_ * c_.in_channels;
    if (!packed_memory_.defined() || packed_memory_.numel() < size)
      packed_memory_ = empty({size}, {.dtype = dtype_of<T>()});
    packed_ = detail::mutable_ptr<T>(packed_memory_);
    parallel_for(count * c_.in_channels, 8, [&](int64_t begin, int64_t end) {
      for (int64_t t = begin; t < end; ++t) {
        const int64_t group = (first + t / c_.in_channels) / slices_,
                      slice = (first + t / c_.in_channels) % slices_;
        for (int64_t b = slice_begin(slice); b < slice_begin(slice + 1); ++b)
          pack_block(group, slice, b, t % c_.in_channels);
      }
    });
  }

  /// Packs the weights between one input channel and a block of output channels, for all phases.
  void pack_block(int64_t group, int64_t slice, int64_t block, int64_t in) const {
    const int64_t begin = block_begin(block), rows = block_begin(block + 1) - begin;
    const int64_t taps = c_.kernel.d * c_.kernel.h * c_.kernel.w;
    const S* from =
        c_.weight + group * c_.weight_per_group + begin * c_.weight_per_out + in * c_.weight_per_in;
    T* by_tap = scratch<T, 4>(taps * rows);
    if constexpr (std::is_same_v<S, T>) {
      simd_.transpose(from, c_.weight_per_out, rows, taps, by_tap, rows);
    } else {
      for (int64_t tap = 0; tap < taps; ++tap)
        for (int64_t r = 0; r < rows; ++r)
          by_tap[tap * rows + r] = static_cast<T>(from[r * c_.weight_per_out + tap]);
    }
    if (!all_finite(by_tap, taps * rows)) finite_ = false;
    if (winograd_) {
      const int64_t count = 16 * kernel_.d * rows;
      T* factors = scratch<T, 7>(count);
      winograd_weights(simd_, by_tap, kernel_.d, rows,
                       {c_.phases[1][0].in_per_tap < 0, c_.phases[2][0].in_per_tap < 0}, factors);
      by_tap = factors;
    }
    for (const Phase& phase : phases_) {
      const auto& [ld, lh, lw] = std::tie(*phase.d, *phase.h, *phase.w);
      T* to = packed_ + packed_at(group, slice, phase, block) + in * phase.taps() * rows;
      for (int64_t md = 0; md < ld.taps; ++md)
        for (int64_t mh = 0; mh < lh.taps; ++mh)
          for (int64_t mw = 0; mw < lw.taps; ++mw) {
            const int64_t tap =
                ((ld.tap_first + md * ld.tap_step) * kernel_.h + lh.tap_first + mh * lh.tap_step) *
                    kernel_.w +
                lw.tap_first + mw * lw.tap_step;
            to = std::copy_n(by_tap + tap * rows, rows, to);
          }
    }
  }

  /// From one channel of a tile to the next.
  int64_t channel_step() const { return winograd_ ? winograd_channel<T>(layout_) : layout_.channel(); }

  int64_t tile_size() const { return (whole_ ? c_.in_channels : chunk_) * channel_step() + 2 * simd_.lanes; }

  /// Copies the cells that a box reads, of `channels` channels.
  void pack(const S* input, int64_t channels, const TileLayout::Box& box, T* to) const {
    if (!winograd_) return pack_tile(input, channels, layout_, box, to);
    const int64_t cells = layout_.axes[0].input * layout_.axes[1].input * layout_.axes[2].input;
    for (int64_t c = 0; c < channels; ++c)
      pack_winograd_tile(simd_, input + c * cells, layout_, box, to + c * channel_step());
  }

  void pack_input() {
    const int64_t channels = c_.in_channels, images = c_.batch * c_.groups;
    input_memory_ = empty({images * tile_size()}, {.dtype = dtype_of<T>()});
    T* to = detail::mutable_ptr<T>(input_memory_);
    parallel_for(images * channels, 1 + (1 << 14) / channel_step(), [&](int64_t begin, int64_t end) {
      for (int64_t t = begin; t < end; ++t) {
        const int64_t image = t / channels, channel = t % channels;
        T* tile = to + image * tile_size() + channel * channel_step();
        pack(input_of(image, channel), 1, layout_.box(0), tile);
        if (channel + 1 == channels) std::fill_n(tile + channel_step(), 2 * simd_.lanes, T(0));
      }
    });
  }

  /// The input of an image and a group, counted together, from a channel of the group on.
  const S* input_of(int64_t image_and_group, int64_t channel) const {
    const int64_t cells = layout_.axes[0].input * layout_.axes[1].input * layout_.axes[2].input;
    return c_.input + (image_and_group * c_.in_channels + channel) * cells;
  }

  /// Sums of one block of output channels: one buffer per phase along W.
  struct Sums {
    T* memory;
    int64_t row, per_phase;
  };

  void box(int64_t n, int64_t group, int64_t slice, int64_t number) const {
    const TileLayout::Box box = boxes_.box(number);
    const int64_t image = n * c_.groups + group;
    T* own = nullptr;
    const T* tile;
    if (whole_) {
      tile = detail::ptr<T>(input_memory_) + image * tile_size() + box.first[0] * layout_.plane() +
             box.first[1] * layout_.pitch();
    } else {
      tile = own = scratch<T, 0>(tile_size());
      std::fill_n(own + chunk_ * channel_step(), 2 * simd_.lanes, T(0));
    }
    if (winograd_) {
      if (own) pack(input_of(image, 0), c_.in_channels, box, own);
      return add_pairs(n, group, slice, box, tile);
    }
    const bool chunks = chunk_ < c_.in_channels;  // then all sums stay in memory until the last chunk
    const size_t widths = axes_[2].size(), together = chunks ? widths : std::min(widths, most_phases);
    const int64_t row = round_up(layout_.positions(box), simd_.lanes) + simd_.lanes, per_phase = rows_ * row,
                  side = static_cast<int64_t>(together) * per_phase;
    const int64_t planes = static_cast<int64_t>(first_phase_.size() - 1) *
                           (slice_begin(slice + 1) - slice_begin(slice)) * box.count[0];
    T* memory = scratch<T, 1>((chunks ? planes : 1) * side);
    for (int64_t c = 0; c < c_.in_channels; c += chunk_) {
      const int64_t channels = std::min(chunk_, c_.in_channels - c);
      if (own) pack(input_of(image, c), channels, box, own);
      const T* cells = own ? own : tile + c * channel_step();
      Sums sums{memory, row, per_phase};
      for (size_t dh = 0; dh + 1 < first_phase_.size(); ++dh) {
        const Lattice& d = axes_[0][dh / axes_[1].size()];
        for (int64_t b = slice_begin(slice); b < slice_begin(slice + 1); ++b) {
          for (int64_t j = 0; j < std::min(box.count[0], d.outputs - box.first[0]); ++j) {
            for (size_t w = 0; w < widths; w += together) {
              const std::span<const Phase> phases(&phases_[first_phase_[dh] + w],
                                                  std::min(together, widths - w));
              for (size_t p = 0; p < phases.size(); ++p)
                add(group, slice, phases[p], b, cells, c, channels, box, j,
                    {sums.memory + static_cast<int64_t>(p) * per_phase, row, per_phase});
              if (c + channels == c_.in_channels)
                store(n, group, phases, b, box, j, by_rows_ ? transposed(sums, phases.size(), b) : sums);
            }
            if (chunks) sums.memory += side;
          }
        }
      }
    }
  }

  /// The outputs of a box by the 16 phases of Note [Winograd]. Its planes lie one behind the other, so some
  /// of them are one row of positions. A phase's weights stay in the nearest cache for all of these.
  void add_pairs(int64_t n, int64_t group, int64_t slice, const TileLayout::Box& box, const T* tile) const {
    const int64_t plane = layout_.plane(), positions = layout_.positions(box),
                  bytes = 16 * rows_ * plane * static_cast<int64_t>(sizeof(T)),
                  most = positions == plane ? std::max<int64_t>(1, pair_bytes / bytes) : 1;
    for (size_t first = 0; first < phases_.size(); first += 16) {
      const std::span<const Phase> phases(&phases_[first], 16);
      for (int64_t b = slice_begin(slice); b < slice_begin(slice + 1); ++b) {
        const int64_t rows = block_begin(b + 1) - block_begin(b),
                      planes = std::min(box.count[0], phases[0].d->outputs - box.first[0]);
        for (int64_t j = 0, depth = 0; j < planes; j += depth) {
          depth = std::min(most, planes - j);
          const int64_t cells = (depth - 1) * plane + positions,
                        per_phase = rows_ * (round_up(cells, simd_.lanes) + simd_.lanes);
          T* const memory = scratch<T, 1>(16 * per_phase);
          for (size_t p = 0; p < 16; ++p)
            add_planes(group, slice, phases[p], b, tile, box, j, depth,
                       memory + static_cast<int64_t>(p) * per_phase);
          const auto combine = [&](int64_t phase, int64_t step) {
            T* m[4];
            for (int64_t k = 0; k < 4; ++k) m[k] = memory + (phase + k * step) * per_phase;
            simd_.winograd_outputs(m, cells * rows);
          };
          for (int64_t w = 0; w < 4; ++w) combine(w, 4);
          for (int64_t h = 0; h < 2; ++h) {
            combine(4 * h, 1);
            for (int64_t w = 0; w < 2; ++w)
              if (!all_finite(memory + (4 * h + w) * per_phase, cells * rows)) finite_ = false;
            for (int64_t i = 0; i < depth; ++i) {
              const Sums sums{memory + 4 * h * per_phase + i * plane * rows,
                              round_up(positions, simd_.lanes) + simd_.lanes, per_phase};
              store(n, group, phases.subspan(static_cast<size_t>(4 * h), 2), b, box, j + i,
                    transposed(sums, 2, b));
            }
          }
        }
      }
    }
  }

  /// Computes the sums of a phase of add_pairs() in `depth` planes of a box, those of the same taps together.
  void add_planes(int64_t group, int64_t slice, const Phase& phase, int64_t block, const T* tile,
                  const TileLayout::Box& box, int64_t plane, int64_t depth, T* sums) const {
    T start[32];
    // The product m1 along both axes is part of every output.
    const bool biased = phase.h->tap_first == 1 && phase.w->tap_first == 1;
    const auto all = block_of(group, slice, phase, block, tile, box, 0, c_.in_channels, biased, start);
    for (int64_t i = 0, end = 0; i < depth; i = end) {
      const Lattice::Range d = phase.d->taps_inside(box.first[0] + plane + i);
      for (end = i + 1; end < depth && phase.d->taps_inside(box.first[0] + plane + end) == d;) ++end;
      simd::CorrelateBlock<T> segment = all;
      segment.x += (plane + i) * layout_.plane();
      segment.y = sums + i * layout_.plane() * segment.rows;
      segment.positions += (end - i - 1) * layout_.plane();
      choose_taps(phase, d, {0, 1}, segment);
      simd_.correlate_rows(segment);
    }
  }

  /// A copy of sums that lie as [position][row], as [row][position].
  Sums transposed(const Sums& sums, size_t phases, int64_t block) const {
    const int64_t rows = block_begin(block + 1) - block_begin(block);
    T* memory = scratch<T, 6>(static_cast<int64_t>(phases) * sums.per_phase);
    for (size_t p = 0; p < phases; ++p) {
      const int64_t at = static_cast<int64_t>(p) * sums.per_phase;
      simd_.transpose(sums.memory + at, rows, sums.row - simd_.lanes, rows, memory + at, sums.row);
    }
    return {memory, sums.row, sums.per_phase};
  }

  /// The sums of one block of output channels in the first plane of a box, for one phase. `start` will hold
  /// their initial values.
  simd::CorrelateBlock<T> block_of(int64_t group, int64_t slice, const Phase& phase, int64_t block,
                                   const T* tile, const TileLayout::Box& box, int64_t c, int64_t channels,
                                   bool biased, T (&start)[32]) const {
    const int64_t begin = block_begin(block), rows = block_begin(block + 1) - begin;
    for (int64_t r = 0; r < rows; ++r)
      start[r] = biased && c_.bias ? static_cast<T>(c_.bias[group * c_.out_channels + begin + r]) : T(0);
    return {.x = tile,
            .w = packed_ + packed_at(group, slice, phase, block) + c * phase.taps() * rows,
            .x_step = channel_step(),
            .w_step = phase.taps() * rows,
            .channels = channels,
            .taps = phase.taps(),
            .offsets = phase.offsets.data(),
            .start = c == 0 ? start : nullptr,
            .y = nullptr,
            .y_step = 0,
            .rows = rows,
            .positions = layout_.positions(box)};
  }

  /// Computes the sums of one block of output channels in plane `plane` of a box, for one phase.
  void add(int64_t group, int64_t slice, const Phase& phase, int64_t block, const T* tile, int64_t c,
           int64_t channels, const TileLayout::Box& box, int64_t plane, const Sums& sums) const {
    T start[32];
    simd::CorrelateBlock<T> b =
        block_of(group, slice, phase, block, tile + plane * layout_.plane(), box, c, channels, true, start);
    b.y = sums.memory, b.y_step = sums.row;
    // Taps that read padding in D, or in all of a row, are left out. For short rows this does not pay. For
    // sums that stay in memory between chunks it is wrong, because a segment overwrites the beginning of the
    // next one.
    const Lattice::Range d = phase.d->taps_inside(box.first[0] + plane);
    const bool by_row = by_rows_ || (layout_.pitch() >= 4 * simd_.lanes && chunk_ == c_.in_channels),
               alone = by_rows_ && box.count[2] >= long_row;
    for (int64_t row = 0, end = 0; row < box.count[1]; row = end) {
      Lattice::Range h{0, phase.h->taps};
      end = box.count[1];
      if (by_row) {
        h = phase.h->taps_inside(box.first[1] + row);
        for (end = row + 1; !alone && end < box.count[1] && phase.h->taps_inside(box.first[1] + end) == h;)
          ++end;
      }
      simd::CorrelateBlock<T> segment = b;
      segment.x += row * layout_.pitch();
      segment.y += row * layout_.pitch() * (by_rows_ ? b.rows : 1);
      segment.positions = (end - row - 1) * layout_.pitch() + box.count[2];
      choose_taps(phase, d, h, segment);
      (by_rows_ ? simd_.correlate_rows : simd_.correlate)(segment);
    }
  }

  static void choose_taps(const Phase& phase, Lattice::Range d, Lattice::Range h,
                          simd::CorrelateBlock<T>& b) {
    const int64_t heights = phase.h->taps, widths = phase.w->taps;
    b.taps = (d.last - d.first) * (h.last - h.first) * widths;
    if (b.taps == phase.taps()) return;
    simd::TapOffsets* chosen = scratch<simd::TapOffsets, 4>(b.taps);
    b.offsets = chosen;
    for (int64_t md = d.first; md < d.last; ++md)
      chosen = std::copy_n(phase.offsets.data() + (md * heights + h.first) * widths,
                           (h.last - h.first) * widths, chosen);
  }

  /// Stores the finished rows of one block and plane, for some phases with the same D and H.
  void store(int64_t n, int64_t group, std::span<const Phase> phases, int64_t block,
             const TileLayout::Box& box, int64_t plane, const Sums& sums) const {
    const Lattice &d = *phases[0].d, &h = *phases[0].h;
    const int64_t width = phases[0].w->output;
    const bool interleaved = std::is_same_v<S, T> && phases.size() == 2 && phases[0].w->out_step == 2;
    const int64_t rows = std::min(box.count[1], h.outputs - box.first[1]);
    for (int64_t out = block_begin(block); out < block_begin(block + 1); ++out) {
      const int64_t channel = group * c_.out_channels + out;
      S* to = c_.output + ((n * c_.groups * c_.out_channels + channel) * d.output + d.out_first +
                           (box.first[0] + plane) * d.out_step) *
                              h.output * width;
      for (int64_t j = 0; j < rows; ++j) {
        S* row = to + (h.out_first + (box.first[1] + j) * h.out_step) * width;
        const T* sums_row = sums.memory + (out - block_begin(block)) * sums.row + j * layout_.pitch();
        if (interleaved) {
          const int64_t first = box.first[2];
          simd_.interleave(sums_row, std::min(box.count[2], phases[0].w->outputs - first),
                           sums_row + sums.per_phase, std::min(box.count[2], phases[1].w->outputs - first),
                           reinterpret_cast<T*>(row) + 2 * first);
          continue;
        }
        for (size_t p = 0; p < phases.size(); ++p) {
          const Lattice& w = *phases[p].w;
          const int64_t count = std::min(box.count[2], w.outputs - box.first[2]);
          store_cells(sums_row + static_cast<int64_t>(p) * sums.per_phase, count,
                      row + w.out_first + box.first[2] * w.out_step, w.out_step);
        }
      }
    }
  }

  static void store_cells(const T* from, int64_t count, S* to, int64_t step) {
    if (step == 1)
      copy_row(from, count, to);
    else
      for (int64_t i = 0; i < count; ++i) to[i * step] = static_cast<S>(from[i]);
  }

  const Correlation<S, T>& c_;
  const simd::ConvKernelsOf<T>& simd_;
  std::array<std::vector<Lattice>, 3> axes_;  // the phases along D, H, W
  Triple kernel_;                             // of the packed weights
  bool winograd_ = false;                     // whether H and W have the phases of Note [Winograd]
  mutable std::atomic<bool> finite_ = true;   // false if run() has met a number that must be, and is not
  TileLayout layout_;                         // of the memory that boxes read
  TileLayout boxes_;                          // its tiles are the boxes
  bool whole_ = false;                        // whether all tasks share one tile, of the whole input
  int64_t taps_ = 0;                          // of all phases together
  bool by_rows_;                              // whether vectors hold output channels instead of positions
  int64_t rows_;                              // output channels of a block, at most
  std::vector<int64_t> block_begin_;          // of every block, and the end of the last
  int64_t blocks_;                            // number of blocks of output channels, per group
  int64_t slices_ = 1;                        // number of slices of blocks, per group
  int64_t chunk_ = 0;                         // input channels of a tile
  std::vector<Phase> phases_;                 // (d, h, w)
  std::vector<size_t> first_phase_;  // numbers of the first phases of those that share D and H; last, all
  Tensor packed_memory_, input_memory_;
  T* packed_ = nullptr;
  int64_t packed_from_ = 0;
};

}  // namespace

/// Where no tap touches, the bias is the result.
template <class S, class T>
void Correlation<S, T>::fill_with_bias() const {
  const int64_t channels = groups * out_channels, cells = out_size.d * out_size.h * out_size.w;
  parallel_for(batch * channels * cells, 1 << 15, [&](int64_t begin, int64_t end) {
    while (begin < end) {
      const int64_t channel = begin / cells, stop = std::min(end, (channel + 1) * cells);
      std::fill(output + begin, output + stop, bias ? bias[channel % channels] : S(T(0)));
      begin = stop;
    }
  });
}

template <class S, class T>
Outcome Correlation<S, T>::by_tiles(bool winograd) const {
  int64_t touched = 1;
  for (const auto& along_axis : phases) {
    int64_t outputs = 0;
    for (const Lattice& l : along_axis) outputs += l.outputs;
    touched *= outputs;
  }
  if (touched == 0) return fill_with_bias(), Outcome::done;
  Run<S, T> run(*this, winograd);
  if (run.uses_winograd() != winograd || !run.plan()) return Outcome::unsupported;
  if (touched < out_size.d * out_size.h * out_size.w) fill_with_bias();
  return run.run() ? Outcome::done : Outcome::not_finite;
}

template struct Correlation<float, float>;
template struct Correlation<double, double>;
template struct Correlation<bfloat16, float>;
template struct Correlation<float16, float>;

}  // namespace vox::cpu
