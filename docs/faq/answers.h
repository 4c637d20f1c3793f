#pragma once

#include <iostream>

#include <voxgrad/voxgrad.h>
#include <voxgrad/watch/watch.h>

// The programs of docs/faq.md, one function each, in its order.

namespace faq {

/// A tensor of these numbers that requires grad.
inline vox::Tensor leaf(const std::vector<float>& values) {
  return vox::from_vector(values, {static_cast<int64_t>(values.size())}).set_requires_grad();
}

/// Runs f and prints the error that it throws.
template <class F>
void attempt(F f) {
  try {
    f();
  } catch (const vox::Error& error) {
    std::cout << "error: " << error.what() << "\n";
  }
}

// gradients.cpp
void second_backward();
void undefined_gradient();
void zero_gradient();
void nan_gradient();
void twice_too_large();
void in_place();
void what_ops_keep();
void detach_or_no_grad();
void parameter_does_not_train();
void create_graph();

// convolutions.cpp
void transposed_is_not_inverse();
void output_padding();
void shared_sizes();
void groups();
void checkerboard();

// numbers.cpp
void sums();
void tf32();
void dtypes();
void seeds();

// programs.cpp
void item_waits();
void memory();
void train_and_eval();
void save_and_load();
void threads();

}  // namespace faq
