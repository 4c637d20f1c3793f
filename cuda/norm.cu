#include <voxgrad/core/dtype.h>
#include <voxgrad/ops/kernels.h>
#include <voxgrad/ops/reduce_ops.h>
#include <voxgrad/cuda/rows.cuh>

// Batch, instance, group and layer norm as formulas of Note [Rows]. With r = rstd, h = (x - mean) * r, z = h
// * weight
// + bias and g' = g * activation'(z):
//
//   y           = activation(z)
//   grad_x      = r * (g' * weight - s / n - h * t / n)    s, t: sums of g' * weight and of g' * weight * h
//   over a row grad_weight = the sum of g' * h over a channel         (without s and t if the statistics are
//   constants) grad_bias   = the sum of g'
//
// z is computed again from x, by the same instructions, rather than kept.
//
// The variance is the sum of (x - shift) and its square, where the shift is a thread's first element; then
// VarMeanOp combines the threads. Neither cancels if the mean is large.
//
// Where the weights' gradients come from:
//   batch norm     a row is a channel: finish() writes them
//   instance norm  a row is a channel of one sample: a small launch adds those of all samples
//   group norm     (inner > 1) the same of rows (sample, channel); a group's s and t are the weighted sums of
//   its
//                  channels', so they cost no further pass
//   layer norm     (inner == 1) columns over all rows, another pass

namespace vox::cuda {
namespace {

/// Dense elements of T or of opmath_t<T>; or none.
template <class T>
struct Parameter {
  using A = opmath_t<T>;
  void* data;
  bool wide;

  explicit Parameter(const Tensor& t)
      : data(t.defined() ? t.impl()->data() : nullptr), wide(t.defined() && t.dtype() == dtype_of<A>()) {}
  __device__ A get(int64_t i, A otherwise) const {
    if (!data) return otherwise;
    return wide ? static_cast<const A*>(data)[i] : A(static_cast<const T*>(data)[i]);
  }
  __device__ void set(int64_t i, A value) const {
    if (!data) return;
    if (wide)
      static_cast<A*>(data)[i] = value;
    else
      static_cast<T*>(data)[i] = T(value);
  }
};

/// s and t, or the same without the weight.
template <class A>
struct Pair {
  A g, gh;

  static __device__ Pair none() { return {0, 0}; }
  static __device__ Pair combine(Pair a, Pair b) { return {a.g + b.g, a.gh + b.gh}; }
};

template <class A>
struct Affine {
  A mean, rstd, weight, bias;

  __device__ A h(A x) const { return (x - mean) * rstd; }
};

template <class A>
struct Slope {
  A below;  // z = 0

  __device__ A value(A z) const { return z < 0 ? (below == 0 ? A(0) : below * z) : z; }
  /// NaN keeps the gradient of relu, as in the op of its own.
  __device__ A gradient(A z, A g) const {
    if (below == 0) return z <= 0 ? A(0) : g;
    return z > 0 ? g : below * g;
  }
};

/// Weight and bias of an element.
template <class A>
struct Channel {
  A weight, bias;
};

/// What all formulas of norms share. If `per_cell`, the channel varies within a row.
template <class Element, bool per_cell>
struct NormRows {
  using T = Element;
  using A = opmath_t<T>;
  using Cell = std::conditional_t<per_cell, Channel<A>, Nothing>;

  detail::NormGeometry g;
  Parameter<T> weight, bias;
  Slope<A> activation;

  NormRows(const detail::NormGeometry& g, const Tensor& weight, const Tensor& bias, Activation activation)
      : g(g), weight(weight), bias(bias), activation{static_cast<A>(activation.negative_slope)} {}

  ContiguousRows rows() const { return {g.pieces, g.rows, g.length}; }

  __device__ Affine<A> affine(int64_t row, A mean, A rstd) const {
    if constexpr (per_cell) return {mean, rstd, 1, 0};
    const int64_t channel = row % g.groups;
    return {mean, rstd, weight.get(channel, 1), bias.get(channel, 0)};
  }
  __device__ A z(const Affine<A>& a, const Cell& c, A h) const {
    if constexpr (per_cell)
      return h * c.weight + c.bias;
    else
      return h * a.weight + a.bias;
  }
  template <int n>
  __device__ void cells(int64_t row, int64_t l, int valid, Cell (&c)[n]) const {
    if constexpr (per_cell) {
      if (g.inner == 1) {
        const int64_t first = g.channel(row, l);
        load(weight, first, valid, A(1), c, &Channel<A>::weight);
        load(bias, first, valid, A(0), c, &Channel<A>::bias);
      } else if (g.inner % n == 0) {
        const int64_t channel = g.channel(row, l);
        const Cell all{weight.get(channel, 1), bias.get(channel, 0)};
#pragma unroll
        for (Cell& cell : c) cell = all;
      } else {
#pragma unroll
        for (int i = 0; i < n; ++i) {
          const int64_t channel = i < valid ? g.channel(row, l + i) : 0;
          c[i] = {weight.get(channel, 1), bias.get(channel, 0)};
        }
      }
    }
  }

 private:
  /// Neighbouring parameters, 16 bytes at a time if they are aligned.
  template <int n>
  static __device__ void load(const Parameter<T>& p, int64_t first, int valid, A otherwise, Cell (&c)[n],
                              A Channel<A>::*member) {
    const auto from = [&]<class P>(const P* at) {
      if (valid == n && reinterpret_cast<uintptr_t>(at) % 16 == 0) {
        constexpr int size = Packet<P>::size < n ? Packet<P>::size : n;
#pragma unroll
        for (int i = 0; i < n; i += size) {
          const auto packet = *reinterpret_cast<const Packet<P>*>(at + i);
#pragma unroll
          for (int j = 0; j < size; ++j) c[i + j].*member = packet.lane[j];
        }
      } else {
#pragma unroll
        for (int i = 0; i < n; ++i) c[i].*member = i < valid ? A(at[i]) : otherwise;
      }
    };
    if (!p.data) {
#pragma unroll
      for (Cell& cell : c) cell.*member = otherwise;
    } else if (p.wide) {
      from(static_cast<const A*>(p.data) + first);
    } else {
      from(static_cast<const T*>(p.data) + first);
    }
  }
};

/// y = activation(z). If `of_batch`, it computes the statistics and writes them, else it reads them.
template <class Element, bool per_cell, bool of_batch>
struct Norm : NormRows<Element, per_cell> {
  using Base = NormRows<Element, per_cell>;
  using T = Element;
  using typename Base::A;
  using typename Base::Cell;
  static constexpr int inputs = 1;
  static constexpr bool sums = of_batch, maps = true;

  const T* x[1];
  T* y;
  A *mean, *rstd;
  A eps = 0, momentum = 0;
  Parameter<T> running_mean{{}}, running_variance{{}};

  Norm(const Base& base, const Tensor& x, const Tensor& y, const detail::NormStatistics& s)
      : Base(base),
        x{detail::ptr<T>(x)},
        y(detail::mutable_ptr<T>(y)),
        mean(detail::mutable_ptr<A>(s.mean)),
        rstd(detail::mutable_ptr<A>(s.rstd)) {}

  /// Means are relative to the row's first element, so that they round like the deviation, not like the mean.
  __device__ A origin(int64_t row) const { return x[0][row * this->g.length]; }
  struct Sum {
    A shift, from_origin, sum, squares;
  };
  __device__ Sum start(int64_t row, const A (&v)[1]) const { return {v[0], v[0] - origin(row), 0, 0}; }
  __device__ void add(Sum& s, const Cell&, const A (&v)[1]) const {
    const A d = v[0] - s.shift;
    s.sum += d;
    s.squares += d * d;
  }

  using Op = detail::VarMeanOp<A>;
  using Acc = typename Op::Acc;
  static __device__ Acc none() { return Op::init(); }
  static __device__ Acc combine(Acc a, Acc b) { return Op::combine(a, b); }
  static __device__ Acc close(const Sum& s, int64_t n) {
    return Op::of_shifted(static_cast<A>(n), s.from_origin, s.sum, s.squares);
  }

  using Row = Affine<A>;
  __device__ Row finish(int64_t row, const Acc& acc, bool writes) const {
    if constexpr (!of_batch) return this->affine(row, mean[row], rstd[row]);
    const A n = static_cast<A>(this->g.row_size()), r = A(1) / sqrt(acc.m2 / n + eps);
    const A m = origin(row) + acc.mean;
    if (writes) {
      mean[row] = m;
      rstd[row] = r;
      blend(running_mean, row, m);
      blend(running_variance, row, acc.m2 / (n - 1));
    }
    return this->affine(row, m, r);
  }
  __device__ A map(const Row& row, const Cell& c, const A (&v)[1]) const {
    return this->activation.value(this->z(row, c, row.h(v[0])));
  }

 private:
  __device__ void blend(const Parameter<T>& running, int64_t row, A batch) const {
    if (running.data) running.set(row, (1 - momentum) * running.get(row, 0) + momentum * batch);
  }
};

/// What happens to the sums of a row, or to those of a channel.
template <class T>
struct PairResults {
  using A = opmath_t<T>;
  Parameter<T> grad_weight{{}}, grad_bias{{}};
  Pair<A>*sums = nullptr, *weighted = nullptr;  // of each row

  __device__ void store(int64_t row, const Pair<A>& p, A weight) const {
    grad_weight.set(row, p.gh);
    grad_bias.set(row, p.g);
    if (sums) sums[row] = p;
    if (weighted) weighted[row] = {p.g * weight, p.gh * weight};
  }
};

/// grad_x from (g, x), and the sums that it needs. If !of_x, the statistics are constants, and nothing is
/// summed. If !has_output, only the sums are wanted.
template <class Element, bool per_cell, bool of_x, bool has_output>
struct NormGradient : NormRows<Element, per_cell> {
  using Base = NormRows<Element, per_cell>;
  using T = Element;
  using typename Base::A;
  using typename Base::Cell;
  static constexpr int inputs = 2;
  static constexpr bool sums = of_x, maps = has_output;

  const T* x[2];  // g and x
  T* y;
  const A *mean, *rstd;
  int64_t rows_per_statistic = 1;  // rows that share a mean and rstd
  PairResults<T> results = {};

  NormGradient(const Base& base, const Tensor& grad_y, const Tensor& x, const detail::NormStatistics& s,
               const Tensor& grad_x)
      : Base(base),
        x{detail::ptr<T>(grad_y), detail::ptr<T>(x)},
        y(grad_x.defined() ? detail::mutable_ptr<T>(grad_x) : nullptr),
        mean(detail::ptr<A>(s.mean)),
        rstd(detail::ptr<A>(s.rstd)) {}

  struct Sum : Affine<A> {
    Pair<A> sum;
  };
  __device__ Affine<A> affine_of(int64_t row) const {
    const int64_t i = rows_per_statistic == 1 ? row : row / rows_per_statistic;
    return this->affine(row, mean[i], rstd[i]);
  }
  __device__ Sum start(int64_t row, const A (&)[2]) const { return {affine_of(row), {0, 0}}; }
  __device__ void add(Sum& s, const Cell& c, const A (&v)[2]) const {
    const A h = s.h(v[1]), g = gradient(s, c, v[0], h);
    s.sum.g += g;
    s.sum.gh += g * h;
  }

  using Acc = Pair<A>;
  static __device__ Acc none() { return Acc::none(); }
  static __device__ Acc combine(Acc a, Acc b) { return Acc::combine(a, b); }
  static __device__ Acc close(const Sum& s, int64_t) { return s.sum; }

  struct Row : Affine<A> {
    A scale, s, t;
  };
  __device__ Row finish(int64_t row, const Acc& acc, bool writes) const {
    const Affine<A> a = affine_of(row);
    if (writes) results.store(row, acc, a.weight);
    const A n = static_cast<A>(this->g.row_size());
    return {a, a.rstd * a.weight, acc.g / n, acc.gh / n};
  }
  __device__ A map(const Row& row, const Cell& c, const A (&v)[2]) const {
    const A h = row.h(v[1]), g = gradient(row, c, v[0], h);
    if constexpr (of_x)
      return row.scale * (g - row.s - h * row.t);
    else
      return row.scale * g;
  }

 private:
  /// g'; times the weight if that varies within the row.
  __device__ A gradient(const Affine<A>& a, const Cell& c, A g, A h) const {
    g = this->activation.gradient(this->z(a, c, h), g);
    if constexpr (per_cell) g *= c.weight;
    return g;
  }
};

/// The gradients of weight and bias from sums of parts of a channel.
template <class T>
struct ChannelSums {
  using Acc = Pair<opmath_t<T>>;
  PairResults<T> results;

  static __device__ Acc none() { return Acc::none(); }
  static __device__ Acc combine(Acc a, Acc b) { return Acc::combine(a, b); }
  __device__ void finish(int64_t channel, const Acc& acc, bool) const { results.store(channel, acc, 1); }
};

/// The gradients of weight and bias where a channel is a column of (samples, channels): layer norm.
template <class Element>
struct ColumnSums : ChannelSums<Element> {
  using T = Element;
  using A = opmath_t<T>;
  static constexpr int inputs = 2;
  static constexpr bool maps = false;

  const T* x[2];  // g and x
  T* y = nullptr;
  NormRows<T, false> norm;
  const A *mean, *rstd;

  struct Cell {
    A mean, rstd;
  };
  /// Element `sample` of a column.
  __device__ Cell cell(int64_t channel, int64_t sample) const {
    const int64_t row = norm.g.groups == 1 ? sample : sample * norm.g.groups + channel / norm.g.length;
    return {mean[row], rstd[row]};
  }
  struct Sum {
    A weight, bias;
    Pair<A> sum;
  };
  __device__ Sum start(int64_t channel, const A (&)[2]) const {
    return {norm.weight.get(channel, 1), norm.bias.get(channel, 0), {0, 0}};
  }
  __device__ void add(Sum& s, const Cell& c, const A (&v)[2]) const {
    const A h = (v[1] - c.mean) * c.rstd, g = norm.activation.gradient(h * s.weight + s.bias, v[0]);
    s.sum.g += g;
    s.sum.gh += g * h;
  }
  static __device__ Pair<A> close(const Sum& s, int64_t) { return s.sum; }
  using Row = Nothing;
  __device__ Row finish(int64_t channel, const Pair<A>& acc, bool) const {
    this->results.store(channel, acc, 1);
    return {};
  }
};

/// Calls f.operator()<per_cell>().
template <class F>
void visit_channels(const detail::NormGeometry& g, F f) {
  if (g.inner == g.length)
    f.template operator()<false>();
  else
    f.template operator()<true>();
}

/// One call of norm_gradient for elements of T.
template <class T>
struct Backward {
  using A = opmath_t<T>;
  const Launch& launch;
  const Tensor &grad_y, &x;
  const detail::NormGeometry& g;
  const Tensor &weight, &bias;
  const detail::NormStatistics& statistics;
  Activation activation;
  const Tensor &grad_x, &grad_weight, &grad_bias;

  bool has_parameters() const { return grad_weight.defined() || grad_bias.defined(); }
  PairResults<T> results() const {
    return {.grad_weight = Parameter<T>(grad_weight), .grad_bias = Parameter<T>(grad_bias)};
  }

  template <bool per_cell, bool of_x, bool has_output>
  NormGradient<T, per_cell, of_x, has_output> formula(const detail::NormGeometry& geometry) const {
    const NormRows<T, per_cell> rows(geometry, weight, bias, activation);
    return {rows, grad_y, x, statistics, grad_x};
  }
  Workspace pairs(int64_t n) const { return Workspace(launch, n * static_cast<int64_t>(sizeof(Pair<A>))); }
  /// The gradients of the parameters from the sums of (samples, channels).
  void add_samples(const Pair<A>* sums, int64_t samples) const {
    finish_rows(launch, ChannelSums<T>{results()}, g.channels(), sums, samples);
  }

  /// Batch and instance norm: a row has one channel.
  void row_of_a_channel(bool of_x) const {
    const int64_t samples = g.rows / g.groups;
    const Workspace memory = pairs(samples > 1 && has_parameters() ? g.rows : 0);
    auto* const sums = memory.as<Pair<A>>();
    const auto run = [&](auto f) {
      if (samples == 1)
        f.results = results();
      else
        f.results.sums = sums;
      map_rows(launch, f, f.rows());
    };
    if (of_x && grad_x.defined())
      run(formula<false, true, true>(g));
    else if (has_parameters())
      run(formula<false, true, false>(g));
    if (sums) add_samples(sums, samples);
    if (!of_x) constant_statistics<false>();
  }

  /// Group norm: a row has several channels of g.inner > 1 neighbouring elements each.
  void row_of_channels(bool of_x) const {
    const int64_t each = g.length / g.inner, samples = g.rows / g.groups, rows = g.rows * each;
    const bool needs_grad_x = of_x && grad_x.defined();
    if (needs_grad_x || has_parameters()) {
      const detail::NormGeometry by_channel{1, rows, g.inner, g.channels(), g.inner};
      const Workspace sums = pairs(has_parameters() ? rows : 0), weighted = pairs(needs_grad_x ? rows : 0);
      auto f = formula<false, true, false>(by_channel);
      f.rows_per_statistic = each;
      f.results.sums = sums.as<Pair<A>>();
      f.results.weighted = weighted.as<Pair<A>>();
      map_rows(launch, f, f.rows());
      if (needs_grad_x) {
        const auto map = formula<true, true, true>(g);
        map_rows(launch, map, map.rows(), weighted.as<Pair<A>>(), each);
      }
      if (has_parameters()) add_samples(sums.as<Pair<A>>(), samples);
    }
    if (!of_x) constant_statistics<true>();
  }

  /// Layer norm: each element of a row has a channel of its own.
  void row_of_cells(bool of_x) const {
    if (of_x && grad_x.defined()) {
      const auto f = formula<true, true, true>(g);
      map_rows(launch, f, f.rows());
    }
    if (has_parameters()) {
      const ColumnSums<T> f{{results()},
                            {detail::ptr<T>(grad_y), detail::ptr<T>(x)},
                            nullptr,
                            {g, weight, bias, activation},
                            detail::ptr<A>(statistics.mean),
                            detail::ptr<A>(statistics.rstd)};
      map_rows(launch, f, StridedRows{1, g.rows / g.groups, g.channels()});
    }
    if (!of_x) constant_statistics<true>();
  }

  template <bool per_cell>
  void constant_statistics() const {
    if (!grad_x.defined()) return;
    const auto f = formula<per_cell, false, true>(g);
    map_rows(launch, f, f.rows());
  }
};

}  // namespace

void norm(const Tensor& x, const detail::NormGeometry& g, const Tensor& weight, const Tensor& bias,
          double eps, Activation activation, Tensor& y, detail::NormStatistics& statistics,
          detail::RunningStatistics& running) {
  const Launch launch(
      "norm", y, {&x, &weight, &bias, &statistics.mean, &statistics.rstd, &running.mean, &running.variance});
  visit_floating_storage("norm", x.dtype(), [&]<class T>(T) {
    visit_channels(g, [&]<bool per_cell>() {
      Norm<T, per_cell, true> f({g, weight, bias, activation}, x, y, statistics);
      f.eps = static_cast<opmath_t<T>>(eps);
      f.momentum = static_cast<opmath_t<T>>(running.momentum);
      f.running_mean = Parameter<T>(running.mean);
      f.running_variance = Parameter<T>(running.variance);
      map_rows(launch, f, f.rows());
    });
  });
}

void norm_with(const Tensor& x, const detail::NormGeometry& g, const Tensor& weight, const Tensor& bias,
               const detail::NormStatistics& statistics, Activation activation, Tensor& y) {
  const Launch launch("norm", y, {&x, &weight, &bias, &statistics.mean, &statistics.rstd});
  visit_floating_storage("norm", x.dtype(), [&]<class T>(T) {
    visit_channels(g, [&]<bool per_cell>() {
      const Norm<T, per_cell, false> f({g, weight, bias, activation}, x, y, statistics);
      map_rows(launch, f, f.rows());
    });
  });
}

void norm_gradient(const Tensor& grad_y, const Tensor& x, const detail::NormGeometry& g, const Tensor& weight,
                   const Tensor& bias, const detail::NormStatistics& statistics, bool of_x,
                   Activation activation, Tensor& grad_x, Tensor& grad_weight, Tensor& grad_bias) {
  const Launch launch(
      "norm_gradient", x,
      {&grad_y, &weight, &bias, &statistics.mean, &statistics.rstd, &grad_x, &grad_weight, &grad_bias});
  visit_floating_storage("norm_gradient", x.dtype(), [&]<class T>(T) {
    const Backward<T> backward{launch,     grad_y,     x,      g,           weight,   bias,
                               statistics, activation, grad_x, grad_weight, grad_bias};
    if (g.inner == g.length)
      backward.row_of_a_channel(of_x);
    else if (g.inner == 1)
      backward.row_of_cells(of_x);
    else
      backward.row_of_channels(of_x);
  });
}

}  // namespace vox::cuda
