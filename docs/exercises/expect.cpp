#include <algorithm>
#include <cmath>
#include <iomanip>

#include <voxgrad/autograd/gradcheck.h>
#include <voxgrad/autograd/running.h>

#include "docs/exercises/steps.h"

namespace exercise {

void expect_close(const char* what, const vox::Tensor& got, const vox::Tensor& expected, double tolerance) {
  expect(got.defined(), what, " is undefined");
  expect(got.shape() == expected.shape(), what, " has shape ", got.shape(), " instead of ", expected.shape());
  expect(got.dtype() == expected.dtype(), what, " has dtype ", got.dtype(), " instead of ", expected.dtype());
  const std::vector<double> a = got.to(vox::f64).to_vector<double>();
  const std::vector<double> b = expected.to(vox::f64).to_vector<double>();
  for (size_t i = 0; i < a.size(); ++i) {
    expect(std::abs(a[i] - b[i]) <= tolerance * std::max(1.0, std::abs(b[i])), what, ": element ", i, " is ",
           std::setprecision(9), a[i], " instead of ", b[i]);
  }
}

void expect_gradients(const std::function<vox::Tensor(const std::vector<vox::Tensor>&)>& f,
                      const std::vector<vox::Tensor>& inputs) {
  try {
    vox::autograd::gradcheck(f, inputs);
    vox::autograd::gradgradcheck(f, inputs);
  } catch (const vox::GradError& error) {
    throw Failed(error.what());
  }
}

namespace {

/// Notes whether the library's engine runs.
struct EngineRuns final : vox::autograd::Observer {
  bool any = false;
  void reads(vox::autograd::Node&, std::span<const vox::Tensor>) override {}
  void recorded(vox::autograd::Node&, const vox::Tensor&) override {}
  void began(const std::vector<vox::autograd::Edge>&, const vox::autograd::GradPlan*) override { any = true; }
  void arrived(vox::autograd::Node&, const vox::autograd::Gradients&) override {}
  void ran(vox::autograd::Node&, const vox::autograd::Gradients&) override {}
  void failed(const char*, uint64_t) override {}
  void ended() override {}
};

}  // namespace

void without_engine(const std::function<void()>& f) {
  const auto runs = std::make_shared<EngineRuns>();
  auto* const outer = std::exchange(vox::autograd::running.observer, runs.get());
  try {
    f();
  } catch (...) {
    vox::autograd::running.observer = outer;
    throw;
  }
  vox::autograd::running.observer = outer;
  expect(!runs->any, "your code called Tensor::backward or vox::grad, which this exercise replaces");
}

}  // namespace exercise
