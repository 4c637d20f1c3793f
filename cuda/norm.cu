#include <voxgrad/core/dtype.h>
#include <voxgrad/ops/layer_kernels.h>
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
  bool is_aligned() const { return reinterpret_cast<uintptr_t>(data) % 16 == 0; }
  __device__ A get(int64_t i, A otherwise) const {
    if (!data) return otherwise;
    return wide ? static_cast<const A*>(data)[i] : A(static_cast<const T*>(data)[i]);
  }
  /// n neighbours, 16 bytes at a time if they are aligned.
  template <bool aligned, int size>
  __device__ void get(int64_t first, int n, A otherwise, A (&values)[size]) const {
    const auto from = [&]<class P>(const P* at) {
      if constexpr (aligned) {
        constexpr int packet_size = std::min(size, Packet<P>::size);
#pragma unroll
        for (int i = 0; i < size; i += packet_size) {
          const auto packet = *reinterpret_cast<const Packet<P>*>(at + i);
#pragma unroll
          for (int j = 0; j < packet_size; ++j) values[i + j] = packet.lane[j];
        }
      } else {
#pragma unroll
        for (int i = 0; i < size; ++i) values[i] = i < n ? A(at[i]) : otherwise;
      }
    };
    if (!data) {
#pragma unroll
      for (A& value : values) value = otherwise;
    } else if (std::is_same_v<T, A> || wide) {
      from(static_cast<const A*>(data) + first);
    } else {
      from(static_cast<const T*>(data) + first);
    }
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
  A mean, rstd, weight, bias;  // weight and bias of the row, if it has one channel
  int64_t channel;             // of the row's first element

  __device__ A h(A x) const { return (x - mean) * rstd; }
};

template <class A>
struct Slope {
  A below;  // z = 0

  __device__ A value(A z) const {
    const A scaled = below * z;
    return z < 0 ? (below == 0 ? A(0) : scaled) : z;
  }
  /// NaN keeps the gradient of relu, as in the op of its own.
  __device__ A gradient(A z, A g) const {
    const A scaled = below * g, otherwise = below == 0 ? A(0) : scaled;
    return (z > 0) | ((below == 0) & !(z <= 0)) ? g : otherwise;
  }
};

/// How long the channel stays the same: the whole row, `inner` elements, or one.
enum class Channel { of_row, of_run, of_element };

/// What all formulas of norms share.
template <class Element, Channel channel>
struct NormRows {
  using T = Element;
  using A = opmath_t<T>;
  static constexpr bool pieces = channel == Channel::of_row;

  detail::NormGeometry g;
  int64_t row_channels;  // of one row
  Parameter<T> weight, bias;
  Slope<A> activation;

  NormRows(const detail::NormGeometry& g, const Tensor& weight, const Tensor& bias, Activation activation)
      : g(g),
        row_channels(g.length / g.inner),
        weight(weight),
        bias(bias),
        activation{static_cast<A>(activation.negative_slope)} {}

  ContiguousRows rows() const { return {g.pieces, g.rows, g.length}; }
  bool is_aligned() const {
    return channel != Channel::of_element || (weight.is_aligned() && bias.is_aligned());
  }

  __device__ Affine<A> affine(int64_t row, A mean, A rstd) const {
    const int64_t first = g.groups == 1 ? 0 : row % g.groups * row_channels;
    if constexpr (channel != Channel::of_row) return {mean, rstd, 1, 0, first};
    return {mean, rstd, weight.get(first, 1), bias.get(first, 0), first};
  }

  /// Weights and biases of n neighbours from element l of the row on.
  template <int size>
  struct Cells {
    A weight[size], bias[size];

    __device__ void set(int i, A w, A b) { weight[i] = w, bias[i] = b; }
  };
  template <bool aligned, int size>
  __device__ Cells<size> cells(const Affine<A>& a, int64_t l, int n) const {
    Cells<size> c;
    if constexpr (channel == Channel::of_row) {
#pragma unroll
      for (int i = 0; i < size; ++i) c.set(i, a.weight, a.bias);
    } else if constexpr (channel == Channel::of_element) {
      weight.template get<aligned>(a.channel + l, n, A(1), c.weight);
      bias.template get<aligned>(a.channel + l, n, A(0), c.bias);
    } else {
      const int64_t run = l / g.inner;
      int64_t next = a.channel + run + 1, left = (run + 1) * g.inner - l;
      A w = weight.get(next - 1, 1), b = bias.get(next - 1, 0);
#pragma unroll
      for (int i = 0; i < size; ++i) {
        if (g.inner % size != 0 && i < n && left-- == 0) {
          w = weight.get(next, 1), b = bias.get(next, 0);
          ++next, left = g.inner - 1;
        }
        c.set(i, w, b);
      }
    }
    return c;
  }
};

/// y = activation(z). If `sums`, it computes the statistics and writes them, else it reads them.
template <class Element, Channel channel>
struct Norm : NormRows<Element, channel> {
  using Base = NormRows<Element, channel>;
  using T = Element;
  using typename Base::A;
  static constexpr int inputs = 1;
  static constexpr bool maps = true;

  bool sums;
  const T* x[1];
  T* y;
  A *mean, *rstd;
  A eps = 0, momentum = 0;
  Parameter<T> running_mean{{}}, running_variance{{}};

  Norm(const Base& base, bool sums, const Tensor& x, const Tensor& y, const detail::NormStatistics& s)
      : Base(base),
        sums(sums),
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
  template <bool, int size>
  __device__ void add(Sum& s, int64_t, const A (&v)[size][1], int n) const {
#pragma unroll
    for (int j = 0; j < size; ++j) {
      if (j >= n) break;
      const A d = v[j][0] - s.shift;
      s.sum += d;
      s.squares += d * d;
    }
  }

  using Op = detail::VarMeanOp<A>;
  using Acc = typename Op::Acc;
  static __device__ Acc none() { return Op::init(); }
  /// Most threads have equally many elements: that takes no division.
  static __device__ Acc combine(Acc a, Acc b) {
    if (a.count != b.count) return Op::combine(a, b);
    const A apart = b.mean - a.mean, half = A(0.5);
    return {a.count + b.count, a.mean + apart * half, a.m2 + b.m2 + apart * apart * (a.count * half)};
  }
  static __device__ Acc close(const Sum& s, int64_t n) {
    return Op::of_shifted(static_cast<A>(n), s.from_origin, s.sum, s.squares);
  }

  using Row = Affine<A>;
  __device__ Row finish(int64_t row, const Acc& acc, bool writes) const {
    if (!sums) return this->affine(row, mean[row], rstd[row]);
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
  template <bool aligned, int size>
  __device__ void map(const Row& row, int64_t l, const A (&v)[size][1], int n, A (&out)[size]) const {
    const auto c = this->template cells<aligned, size>(row, l, n);
#pragma unroll
    for (int j = 0; j < size; ++j) out[j] = this->activation.value(row.h(v[j][0]) * c.weight[j] + c.bias[j]);
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

/// grad_x from (g, x), and the sums that it needs. If !sums, the statistics are constants. If !has_output,
/// only the sums are wanted.
template <class Element, Channel channel, bool has_output>
struct NormGradient : NormRows<Element, channel> {
  using Base = NormRows<Element, channel>;
  using T = Element;
  using typename Base::A;
  static constexpr int inputs = 2;
  static constexpr bool maps = has_output;
  static constexpr bool never_sums = channel == Channel::of_run;  // those of channels are summed before

  bool sums;
  const T* x[2];  // g and x
  T* y;
  const A *mean, *rstd;
  int64_t rows_per_statistic = 1;  // rows that share a mean and rstd
  PairResults<T> results = {};

  NormGradient(const Base& base, bool sums, const Tensor& grad_y, const Tensor& x,
               const detail::NormStatistics& s, const Tensor& grad_x)
      : Base(base),
        sums(sums),
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
  template <bool aligned, int size>
  __device__ void add(Sum& s, int64_t l, const A (&v)[size][2], int n) const {
    const auto c = this->template cells<aligned, size>(s, l, n);
#pragma unroll
    for (int j = 0; j < size; ++j) {
      if (j >= n) break;
      const A h = s.h(v[j][1]), g = gradient(c, j, v[j][0], h);
      s.sum.g += g;
      s.sum.gh += g * h;
    }
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
  template <bool aligned, int size>
  __device__ void map(const Row& row, int64_t l, const A (&v)[size][2], int n, A (&out)[size]) const {
    const auto c = this->template cells<aligned, size>(row, l, n);
#pragma unroll
    for (int j = 0; j < size; ++j) {
      const A h = row.h(v[j][1]), g = gradient(c, j, v[j][0], h);
      out[j] = row.scale * (sums ? g - row.s - h * row.t : g);
    }
  }

 private:
  /// g' of element j; times the weight if that varies within the row.
  template <class Cells>
  __device__ A gradient(const Cells& c, int j, A g, A h) const {
    g = this->activation.gradient(h * c.weight[j] + c.bias[j], g);
    return channel == Channel::of_row ? g : g * c.weight[j];
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

/// The gradients of weight and bias where a channel is a column of (samples, channels): layer norm. If
/// `grouped`, a sample has several rows with a mean and rstd each.
template <class Element, bool grouped>
struct ColumnSums : ChannelSums<Element> {
  using T = Element;
  using A = opmath_t<T>;
  static constexpr int inputs = 2;
  static constexpr bool maps = false;

  const T* x[2];  // g and x
  T* y = nullptr;
  NormRows<T, Channel::of_row> norm;
  const A *mean, *rstd;

  struct Sum {
    A weight, bias;
    Pair<A> sum;
    int64_t group;
  };
  __device__ Sum start(int64_t channel, const A (&)[2]) const {
    return {norm.weight.get(channel, 1),
            norm.bias.get(channel, 0),
            {0, 0},
            grouped ? channel / norm.g.length : 0};
  }
  /// Adds the samples from `sample` on.
  template <bool, int size>
  __device__ void add(Sum& s, int64_t sample, const A (&v)[size][2], int n) const {
#pragma unroll
    for (int i = 0; i < size; ++i) {
      if (i >= n) break;
      const int64_t row = grouped ? (sample + i) * norm.g.groups + s.group : sample + i;
      const A h = (v[i][1] - mean[row]) * rstd[row];
      const A g = norm.activation.gradient(h * s.weight + s.bias, v[i][0]);
      s.sum.g += g;
      s.sum.gh += g * h;
    }
  }
  static __device__ Pair<A> close(const Sum& s, int64_t) { return s.sum; }
  struct Row {};
  __device__ Row finish(int64_t channel, const Pair<A>& acc, bool) const {
    this->results.store(channel, acc, 1);
    return {};
  }
};

/// Calls f.operator()<channel>().
template <class F>
void visit_channels(const detail::NormGeometry& g, F f) {
  if (g.inner == g.length)
    f.template operator()<Channel::of_row>();
  else if (g.inner == 1)
    f.template operator()<Channel::of_element>();
  else
    f.template operator()<Channel::of_run>();
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

  template <Channel channel, bool has_output>
  NormGradient<T, channel, has_output> formula(const detail::NormGeometry& geometry, bool sums = true) const {
    const NormRows<T, channel> rows(geometry, weight, bias, activation);
    return {rows, sums, grad_y, x, statistics, grad_x};
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
      run(formula<Channel::of_row, true>(g));
    else if (has_parameters())
      run(formula<Channel::of_row, false>(g));
    if (sums) add_samples(sums, samples);
    if (!of_x) constant_statistics<Channel::of_row>();
  }

  /// Group norm: a row has several channels of g.inner > 1 neighbouring elements each.
  void row_of_channels(bool of_x) const {
    const int64_t each = g.length / g.inner, samples = g.rows / g.groups, rows = g.rows * each;
    const bool needs_grad_x = of_x && grad_x.defined();
    if (needs_grad_x || has_parameters()) {
      const detail::NormGeometry by_channel{1, rows, g.inner, g.channels(), g.inner};
      const Workspace sums = pairs(has_parameters() ? rows : 0), weighted = pairs(needs_grad_x ? rows : 0);
      auto f = formula<Channel::of_row, false>(by_channel);
      f.rows_per_statistic = each;
      f.results.sums = sums.as<Pair<A>>();
      f.results.weighted = weighted.as<Pair<A>>();
      map_rows(launch, f, f.rows());
      if (needs_grad_x) {
        const auto map = formula<Channel::of_run, true>(g);
        map_rows(launch, map, map.rows(), weighted.as<Pair<A>>(), each);
      }
      if (has_parameters()) add_samples(sums.as<Pair<A>>(), samples);
    }
    if (!of_x) constant_statistics<Channel::of_run>();
  }

  /// Layer norm: each element of a row has a channel of its own.
  void row_of_cells(bool of_x) const {
    if (of_x && grad_x.defined()) {
      const auto f = formula<Channel::of_element, true>(g);
      map_rows(launch, f, f.rows());
    }
    if (has_parameters()) {
      const auto run = [&]<bool grouped>() {
        const ColumnSums<T, grouped> f{{results()},
                                       {detail::ptr<T>(grad_y), detail::ptr<T>(x)},
                                       nullptr,
                                       {g, weight, bias, activation},
                                       detail::ptr<A>(statistics.mean),
                                       detail::ptr<A>(statistics.rstd)};
        map_rows(launch, f, StridedRows{1, g.rows / g.groups, g.channels()});
      };
      g.groups == 1 ? run.template operator()<false>() : run.template operator()<true>();
    }
    if (!of_x) constant_statistics<Channel::of_element>();
  }

  template <Channel channel>
  void constant_statistics() const {
    if (!grad_x.defined()) return;
    const auto f = formula<channel, true>(g, false);
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
    visit_channels(g, [&]<Channel channel>() {
      Norm<T, channel> f({g, weight, bias, activation}, true, x, y, statistics);
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
    visit_channels(g, [&]<Channel channel>() {
      const Norm<T, channel> f({g, weight, bias, activation}, false, x, y, statistics);
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
