#pragma once

#include <gtest/gtest.h>

#include <string>

#include <voxgrad/core/check.h>

namespace vox::testing {

/// Runs f and returns the message of the E that it throws; fails the test if it does not throw.
template <class E = Error, class F>
std::string message_of(F f) {
  try {
    f();
  } catch (const E& error) {
    return error.what();
  }
  ADD_FAILURE() << "nothing was thrown";
  return "";
}

}  // namespace vox::testing
