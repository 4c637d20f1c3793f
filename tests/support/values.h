#pragma once

#include <cstdint>
#include <cstring>
#include <random>
#include <vector>

#include <voxgrad/core/factories.h>
#include <voxgrad/core/parallel.h>
#include <voxgrad/core/tensor.h>

// Data for tests, and bitwise comparisons.

namespace vox::testing {

using Floats = std::vector<float>;
using Doubles = std::vector<double>;
using Ints = std::vector<int64_t>;
using Bools = std::vector<bool>;
using Bytes = std::vector<uint8_t>;

/// Normal random numbers, equal for equal shape and seed on every device.
inline Tensor normal(const Shape& shape, TensorOptions options, unsigned seed = 1) {
  std::mt19937 engine(seed);
  std::normal_distribution<double> distribution;
  std::vector<double> values(static_cast<size_t>(checked_numel("normal", shape)));
  for (double& v : values) v = distribution(engine);
  return from_vector<double>(values, shape).to(options.dtype).to(options.device);
}

/// Small whole numbers, neighbours being different: sums and products of them are exact.
inline Tensor whole(const Shape& shape, TensorOptions options, int64_t seed = 0) {
  std::vector<int64_t> values(static_cast<size_t>(checked_numel("whole", shape)));
  for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<int64_t>(i * 7 + seed) % 11 - 5;
  return from_vector<int64_t>(values, shape).to(options.dtype).to(options.device);
}

/// A dense copy, even if x is dense already.
inline Tensor copy_of(const Tensor& x) { return x.detach().clone(); }

/// Whether shapes, dtypes and every bit agree.
inline bool same_bits(const Tensor& a, const Tensor& b) {
  if (a.shape() != b.shape() || a.dtype() != b.dtype()) return false;
  const Tensor x = a.detach().to(Device::cpu()).contiguous(), y = b.detach().to(Device::cpu()).contiguous();
  return x.numel() == 0 || std::memcmp(x.impl()->data(), y.impl()->data(),
                                       static_cast<size_t>(x.numel() * size_of(x.dtype()))) == 0;
}

/// Runs f() on 1, 2 and 5 threads and says whether all results have the same bits.
template <class F>
bool same_on_any_threads(F f) {
  const int before = get_num_threads();
  set_num_threads(1);
  const Tensor first = f();
  bool same = true;
  for (int threads : {2, 5}) {
    set_num_threads(threads);
    same = same && same_bits(first, f());
  }
  set_num_threads(before);
  return same;
}

}  // namespace vox::testing
