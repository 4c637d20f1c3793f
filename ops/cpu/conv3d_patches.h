#pragma once

#include <algorithm>
#include <vector>

#include <voxgrad/ops/cpu/conv3d_lattice.h>

namespace vox::cpu {

/// A tile: a range of a lattice's outputs in row-major order, cut into runs along W.
class Tile {
 public:
  struct Run {
    int64_t d, h, w;  ///< its first output
    int64_t length;
    int64_t at;  ///< its place in the tile
  };

  Tile(const Lattices& lattices, int64_t begin, int64_t end) : size_(end - begin) {
    const int64_t height = lattices[1].outputs, width = lattices[2].outputs;
    for (int64_t t = begin; t < end;) {
      const int64_t w = t % width, length = std::min(width - w, end - t);
      runs_.push_back({t / width / height, t / width % height, w, length, t - begin});
      t += length;
    }
  }

  int64_t size() const { return size_; }
  const std::vector<Run>& runs() const { return runs_; }

 private:
  int64_t size_;
  std::vector<Run> runs_;
};

/// Copies the cells that tap m reads for the outputs of `run` along W; zero outside the input.
template <class T>
void gather_run(const T* row, const Lattice& lattice, Lattice::Range inside, int64_t m, const Tile::Run& run,
                T* to) {
  const int64_t end = run.w + run.length;
  const int64_t first = std::clamp(inside.first, run.w, end), last = std::clamp(inside.last, first, end);
  to = std::fill_n(to, first - run.w, T(0));
  if (first < last) {  // else the cell may be far outside, where not even a pointer may go
    const T* from = row + lattice.input_cell(first, m);
    if (lattice.in_step == 1)
      to = std::copy_n(from, last - first, to);
    else
      for (int64_t j = first; j < last; ++j, ++to) *to = from[(j - first) * lattice.in_step];
  }
  std::fill_n(to, end - last, T(0));
}

/// The patch matrix of a tile: row (channel, tap), column output; `channels` channels from `input` on.
template <class T>
void gather_patches(const T* input, int64_t channels, const Lattices& lattices, const Tile& tile,
                    T* patches) {
  const auto& [ld, lh, lw] = lattices;
  std::vector<Lattice::Range> inside;
  for (int64_t m = 0; m < lw.taps; ++m) inside.push_back(lw.inside(m));
  for (int64_t c = 0; c < channels; ++c, input += ld.input * lh.input * lw.input) {
    for (int64_t md = 0; md < ld.taps; ++md) {
      for (int64_t mh = 0; mh < lh.taps; ++mh, patches += lw.taps * tile.size()) {
        for (const Tile::Run& run : tile.runs()) {
          const int64_t d = ld.input_cell(run.d, md), h = lh.input_cell(run.h, mh);
          const bool outside = d < 0 || d >= ld.input || h < 0 || h >= lh.input;
          for (int64_t mw = 0; mw < lw.taps; ++mw) {
            T* to = patches + mw * tile.size() + run.at;
            if (outside)
              std::fill_n(to, run.length, T(0));
            else
              gather_run(input + (d * lh.input + h) * lw.input, lw, inside[static_cast<size_t>(mw)], mw, run,
                         to);
          }
        }
      }
    }
  }
}

}  // namespace vox::cpu
