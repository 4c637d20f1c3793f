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

/// Whether f throws an E; `call` is its text.
template <class E, class F>
::testing::AssertionResult throws(F f, const char* call) {
  try {
    f();
  } catch (const E&) {
    return ::testing::AssertionSuccess();
  } catch (const std::exception& error) {
    return ::testing::AssertionFailure() << call << " threw another error: " << error.what();
  }
  return ::testing::AssertionFailure() << call << " threw nothing";
}

}  // namespace vox::testing

/// Expects that each of the calls throws an error of this type.
#define EXPECT_ERRORS(type, ...) VOX_RESCAN(VOX_EXPECT_ERROR(type, __VA_ARGS__)) static_assert(true)
// A macro cannot call itself, but the text that it leaves can be scanned again, here up to 64 times.
#define VOX_EXPECT_ERROR(type, call, ...)                                             \
  EXPECT_TRUE(::vox::testing::throws<type>([&] { static_cast<void>(call); }, #call)); \
  __VA_OPT__(VOX_EXPECT_NEXT_ERROR VOX_NO_ARGUMENTS(type, __VA_ARGS__))
#define VOX_EXPECT_NEXT_ERROR() VOX_EXPECT_ERROR
#define VOX_NO_ARGUMENTS ()
#define VOX_RESCAN(...) VOX_RESCAN16(VOX_RESCAN16(VOX_RESCAN16(VOX_RESCAN16(__VA_ARGS__))))
#define VOX_RESCAN16(...) VOX_RESCAN4(VOX_RESCAN4(VOX_RESCAN4(VOX_RESCAN4(__VA_ARGS__))))
#define VOX_RESCAN4(...) VOX_RESCAN1(VOX_RESCAN1(VOX_RESCAN1(VOX_RESCAN1(__VA_ARGS__))))
#define VOX_RESCAN1(...) __VA_ARGS__

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
