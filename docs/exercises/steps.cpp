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

namespace {

/// A function, so that it exists before the first STEP of any file.
std::vector<Step>& steps() {
  static std::vector<Step> all;
  return all;
}
void (*afterwards)() = nullptr;

/// Runs the steps, prints one line each, and returns the exit status: 0 if all pass. With the argument
/// `--stub` it is 0 if some step fails and none throws anything except Failed.
int run_all(bool is_stub) {
  size_t passed = 0, errors = 0;
  for (const Step& step : steps()) {
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
  const bool all_pass = passed == steps().size();
  std::cout << passed << " of " << steps().size() << " steps pass\n";
  return (is_stub ? !all_pass && errors == 0 : all_pass) ? 0 : 1;
}

}  // namespace

bool list(const Step& step) {
  steps().push_back(step);
  return true;
}

bool list_afterwards(void (*f)()) {
  afterwards = f;
  return true;
}

}  // namespace exercise

int main(int argc, char** argv) {
  const int status = exercise::run_all(argc > 1 && std::string_view(argv[1]) == "--stub");
  if (status == 0 && argc == 1 && exercise::afterwards) exercise::afterwards();
  return status;
}
