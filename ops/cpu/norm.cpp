#include <voxgrad/core/parallel.h>
#include <voxgrad/ops/cpu/convert_run.h>
#include <voxgrad/ops/cpu/isa.h>
#include <voxgrad/ops/cpu/simd/normalize.h>
#include <voxgrad/ops/cpu/tasks.h>
#include <voxgrad/ops/cpu/walk.h>
#include <voxgrad/ops/in_f32.h>
#include <voxgrad/ops/layer_kernels.h>
#include <voxgrad/ops/layout.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <vector>

// Norms, their gradient, and var_mean: all take statistics of rows first, and then map the elements.
//
// Order. A row is cut into runs: its dense stretches of elements that share a weight, or, if those are short,
// its pieces. Runs are cut into blocks of 1024 elements. A block is read twice while it is in the first-level
// cache: once for its mean, and once for the sums of the deviations from it (simd/normalize.h). The blocks of
// a row are combined in double, in their order. So the order of the additions depends on the geometry only.
//
// Work. Where there are many rows that fit a core's cache, a task is some rows, and memory is read once.
// Otherwise a task is some blocks, of all rows, and memory is read once per stage.
//
// 16-bit elements are converted to f32 in a buffer of one block.

namespace vox::cpu {
namespace {

using detail::NormGeometry;
using detail::NormStatistics;
using detail::RunningStatistics;

constexpr ByIsa kernels = VOX_BY_ISA(normalize_kernels);

constexpr int64_t block_size = 1024;
constexpr int64_t task_elements = 32768;

/// A dense part of a row.
struct Stretch {
  int64_t row, at, n;  ///< the first element, in x; and the number of elements
  int64_t weight;      ///< the number of its first weight among those of Affine
};

/// i / n and i % n, without a division where n is 1.
struct Division {
  int64_t quotient, rest;
  Division(int64_t i, int64_t n) : quotient(n == 1 ? i : i / n), rest(n == 1 ? 0 : i % n) {}
};

/// The rows of a geometry as runs and blocks. Block b of row r has the number r * blocks + b.
struct Cut {
  NormGeometry g;
  bool per_element;      ///< the weights of a run differ; else a run has one weight
  int64_t run;           ///< elements of a run
  int64_t runs;          ///< of a piece of a row
  int64_t run_blocks;    ///< blocks of a run
  int64_t blocks;        ///< blocks of a row
  int64_t typical_size;  ///< of a block, in elements

  explicit Cut(const NormGeometry& geometry) : g(geometry) {
    constexpr int64_t short_run = 64;
    per_element = g.inner < g.length && g.inner < short_run;
    run = per_element ? g.length : g.inner;
    runs = g.length / run;
    run_blocks = (run + block_size - 1) / block_size;
    blocks = g.pieces * runs * run_blocks;
    typical_size = std::min(run, block_size);
  }

  /// Block b of a row, and up to `most` - 1 more that follow it in its run.
  Stretch stretch(int64_t row, int64_t b, int64_t most = 1) const {
    const Division in_row(b, run_blocks), in_pieces(in_row.quotient, runs);
    const int64_t first = in_row.rest * block_size, group = row < g.groups ? row : row % g.groups;
    return {.row = row,
            .at = (in_pieces.quotient * g.rows + row) * g.length + in_pieces.rest * run + first,
            .n = std::min(run - first, most * block_size),
            .weight = per_element ? group * g.length + first : group * runs + in_pieces.rest};
  }
  /// How many weights Affine has: one for each run of `groups` rows, or for each element of them.
  int64_t weights() const { return g.groups * (per_element ? g.length : runs); }

  /// Whether a task takes whole rows.
  bool by_rows() const {
    constexpr int64_t small_row = 4096, row_in_cache = 1 << 19, many_rows = 16;
    return g.row_size() <= small_row || (g.row_size() <= row_in_cache && g.rows >= many_rows);
  }
  /// Rows of a task. Where tasks have sums of their own, they are at most 64 and take whole groups.
  int64_t task_rows() const {
    constexpr int64_t most_tasks = 64;
    const int64_t rows = std::max<int64_t>(1, task_elements / g.row_size());
    if (!per_element) return rows;
    const int64_t enough = std::max(rows, (g.rows + most_tasks - 1) / most_tasks);
    return (enough + g.groups - 1) / g.groups * g.groups;
  }
  int64_t tasks() const { return by_rows() ? (g.rows + task_rows() - 1) / task_rows() : 1; }
};

/// Calls map(begin, end) for all blocks, in parallel.
template <class Map>
void for_blocks(const Cut& cut, Map map) {
  parallel_for(cut.g.rows * cut.blocks, std::max<int64_t>(1, task_elements / cut.typical_size), map);
}

/// Calls sum(row, block, task) for every block of every row; finish(row) after all blocks of a row; and then
/// map(begin, end) for ranges of its blocks, by their numbers. Calls of one task follow each other, in the
/// order of the rows.
template <class Sum, class Finish, class Map>
void for_rows(const Cut& cut, Sum sum, Finish finish, Map map) {
  const int64_t blocks = cut.blocks, rows = cut.g.rows, groups = cut.g.groups, outer = rows / groups;
  if (cut.by_rows()) {
    const int64_t task_rows = cut.task_rows();
    parallel_for(rows, task_rows, [&](int64_t begin, int64_t end) {
      for (int64_t row = begin; row < end; ++row) {
        for (int64_t b = 0; b < blocks; ++b) sum(row, b, begin / task_rows);
        finish(row);
        map(row * blocks, (row + 1) * blocks);
      }
    });
    return;
  }
  // The rows of one group share weights, so one thread takes a block of each of them.
  for_tasks(groups * blocks, task_elements / (outer * cut.typical_size), [&](int64_t i) {
    for (int64_t o = 0; o < outer; ++o) sum(o * groups + i / blocks, i % blocks, 0);
  });
  for_tasks(rows, task_elements / blocks, finish);
  for_blocks(cut, map);
}

// ---- Elements ---------------------------------------------------------------------------------------------

/// n elements in the type that they are computed in: themselves, or copies in `buffer`.
template <class T, class E>
const T* widened(const E* from, int64_t n, std::array<T, block_size>& buffer) {
  if constexpr (std::is_same_v<T, E>) {
    return from;
  } else {
    convert_run(from, buffer.data(), n);
    return buffer.data();
  }
}

/// Lets write(to) write n elements, in the type that they are computed in.
template <class T, class E, class Write>
void write_rounded(E* to, int64_t n, Write write) {
  if constexpr (std::is_same_v<T, E>) {
    write(to);
  } else {
    std::array<T, block_size> buffer;
    write(buffer.data());
    convert_run(buffer.data(), to, n);
  }
}

/// Calls f(stretch) for the blocks [begin, end), joined where they are one run that needs no buffer.
template <class E, class F>
void for_stretches(const Cut& cut, int64_t begin, int64_t end, F f) {
  for (int64_t row = begin / cut.blocks, b = begin % cut.blocks, left = end - begin; left > 0;) {
    const int64_t of_run = cut.run_blocks - Division(b, cut.run_blocks).rest;
    const int64_t count = is_16_bit_v<E> ? 1 : std::min(of_run, left);
    f(cut.stretch(row, b, count));
    left -= count;
    b += count;
    if (b == cut.blocks) b = 0, ++row;
  }
}

/// Whether a result is written past the cache (Note [Streaming]).
bool streams(const Tensor& y) {
  return !is_16_bit(y.dtype()) && y.numel() * size_of(y.dtype()) >= stream_bytes;
}

/// Weights and biases as numbers of type T, in the order of Stretch::weight.
template <class T>
struct Affine {
  std::vector<T> weight, bias;
  T negative_slope;

  Affine(const Tensor& w, const Tensor& b, const Cut& cut, Activation activation)
      : weight(numbers(w, T(1), cut)),
        bias(numbers(b, T(0), cut)),
        negative_slope(static_cast<T>(activation.negative_slope)) {}

  simd::NormStretch<T> of(const Cut& cut, const Stretch& s, T mean, T rstd) const {
    const auto i = static_cast<size_t>(s.weight);
    return {mean, rstd, &weight[i], &bias[i], cut.per_element, negative_slope};
  }

 private:
  static std::vector<T> numbers(const Tensor& t, T otherwise, const Cut& cut) {
    std::vector<T> list(static_cast<size_t>(cut.weights()), otherwise);
    if (!t.defined()) return list;
    const int64_t repeats = cut.weights() / cut.g.channels();
    const Tensor wide = detail::widened(t);
    for (size_t i = 0; i < list.size(); ++i)
      list[i] = detail::ptr<T>(wide)[static_cast<int64_t>(i) / repeats];
    return list;
  }
};

/// Memory for `count` plain structs, one for each block.
template <class P>
struct Memory {
  Tensor bytes;
  P* data;
  explicit Memory(int64_t count)
      : bytes(empty({count * static_cast<int64_t>(sizeof(P))}, {u8, Device::cpu()})),
        data(static_cast<P*>(bytes.impl()->data())) {}
};

// ---- Statistics -------------------------------------------------------------------------------------------

/// Mean, and sum of squared deviations from it.
struct Moments {
  double mean, squares;
};

template <class E>
Moments moments_of(const E* x, int64_t n) {
  using T = opmath_t<E>;
  std::array<T, block_size> buffer;
  T centre, rest, squares;
  kernels.of<T>().moments(widened<T>(x, n, buffer), n, &centre, &rest, &squares);
  const double away = static_cast<double>(rest) / static_cast<double>(n);  // of the mean from `centre`
  return {static_cast<double>(centre) + away,
          static_cast<double>(squares) - static_cast<double>(rest) * away};
}

/// The moments of a row from those of its blocks.
Moments combined(const Cut& cut, const Moments* of_blocks) {
  Moments m{0, 0};
  const auto size = [&](int64_t b) {
    const int64_t first = Division(b, cut.run_blocks).rest * block_size;
    return static_cast<double>(std::min(cut.run - first, block_size));
  };
  for (int64_t b = 0; b < cut.blocks; ++b) m.mean += size(b) * of_blocks[b].mean;
  m.mean /= static_cast<double>(cut.g.row_size());
  for (int64_t b = 0; b < cut.blocks; ++b) {
    const double away = of_blocks[b].mean - m.mean;
    m.squares += of_blocks[b].squares + size(b) * away * away;
  }
  if (m.squares < 0) m.squares = 0;  // by rounding; NaN stays
  return m;
}

/// Calls finish(row, moments) for all rows, and then map(begin, end) as for_rows() does.
template <class E, class Finish, class Map>
void for_moments(const Cut& cut, const E* x, Finish finish, Map map) {
  const Memory<Moments> moments(cut.g.rows * cut.blocks);
  for_rows(
      cut,
      [&](int64_t row, int64_t b, int64_t) {
        const Stretch s = cut.stretch(row, b);
        moments.data[row * cut.blocks + b] = moments_of(x + s.at, s.n);
      },
      [&](int64_t row) { finish(row, combined(cut, moments.data + row * cut.blocks)); }, map);
}

/// running[row] = (1 - momentum) * running[row] + momentum * value
void blend(const Tensor& running, int64_t row, double momentum, double value) {
  visit_floating_storage("norm", running.dtype(), [&]<class R>(R) {
    R& r = detail::mutable_ptr<R>(running)[row];
    const double old = static_cast<double>(static_cast<opmath_t<R>>(r));
    r = detail::convert<R>(static_cast<opmath_t<R>>((1 - momentum) * old + momentum * value));
  });
}

// ---- Rows of many short pieces ----------------------------------------------------------------------------

/// Whether the pieces of the rows are so short (channels without cells, say) that they are joined first.
bool has_short_pieces(const NormGeometry& g) { return g.pieces > 1 && g.length < 64 && g.inner == g.length; }
NormGeometry joined(const NormGeometry& g) { return {1, g.rows, g.row_size(), g.groups, g.row_size()}; }

Tensor rows_first(const Tensor& t, const NormGeometry& g) {
  return detail::alias(t, t.impl()->offset, {g.rows, g.pieces, g.length}, {g.length, g.rows * g.length, 1});
}
Tensor with_joined_pieces(const Tensor& t, const NormGeometry& g) { return rows_first(t, g).contiguous(); }
/// The memory for a result of with_joined_pieces(); undefined like t.
Tensor for_joined_pieces(const Tensor& t) { return t.defined() ? empty_like(t) : t; }
/// Writes `joined` to t, where its elements belong.
void scatter(const Tensor& joined, const Tensor& t, const NormGeometry& g) {
  copy(joined.reshape({g.rows, g.pieces, g.length}), rows_first(t, g));
}

}  // namespace

void var_mean(const Tensor& x, int64_t reduced_dims, double correction, Tensor& variance, Tensor& mean,
              Tensor& exact_mean) {
  visit_floating_storage("var_mean", x.dtype(), [&]<class E>(E) {
    using T = opmath_t<E>;
    E *variances = detail::mutable_ptr<E>(variance), *means = detail::mutable_ptr<E>(mean);
    T* const exact = exact_mean.defined() ? detail::mutable_ptr<T>(exact_mean) : nullptr;
    const int64_t rows = variance.numel();
    if (x.numel() == 0) {
      const E nan = detail::convert<E>(std::numeric_limits<T>::quiet_NaN());
      std::fill_n(variances, rows, nan);
      std::fill_n(means, rows, nan);
      if (exact) std::fill_n(exact, rows, std::numeric_limits<T>::quiet_NaN());
      return;
    }
    (void)reduced_dims;  // the last ones, so the rows of a dense copy are dense
    const Tensor dense = x.contiguous();
    const int64_t length = x.numel() / rows;
    const double divisor = std::max(0.0, static_cast<double>(length) - correction);
    for_moments(
        Cut({1, rows, length, 1, length}), detail::ptr<E>(dense),
        [&](int64_t row, const Moments& m) {
          variances[row] = detail::convert<E>(static_cast<T>(m.squares / divisor));
          means[row] = detail::convert<E>(static_cast<T>(m.mean));
          if (exact) exact[row] = static_cast<T>(m.mean);
        },
        [](int64_t, int64_t) {});
  });
}

namespace {

/// map(begin, end) of for_rows(): y of these blocks.
template <class E>
auto normalize(const Cut& cut, const Affine<opmath_t<E>>& affine, const Tensor& x, const Tensor& y,
               const NormStatistics& statistics) {
  using T = opmath_t<E>;
  return [&cut, &affine, from = detail::ptr<E>(x), to = detail::mutable_ptr<E>(y),
          means = detail::ptr<T>(statistics.mean), rstds = detail::ptr<T>(statistics.rstd),
          apply = kernels.of<T>().apply, stream = streams(y)](int64_t begin, int64_t end) {
    for_stretches<E>(cut, begin, end, [&](const Stretch& s) {
      std::array<T, block_size> buffer;
      const T* elements = widened<T>(from + s.at, s.n, buffer);
      const auto stretch = affine.of(cut, s, means[s.row], rstds[s.row]);
      write_rounded<T>(to + s.at, s.n, [&](T* write) { apply(elements, stretch, write, s.n, stream); });
    });
    if (stream) finish_streaming();
  };
}

}  // namespace

void norm(const Tensor& x, const NormGeometry& g, const Tensor& weight, const Tensor& bias, double eps,
          Activation activation, Tensor& y, NormStatistics& statistics, RunningStatistics& running) {
  if (has_short_pieces(g)) {
    Tensor result = for_joined_pieces(y);
    norm(with_joined_pieces(x, g), joined(g), weight, bias, eps, activation, result, statistics, running);
    return scatter(result, y, g);
  }
  visit_floating_storage("norm", x.dtype(), [&]<class E>(E) {
    using T = opmath_t<E>;
    const Cut cut(g);
    const Affine<T> affine(weight, bias, cut, activation);
    T *means = detail::mutable_ptr<T>(statistics.mean), *rstds = detail::mutable_ptr<T>(statistics.rstd);
    const auto size = static_cast<double>(g.row_size());
    for_moments(
        cut, detail::ptr<E>(x),
        [&](int64_t row, const Moments& m) {
          means[row] = static_cast<T>(m.mean);
          rstds[row] = static_cast<T>(1 / std::sqrt(m.squares / size + eps));
          if (!running.mean.defined()) return;
          blend(running.mean, row, running.momentum, m.mean);
          blend(running.variance, row, running.momentum, m.squares / (size - 1));
        },
        normalize<E>(cut, affine, x, y, statistics));
  });
}

void norm_with(const Tensor& x, const NormGeometry& g, const Tensor& weight, const Tensor& bias,
               const NormStatistics& statistics, Activation activation, Tensor& y) {
  if (has_short_pieces(g)) {
    Tensor result = for_joined_pieces(y);
    norm_with(with_joined_pieces(x, g), joined(g), weight, bias, statistics, activation, result);
    return scatter(result, y, g);
  }
  visit_floating_storage("norm_with", x.dtype(), [&]<class E>(E) {
    const Cut cut(g);
    const Affine<opmath_t<E>> affine(weight, bias, cut, activation);
    for_blocks(cut, normalize<E>(cut, affine, x, y, statistics));
  });
}

// ---- Gradient ---------------------------------------------------------------------------------------------
//
// With h the gradient of z, xhat = (x - mean) rstd, and means over a row:
//
//   grad_x = rstd (h weight - mean(h weight) - xhat mean(h weight xhat))
//   grad_weight = sum(h xhat),  grad_bias = sum(h)

namespace {

/// The sums of h and of h * (x - mean), of h * weight where the weights of a run differ.
struct Sums {
  double sum, product;
};

/// t[i] = values[i], rounded; nothing if t is undefined.
void store_rounded(const Tensor& t, const std::vector<double>& values) {
  if (!t.defined()) return;
  visit_floating_storage("norm_gradient", t.dtype(), [&]<class W>(W) {
    std::transform(values.begin(), values.end(), detail::mutable_ptr<W>(t),
                   [](double v) { return detail::convert<W>(static_cast<opmath_t<W>>(v)); });
  });
}

}  // namespace

void norm_gradient(const Tensor& grad_y, const Tensor& x, const NormGeometry& g, const Tensor& weight,
                   const Tensor& bias, const NormStatistics& statistics, bool of_x, Activation activation,
                   Tensor& grad_x, Tensor& grad_weight, Tensor& grad_bias) {
  if (has_short_pieces(g)) {
    Tensor result = for_joined_pieces(grad_x);
    norm_gradient(with_joined_pieces(grad_y, g), with_joined_pieces(x, g), joined(g), weight, bias,
                  statistics, of_x, activation, result, grad_weight, grad_bias);
    if (grad_x.defined()) scatter(result, grad_x, g);
    return;
  }
  visit_floating_storage("norm_gradient", x.dtype(), [&]<class E>(E) {
    using T = opmath_t<E>;
    const Cut cut(g);
    const Affine<T> affine(weight, bias, cut, activation);
    const E *gs = detail::ptr<E>(grad_y), *xs = detail::ptr<E>(x);
    E* to = grad_x.defined() ? detail::mutable_ptr<E>(grad_x) : nullptr;
    const T *means = detail::ptr<T>(statistics.mean), *rstds = detail::ptr<T>(statistics.rstd);
    const auto& kernel = kernels.of<T>();
    const bool stream = to && streams(grad_x), of_weights = grad_weight.defined() || grad_bias.defined();

    const Memory<Sums> sums(g.rows * cut.blocks);
    std::vector<Sums> of_rows(static_cast<size_t>(g.rows));  // mean(h weight), and rstd^2 mean(.. (x - mean))
    const int64_t columns = cut.per_element && of_weights ? cut.weights() : 0;
    // For each task the sums of h xhat and of h over its rows, where the weights of a run differ.
    std::vector<T> by_task(static_cast<size_t>(2 * cut.tasks() * columns));

    const auto sum = [&](int64_t row, int64_t b, int64_t task) {
      const Stretch s = cut.stretch(row, b);
      std::array<T, block_size> g_buffer, x_buffer;
      const T *gw = widened<T>(gs + s.at, s.n, g_buffer), *xw = widened<T>(xs + s.at, s.n, x_buffer);
      const auto stretch = affine.of(cut, s, means[s.row], rstds[s.row]);
      T total, product;
      kernel.gradient_sums(gw, xw, stretch, s.n, &total, &product);
      sums.data[row * cut.blocks + b] = {static_cast<double>(total), static_cast<double>(product)};
      if (columns == 0) return;
      T* const of_weight = by_task.data() + 2 * task * columns + s.weight;
      kernel.column_sums(gw, xw, stretch, s.n, of_weight, of_weight + columns);
    };
    const auto finish = [&](int64_t row) {
      Sums total{0, 0};
      for (int64_t b = 0; b < cut.blocks; ++b) {
        const Sums& of_block = sums.data[row * cut.blocks + b];
        const auto i = static_cast<size_t>(cut.stretch(row, b).weight);
        const double w = cut.per_element ? 1 : static_cast<double>(affine.weight[i]);
        total.sum += w * of_block.sum;
        total.product += w * of_block.product;
      }
      const auto size = static_cast<double>(g.row_size()), rstd = static_cast<double>(rstds[row]);
      of_rows[static_cast<size_t>(row)] = {total.sum / size, total.product / size * rstd * rstd};
    };
    const auto map = [&](int64_t begin, int64_t end) {
      if (!to) return;
      for_stretches<E>(cut, begin, end, [&](const Stretch& s) {
        std::array<T, block_size> g_buffer, x_buffer;
        const T *gw = widened<T>(gs + s.at, s.n, g_buffer), *xw = widened<T>(xs + s.at, s.n, x_buffer);
        const auto stretch = affine.of(cut, s, means[s.row], rstds[s.row]);
        const Sums& of_row = of_rows[static_cast<size_t>(s.row)];
        write_rounded<T>(to + s.at, s.n, [&](T* write) {
          kernel.gradient(gw, xw, stretch, of_x, static_cast<T>(of_row.sum), static_cast<T>(of_row.product),
                          write, s.n, stream);
        });
      });
      if (stream) finish_streaming();
    };
    if (!of_x && !of_weights) return for_blocks(cut, map);
    for_rows(cut, sum, finish, map);
    if (!of_weights) return;

    std::vector<double> of_weight(static_cast<size_t>(g.channels())), of_bias(of_weight.size());
    const int64_t repeats = cut.weights() / g.channels();
    for (int64_t i = 0; i < cut.tasks() * columns; ++i) {
      const int64_t task = i / columns, column = i % columns;
      const T* const at = by_task.data() + 2 * task * columns + column;
      of_weight[static_cast<size_t>(column / repeats)] += static_cast<double>(at[0]);
      of_bias[static_cast<size_t>(column / repeats)] += static_cast<double>(at[columns]);
    }
    for (int64_t row = 0; !cut.per_element && row < g.rows; ++row) {
      for (int64_t b = 0; b < cut.blocks; ++b) {
        const auto i = static_cast<size_t>(cut.stretch(row, b).weight);
        const Sums& of_block = sums.data[row * cut.blocks + b];
        of_weight[i] += of_block.product * static_cast<double>(rstds[row]);
        of_bias[i] += of_block.sum;
      }
    }
    store_rounded(grad_weight, of_weight);
    store_rounded(grad_bias, of_bias);
  });
}

}  // namespace vox::cpu
