#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include <voxgrad/core/factories.h>
#include <voxgrad/ops/cpu/conv3d/tile.h>
#include <voxgrad/ops/cpu/tasks.h>

// Note [Winograd]
//
// Two neighbouring outputs of a row with three taps, y0 = x0 w0 + x1 w1 + x2 w2 and y1 = x1 w0 + x2 w1 + x3
// w2, take four multiplications instead of six (Winograd 1980; Lavin and Gray 2016, F(2, 3)):
//
//   m0 = (x0 - x2) w0                       y0 = m0 + m1 + m2
//   m1 = (x1 + x2) (w0 + w1 + w2) / 2       y1 = m1 - m2 - m3
//   m2 = (x2 - x1) (w0 - w1 + w2) / 2
//   m3 = (x1 - x3) w2
//
// The sums over input channels, and over taps along D, come before the y. So this is the correlation of four
// rows of half the length with one tap each. Along H and W together there are 16 of them with 1/4 of the
// cells, and 16 multiplications instead of 36.
//
// To the rest of correlate.cpp these are phases: number k reads the k-th of four classes of cells of step 2.
// What differs is packing (cells are combined), the weights (also), and storing (16 sums become 4 outputs).
// Pairs begin at output 0, whatever the tile. So the bits of an output do not depend on the tiling.
//
// Rounding: every factor is a sum of up to four numbers, so results differ from the plain sum in the last
// bits. Whole numbers stay exact: the halves of their sums are exact. Factors and products may overflow where
// the plain sum does not. Each of them is part of some result, which is then not finite. So if a result is
// not finite, the plain sums are computed instead.

namespace vox::cpu {

/// With fewer channels or cells, combining them costs more than it saves.
inline constexpr int64_t least_winograd_channels = 32, least_winograd_cells = 512;

/// Whether an axis has three taps on neighbouring cells and outputs.
inline bool is_winograd_axis(const std::vector<Lattice>& phases) {
  if (phases.size() != 1) return false;
  const Lattice& l = phases[0];
  return l.taps == 3 && l.in_step == 1 && l.out_step == 1 && (l.in_per_tap == 1 || l.in_per_tap == -1) &&
         l.outputs >= 4;
}

/// The four phases of an axis: cells and weights k of the Note. Phases 0 and 1 say where the outputs go.
inline std::vector<Lattice> winograd_lattices(const Lattice& l) {
  std::vector<Lattice> phases;
  for (int64_t k = 0; k < 4; ++k) {
    Lattice phase = l;
    phase.outputs = (l.outputs + (k == 1 ? 0 : 1)) / 2;
    phase.out_first = l.out_first + k % 2, phase.out_step = 2;
    phase.taps = 1, phase.tap_first = k, phase.tap_step = 1;
    phase.in_first = l.in_first + std::min<int64_t>(0, 2 * l.in_per_tap) + k;
    phase.in_step = 2, phase.in_per_tap = 0;
    phases.push_back(phase);
  }
  return phases;
}

/// Whether saving multiplications pays for combining cells, and for 16/9 as many weights. `phases` are those
/// along D, H and W; the channels are those of a group.
inline bool suits_winograd(const std::array<std::vector<Lattice>, 3>& phases, int64_t channels,
                           int64_t other_channels, int64_t cells) {
  return is_winograd_axis(phases[1]) && is_winograd_axis(phases[2]) &&
         std::min(channels, other_channels) >= least_winograd_channels && cells >= least_winograd_cells;
}

/// The axes of a tile for `phases`. If `winograd`, the phases along H and W become those of the Note.
inline std::array<TileAxis, 3> tile_axes(std::array<std::vector<Lattice>, 3>& phases, bool winograd) {
  std::array<TileAxis, 3> axes;
  for (size_t a = 0; a < 3; ++a) {
    const bool pairs = winograd && a > 0;
    if (pairs) phases[a] = winograd_lattices(phases[a][0]);
    axes[a] = pairs ? TileAxis::by_cell(phases[a]) : TileAxis::smaller(phases[a]);
  }
  return axes;
}

/// Weights (d, 3, 3, rows) become (d, 4, 4, rows). `backward` says of H and W that the cells fall with the
/// taps.
template <class T>
void winograd_weights(const simd::ConvKernelsOf<T>& simd, const T* from, int64_t depth, int64_t rows,
                      std::array<bool, 2> backward, T* to) {
  T* half = scratch<T, 8>(3 * 4 * rows);  // (h, 4, rows)
  const auto taps = [](const T* first, int64_t step, bool reversed) {
    return std::array<const T*, 3>{first + (reversed ? 2 : 0) * step, first + step,
                                   first + (reversed ? 0 : 2) * step};
  };
  const auto factors = [](T* first, int64_t step) {
    return std::array<T*, 4>{first, first + step, first + 2 * step, first + 3 * step};
  };
  for (int64_t d = 0; d < depth; ++d, from += 9 * rows, to += 16 * rows) {
    for (int64_t h = 0; h < 3; ++h)
      simd.winograd_weights(taps(from + 3 * h * rows, rows, backward[1]).data(), rows,
                            factors(half + 4 * h * rows, rows).data());
    simd.winograd_weights(taps(half, 4 * rows, backward[0]).data(), 4 * rows, factors(to, 4 * rows).data());
  }
}

/// Like pack_tile() for one channel, with combined cells.
template <class S, class T>
void pack_winograd_tile(const simd::ConvKernelsOf<T>& simd, const S* input, const TileLayout& layout,
                        const TileLayout::Box& box, T* to) {
  const auto& [ad, ah, aw] = layout.axes;
  const int64_t rows = layout.extent(1), width = layout.extent(2),
                in_class = layout.extent(0) * layout.plane();
  const int64_t cells = 2 * width + 2, room = width + simd.lanes;
  const RowCells in_row(aw.input, aw.origins[0] + 2 * box.first[2], 1, cells);
  T* line = scratch<T, 9>(cells + 2 * (room + 1) + 16 * room + simd.lanes);
  T *even = line + cells, *odd = even + room + 1, *ring = odd + room + 1;  // ring: 4 lines of 4 classes
  for (const int64_t origin_d : ad.origins) {
    for (int64_t ed = 0; ed < layout.extent(0); ++ed) {
      const int64_t d = origin_d + (box.first[0] + ed) * ad.step;
      if (d < 0 || d >= ad.input) {
        for (int64_t k = 0; k < 16; ++k)
          std::fill_n(to + k * in_class + ed * layout.plane(), layout.plane(), T(0));
        continue;
      }
      for (int64_t r = 0; r < 2 * rows + 2; ++r) {
        T* const of_row = ring + r % 4 * 4 * room;
        const int64_t h = ah.origins[0] + 2 * box.first[1] + r;
        if (h < 0 || h >= ah.input) {
          std::fill_n(of_row, 4 * room, T(0));
        } else {
          copy_cells(input + (d * ah.input + h) * aw.input, in_row, line);
          simd.every_second(line, width + 1, even);
          simd.every_second(line + 1, width + 1, odd);
          const T* const from[] = {even, odd, even + 1, odd + 1};
          T* const classes[] = {of_row, of_row + room, of_row + 2 * room, of_row + 3 * room};
          simd.winograd_cells(from, width, classes, room);
        }
        if (r % 2 == 0 || r == 1) continue;
        const int64_t at = ed * layout.plane() + (r - 3) / 2 * layout.pitch();
        for (int64_t k = 0; k < 4; ++k) {
          const T* from[4];
          T* classes[4];
          for (int64_t i = 0; i < 4; ++i) {
            from[i] = ring + ((r - 3 + i) % 4 * 4 + k) * room;
            classes[i] = to + (4 * i + k) * in_class + at;
          }
          simd.winograd_cells(from, width, classes, in_class - at);
        }
      }
    }
    to += 16 * in_class;
  }
}

/// Tiles of an operand: of its cells or, with Note [Winograd], of their combinations.
template <class T>
struct OperandTiles {
  TileLayout layout;
  bool winograd = false;

  int64_t cells() const { return layout.axes[0].input * layout.axes[1].input * layout.axes[2].input; }
  /// What loops may read beyond the last channel.
  int64_t slack() const { return 2 * conv_kernels.of<T>().lanes; }

  /// From one channel of a tile to the next. Combinations take an odd number of cache lines: channels whose
  /// distance is a multiple of 4 KiB would share one set of the first-level cache.
  int64_t channel() const {
    constexpr int64_t line = 64 / static_cast<int64_t>(sizeof(T));
    return winograd ? ((layout.channel() + line - 1) / line | 1) * line : layout.channel();
  }

  /// Copies the cells that a box reads, of `channels` channels from `input` on.
  template <class S>
  void pack(const S* input, int64_t channels, const TileLayout::Box& box, T* to) const {
    if (!winograd) return pack_tile(input, channels, layout, box, to);
    for (int64_t c = 0; c < channels; ++c)
      pack_winograd_tile(conv_kernels.of<T>(), input + c * cells(), layout, box, to + c * channel());
  }

  /// One tile for each of `channels` channels, of all images, in memory that tasks can share.
  template <class S>
  Tensor pack_whole(const S* input, int64_t channels) const {
    const int64_t step = channel();
    Tensor memory = empty({channels * step + slack()}, {.dtype = dtype_of<T>()});
    T* to = detail::mutable_ptr<T>(memory);
    std::fill_n(to + channels * step, slack(), T(0));
    for_tasks(channels, 1 + (1 << 14) / step,
              [&](int64_t c) { pack(input + c * cells(), 1, layout.box(0), to + c * step); });
    return memory;
  }
};

}  // namespace vox::cpu
