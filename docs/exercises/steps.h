#pragma once

#include <functional>
#include <stdexcept>
#include <vector>

#include <voxgrad/core/check.h>
#include <voxgrad/core/tensor.h>

// The test of an exercise is a list of steps. Each step names one thing that the student's code must do, and
// says what it expected and what it got.

namespace exercise {

/// Why a step is not passed.
struct Failed : std::runtime_error {
  using std::runtime_error::runtime_error;
};

template <class... Args>
void expect(bool ok, const Args&... message) {
  vox::check<Failed>(ok, message...);
}

/// Both tensors have one shape and dtype, and no element differs by more than
/// tolerance * max(1, |expected element|).
void expect_close(const char* what, const vox::Tensor& got, const vox::Tensor& expected,
                  double tolerance = 1e-12);

/// gradcheck and gradgradcheck (autograd/gradcheck.h) pass.
void expect_gradients(const std::function<vox::Tensor(const std::vector<vox::Tensor>&)>& f,
                      const std::vector<vox::Tensor>& inputs);

struct Step {
  const char* name;
  void (*run)();
};

/// Runs the steps, prints one line each, and returns the exit status: 0 if all pass. With the argument
/// `--stub` it is 0 if some step fails and none throws anything except Failed.
int run(int argc, char** argv, const std::vector<Step>& steps);

}  // namespace exercise
