#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <type_traits>
#include <utility>
#include <vector>

#include <voxgrad/ops/conv3d_lattice.h>
#include <voxgrad/ops/cpu/convert_run.h>
#include <voxgrad/ops/cpu/isa.h>
#include <voxgrad/ops/cpu/simd/conv3d.h>
#include <voxgrad/ops/cpu/simd/reduce.h>

// Note [Tiles]
//
// The kernels of ops/cpu/simd/conv3d.h know no padding, stride, dilation, odd width or dtype: they add up
// shifted copies of a dense row of numbers. This file makes such rows. A task copies all input cells that a
// box of outputs reads, of all input channels, into its own memory, which fits the second-level cache.
// Padding becomes zeros:
//
//   outputs     h\w 0 1 2 3       tile (kernel 1x3, padding 1)   . 0 1 2 3 . <- one row with its halo
//                 0 a b c d                                      . 4 5 6 7 .
//                 1 e f g h
//
// A row of the tile is `extent` = outputs + halo cells long. With position = h * extent + w, tap m reads at
// position + a constant, for every h. So the whole plane is one long vector loop ("flat plane"). It also
// computes `halo` meaningless outputs per row, which are not stored.
//
// Strides: output j reads the cells j * step + u, where step is the stride and each tap has one u. For u with
// the same remainder modulo step, neighbouring j read neighbouring cells of one sequence, a "class"; the tile
// keeps one row per class. If the taps are so far apart (dilation) that the halo would exceed the row, every
// u is its own class, and there is no halo.

namespace vox::cpu {

/// The inner loops of the convolutions.
inline constexpr ByIsa conv_kernels = VOX_BY_ISA(conv_kernels);

/// Whether all of n numbers are finite. Tiles multiply the padding's zeros too. These products are 0, as
/// if they were left out, only for finite operands.
template <class T>
bool all_finite(const T* x, int64_t n) {
  return VOX_BY_ISA(finite_kernels).template of<T>()(x, n);
}

/// One axis of a tile: the cells that it keeps. Several lattices (phases) may read the same tile.
struct TileAxis {
  int64_t outputs = 0;           ///< outputs of the longest phase
  int64_t step = 1, input = 0;   ///< in_step and input of the lattices
  int64_t halo = 0;              ///< cells of a class beyond one per output
  std::vector<int64_t> origins;  ///< for each class, its first cell for output 0

  struct Place {
    int64_t in_class, shift;
  };

  /// All u of the lattices, ascending, each once.
  static std::vector<int64_t> cells(const std::vector<Lattice>& phases) {
    std::vector<int64_t> u;
    for (const Lattice& l : phases)
      for (int64_t m = 0; m < l.taps; ++m) u.push_back(l.input_cell(0, m));
    std::sort(u.begin(), u.end());
    u.erase(std::unique(u.begin(), u.end()), u.end());
    if (u.empty()) u.push_back(0);
    return u;
  }

  static TileAxis by_cell(const std::vector<Lattice>& phases) {
    TileAxis axis = empty(phases);
    axis.origins = cells(phases);
    return axis;
  }

  static TileAxis by_remainder(const std::vector<Lattice>& phases) {
    TileAxis axis = empty(phases);
    const std::vector<int64_t> u = cells(phases);
    const int64_t step = axis.step, first = floor_div(u.front(), step), last = floor_div(u.back(), step);
    for (const int64_t cell : u) axis.origins.push_back(first * step + (cell - floor_div(cell, step) * step));
    std::sort(axis.origins.begin(), axis.origins.end());
    axis.origins.erase(std::unique(axis.origins.begin(), axis.origins.end()), axis.origins.end());
    axis.halo = last - first;
    return axis;
  }

  /// Classes by remainder or by cell, whichever makes the smaller tile of the whole axis.
  static TileAxis smaller(const std::vector<Lattice>& phases) {
    TileAxis a = by_remainder(phases), b = by_cell(phases);
    const auto size = [](const TileAxis& x) {
      return static_cast<double>(x.origins.size()) * static_cast<double>(x.outputs + x.halo);
    };
    return size(a) <= size(b) ? a : b;
  }

  int64_t classes() const { return static_cast<int64_t>(origins.size()); }

  /// The number of cells that lie outside the input in every class, both at the beginning and at the end.
  int64_t shared_zeros() const {
    int64_t zeros = halo;
    for (const int64_t origin : origins) {
      const int64_t before = origin >= 0 ? 0 : (-origin - 1) / step + 1;
      // Cells up to the end of the input.
      const int64_t inside = origin >= input ? 0 : (input - 1 - origin) / step + 1;
      zeros = std::min({zeros, before, std::max<int64_t>(outputs + halo - inside, 0)});
    }
    return zeros;
  }

  /// The place in the tile of the cell u that output 0 reads.
  Place place(int64_t u) const {
    for (size_t k = 0; k < origins.size(); ++k) {
      const int64_t away = u - origins[k];
      if (away >= 0 && away % step == 0 && away / step <= halo) return {static_cast<int64_t>(k), away / step};
    }
    return {0, 0};
  }

 private:
  static TileAxis empty(const std::vector<Lattice>& phases) {
    TileAxis axis;
    axis.step = phases.front().in_step;
    axis.input = phases.front().input;
    for (const Lattice& l : phases) axis.outputs = std::max(axis.outputs, l.outputs);
    return axis;
  }
  static int64_t floor_div(int64_t a, int64_t b) { return a / b - (a % b < 0 ? 1 : 0); }
};

/// A tile's layout: (channel, class d, h, w, plane, row, cell).
struct TileLayout {
  std::array<TileAxis, 3> axes;
  Triple tile;  ///< outputs along each axis

  int64_t extent(int64_t axis) const { return tile[axis] + axes[static_cast<size_t>(axis)].halo; }

  /// Distance between rows, in cells. A tile of whole rows has zeros of the padding at both ends of each row.
  /// The zeros at the end of one row serve as those at the beginning of the next, so a "full" correlation
  /// computes no meaningless positions.
  int64_t pitch() const { return extent(2) - (tile.w >= axes[2].outputs ? axes[2].shared_zeros() : 0); }
  int64_t plane() const { return (extent(1) - 1) * pitch() + extent(2); }
  int64_t classes() const { return axes[0].classes() * axes[1].classes() * axes[2].classes(); }
  int64_t channel() const { return classes() * extent(0) * plane(); }
  int64_t tiles(int64_t axis) const {
    return (axes[static_cast<size_t>(axis)].outputs + tile[axis] - 1) / tile[axis];
  }
  int64_t tiles() const { return tiles(0) * tiles(1) * tiles(2); }

  /// The outputs of one tile: the first one, and how many along each axis.
  struct Box {
    std::array<int64_t, 3> first, count;
  };
  Box box(int64_t index) const {
    Box b;
    for (size_t axis = 3; axis-- > 0;) {
      const int64_t a = static_cast<int64_t>(axis), n = tiles(a);
      b.first[axis] = index % n * tile[a];
      b.count[axis] = std::min(tile[a], axes[axis].outputs - b.first[axis]);
      index /= n;
    }
    return b;
  }

  /// Positions of one output plane of a box: its rows, without the halo of the last.
  int64_t positions(const Box& b) const { return (b.count[1] - 1) * pitch() + b.count[2]; }

  /// Offsets of the taps of a correlation, in row-major order, relative to the position of the output.
  std::vector<int64_t> offsets(const Lattice& d, const Lattice& h, const Lattice& w) const {
    std::vector<int64_t> all;
    for (int64_t md = 0; md < d.taps; ++md) {
      const auto pd = axes[0].place(d.input_cell(0, md));
      for (int64_t mh = 0; mh < h.taps; ++mh) {
        const auto ph = axes[1].place(h.input_cell(0, mh));
        for (int64_t mw = 0; mw < w.taps; ++mw) {
          const auto pw = axes[2].place(w.input_cell(0, mw));
          const int64_t in_class =
              (pd.in_class * axes[1].classes() + ph.in_class) * axes[2].classes() + pw.in_class;
          all.push_back((in_class * extent(0) + pd.shift) * plane() + ph.shift * pitch() + pw.shift);
        }
      }
    }
    return all;
  }

  /// 1 or -1 if the taps along W are three that read neighbouring cells, in this direction; else 0.
  int64_t threes(const Lattice& w) const {
    if (w.taps != 3) return 0;
    const auto place = [&](int64_t tap) { return axes[2].place(w.input_cell(0, tap)); };
    const auto a = place(0), b = place(1);
    const int64_t way = b.shift - a.shift;
    return a.in_class == b.in_class && way * way == 1 ? way : 0;
  }
};

/// Cells of any row of an input: `count` of them, from `first` on, `step` apart. Those outside the row count
/// as 0; those inside have the numbers [begin, end).
struct RowCells {
  int64_t first, step, count, begin, end;

  RowCells(int64_t width, int64_t first_cell, int64_t cell_step, int64_t cells)
      : first(first_cell),
        step(cell_step),
        count(cells),
        begin(first >= 0 ? 0 : std::min(count, (-first - 1) / step + 1)),
        end(first >= width ? begin : std::clamp((width - 1 - first) / step + 1, begin, count)) {}
};

template <class S, class T>
void copy_cells(const S* row, const RowCells& cells, T* to) {
  std::fill_n(to, cells.begin, T(0));
  if (cells.begin < cells.end) {  // otherwise the pointer itself could be invalid
    const S* const from = row + cells.first + cells.begin * cells.step;
    T* const inside = to + cells.begin;
    const int64_t n = cells.end - cells.begin;
    if (cells.step == 1)
      convert_run(from, inside, n);
    else if (std::is_same_v<S, T> && cells.step == 2)
      conv_kernels.of<T>().every_second(reinterpret_cast<const T*>(from), n, inside);
    else
      for (int64_t i = 0; i < n; ++i) inside[i] = static_cast<T>(from[i * cells.step]);
  }
  std::fill_n(to + cells.end, cells.count - cells.end, T(0));
}

/// Copies the cells that a box reads, of `channels` channels from `input` on.
template <class S, class T>
void pack_tile(const S* input, int64_t channels, const TileLayout& layout, const TileLayout::Box& box,
               T* to) {
  const auto& [ad, ah, aw] = layout.axes;
  const int64_t extent_d = layout.extent(0), extent_h = layout.extent(1), extent_w = layout.extent(2);
  for (int64_t c = 0; c < channels; ++c, input += ad.input * ah.input * aw.input) {
    for (const int64_t origin_d : ad.origins)
      for (const int64_t origin_h : ah.origins)
        for (const int64_t origin_w : aw.origins) {
          const RowCells cells(aw.input, origin_w + box.first[2] * aw.step, aw.step, extent_w);
          for (int64_t ed = 0; ed < extent_d; ++ed) {
            const int64_t d = origin_d + (box.first[0] + ed) * ad.step;
            if (d < 0 || d >= ad.input) {
              to = std::fill_n(to, layout.plane(), T(0));
              continue;
            }
            for (int64_t eh = 0; eh < extent_h; ++eh, to += layout.pitch()) {
              const int64_t h = origin_h + (box.first[1] + eh) * ah.step;
              // Prefetches the next row. Rows are too short for the hardware to foresee it.
              if (-ah.step <= h && h < ah.input - ah.step && cells.begin < cells.end) {
                const S* const next = input + (d * ah.input + h + ah.step) * aw.input;
                const int64_t last = cells.first + (cells.end - 1) * cells.step;
                for (int64_t w = cells.first + cells.begin * cells.step; w <= last;
                     w += 64 / static_cast<int64_t>(sizeof(S)))
                  __builtin_prefetch(next + w);
              }
              if (h < 0 || h >= ah.input)
                std::fill_n(to, extent_w, T(0));
              else
                copy_cells(input + (d * ah.input + h) * aw.input, cells, to);
            }
            to += extent_w - layout.pitch();  // skips the zeros at the end of the last row
          }
        }
  }
}

/// Memory of this thread that outlives the call, so that tiles do not cause page faults. One block per T and
/// `use`, which begins at a cache line. It is freed when the thread ends. A destructor that runs after that,
/// of another thread_local or a static object, gets a second block.
template <class T, int use>
T* scratch(int64_t count) {
  struct alignas(64) Line {
    T elements[64 / sizeof(T)];
  };
  thread_local std::vector<Line>* memory = nullptr;
  thread_local bool freed = false;
  struct Free {
    ~Free() { delete std::exchange(memory, nullptr), freed = true; }
  };
  if (!memory) {
    memory = new std::vector<Line>;
    if (freed) {
      thread_local Free second;
      static_cast<void>(second);  // begins to exist here
    } else {
      thread_local Free first;
      static_cast<void>(first);
    }
  }
  const size_t lines = static_cast<size_t>(count) / (64 / sizeof(T)) + 1;
  if (memory->size() < lines) memory->resize(lines);
  return memory->data()->elements;
}

}  // namespace vox::cpu
