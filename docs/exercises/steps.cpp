#include "docs/exercises/steps.h"

#include <algorithm>
#include <cmath>
#include <iomanip>
#include <iostream>
#include <string_view>

#include <voxgrad/autograd/gradcheck.h>

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

int run(int argc, char** argv, const std::vector<Step>& steps) {
  const bool is_stub = argc > 1 && std::string_view(argv[1]) == "--stub";
  size_t passed = 0, errors = 0;
  for (const Step& step : steps) {
    try {
      step.run();
      ++passed;
      std::cout << "pass  " << step.name << "\n";
    } catch (const Failed& reason) {
      std::cout << "FAIL  " << step.name << "\n      " << reason.what() << "\n";
    } catch (const std::exception& error) {
      ++errors;
      std::cout << "FAIL  " << step.name << "\n      an exception: " << error.what() << "\n";
    }
  }
  std::cout << passed << " of " << steps.size() << " steps pass\n";
  if (is_stub) return passed < steps.size() && errors == 0 ? 0 : 1;
  return passed == steps.size() ? 0 : 1;
}

}  // namespace exercise
