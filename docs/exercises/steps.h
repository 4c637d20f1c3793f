#pragma once

#include <functional>
#include <stdexcept>
#include <vector>

#include <voxgrad/core/check.h>
#include <voxgrad/core/tensor.h>

// The test of an exercise is a list of steps (STEP, below). Each step names one thing that the student's code
// must do, and says what it expected and what it got. A step that crashes ends the program, which names it.

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

/// Calls f, which must do without Tensor::backward and vox::grad.
void without_engine(const std::function<void()>& f);

struct Step {
  const char* name;
  void (*run)();
};
/// Adds a step to the list of this program, and returns true.
bool list(const Step& step);
/// f runs after the steps if all pass, except when CTest runs the program. Returns true.
bool list_afterwards(void (*f)());

/// `STEP("what the code must do") { expect(...); }` defines a step. The steps run in the order of the file.
#define STEP(name)                                              \
  static void EXERCISE_JOIN(step_, __LINE__)();                 \
  static const bool EXERCISE_JOIN(is_listed_, __LINE__) =       \
      ::exercise::list({name, EXERCISE_JOIN(step_, __LINE__)}); \
  static void EXERCISE_JOIN(step_, __LINE__)()
#define EXERCISE_JOIN(a, b) EXERCISE_JOIN_EXPANDED(a, b)
#define EXERCISE_JOIN_EXPANDED(a, b) a##b

}  // namespace exercise
