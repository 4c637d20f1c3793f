// The forward ops: tiles of the input (Note [Tiles]), all phases and output channels from each.
//
// A task owns one box of outputs of one image and group, for a slice of the output channels. For every phase
// it takes the output channels in blocks, and adds up a plane of a block at a time with simd's correlate(),
// in memory that stays in the first cache; then it puts the rows where they belong. A sum goes bias, channel
// by channel, tap by tap, whatever the box: so the bits of an output do not depend on the tiling.

#include <voxgrad/core/parallel.h>
#include <voxgrad/ops/cpu/conv3d_blocking.h>
#include <voxgrad/ops/cpu/conv3d_correlate.h>
#include <voxgrad/ops/cpu/conv3d_kernel_table.h>

#include <memory>
#include <tuple>

namespace vox::cpu {
namespace {

constexpr int64_t tile_bytes = 384 * 1024;  // beside weights in a second-level cache of 1 MB
constexpr int64_t packed_weight_bytes = 16 * 1024 * 1024;

int64_t round_up(int64_t n, int64_t to) { return (n + to - 1) / to * to; }

/// One combination of phases that has taps.
struct Phase {
  const Lattice *d, *h, *w;
  int64_t w_index;               // of w among the phases of its axis
  std::vector<int64_t> offsets;  // in the tile
  int64_t weights;               // where its packed weights begin, in units of one pair of channels

  int64_t taps() const { return static_cast<int64_t>(offsets.size()); }
};

template <class S, class T>
class Run {
 public:
  explicit Run(const Correlation<S, T>& c) : c_(c), simd_(conv_kernels<T>()) {
    for (size_t a = 0; a < 3; ++a) layout_.axes[a] = TileAxis::smaller(c.phases[a]);
    for (const Lattice& d : c.phases[0])
      for (const Lattice& h : c.phases[1])
        for (const Lattice& w : c.phases[2]) taps_ += d.taps * h.taps * w.taps;
    blocks_ = (c.out_channels + simd_.rows - 1) / simd_.rows;
    slices_ = 1;
  }

  bool plan() {
    TileCosts costs{.channels = 0,
                    .products = static_cast<double>(c_.out_channels * taps_ * c_.in_channels),
                    .per_position = 0.1 * static_cast<double>(c_.out_channels),
                    .per_tile = 3000,
                    .element = sizeof(T),
                    .bytes = tile_bytes,
                    .positions = 4096,
                    .copies = static_cast<double>(c_.batch * c_.groups)};
    for (chunk_ = c_.in_channels;; chunk_ = (chunk_ + 1) / 2) {
      costs.channels = static_cast<double>(chunk_);
      layout_.tile = choose_tile(layout_.axes, costs);
      if (layout_.tile.w != 0 || chunk_ == 1) break;
    }
    if (layout_.tile.w == 0) return false;
    // With few boxes, threads share the output channels of one; with many weights, their packed copy is made
    // in several goes. With several chunks, sums wait in memory meanwhile.
    const int64_t tasks = c_.batch * c_.groups * layout_.tiles();
    const int64_t block_weights = c_.in_channels * taps_ * simd_.rows * static_cast<int64_t>(sizeof(T));
    slices_ = std::clamp<int64_t>(32 / std::max<int64_t>(tasks, 1), 1, blocks_);
    slices_ = std::max(slices_, std::min(blocks_, blocks_ * block_weights / packed_weight_bytes + 1));
    if (chunk_ < c_.in_channels) slices_ = std::max(slices_, (blocks_ + 3) / 4);
    find_phases();
    return true;
  }

  void run() {
    const int64_t slice_bytes =
        c_.out_channels * c_.in_channels * taps_ * static_cast<int64_t>(sizeof(T)) / slices_;
    const int64_t all = c_.groups * slices_;
    const int64_t at_once =
        std::clamp<int64_t>(packed_weight_bytes / std::max<int64_t>(slice_bytes, 1), 1, all);
    const int64_t tiles = layout_.tiles();
    // No task may be too short to be worth handing out.
    const double work = static_cast<double>(c_.out_channels * c_.in_channels * std::max<int64_t>(taps_, 1)) *
                        static_cast<double>(layout_.tile.d * layout_.tile.h * layout_.tile.w) /
                        static_cast<double>(slices_);
    const int64_t grain = std::max<int64_t>(1, static_cast<int64_t>(200e3 / work));
    for (int64_t first = 0; first < all; first += at_once) {
      const int64_t count = std::min(at_once, all - first);
      pack_weights(first, count);
      parallel_for(c_.batch * count * tiles, grain, [&](int64_t begin, int64_t end) {
        for (int64_t t = begin; t < end; ++t) {
          const int64_t slice = first + t / tiles % count;
          box(t / tiles / count, slice / slices_, slice % slices_, layout_.box(t % tiles));
        }
      });
    }
  }

 private:
  void find_phases() {
    int64_t weights = 0;
    for (const Lattice& d : c_.phases[0])
      for (const Lattice& h : c_.phases[1]) {
        first_phase_.push_back(phases_.size());
        for (const Lattice& w : c_.phases[2]) {
          if (d.taps * h.taps * w.taps == 0) continue;
          phases_.push_back({&d, &h, &w, &w - c_.phases[2].data(), layout_.offsets(d, h, w), weights});
          weights += d.taps * h.taps * w.taps;
        }
      }
    first_phase_.push_back(phases_.size());
  }

  int64_t block_begin(int64_t block) const { return cut(c_.out_channels, blocks_, block); }
  int64_t slice_begin(int64_t slice) const { return cut(blocks_, slices_, slice); }
  int64_t slice_output(int64_t slice) const { return block_begin(slice_begin(slice)); }
  int64_t weights_of(int64_t slice_of_all) const {  // in front of it, in units of (tap, in channel)
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
    if (size > packed_size_) {
      packed_ = std::make_unique_for_overwrite<T[]>(static_cast<size_t>(size));
      packed_size_ = size;
    }
    const int64_t phases = static_cast<int64_t>(phases_.size());
    if (phases == 0) return;
    parallel_for(count * phases, phases, [&](int64_t begin, int64_t end) {
      for (int64_t t = begin; t < end; ++t) {
        const int64_t group = (first + t / phases) / slices_, slice = (first + t / phases) % slices_;
        const Phase& phase = phases_[static_cast<size_t>(t % phases)];
        for (int64_t b = slice_begin(slice); b < slice_begin(slice + 1); ++b)
          pack_block(group, slice, phase, b);
      }
    });
  }

  void pack_block(int64_t group, int64_t slice, const Phase& phase, int64_t block) const {
    const auto& [ld, lh, lw] = std::tie(*phase.d, *phase.h, *phase.w);
    T* to = packed_.get() + packed_at(group, slice, phase, block);
    const int64_t begin = block_begin(block), rows = block_begin(block + 1) - begin;
    const S* from = c_.weight + group * c_.weight_per_group + begin * c_.weight_per_out;
    for (int64_t in = 0; in < c_.in_channels; ++in, from += c_.weight_per_in)
      for (int64_t md = 0; md < ld.taps; ++md)
        for (int64_t mh = 0; mh < lh.taps; ++mh)
          for (int64_t mw = 0; mw < lw.taps; ++mw) {
            const int64_t tap =
                ((ld.tap_first + md * ld.tap_step) * c_.kernel.h + lh.tap_first + mh * lh.tap_step) *
                    c_.kernel.w +
                lw.tap_first + mw * lw.tap_step;
            for (int64_t r = 0; r < rows; ++r) *to++ = static_cast<T>(from[r * c_.weight_per_out + tap]);
          }
  }

  /// Sums of one block of output channels: a buffer for each phase of W.
  struct Sums {
    T* memory;
    int64_t row, per_phase;
    T* of(int64_t w_index) const { return memory + w_index * per_phase; }
  };

  void box(int64_t n, int64_t group, int64_t slice, const TileLayout::Box& box) const {
    const int64_t channel = layout_.channel(), slack = 2 * simd_.lanes;
    T* tile = scratch<T, 0>(chunk_ * channel + slack);
    std::fill_n(tile + chunk_ * channel, slack, T(0));
    const int64_t widths = static_cast<int64_t>(c_.phases[2].size());
    const int64_t row = round_up(layout_.positions(box), simd_.lanes), per_phase = simd_.rows * row;
    const bool chunks = chunk_ < c_.in_channels;
    const int64_t planes = static_cast<int64_t>(first_phase_.size() - 1) *
                           (slice_begin(slice + 1) - slice_begin(slice)) * box.count[0];
    T* memory = scratch<T, 1>((chunks ? planes : 1) * widths * per_phase);
    const int64_t input_cells = layout_.axes[0].input * layout_.axes[1].input * layout_.axes[2].input;
    for (int64_t c = 0; c < c_.in_channels; c += chunk_) {
      const int64_t channels = std::min(chunk_, c_.in_channels - c);
      pack_tile(c_.input + ((n * c_.groups + group) * c_.in_channels + c) * input_cells, channels, layout_,
                box, tile);
      Sums sums{memory, row, per_phase};
      for (size_t dh = 0; dh + 1 < first_phase_.size(); ++dh) {
        const Lattice& d = c_.phases[0][dh / c_.phases[1].size()];
        for (int64_t b = slice_begin(slice); b < slice_begin(slice + 1); ++b) {
          for (int64_t j = 0; j < std::min(box.count[0], d.outputs - box.first[0]); ++j) {
            for (size_t p = first_phase_[dh]; p < first_phase_[dh + 1]; ++p)
              add(group, slice, phases_[p], b, tile + j * layout_.plane(), c, channels,
                  layout_.positions(box), sums);
            if (c + channels == c_.in_channels) store(n, group, dh, b, box, j, sums);
            if (chunks) sums.memory += widths * per_phase;
          }
        }
      }
    }
  }

  void add(int64_t group, int64_t slice, const Phase& phase, int64_t block, const T* tile, int64_t c,
           int64_t channels, int64_t positions, const Sums& sums) const {
    const int64_t begin = block_begin(block), rows = block_begin(block + 1) - begin;
    T start[16] = {};
    if (c_.bias)
      for (int64_t r = 0; r < rows; ++r)
        start[r] = static_cast<T>(c_.bias[group * c_.out_channels + begin + r]);
    simd_.correlate({.x = tile,
                     .x_step = layout_.channel(),
                     .offsets = phase.offsets.data(),
                     .w = packed_.get() + packed_at(group, slice, phase, block) + c * phase.taps() * rows,
                     .channels = channels,
                     .taps = phase.taps(),
                     .start = c == 0 ? start : nullptr,
                     .y = sums.of(phase.w_index),
                     .y_step = sums.row,
                     .rows = rows,
                     .positions = positions});
  }

  /// Finished rows of one block, plane and pair of phases (D, H), into the output.
  void store(int64_t n, int64_t group, size_t dh, int64_t block, const TileLayout::Box& box, int64_t plane,
             const Sums& sums) const {
    const Lattice& d = c_.phases[0][dh / c_.phases[1].size()];
    const Lattice& h = c_.phases[1][dh % c_.phases[1].size()];
    const std::vector<Lattice>& widths = c_.phases[2];
    const int64_t width = widths.front().output;
    const size_t alive = first_phase_[dh + 1] - first_phase_[dh];
    const int64_t rows = std::min(box.count[1], h.outputs - box.first[1]);
    for (int64_t out = block_begin(block); out < block_begin(block + 1); ++out) {
      const int64_t channel = group * c_.out_channels + out;
      S* to = c_.output + ((n * c_.groups * c_.out_channels + channel) * d.output + d.out_first +
                           (box.first[0] + plane) * d.out_step) *
                              h.output * width;
      for (int64_t j = 0; j < rows; ++j) {
        S* row = to + (h.out_first + (box.first[1] + j) * h.out_step) * width;
        if (alive < widths.size()) fill_row(row, c_.bias ? c_.bias[channel] : S(0), box);
        for (size_t p = first_phase_[dh]; p < first_phase_[dh + 1]; ++p) {
          const Lattice& w = *phases_[p].w;
          const int64_t count = std::min(box.count[2], w.outputs - box.first[2]);
          const T* from =
              sums.of(phases_[p].w_index) + (out - block_begin(block)) * sums.row + j * layout_.extent(2);
          store_cells(from, count, row + w.out_first + box.first[2] * w.out_step, w.out_step);
        }
      }
    }
  }

  /// The part of an output row that belongs to a box, in all phases of W.
  void fill_row(S* row, S value, const TileLayout::Box& box) const {
    const Lattice& w = c_.phases[2].front();
    const int64_t begin = box.first[2] * w.out_step, end = (box.first[2] + box.count[2]) * w.out_step;
    std::fill(row + std::min(begin, w.output), row + std::min(end, w.output), value);
  }

  static void store_cells(const T* from, int64_t count, S* to, int64_t step) {
    if (step == 1)
      for (int64_t i = 0; i < count; ++i) to[i] = static_cast<S>(from[i]);
    else
      for (int64_t i = 0; i < count; ++i) to[i * step] = static_cast<S>(from[i]);
  }

  const Correlation<S, T>& c_;
  const simd::ConvKernelsOf<T>& simd_;
  TileLayout layout_;
  int64_t taps_ = 0;                 // of all phases
  int64_t blocks_;                   // of output channels, per group
  int64_t slices_;                   // of blocks, per group
  int64_t chunk_ = 0;                // input channels of a tile
  std::vector<Phase> phases_;        // those with taps, (d, h, w)
  std::vector<size_t> first_phase_;  // of each pair (d, h), and the end
  std::unique_ptr<T[]> packed_;
  int64_t packed_size_ = 0, packed_from_ = 0;
};

}  // namespace

template <class S, class T>
bool Correlation<S, T>::run() const {
  Run<S, T> run(*this);
  if (!run.plan()) return false;
  run.run();
  return true;
}

template struct Correlation<float, float>;
template struct Correlation<double, double>;

}  // namespace vox::cpu
