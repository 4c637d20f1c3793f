// The conv3d family as matrix products. A tile of outputs owns a piece of the patch matrix (row: channel and
// tap, column: output) that stays in the cache:
//
//   output[c, tile] = bias[c] + weight[c, (channel, tap)] * patches[(channel, tap), tile]
//   dweight[c, (channel, tap)] = sum over tiles of small[c, tile] * patches[(channel, tap), tile]^T
//
// Threads own tiles, or blocks of dweight; the order of every sum follows from the shapes. Next idea: a
// micro-kernel that reads rows of the input itself, without patches.

#include <voxgrad/core/parallel.h>
#include <voxgrad/ops/conv3d_kernels.h>
#include <voxgrad/ops/cpu/conv3d_patches.h>

#include <Eigen/Core>

#include <algorithm>

namespace vox::cpu {

namespace {

template <class T>
using Matrix = Eigen::Matrix<T, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;
template <class T>
using Map = Eigen::Map<Matrix<T>, Eigen::Unaligned, Eigen::OuterStride<>>;
template <class T>
using ConstMap = Eigen::Map<const Matrix<T>, Eigen::Unaligned, Eigen::OuterStride<>>;

int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

/// How the patch matrix is cut: `tile` columns and `channels` channels of `taps` rows at a time.
struct Blocking {
  int64_t tile, channels;

  // 256 KiB of patches leave room in a 512 KiB cache for the other operand. 256 columns are enough to pay for
  // packing the weights once per tile, and leave tiles for all threads on a 16^3 grid.
  template <class T>
  static Blocking of(int64_t outputs, int64_t channels, int64_t taps, int64_t rows) {
    constexpr int64_t budget = 256 * 1024 / sizeof(T);
    const int64_t widest = std::max<int64_t>(16, budget / std::max(taps, rows));
    const int64_t tile = std::min({outputs, widest, int64_t{256}});
    return {tile, std::clamp<int64_t>(budget / (tile * std::max<int64_t>(taps, 1)), 1, channels)};
  }
};

// Taps beyond which one channel's patches of the smallest tile no longer fit the cache.
constexpr int64_t most_taps = 4096;

/// A zero of the halo times a non-finite operand would be NaN where the definition has no product at all.
bool all_finite(const Tensor& t) {
  return visit_floating("conv3d", t.dtype(), [&]<class T>(T) {
    return Eigen::Map<const Eigen::Array<T, Eigen::Dynamic, 1>>(detail::ptr<T>(t), t.numel()).allFinite();
  });
}

/// Memory of this thread that outlives the call, so that no tile pays for fresh pages.
template <class T>
T* scratch(int64_t count) {
  thread_local std::vector<T> memory;
  if (memory.size() < static_cast<size_t>(count)) memory.resize(static_cast<size_t>(count));
  return memory.data();
}

/// Either forward op, seen from its output.
template <class T>
struct Correlation {
  const T *input, *weight, *bias;
  T* output;
  int64_t batch, groups;
  int64_t in_channels, out_channels;                        // per group
  int64_t weight_per_in, weight_per_out, weight_per_group;  // steps in the weight
  Triple kernel;

  /// The weights of `channels` channels from `first` on, as the left factor: row output channel.
  void pack_weights(int64_t group, int64_t first, int64_t channels, const Lattices& l, T* to) const {
    for (int64_t out = 0; out < out_channels; ++out) {
      for (int64_t in = first; in < first + channels; ++in) {
        const T* w = weight + group * weight_per_group + out * weight_per_out + in * weight_per_in;
        for (int64_t md = 0; md < l[0].taps; ++md) {
          for (int64_t mh = 0; mh < l[1].taps; ++mh) {
            const int64_t kd = l[0].tap_first + md * l[0].tap_step, kh = l[1].tap_first + mh * l[1].tap_step;
            const T* row = w + (kd * kernel.h + kh) * kernel.w + l[2].tap_first;
            for (int64_t mw = 0; mw < l[2].taps; ++mw) *to++ = row[mw * l[2].tap_step];
          }
        }
      }
    }
  }

  /// Adds the bias and puts a finished tile into the output.
  void store(const Tile& tile, const Lattices& l, int64_t n, int64_t group, const T* result) const {
    for (int64_t out = 0; out < out_channels; ++out, result += tile.size()) {
      const int64_t channel = group * out_channels + out;
      const T b = bias ? bias[channel] : T(0);
      T* to = output + (n * groups * out_channels + channel) * l[0].output * l[1].output * l[2].output;
      for (const Tile::Run& run : tile.runs()) {
        const int64_t d = l[0].out_first + run.d * l[0].out_step, h = l[1].out_first + run.h * l[1].out_step;
        T* row = to + (d * l[1].output + h) * l[2].output + l[2].out_first + run.w * l[2].out_step;
        for (int64_t j = 0; j < run.length; ++j) row[j * l[2].out_step] = result[run.at + j] + b;
      }
    }
  }

  void run_tile(const Tile& tile, const Lattices& l, const Blocking& block, int64_t n, int64_t group) const {
    const int64_t taps = l[0].taps * l[1].taps * l[2].taps, depth = block.channels * taps;
    T* patches = scratch<T>((depth + out_channels) * tile.size() + out_channels * depth);
    T* result = patches + depth * tile.size();
    T* weights = result + out_channels * tile.size();
    Map<T> y(result, out_channels, tile.size(), Eigen::OuterStride<>(tile.size()));
    y.setZero();
    const int64_t input_cells = l[0].input * l[1].input * l[2].input;
    for (int64_t c = 0; taps > 0 && c < in_channels; c += block.channels) {
      const int64_t channels = std::min(block.channels, in_channels - c), k = channels * taps;
      gather_patches(input + ((n * groups + group) * in_channels + c) * input_cells, channels, l, tile,
                     patches);
      pack_weights(group, c, channels, l, weights);
      y.noalias() += ConstMap<T>(weights, out_channels, k, Eigen::OuterStride<>(k)) *
                     ConstMap<T>(patches, k, tile.size(), Eigen::OuterStride<>(tile.size()));
    }
    store(tile, l, n, group, result);
  }

  /// All outputs of the three lattices.
  void run(const Lattices& l) const {
    const int64_t outputs = l[0].outputs * l[1].outputs * l[2].outputs;
    const int64_t taps = l[0].taps * l[1].taps * l[2].taps;
    const Blocking block = Blocking::of<T>(outputs, in_channels, taps, out_channels);
    const int64_t tiles = ceil_div(outputs, block.tile);
    const int64_t work = in_channels * std::max<int64_t>(taps, 1) * block.tile * (out_channels + 4);
    const int64_t grain = std::max<int64_t>(1, (1 << 18) / work);
    parallel_for(batch * groups * tiles, grain, [&](int64_t begin, int64_t end) {
      for (int64_t t = begin; t < end; ++t) {
        const int64_t first = t % tiles * block.tile, image = t / tiles;
        const Tile tile(l, first, std::min(first + block.tile, outputs));
        run_tile(tile, l, block, image / groups, image % groups);
      }
    });
  }
};

/// dweight in blocks of (group, channels of big), each summed over fixed ranges of tiles and then over these.
template <class T>
void weight_grad(const T* big, const T* small, T* dweight, const Conv3dGeometry& g) {
  const Lattices l = conv3d_lattices(g);
  const int64_t cells = g.small_cells(), taps = g.taps(), rows = g.small_per_group();
  const Blocking block = Blocking::of<T>(cells, g.big_per_group(), taps, rows);
  const int64_t tiles = ceil_div(cells, block.tile), all_tiles = g.batch * tiles;
  const int64_t blocks = ceil_div(g.big_per_group(), block.channels), owners = g.groups * blocks;
  // Ranges of tiles give threads something to do where there are few owners. 16 suit the processors of a
  // desktop; more would only cost memory.
  const int64_t ranges = std::clamp<int64_t>(16 / owners, 1, std::max<int64_t>(all_tiles, 1));
  const int64_t numel = g.small_channels * g.big_per_group() * taps, row_step = g.big_per_group() * taps;
  std::vector<T> partial(static_cast<size_t>((ranges - 1) * numel));

  parallel_for(owners * ranges, 1, [&](int64_t begin, int64_t end) {
    for (int64_t task = begin; task < end; ++task) {
      const int64_t range = task % ranges, group = task / ranges / blocks,
                    c = task / ranges % blocks * block.channels;
      const int64_t channels = std::min(block.channels, g.big_per_group() - c), k = channels * taps;
      T* to =
          (range == 0 ? dweight : partial.data() + (range - 1) * numel) + group * rows * row_step + c * taps;
      Map<T> dw(to, rows, k, Eigen::OuterStride<>(row_step));
      dw.setZero();
      T* patches = scratch<T>(k * block.tile);
      for (int64_t t = all_tiles * range / ranges; t < all_tiles * (range + 1) / ranges; ++t) {
        const int64_t n = t / tiles, first = t % tiles * block.tile;
        const Tile tile(l, first, std::min(first + block.tile, cells));
        gather_patches(big + ((n * g.groups + group) * g.big_per_group() + c) * g.big_cells(), channels, l,
                       tile, patches);
        const T* y = small + (n * g.groups + group) * rows * cells + first;
        dw.noalias() += ConstMap<T>(y, rows, tile.size(), Eigen::OuterStride<>(cells)) *
                        ConstMap<T>(patches, k, tile.size(), Eigen::OuterStride<>(tile.size())).transpose();
      }
    }
  });
  for (int64_t range = 1; range < ranges; ++range) {
    const T* from = partial.data() + (range - 1) * numel;
    for (int64_t i = 0; i < numel; ++i) dweight[i] += from[i];
  }
}

/// Sum of every channel over batch and cells, in double.
template <class T>
void bias_grad(const T* grad, T* dbias, int64_t batch, int64_t channels, int64_t cells) {
  parallel_for(channels, 1, [&](int64_t begin, int64_t end) {
    for (int64_t c = begin; c < end; ++c) {
      double sum = 0;
      for (int64_t n = 0; n < batch; ++n) {
        const T* from = grad + (n * channels + c) * cells;
        for (int64_t i = 0; i < cells; ++i) sum += static_cast<double>(from[i]);
      }
      dbias[c] = static_cast<T>(sum);
    }
  });
}

template <class T>
const T* ptr_or_null(const Tensor& t) {
  return t.defined() ? detail::ptr<T>(t) : nullptr;
}

}  // namespace

void conv3d(const Tensor& big, const Tensor& weight, const Tensor& bias, Tensor& small, Conv3dGeometry g,
            Float32Precision) {
  if (g.taps() > most_taps || !all_finite(weight)) return conv3d_direct(big, weight, bias, small, g);
  visit_floating("conv3d", big.dtype(), [&]<class T>(T) {
    const Correlation<T> correlation{.input = detail::ptr<T>(big),
                                     .weight = detail::ptr<T>(weight),
                                     .bias = ptr_or_null<T>(bias),
                                     .output = detail::mutable_ptr<T>(small),
                                     .batch = g.batch,
                                     .groups = g.groups,
                                     .in_channels = g.big_per_group(),
                                     .out_channels = g.small_per_group(),
                                     .weight_per_in = g.taps(),
                                     .weight_per_out = g.big_per_group() * g.taps(),
                                     .weight_per_group = g.small_per_group() * g.big_per_group() * g.taps(),
                                     .kernel = g.kernel};
    correlation.run(conv3d_lattices(g));
  });
}

void conv_transpose3d(const Tensor& small, const Tensor& weight, const Tensor& bias, Tensor& big,
                      Conv3dGeometry g, Float32Precision) {
  if (g.taps() > most_taps || !all_finite(weight))
    return conv_transpose3d_direct(small, weight, bias, big, g);
  visit_floating("conv_transpose3d", small.dtype(), [&]<class T>(T) {
    const Correlation<T> correlation{.input = detail::ptr<T>(small),
                                     .weight = detail::ptr<T>(weight),
                                     .bias = ptr_or_null<T>(bias),
                                     .output = detail::mutable_ptr<T>(big),
                                     .batch = g.batch,
                                     .groups = g.groups,
                                     .in_channels = g.small_per_group(),
                                     .out_channels = g.big_per_group(),
                                     .weight_per_in = g.big_per_group() * g.taps(),
                                     .weight_per_out = g.taps(),
                                     .weight_per_group = g.small_per_group() * g.big_per_group() * g.taps(),
                                     .kernel = g.kernel};
    const auto depth = conv_transpose3d_lattices(g, 0), height = conv_transpose3d_lattices(g, 1),
               width = conv_transpose3d_lattices(g, 2);
    for (const Lattice& d : depth)
      for (const Lattice& h : height)
        for (const Lattice& w : width) correlation.run({d, h, w});
  });
}

void conv3d_weight_grad(const Tensor& big, const Tensor& small, Tensor& dweight, Tensor& dbias, Grid bias_of,
                        Conv3dGeometry g, Float32Precision) {
  visit_floating("conv3d_weight_grad", big.dtype(), [&]<class T>(T) {
    if (g.taps() > most_taps || !all_finite(small))
      conv3d_weight_grad_direct(big, small, dweight, g);
    else
      weight_grad(detail::ptr<T>(big), detail::ptr<T>(small), detail::mutable_ptr<T>(dweight), g);
    if (dbias.defined()) {
      const bool of_big = bias_of == Grid::big;
      bias_grad(detail::ptr<T>(of_big ? big : small), detail::mutable_ptr<T>(dbias), g.batch,
                of_big ? g.big_channels : g.small_channels, of_big ? g.big_cells() : g.small_cells());
    }
  });
}

}  // namespace vox::cpu
