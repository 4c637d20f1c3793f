#pragma once

#include <iostream>
#include <map>

#include <voxgrad/voxgrad.h>
#include <voxgrad/watch/watch.h>

// The programs of docs/faq.md, one function each.

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

/// The answers, by the number of their question.
inline std::map<int, void (*)()> answers;

/// `ANSWER(3, zero_gradient) { ... }` defines the answer to question 3.
#define ANSWER(number, name)                                                        \
  static void name();                                                               \
  static const bool name##_is_listed = ::faq::answers.emplace(number, name).second; \
  static void name()

}  // namespace faq
