// The forward ops. Each tile of the input (Note [Tiles]) serves all phases and output channels.
//
// A task owns one box of outputs of one image and group, for a slice of the output channels. For every phase
// it takes the output channels in blocks. simd's correlate() sums one plane of a block at a time, in memory
// that stays in the first-level cache; then the rows are stored. A sum takes the bias, then channel by
// channel, tap by tap, whatever the box. So the bits of an output do not depend on the tiling.

#include <voxgrad/core/factories.h>
#include <voxgrad/core/parallel.h>
#include <voxgrad/ops/cpu/conv3d/blocking.h>
#include <voxgrad/ops/cpu/conv3d/tile.h>
#include <voxgrad/ops/cpu/conv3d/ways.h>

#include <span>
#include <tuple>
#include <type_traits>

namespace vox::cpu {
namespace {

constexpr int64_t tile_bytes = 384 * 1024;  // leaves room for weights in a second-level cache of 1 MB
constexpr int64_t packed_weight_bytes = 16 * 1024 * 1024;
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
  explicit Run(const Correlation<S, T>& c) : c_(c), simd_(conv_kernels.of<T>()) {
    for (size_t a = 0; a < 3; ++a) layout_.axes[a] = TileAxis::smaller(c.phases[a]);
    for (const Lattice& d : c.phases[0])
      for (const Lattice& h : c.phases[1])
        for (const Lattice& w : c.phases[2]) taps_ += d.taps * h.taps * w.taps;
    blocks_ = (c.out_channels + simd_.rows - 1) / simd_.rows;
    for (int64_t i = 0; i <= blocks_; ++i) block_begin_.push_back(cut(c.out_channels, blocks_, i));
  }

  bool plan() {
    size_t phases = 1;
    for (const auto& along_axis : c_.phases) phases *= along_axis.size();
    // With fewer input channels at a time, a tile can hold a larger box, with less halo.
    TileChoice best;
    for (int64_t chunks = 1; chunks <= c_.in_channels; chunks *= 2) {
      const int64_t channels = (c_.in_channels + chunks - 1) / chunks;
      const auto outputs = static_cast<double>(c_.out_channels);
      TileChoice choice = choose_tile(
          layout_.axes, {.channels = static_cast<double>(channels),
                         .products = outputs * static_cast<double>(taps_ * channels),
                         .per_position = outputs * (chunks > 1 ? 0.3 : 0.1),
                         .per_plane = call_cost * static_cast<double>(blocks_) * static_cast<double>(phases),
                         .per_tile = 3000,
                         .element = sizeof(T),
                         .bytes = tile_bytes,
                         .positions = 4096,
                         .copies = static_cast<double>(c_.batch * c_.groups)});
      choice.cost *= static_cast<double>(chunks);
      if (choice && (!best || choice.cost < best.cost)) best = choice, chunk_ = channels;
      if (best && (chunks >= 16 || phases > most_phases)) break;
    }
    if (!best) return false;
    layout_.tile = best.tile;
    // With few boxes, threads share the output channels of one box. With many weights, their packed copy is
    // made in several passes. With several chunks of input channels, sums stay in memory between chunks.
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
    // Tasks must be long enough to be worth sharing out.
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
    const int64_t phases = static_cast<int64_t>(phases_.size());
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
    T* to = packed_ + packed_at(group, slice, phase, block);
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

  /// Sums of one block of output channels: one buffer per phase along W.
  struct Sums {
    T* memory;
    int64_t row, per_phase;
  };

  void box(int64_t n, int64_t group, int64_t slice, const TileLayout::Box& box) const {
    const int64_t channel = layout_.channel(), slack = 2 * simd_.lanes;
    T* tile = scratch<T, 0>(chunk_ * channel + slack);
    std::fill_n(tile + chunk_ * channel, slack, T(0));
    const bool chunks = chunk_ < c_.in_channels;  // then all sums stay in memory until the last chunk
    const size_t widths = c_.phases[2].size(), together = chunks ? widths : std::min(widths, most_phases);
    const int64_t row = round_up(layout_.positions(box), simd_.lanes) + simd_.lanes,
                  per_phase = simd_.rows * row, side = static_cast<int64_t>(together) * per_phase;
    const int64_t planes = static_cast<int64_t>(first_phase_.size() - 1) *
                           (slice_begin(slice + 1) - slice_begin(slice)) * box.count[0];
    T* memory = scratch<T, 1>((chunks ? planes : 1) * side);
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
            for (size_t w = 0; w < widths; w += together) {
              const std::span<const Phase> phases(&phases_[first_phase_[dh] + w],
                                                  std::min(together, widths - w));
              for (size_t p = 0; p < phases.size(); ++p)
                add(group, slice, phases[p], b, tile, c, channels, box, j,
                    {sums.memory + static_cast<int64_t>(p) * per_phase, row, per_phase});
              if (c + channels == c_.in_channels) store(n, group, phases, b, box, j, sums);
            }
            if (chunks) sums.memory += side;
          }
        }
      }
    }
  }

  /// Computes the sums of one block of output channels in plane `plane` of a box, for one phase.
  void add(int64_t group, int64_t slice, const Phase& phase, int64_t block, const T* tile, int64_t c,
           int64_t channels, const TileLayout::Box& box, int64_t plane, const Sums& sums) const {
    const int64_t begin = block_begin(block), rows = block_begin(block + 1) - begin;
    T start[16] = {};
    if (c_.bias)
      for (int64_t r = 0; r < rows; ++r)
        start[r] = static_cast<T>(c_.bias[group * c_.out_channels + begin + r]);
    simd::CorrelateBlock<T> b{.x = tile + plane * layout_.plane(),
                              .w = packed_ + packed_at(group, slice, phase, block) + c * phase.taps() * rows,
                              .x_step = layout_.channel(),
                              .w_step = phase.taps() * rows,
                              .channels = channels,
                              .taps = phase.taps(),
                              .offsets = phase.offsets.data(),
                              .start = c == 0 ? start : nullptr,
                              .y = sums.memory,
                              .y_step = sums.row,
                              .rows = rows,
                              .positions = layout_.positions(box)};
    // Taps that read padding in D, or in all of a row, are left out. For short rows this does not pay. For
    // sums that stay in memory between chunks it is wrong, because a segment overwrites the beginning of the
    // next one.
    const Lattice::Range d = phase.d->taps_inside(box.first[0] + plane);
    const bool by_row = layout_.pitch() >= 4 * simd_.lanes && chunk_ == c_.in_channels;
    for (int64_t row = 0, end = 0; row < box.count[1]; row = end) {
      Lattice::Range h{0, phase.h->taps};
      end = box.count[1];
      if (by_row) {
        h = phase.h->taps_inside(box.first[1] + row);
        for (end = row + 1; end < box.count[1] && phase.h->taps_inside(box.first[1] + end) == h;) ++end;
      }
      simd::CorrelateBlock<T> segment = b;
      segment.x += row * layout_.pitch();
      segment.y += row * layout_.pitch();
      segment.positions = (end - row - 1) * layout_.pitch() + box.count[2];
      choose_taps(phase, d, h, segment);
      simd_.correlate(segment);
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
  TileLayout layout_;
  int64_t taps_ = 0;                  // of all phases together
  std::vector<int64_t> block_begin_;  // of every block, and the end of the last
  int64_t blocks_;                    // number of blocks of output channels, per group
  int64_t slices_ = 1;                // number of slices of blocks, per group
  int64_t chunk_ = 0;                 // input channels of a tile
  std::vector<Phase> phases_;         // (d, h, w)
  std::vector<size_t> first_phase_;   // number of the first phase of each pair (d, h); last, their count
  Tensor packed_memory_;
  T* packed_ = nullptr;
  int64_t packed_from_ = 0;
};

/// Fills the output with the bias, which is the result where no tap touches.
template <class S, class T>
void fill_with_bias(const Correlation<S, T>& c, int64_t cells) {
  const int64_t channels = c.groups * c.out_channels;
  parallel_for(c.batch * channels * cells, 1 << 15, [&](int64_t begin, int64_t end) {
    while (begin < end) {
      const int64_t channel = begin / cells, stop = std::min(end, (channel + 1) * cells);
      std::fill(c.output + begin, c.output + stop, c.bias ? c.bias[channel % channels] : S(T(0)));
      begin = stop;
    }
  });
}

}  // namespace

template <class S, class T>
bool Correlation<S, T>::run() const {
  int64_t touched = 1, cells = 1;
  for (const auto& along_axis : phases) {
    int64_t outputs = 0;
    for (const Lattice& l : along_axis) outputs += l.outputs;
    touched *= outputs;
  }
  for (const int64_t size : {out_size.d, out_size.h, out_size.w}) cells *= size;
  if (touched < cells) fill_with_bias(*this, cells);
  if (touched == 0) return true;
  Run<S, T> run(*this);
  if (!run.plan()) return false;
  run.run();
  return true;
}

template struct Correlation<float, float>;
template struct Correlation<double, double>;
template struct Correlation<bfloat16, float>;
template struct Correlation<float16, float>;

}  // namespace vox::cpu
