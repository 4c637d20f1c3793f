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

/// Expects that `statement` throws an error of this type, and that its message contains `text`.
#define EXPECT_REFUSED(type, statement, text)                    \
  EXPECT_PRED_FORMAT2(::testing::IsSubstring, std::string(text), \
                      ::vox::testing::message_of<type>([&] { static_cast<void>(statement); }))
