// The kernels of norms, called directly and compared with the definition in double.
#include <voxgrad/ops/layer_kernels.h>

#include "tests/support/test.h"

namespace vox {
namespace {

using detail::NormGeometry;

constexpr double eps = 1e-5;

struct Case {
  std::string name;
  NormGeometry g;
};

/// pieces, rows, length, groups, inner: both forms of every norm, odd sizes, and rows that are shorter than a
/// packet.
const std::vector<Case> cases{
    {"one cell", {1, 1, 1, 1, 1}},
    {"batch", {3, 5, 64, 5, 64}},
    {"batch, odd", {3, 5, 63, 5, 63}},
    {"batch of vectors", {17, 5, 1, 5, 1}},
    {"batch, many pieces", {1000, 3, 64, 3, 64}},
    {"batch, long", {2, 3, 20000, 3, 20000}},
    {"batch, long and odd", {3, 2, 12347, 2, 12347}},
    {"batch, 2^21 cells", {2, 2, 1 << 20, 2, 1 << 20}},
    {"instance", {1, 6, 64, 3, 64}},
    {"instance, long", {1, 6, 33000, 3, 33000}},
    {"instance, 2^21 cells", {1, 3, 1 << 21, 3, 1 << 21}},
    {"instance, 100,000 rows", {1, 100000, 8, 4, 8}},
    {"group", {1, 6, 96, 2, 24}},
    {"group, odd", {1, 6, 75, 3, 25}},
    {"group, long", {1, 4, 40000, 2, 5000}},
    {"group, a packet in two channels", {1, 4, 12, 1, 3}},
    {"group of vectors", {1, 8, 12, 2, 1}},
    {"layer", {1, 70, 96, 1, 1}},
    {"group, runs that cross packets", {1, 6, 40, 2, 5}},
    {"group of long vectors", {1, 600, 64, 2, 1}},
    {"layer, odd", {1, 33, 101, 1, 1}},
    {"layer, a warp per row", {1, 600, 512, 1, 1}},
    {"layer, a block per row", {1, 5, 4096, 1, 1}},
    {"layer, the longest rows of f32 that are held", {1, 3, 16384, 1, 1}},
    {"layer, 3 long rows", {1, 3, 40000, 1, 1}},
    {"layer, 100,000 rows", {1, 100000, 10, 1, 1}},
};

struct Precision {
  DType dtype, weights;
  double tolerance;  // the rounding of the result, and of some sums in opmath
};
const std::vector<Precision> precisions{{f32, f32, 3e-5},  {f64, f64, 1e-11}, {bf16, bf16, 5e-3},
                                        {bf16, f32, 5e-3}, {f16, f16, 7e-4},  {f16, f32, 7e-4}};

double activate(double z, double slope) { return z < 0 ? (slope == 0 ? 0 : slope * z) : z; }
double activation_gradient(double z, double g, double slope) {
  if (slope == 0) return z <= 0 ? 0 : g;
  return z > 0 ? g : slope * g;
}

/// The definition. Gradients of cells whose z is close to 0 become 0 in `grad_y`: rounding decides their
/// side.
struct Reference {
  Doubles y, mean, variance, rstd, grad_x, grad_weight, grad_bias;

  Reference(const NormGeometry& g, const Doubles& x, Doubles& grad_y, const Doubles& weight,
            const Doubles& bias, double slope, bool of_x) {
    const auto rows = static_cast<size_t>(g.rows), channels = static_cast<size_t>(g.channels());
    y.resize(x.size()), grad_x.resize(x.size());
    mean.resize(rows), variance.resize(rows), rstd.resize(rows);
    grad_weight.resize(channels), grad_bias.resize(channels);
    const auto n = static_cast<double>(g.row_size());
    for (int64_t row = 0; row < g.rows; ++row) {
      const auto for_cells = [&](auto f) {
        for (int64_t p = 0; p < g.pieces; ++p) {
          for (int64_t l = 0; l < g.length; ++l)
            f(static_cast<size_t>((p * g.rows + row) * g.length + l), static_cast<size_t>(g.channel(row, l)));
        }
      };
      double m = 0, v = 0, s = 0, t = 0;
      for_cells([&](size_t i, size_t) { m += x[i] / n; });
      for_cells([&](size_t i, size_t) { v += (x[i] - m) * (x[i] - m) / n; });
      const double r = 1 / std::sqrt(v + eps);
      for_cells([&](size_t i, size_t c) {
        const double h = (x[i] - m) * r, z = h * weight[c] + bias[c];
        y[i] = activate(z, slope);
        if (std::abs(z) < 1e-3) grad_y[i] = 0;
        const double d = activation_gradient(z, grad_y[i], slope);
        grad_weight[c] += d * h, grad_bias[c] += d;
        s += d * weight[c] / n, t += d * weight[c] * h / n;
      });
      for_cells([&](size_t i, size_t c) {
        const double h = (x[i] - m) * r, z = h * weight[c] + bias[c];
        const double d = activation_gradient(z, grad_y[i], slope) * weight[c];
        grad_x[i] = r * (of_x ? d - s - h * t : d);
      });
      mean[static_cast<size_t>(row)] = m, variance[static_cast<size_t>(row)] = v,
      rstd[static_cast<size_t>(row)] = r;
    }
  }
};

class CudaNorm : public CudaTest {
 protected:
  static TensorOptions on_gpu(DType dtype) { return {dtype, Device::cuda()}; }
  static Tensor make(int64_t n, DType dtype, double mean, double deviation, unsigned seed) {
    return (normal({n}, {f64, Device::cpu()}, seed) * deviation + mean).to(dtype).to(Device::cuda());
  }
  /// x, one element away from the alignment of packets.
  static Tensor unaligned(const Tensor& x) {
    Tensor memory = empty({x.numel() + 1}, x.options()), view = memory.slice(0, 1, x.numel() + 1);
    view.copy_(x);
    return view;
  }
  static Tensor unwritten(int64_t n, DType dtype) { return full({n}, nan, on_gpu(dtype)); }
  static Doubles numbers(const Tensor& t) { return t.to(f64).to_vector<double>(); }

  /// One call of each kernel, and the results, which were unwritten. Those of weights have their dtype.
  struct Results {
    Tensor y, grad_x, grad_weight, grad_bias;
    detail::NormStatistics statistics;
  };
  static Results run(const Tensor& x, const Tensor& grad_y, const NormGeometry& g, const Tensor& w = {},
                     const Tensor& b = {}, Activation activation = {},
                     detail::RunningStatistics running = {}) {
    const DType wide = opmath(x.dtype());
    Results r{unwritten(x.numel(), x.dtype()),
              unwritten(x.numel(), x.dtype()),
              w.defined() ? unwritten(g.channels(), w.dtype()) : Tensor(),
              b.defined() ? unwritten(g.channels(), b.dtype()) : Tensor(),
              {unwritten(g.rows, wide), unwritten(g.rows, wide)}};
    cuda::norm(x, g, w, b, eps, activation, r.y, r.statistics, running);
    cuda::norm_gradient(grad_y, x, g, w, b, r.statistics, true, activation, r.grad_x, r.grad_weight,
                        r.grad_bias);
    return r;
  }

  static void expect_close(const char* what, const Tensor& got, const Doubles& wanted, double scale,
                           double tolerance) {
    const Doubles values = numbers(got);
    for (size_t i = 0; i < wanted.size(); ++i) {
      if (std::abs(values[i] - wanted[i]) <= tolerance * (scale + std::abs(wanted[i]))) continue;
      ADD_FAILURE() << what << "[" << i << "] is " << values[i] << ", not " << wanted[i];
      return;
    }
  }
};

TEST_F(CudaNorm, IsItsDefinition) {
  for (const auto& [name, g] : cases) {
    const int64_t n = g.pieces * g.rows * g.length;
    const double per_channel = std::sqrt(static_cast<double>(n / g.channels()));
    for (const auto& [dtype, weights, tolerance] : precisions) {
      if (n > 1 << 20 && dtype != f32 && dtype != bf16) continue;
      for (const double slope : {1.0, 0.0, 0.125}) {
        SCOPED_TRACE(str(name, ", ", dtype, ", weights ", weights, ", slope ", slope));
        const Tensor x = make(n, dtype, 1, 1, 1), w = make(g.channels(), weights, 1, 0.25, 2),
                     b = make(g.channels(), weights, 0.25, 0.25, 3);
        Doubles gradient = numbers(make(n, dtype, 0, 1, 4));
        const Reference wanted(g, numbers(x), gradient, numbers(w), numbers(b), slope, true);
        const Tensor grad_y = from_vector<double>(gradient, {n}).to(dtype).to(Device::cuda());
        const Activation activation{slope};

        detail::RunningStatistics running{full({g.rows}, 0.5, on_gpu(weights)),
                                          full({g.rows}, 2, on_gpu(weights)), 0.25};
        const Results r = run(x, grad_y, g, w, b, activation, running);
        expect_close("y", r.y, wanted.y, 1, tolerance);
        expect_close("mean", r.statistics.mean, wanted.mean, 1, std::min(tolerance, 3e-5));
        expect_close("rstd", r.statistics.rstd, wanted.rstd, 0, std::min(tolerance, 3e-5));
        expect_close("grad_x", r.grad_x, wanted.grad_x, 1, tolerance);
        expect_close("grad_weight", r.grad_weight, wanted.grad_weight, per_channel, tolerance);
        expect_close("grad_bias", r.grad_bias, wanted.grad_bias, per_channel, tolerance);
        if (g.row_size() > 1) {
          const double unbiased = static_cast<double>(g.row_size()) / static_cast<double>(g.row_size() - 1);
          Doubles means, variances;
          for (const double m : wanted.mean) means.push_back(0.75 * 0.5 + 0.25 * m);
          for (const double v : wanted.variance) variances.push_back(0.75 * 2 + 0.25 * v * unbiased);
          expect_close("running mean", running.mean, means, 1, tolerance);
          expect_close("running variance", running.variance, variances, 1, tolerance);
        }

        for (const Results& again : {run(x, grad_y, g, w, b, activation),
                                     run(unaligned(x), unaligned(grad_y), g, w, b, activation)}) {
          EXPECT_TRUE(same_bits(again.y, r.y));
          EXPECT_TRUE(same_bits(again.grad_x, r.grad_x));
          EXPECT_TRUE(same_bits(again.grad_weight, r.grad_weight));
          EXPECT_TRUE(same_bits(again.grad_bias, r.grad_bias));
        }
        Tensor y = unwritten(n, dtype);
        cuda::norm_with(x, g, w, b, r.statistics, activation, y);
        EXPECT_TRUE(same_bits(y, r.y));
        cuda::norm_with(x, g, unaligned(w), unaligned(b), r.statistics, activation, y);
        EXPECT_TRUE(same_bits(y, r.y));

        // Each result alone, and the gradients for constant statistics.
        Tensor alone = unwritten(n, dtype), alone_weight = unwritten(g.channels(), weights), undefined;
        cuda::norm_gradient(grad_y, x, g, w, b, r.statistics, true, activation, alone, undefined, undefined);
        EXPECT_TRUE(same_bits(alone, r.grad_x));
        cuda::norm_gradient(grad_y, x, g, w, b, r.statistics, true, activation, undefined, alone_weight,
                            undefined);
        expect_close("grad_weight alone", alone_weight, wanted.grad_weight, per_channel, tolerance);
        const Reference constant(g, numbers(x), gradient, numbers(w), numbers(b), slope, false);
        cuda::norm_gradient(grad_y, x, g, w, b, r.statistics, false, activation, alone, alone_weight,
                            undefined);
        expect_close("grad_x of constant statistics", alone, constant.grad_x, 1, tolerance);
        expect_close("grad_weight of constant statistics", alone_weight, wanted.grad_weight, per_channel,
                     tolerance);
      }
    }
  }
}

TEST_F(CudaNorm, WithoutWeightAndBias) {
  for (const auto& [name, g] : cases) {
    const int64_t n = g.pieces * g.rows * g.length;
    if (n > 1 << 20) continue;
    SCOPED_TRACE(name);
    const Tensor x = make(n, f32, 1, 1, 1), grad_y = make(n, f32, 0, 1, 2);
    const Tensor one = full({g.channels()}, 1, on_gpu(f32)), zero = full({g.channels()}, 0, on_gpu(f32));
    const Results without = run(x, grad_y, g, {}, {}, Activation::relu()),
                  with = run(x, grad_y, g, one, zero, Activation::relu());
    EXPECT_TRUE(same_bits(without.y, with.y));
    EXPECT_TRUE(same_bits(without.grad_x, with.grad_x));
  }
}

// The variance does not cancel, wherever the first element lies.
TEST_F(CudaNorm, ALargeMean) {
  for (const int64_t length : {100, 5000, 1 << 21}) {
    for (const double first : {1e4, 0.0}) {
      const NormGeometry g{1, 2, length, 2, length};
      Tensor x = make(2 * length, f32, 1e4, 1, 1);
      x.slice(0, 0, 1).fill_(first);
      const detail::NormStatistics s = run(x, x, g).statistics;
      Doubles none(static_cast<size_t>(2 * length)), ones(2, 1), zeros(2, 0);
      const Reference wanted(g, numbers(x), none, ones, zeros, 1, true);
      expect_close("mean", s.mean, wanted.mean, 0, 3e-7);
      expect_close("rstd", s.rstd, wanted.rstd, 0, 2e-5);
    }
  }
}

// NaN and Inf make their own row NaN and no other.
TEST_F(CudaNorm, NaNAndInf) {
  for (const int64_t length : {50, 40000}) {
    for (const double bad : {nan, inf}) {
      const NormGeometry g{1, 3, length, 3, length};
      Tensor x = make(3 * length, f32, 0, 1, 1);
      x.slice(0, length + 7, length + 8).fill_(bad);
      const Results r = run(x, x, g, {}, {}, Activation::relu());
      for (const Tensor& t : {r.y, r.grad_x}) {
        const Doubles values = numbers(t);
        for (size_t i = 0; i < values.size(); ++i)
          ASSERT_EQ(std::isnan(values[i]), static_cast<int64_t>(i) / length == 1) << i << " of " << length;
      }
    }
  }
}

}  // namespace
}  // namespace vox
