// The gradient of the weights: dot products between rows of `small` and shifted rows of `big`.
//
// `big` is cut into tiles (Note [Tiles]). `small` is copied with the same row length, and zeros where the
// flat plane of `big` has its halo. A task owns a block of the weights (channels of small x channels of big,
// all taps) over a range of the tiles. simd's contract() keeps some sums at a time in registers. The shapes
// alone determine blocks, ranges and the order in which ranges are added up.

#include <voxgrad/core/factories.h>
#include <voxgrad/core/parallel.h>
#include <voxgrad/ops/cpu/conv3d/blocking.h>
#include <voxgrad/ops/cpu/conv3d/tile.h>
#include <voxgrad/ops/cpu/conv3d/ways.h>

#include <atomic>

namespace vox::cpu {
namespace {

constexpr int64_t most_rows = 64, most_columns = 128;  // channels of small, and of big, in a block
constexpr double most_sums = 80e3;                     // of a block, which stay in the second-level cache
constexpr int64_t tile_bytes = 384 * 1024;             // of a tile of big
constexpr int64_t first_cache = 48 * 1024;  // for the rows of small whose sums are in registers; measured
constexpr int64_t partial_bytes = 32 * 1024 * 1024;  // for the sums of all ranges except the first
constexpr int64_t tasks_wanted = 32;

int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

template <class S, class T>
class Run {
 public:
  Run(const S* big, const S* small, S* dweight, const Conv3dGeometry& g)
      : big_(big), small_(small), dweight_(dweight), g_(g), simd_(conv_kernels.of<T>()) {}

  bool run() {
    if (!plan()) return false;
    const int64_t numel = g_.small_channels * g_.big_per_group() * g_.taps(), tasks = owners_ * ranges_;
    const Tensor memory = empty({ranges_ * numel}, {.dtype = dtype_of<T>()});
    T* partial = detail::mutable_ptr<T>(memory);
    parallel_for(tasks, 1, [&](int64_t begin, int64_t end) {
      for (int64_t t = begin; t < end; ++t) task(t / ranges_, t % ranges_, partial + t % ranges_ * numel);
    });
    if (!finite_) return false;
    parallel_for(numel, 1 << 11, [&](int64_t begin, int64_t end) {
      T* sum = partial;
      for (int64_t range = 1; range < ranges_; ++range)
        for (int64_t i = begin; i < end; ++i) sum[i] += partial[range * numel + i];
      for (int64_t i = begin; i < end; ++i) dweight_[i] = static_cast<S>(sum[i]);
    });
    return true;
  }

 private:
  bool plan() {
    const Lattices lattices = conv3d_lattices(g_);
    for (size_t a = 0; a < 3; ++a) layout_.axes[a] = TileAxis::smaller({lattices[a]});
    row_blocks_ = ceil_div(g_.small_per_group(), most_rows);
    const auto rows = static_cast<double>(ceil_div(g_.small_per_group(), row_blocks_));
    // With fewer channels of big in a block, its tile holds more positions, and sums are folded less often.
    TileChoice best;
    for (int64_t most = most_columns; most > 0; most /= 2) {
      const int64_t blocks = ceil_div(g_.big_per_group(), most), owners = g_.groups * row_blocks_ * blocks;
      const auto channels = static_cast<double>(ceil_div(g_.big_per_group(), blocks));
      const double sums = rows * channels * static_cast<double>(g_.taps());
      if (sums > most_sums && most > 1) continue;
      const TileChoice choice =
          choose_tile(layout_.axes, {.channels = channels,
                                     .products = sums,
                                     .per_position = 0.3 * rows,
                                     .per_plane = 0,
                                     .per_tile = 3000 + 4 * sums,
                                     .element = sizeof(T),
                                     .bytes = tile_bytes,
                                     .positions = first_cache / simd_.rows / static_cast<int64_t>(sizeof(T)),
                                     .copies = static_cast<double>(g_.batch * owners)});
      if (choice && (!best || choice.cost < best.cost)) {
        best = choice;
        column_blocks_ = blocks;
        owners_ = owners;
      }
    }
    if (!best) return false;
    layout_.tile = best.tile;
    const int64_t tiles = std::max<int64_t>(g_.batch * layout_.tiles(), 1);
    const int64_t bytes =
        g_.small_channels * g_.big_per_group() * g_.taps() * static_cast<int64_t>(sizeof(T));
    ranges_ =
        std::clamp<int64_t>(ceil_div(tasks_wanted, owners_), 1, std::min(tiles, partial_bytes / bytes + 1));
    const std::vector<int64_t> taps = layout_.offsets(lattices[0], lattices[1], lattices[2]);
    for (int64_t c = 0; c < ceil_div(g_.big_per_group(), column_blocks_); ++c)
      for (const int64_t tap : taps) offsets_.push_back(c * layout_.channel() + tap);
    return true;
  }

  /// Computes the sums of one block of the weights over one range of all tiles. `dw` has the shape of the
  /// weight.
  void task(int64_t owner, int64_t range, T* dw) {
    const int64_t group = owner / column_blocks_ / row_blocks_;
    const int64_t row_block = owner / column_blocks_ % row_blocks_, column_block = owner % column_blocks_;
    const int64_t row = cut(g_.small_per_group(), row_blocks_, row_block),
                  rows = cut(g_.small_per_group(), row_blocks_, row_block + 1) - row,
                  channel = cut(g_.big_per_group(), column_blocks_, column_block),
                  channels = cut(g_.big_per_group(), column_blocks_, column_block + 1) - channel;
    const int64_t step = g_.big_per_group() * g_.taps();
    dw += (group * g_.small_per_group() + row) * step + channel * g_.taps();
    T* sums = scratch<T, 5>(rows * channels * g_.taps());
    std::fill_n(sums, rows * channels * g_.taps(), T(0));
    const int64_t tiles = g_.batch * layout_.tiles();
    for (int64_t t = cut(tiles, ranges_, range); t < cut(tiles, ranges_, range + 1) && finite_; ++t) {
      const int64_t n = t / layout_.tiles();
      const S* small =
          small_ + (n * g_.small_channels + group * g_.small_per_group() + row) * g_.small_cells();
      const S* big = big_ + (n * g_.big_channels + group * g_.big_per_group() + channel) * g_.big_cells();
      add_tile(layout_.box(t % layout_.tiles()), small, rows, big, channels, sums);
    }
    simd_.order_sums(sums, rows, channels * g_.taps(), dw, step);
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
    if (!all_finite(x, channels * channel) || !all_finite(s, rows * row)) finite_ = false;
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
          copy_row(from, width, row);
          std::fill(row + width, h + 1 < box.count[1] ? row + pitch : to + plane, T(0));
        }
      }
  }

  const S *big_, *small_;
  S* dweight_;
  const Conv3dGeometry& g_;
  const simd::ConvKernelsOf<T>& simd_;
  TileLayout layout_;
  int64_t row_blocks_ = 1, column_blocks_ = 1, owners_ = 1, ranges_ = 1;
  std::vector<int64_t> offsets_;  // of (channel of big, tap)
  std::atomic<bool> finite_ = true;
};

}  // namespace

template <class S, class T>
bool weight_grad_by_tiles(const S* big, const S* small, S* dweight, const Conv3dGeometry& g) {
  return Run<S, T>(big, small, dweight, g).run();
}

template bool weight_grad_by_tiles<float, float>(const float*, const float*, float*, const Conv3dGeometry&);
template bool weight_grad_by_tiles<double, double>(const double*, const double*, double*,
                                                   const Conv3dGeometry&);
template bool weight_grad_by_tiles<bfloat16, float>(const bfloat16*, const bfloat16*, bfloat16*,
                                                    const Conv3dGeometry&);
template bool weight_grad_by_tiles<float16, float>(const float16*, const float16*, float16*,
                                                   const Conv3dGeometry&);

}  // namespace vox::cpu
