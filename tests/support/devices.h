#pragma once

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include <voxgrad/core/cuda_memory.h>
#include <voxgrad/core/factories.h>
#include <voxgrad/core/tensor.h>

// One body for all devices:
//
//     DEVICE_SUITE(ReluTest);
//     TEST_P(ReluTest, KeepsNaN) { ... device() ... }
//
// makes ReluTest.KeepsNaN/cpu and ReluTest.KeepsNaN/cuda; the second is skipped without a GPU.

namespace vox::testing {

inline bool has_cuda() {
  try {
    vox::cuda::check_device("tests", 0);
    return true;
  } catch (const Error&) {
    return false;
  }
}

/// A test that needs a GPU.
class CudaTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!has_cuda()) GTEST_SKIP() << "no CUDA device";
  }
};

class DeviceTest : public ::testing::TestWithParam<Device> {
 protected:
  void SetUp() override {
    if (device().is_cuda() && !has_cuda()) GTEST_SKIP() << "no CUDA device";
  }
  static Device device() { return GetParam(); }
  static TensorOptions on(DType dtype) { return {dtype, device()}; }
  static Tensor make(const std::vector<double>& values, const Shape& shape, DType dtype = f64) {
    return from_vector(values, shape).to(dtype).to(device());
  }
  /// In one dimension.
  static Tensor numbers(const std::vector<double>& values, DType dtype = f64) {
    return make(values, {static_cast<int64_t>(values.size())}, dtype);
  }
  static Tensor leaf(const std::vector<double>& values, DType dtype = f64) {
    return numbers(values, dtype).set_requires_grad();
  }
  static Tensor ints(const std::vector<int64_t>& values, const Shape& shape) {
    return from_vector(values, shape, device());
  }
  /// 0, 1, 2, ...
  static Tensor counting(const Shape& shape, DType dtype = f64) {
    return arange(checked_numel("tests", shape), {.dtype = i64}).to(dtype).to(device()).reshape(shape);
  }
};

inline auto devices() { return ::testing::Values(Device::cpu(), Device::cuda()); }
inline std::string device_name(const ::testing::TestParamInfo<Device>& info) {
  return info.param.is_cpu() ? "cpu" : "cuda";
}

}  // namespace vox::testing

#define DEVICE_SUITE(name)                           \
  class name : public ::vox::testing::DeviceTest {}; \
  INSTANTIATE_TEST_SUITE_P(, name, ::vox::testing::devices(), ::vox::testing::device_name)
