// The forward ops. Each tile of the input (Note [Tiles]) serves all phases and output channels.
//
// A task owns one box of outputs of one image and group, for a slice of the output channels. It reads a tile
// of its own, or, of an input of some megabytes, the one tile of the whole input. For every phase it takes
// the output channels in blocks. simd's correlate() or correlate_rows() sums one plane of a block at a time,
// in memory that stays in the nearest caches; then the rows are stored. A sum takes the bias, then channel by
// channel, tap by tap, whatever the box and the loop. So the bits of an output do not depend on the tiling.
//
// CorrelatePlan cuts the work, PackedWeights copies the weights; the sums are here.

#include <voxgrad/ops/cpu/conv3d/packed_weights.h>

#include <span>
#include <type_traits>

namespace vox::cpu {
namespace {

constexpr int64_t pair_bytes = 384 * 1024;  // of the sums of the 16 phases of Note [Winograd], in that cache
constexpr int64_t long_row = 8;  // cells; shorter rows are taken together, with the halo between them

int64_t round_up(int64_t n, int64_t to) { return (n + to - 1) / to * to; }

template <class S, class T>
class Run {
 public:
  explicit Run(const CorrelatePlan<S, T>& plan) : plan_(plan), c_(plan.c), weights_(plan) {}

  /// Computes the outputs. Returns false if they are wrong: the padding's zeros times a weight that is not
  /// finite are NaN, but the definition skips them; or see Note [Winograd].
  bool run() {
    const int64_t all = c_.groups * plan_.slices, at_once = weights_.at_once(), boxes = plan_.boxes.tiles();
    // Tasks must be long enough to be worth sharing out.
    const Triple& box = plan_.boxes.tile;
    const double work =
        static_cast<double>(c_.out_channels * c_.in_channels * std::max<int64_t>(plan_.taps, 1)) *
        static_cast<double>(box.d * box.h * box.w) / static_cast<double>(plan_.slices);
    const auto grain = static_cast<int64_t>(200e3 / work);
    if (plan_.whole) input_ = plan_.tiles.pack_whole(c_.input, c_.batch * c_.groups * c_.in_channels);
    for (int64_t first = 0; first < all && finite_; first += at_once) {
      const int64_t count = std::min(at_once, all - first);
      if (!weights_.pack(first, count)) return false;
      for_tasks(c_.batch * count * boxes, grain, [&](int64_t t) {
        const int64_t n = t / boxes / count, slice = first + t / boxes % count;
        task({n * c_.groups + slice / plan_.slices, slice / plan_.slices, slice % plan_.slices,
              plan_.boxes.box(t % boxes)});
      });
    }
    return finite_;
  }

 private:
  struct Task {
    int64_t image, group, slice;  // the image and group, counted together; the group; the slice of the group
    TileLayout::Box box;
  };

  /// Sums of one block of output channels: one buffer per phase along W.
  struct Sums {
    T* memory;
    int64_t row, per_phase;

    Sums of(size_t phase) const { return {memory + static_cast<int64_t>(phase) * per_phase, row, per_phase}; }
  };

  /// The cells that a task reads, of some input channels: in the tile of the whole input, or in its own.
  const T* cells_of(const Task& t, int64_t c, int64_t channels) const {
    const OperandTiles<T>& tiles = plan_.tiles;
    const int64_t channel = t.image * c_.in_channels + c, step = tiles.channel();
    if (plan_.whole)
      return detail::ptr<T>(input_) + channel * step + t.box.first[0] * tiles.layout.plane() +
             t.box.first[1] * tiles.layout.pitch();
    T* own = scratch<T, 0>(plan_.chunk * step + tiles.slack());
    std::fill_n(own + plan_.chunk * step, tiles.slack(), T(0));
    tiles.pack(c_.input + channel * tiles.cells(), channels, t.box, own);
    return own;
  }

  void task(const Task& t) const {
    if (plan_.tiles.winograd) return add_pairs(t, cells_of(t, 0, c_.in_channels));
    const bool chunks = plan_.chunk < c_.in_channels;  // then all sums stay in memory until the last chunk
    const size_t widths = plan_.axes[2].size(),
                 together = chunks ? widths : std::min(widths, plan_.most_phases);
    const int64_t row = round_up(plan_.tiles.layout.positions(t.box), simd_.lanes) + simd_.lanes,
                  planes = static_cast<int64_t>(plan_.first_phase.size() - 1) * t.box.count[0] *
                           (plan_.slice_begin(t.slice + 1) - plan_.slice_begin(t.slice));
    Sums sums{nullptr, row, plan_.rows * row};
    sums.memory = scratch<T, 1>((chunks ? planes : 1) * static_cast<int64_t>(together) * sums.per_phase);
    for (int64_t c = 0; c < c_.in_channels; c += plan_.chunk) {
      const int64_t channels = std::min(plan_.chunk, c_.in_channels - c);
      add_chunk(t, cells_of(t, c, channels), c, channels, together, chunks, sums);
    }
  }

  /// Adds some input channels to all sums of a task, and stores them after the last. If `keep`, each plane of
  /// a block has sums of its own.
  void add_chunk(const Task& t, const T* cells, int64_t c, int64_t channels, size_t together, bool keep,
                 Sums sums) const {
    const size_t widths = plan_.axes[2].size();
    for (size_t dh = 0; dh + 1 < plan_.first_phase.size(); ++dh) {
      const Lattice& d = plan_.axes[0][dh / plan_.axes[1].size()];
      const int64_t planes = std::min(t.box.count[0], d.outputs - t.box.first[0]);
      for (int64_t b = plan_.slice_begin(t.slice); b < plan_.slice_begin(t.slice + 1); ++b)
        for (int64_t j = 0; j < planes; ++j) {
          for (size_t w = 0; w < widths; w += together) {
            const std::span<const Phase> phases(&plan_.phases[plan_.first_phase[dh] + w],
                                                std::min(together, widths - w));
            for (size_t p = 0; p < phases.size(); ++p)
              add(t, phases[p], b, cells, c, channels, j, sums.of(p));
            if (c + channels < c_.in_channels) continue;
            if (stores_rows(t, phases))
              store_rows(t, phases[0], b, j, sums);
            else
              store(t, phases, b, j, plan_.by_rows ? transposed(sums, phases.size(), b) : sums);
          }
          if (keep) sums.memory += static_cast<int64_t>(together) * sums.per_phase;
        }
    }
  }

  /// The outputs of a box by the 16 phases of Note [Winograd]. Its planes lie one behind the other, so some
  /// of them are one row of positions. A phase's weights stay in the nearest cache for all of these.
  void add_pairs(const Task& t, const T* tile) const {
    const TileLayout& layout = plan_.tiles.layout;
    const int64_t plane = layout.plane(), positions = layout.positions(t.box),
                  bytes = 16 * plan_.rows * plane * static_cast<int64_t>(sizeof(T)),
                  most = positions == plane ? std::max<int64_t>(1, pair_bytes / bytes) : 1;
    for (size_t first = 0; first < plan_.phases.size(); first += 16) {
      const std::span<const Phase> phases(&plan_.phases[first], 16);
      const int64_t planes = std::min(t.box.count[0], phases[0].d->outputs - t.box.first[0]);
      for (int64_t b = plan_.slice_begin(t.slice); b < plan_.slice_begin(t.slice + 1); ++b)
        for (int64_t j = 0; j < planes; j += most) {
          const int64_t depth = std::min(most, planes - j), cells = (depth - 1) * plane + positions;
          Sums sums{nullptr, round_up(positions, simd_.lanes) + simd_.lanes,
                    plan_.rows * (round_up(cells, simd_.lanes) + simd_.lanes)};
          sums.memory = scratch<T, 1>(16 * sums.per_phase);
          for (size_t p = 0; p < 16; ++p) add_planes(t, phases[p], b, tile, j, depth, sums.of(p).memory);
          store_pairs(t, phases, b, j, depth, cells, sums);
        }
    }
  }

  /// Combines the 16 sums of some planes to outputs, and stores these.
  void store_pairs(const Task& t, std::span<const Phase> phases, int64_t block, int64_t plane, int64_t depth,
                   int64_t cells, const Sums& sums) const {
    const int64_t rows = rows_of(block);
    const auto combine = [&](size_t phase, size_t step) {
      T* const m[4]{sums.of(phase).memory, sums.of(phase + step).memory, sums.of(phase + 2 * step).memory,
                    sums.of(phase + 3 * step).memory};
      simd_.winograd_outputs(m, cells * rows);
    };
    for (size_t w = 0; w < 4; ++w) combine(w, 4);
    for (size_t h = 0; h < 2; ++h) {
      combine(4 * h, 1);
      for (size_t w = 0; w < 2; ++w)
        if (!all_finite(sums.of(4 * h + w).memory, cells * rows)) finite_ = false;
      for (int64_t i = 0; i < depth; ++i) {
        Sums of_plane = sums.of(4 * h);
        of_plane.memory += i * plan_.tiles.layout.plane() * rows;
        store(t, phases.subspan(4 * h, 2), block, plane + i, transposed(of_plane, 2, block));
      }
    }
  }

  /// Computes the sums of a phase of add_pairs() in `depth` planes of a box, those of the same taps together.
  void add_planes(const Task& t, const Phase& phase, int64_t block, const T* tile, int64_t plane,
                  int64_t depth, T* sums) const {
    T start[32];
    // The product m1 along both axes is part of every output.
    const bool biased = phase.h->tap_first == 1 && phase.w->tap_first == 1;
    const auto all = block_of(t, phase, block, tile, 0, c_.in_channels, biased, start);
    const int64_t first = t.box.first[0] + plane, in_plane = plan_.tiles.layout.plane();
    for (int64_t i = 0, end = 0; i < depth; i = end) {
      const Lattice::Range d = phase.d->taps_inside(first + i);
      for (end = i + 1; end < depth && phase.d->taps_inside(first + end) == d;) ++end;
      simd::CorrelateBlock<T> segment = all;
      segment.x += (plane + i) * in_plane;
      segment.y = sums + i * in_plane * segment.rows;
      segment.positions += (end - i - 1) * in_plane;
      choose_taps(phase, d, {0, 1}, segment);
      simd_.correlate_rows(segment);
    }
  }

  int64_t rows_of(int64_t block) const { return plan_.block_begin(block + 1) - plan_.block_begin(block); }

  /// A copy of sums that lie as [position][row], as [row][position].
  Sums transposed(const Sums& sums, size_t phases, int64_t block) const {
    const int64_t rows = rows_of(block);
    const Sums to{scratch<T, 6>(static_cast<int64_t>(phases) * sums.per_phase), sums.row, sums.per_phase};
    for (size_t p = 0; p < phases; ++p)
      simd_.transpose(sums.of(p).memory, rows, sums.row - simd_.lanes, rows, to.of(p).memory, sums.row);
    return to;
  }

  /// The sums of one block of output channels in the first plane of a box, for one phase. `start` will hold
  /// their initial values.
  simd::CorrelateBlock<T> block_of(const Task& t, const Phase& phase, int64_t block, const T* tile, int64_t c,
                                   int64_t channels, bool biased, T (&start)[32]) const {
    const int64_t rows = rows_of(block), out = t.group * c_.out_channels + plan_.block_begin(block);
    for (int64_t r = 0; r < rows; ++r) start[r] = biased && c_.bias ? static_cast<T>(c_.bias[out + r]) : T(0);
    return {.x = tile,
            .w = weights_.of(t.group, t.slice, phase, block) + c * phase.taps() * rows,
            .x_step = plan_.tiles.channel(),
            .w_step = phase.taps() * rows,
            .channels = channels,
            .taps = phase.taps(),
            .offsets = phase.offsets.data(),
            .start = c == 0 ? start : nullptr,
            .y = nullptr,
            .y_step = 0,
            .rows = rows,
            .positions = plan_.tiles.layout.positions(t.box),
            .threes = phase.threes};
  }

  /// Computes the sums of one block of output channels in plane `plane` of a box, for one phase.
  void add(const Task& t, const Phase& phase, int64_t block, const T* tile, int64_t c, int64_t channels,
           int64_t plane, const Sums& sums) const {
    const TileLayout& layout = plan_.tiles.layout;
    const TileLayout::Box& box = t.box;
    T start[32];
    simd::CorrelateBlock<T> b =
        block_of(t, phase, block, tile + plane * layout.plane(), c, channels, true, start);
    b.y = sums.memory, b.y_step = sums.row;
    // Taps that read padding in D, or in all of a row, are left out. For short rows this does not pay. For
    // sums that stay in memory between chunks it is wrong, because a segment overwrites the beginning of the
    // next one.
    const Lattice::Range d = phase.d->taps_inside(box.first[0] + plane);
    const bool by_row = plan_.by_rows || (layout.pitch() >= 4 * simd_.lanes && plan_.chunk == c_.in_channels),
               alone = plan_.by_rows && box.count[2] >= long_row;
    for (int64_t row = 0, end = 0; row < box.count[1]; row = end) {
      Lattice::Range h{0, phase.h->taps};
      end = box.count[1];
      if (by_row) {
        h = phase.h->taps_inside(box.first[1] + row);
        for (end = row + 1; !alone && end < box.count[1] && phase.h->taps_inside(box.first[1] + end) == h;)
          ++end;
      }
      simd::CorrelateBlock<T> segment = b;
      segment.x += row * layout.pitch();
      segment.y += row * layout.pitch() * (plan_.by_rows ? b.rows : 1);
      segment.positions = (end - row - 1) * layout.pitch() + box.count[2];
      choose_taps(phase, d, h, segment);
      (plan_.by_rows ? simd_.correlate_rows : simd_.correlate)(segment);
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

  /// Whether sums that lie as [position][row] are the results' neighbours along W, in whole vectors.
  bool stores_rows(const Task& t, std::span<const Phase> phases) const {
    return std::is_same_v<S, T> && plan_.by_rows && phases.size() == 1 && phases[0].w->out_step == 1 &&
           t.box.count[2] % simd_.lanes == 0 && t.box.first[2] + t.box.count[2] <= phases[0].w->outputs;
  }

  /// Stores the finished rows of one block and plane.
  void store_rows(const Task& t, const Phase& phase, int64_t block, int64_t plane, const Sums& sums) const {
    const TileLayout::Box& box = t.box;
    const Lattice &d = *phase.d, &h = *phase.h, &w = *phase.w;
    const int64_t rows = rows_of(block), cells = d.output * h.output * w.output,
                  depth = d.out_first + (box.first[0] + plane) * d.out_step;
    S* to = c_.output + (t.image * c_.out_channels + plan_.block_begin(block)) * cells +
            depth * h.output * w.output + w.out_first + box.first[2];
    for (int64_t j = 0; j < std::min(box.count[1], h.outputs - box.first[1]); ++j)
      simd_.transpose(sums.memory + j * plan_.tiles.layout.pitch() * rows, rows, box.count[2], rows,
                      reinterpret_cast<T*>(to) + (h.out_first + (box.first[1] + j) * h.out_step) * w.output,
                      cells);
  }

  /// Stores the finished rows of one block and plane, for some phases with the same D and H.
  void store(const Task& t, std::span<const Phase> phases, int64_t block, int64_t plane,
             const Sums& sums) const {
    const TileLayout::Box& box = t.box;
    const Lattice &d = *phases[0].d, &h = *phases[0].h;
    const int64_t width = phases[0].w->output, first = box.first[2];
    const bool interleaved = std::is_same_v<S, T> && phases.size() == 2 && phases[0].w->out_step == 2;
    const int64_t rows = std::min(box.count[1], h.outputs - box.first[1]), begin = plan_.block_begin(block);
    const auto count = [&](const Phase& phase) { return std::min(box.count[2], phase.w->outputs - first); };
    for (int64_t r = 0; r < rows_of(block); ++r) {
      const int64_t channel = t.image * c_.out_channels + begin + r;
      S* to = c_.output +
              (channel * d.output + d.out_first + (box.first[0] + plane) * d.out_step) * h.output * width;
      for (int64_t j = 0; j < rows; ++j) {
        S* row = to + (h.out_first + (box.first[1] + j) * h.out_step) * width;
        const int64_t at = r * sums.row + j * plan_.tiles.layout.pitch();
        if (interleaved) {
          simd_.interleave(sums.memory + at, count(phases[0]), sums.of(1).memory + at, count(phases[1]),
                           reinterpret_cast<T*>(row) + 2 * first);
          continue;
        }
        for (size_t p = 0; p < phases.size(); ++p) {
          const Lattice& w = *phases[p].w;
          store_cells(sums.of(p).memory + at, count(phases[p]), row + w.out_first + first * w.out_step,
                      w.out_step);
        }
      }
    }
  }

  static void store_cells(const T* from, int64_t count, S* to, int64_t step) {
    if (step == 1)
      convert_run(from, to, count);
    else
      for (int64_t i = 0; i < count; ++i) to[i * step] = static_cast<S>(from[i]);
  }

  const CorrelatePlan<S, T>& plan_;
  const Correlation<S, T>& c_;
  const simd::ConvKernelsOf<T>& simd_ = conv_kernels.of<T>();
  PackedWeights<S, T> weights_;
  Tensor input_;                             // the tile that all tasks share
  mutable std::atomic<bool> finite_ = true;  // false if an output by Winograd's factors is not
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
  CorrelatePlan<S, T> plan(*this, winograd);
  if (plan.tiles.winograd != winograd || !plan.choose()) return Outcome::unsupported;
  if (touched < out_size.d * out_size.h * out_size.w) fill_with_bias();
  return Run<S, T>(plan).run() ? Outcome::done : Outcome::not_finite;
}

template struct Correlation<float, float>;
template struct Correlation<double, double>;
template struct Correlation<bfloat16, float>;
template struct Correlation<float16, float>;

}  // namespace vox::cpu
