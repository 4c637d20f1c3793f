#pragma once

#include <gtest/gtest.h>

#include <string>
#include <vector>

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

inline ::testing::AssertionResult has_parts(const std::string& message,
                                            const std::vector<std::string>& parts) {
  for (const std::string& part : parts)
    if (message.find(part) == std::string::npos)
      return ::testing::AssertionFailure() << "'" << part << "' is not in: " << message;
  return ::testing::AssertionSuccess();
}

}  // namespace vox::testing

/// Expects that `statement` throws an error of this type, and that its message contains all texts that
/// follow.
#define EXPECT_REFUSED(type, statement, ...) \
  EXPECT_TRUE(::vox::testing::has_parts(     \
      ::vox::testing::message_of<type>([&] { static_cast<void>(statement); }), {__VA_ARGS__}))

/// Expects that it throws an error of this type with this message.
#define EXPECT_MESSAGE(type, statement, text) \
  EXPECT_EQ(::vox::testing::message_of<type>([&] { static_cast<void>(statement); }), text)

/// Expects that the message begins with this text.
#define EXPECT_MESSAGE_BEGINS(type, statement, text) \
  EXPECT_EQ(::vox::testing::message_of<type>([&] { static_cast<void>(statement); }).find(text), 0u)
