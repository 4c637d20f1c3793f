// The kernel of var_mean, called directly and compared with the definition in double.
#include <voxgrad/ops/layer_kernels.h>

#include "tests/support/test.h"

namespace vox {
namespace {

class CudaVarMean : public CudaTest {
 protected:
  struct Pair {
    Tensor variance, mean;
  };
  /// Of the last `dims` dimensions.
  static Pair var_mean(const Tensor& x, int64_t dims, double correction) {
    Shape kept;
    for (int64_t i = 0; i + dims < x.rank(); ++i) kept.push_back(x.size(i));
    Pair r{empty(kept, x.options()), empty(kept, x.options())};
    Tensor no_exact_mean;
    cuda::var_mean(x, dims, correction, r.variance, r.mean, no_exact_mean);
    return r;
  }
  static void expect_definition(const Tensor& x, int64_t dims, double correction, double tolerance) {
    const Pair r = var_mean(x, dims, correction);
    const auto values = x.to(f64).to_vector<double>(), variances = r.variance.to(f64).to_vector<double>(),
               means = r.mean.to(f64).to_vector<double>();
    const size_t length = values.size() / means.size();
    for (size_t row = 0; row < means.size(); ++row) {
      double mean = 0, m2 = 0;
      for (size_t i = 0; i < length; ++i) mean += values[row * length + i] / static_cast<double>(length);
      for (size_t i = 0; i < length; ++i) m2 += std::pow(values[row * length + i] - mean, 2);
      const double wanted = m2 / std::max(0.0, static_cast<double>(length) - correction);
      ASSERT_NEAR(means[row], mean, tolerance * (1 + std::abs(mean))) << row;
      if (std::isnan(wanted))
        ASSERT_TRUE(std::isnan(variances[row])) << row;
      else
        ASSERT_NEAR(variances[row], wanted, tolerance * (1 + wanted)) << row;
    }
  }
};

TEST_F(CudaVarMean, IsItsDefinition) {
  const std::pair<DType, double> dtypes[] = {{f32, 1e-5}, {f64, 1e-12}, {bf16, 4e-3}, {f16, 5e-4}};
  for (const auto& [dtype, tolerance] : dtypes) {
    for (const int64_t length : {1, 3, 33, 1000, 1024, 1025, 70000, 1100000}) {
      for (const double correction : {0.0, 1.0}) {
        SCOPED_TRACE(str(dtype, ", ", length, ", ", correction));
        const Tensor x = (normal({3, length}, {f64, Device::cpu()}) + 2).to(dtype).to(Device::cuda());
        expect_definition(x, 1, correction, tolerance);
      }
    }
  }
}

// Means round by up to 5e-4 here, which moves the variance by less than that. The mean of the squares minus
// the square of the mean would be wrong by several hundred percent.
TEST_F(CudaVarMean, ALargeMean) {
  for (const int64_t length : {30, 1000, 300000}) {
    Tensor x = (normal({2, length}, {f64, Device::cpu()}) + 1e4).to(f32).to(Device::cuda());
    expect_definition(x, 1, 1, 2e-4);
    x.slice(1, 0, 1).fill_(0);
    expect_definition(x, 1, 1, 2e-4);
  }
}

// The order is the logical one: strides and addresses change no bit.
TEST_F(CudaVarMean, InEveryLayout) {
  for (const DType dtype : {f32, f64, bf16, f16}) {
    for (const Shape& shape : {Shape{3, 5, 9}, Shape{9, 40, 30}, Shape{2, 50, 61}}) {
      for (const LaidOut& x : layouts(normal(shape, {dtype, Device::cuda()}))) {
        for (const int64_t dims : {1, 2, 3}) {
          const Pair a = var_mean(x.tensor, dims, 1), b = var_mean(x.dense, dims, 1);
          EXPECT_TRUE(same_bits(a.variance, b.variance)) << x.layout << " " << dtype << shape << dims;
          EXPECT_TRUE(same_bits(a.mean, b.mean)) << x.layout << " " << dtype << shape << dims;
        }
      }
    }
  }
}

TEST_F(CudaVarMean, NoElementsAndNaN) {
  const Pair none = var_mean(empty({2, 0}, {f32, Device::cuda()}), 1, 1);
  EXPECT_TRUE(std::isnan(none.mean.to_vector<float>()[1]) && std::isnan(none.variance.to_vector<float>()[1]));
  Tensor x = normal({2, 5000}, {f32, Device::cuda()});
  x.slice(0, 1, 2).slice(1, 4000, 4001).fill_(nan);
  const auto variances = var_mean(x, 1, 0).variance.to_vector<float>();
  EXPECT_FALSE(std::isnan(variances[0]));
  EXPECT_TRUE(std::isnan(variances[1]));
}

}  // namespace
}  // namespace vox
