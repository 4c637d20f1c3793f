#pragma once

// fail_each(), which runs something with the failures of inject.h.

#include <gtest/gtest.h>

#include <voxgrad/core/check.h>

#include <filesystem>
#include <functional>
#include <thread>

#include "tests/failures/inject.h"

namespace vox::testing {

/// What a message must have, besides being voxgrad's.
inline void expect_names_failure(const std::exception& error) {
  const std::string message = error.what();
  const auto has = [&](const char* text) { return message.find(text) != message.npos; };
  switch (failing) {
    case Failing::allocation:
      EXPECT_TRUE(has("bad_alloc") || has("memory") || has("cannot allocate")) << message;
      break;
    case Failing::thread:
      EXPECT_TRUE(dynamic_cast<const Error*>(&error) && has("threads: ")) << message;
      break;
    case Failing::cuda:
    case Failing::cuda_memory:
      EXPECT_TRUE(dynamic_cast<const Error*>(&error) && has(cuda_says.c_str())) << message;
      break;
    default:
      EXPECT_TRUE(dynamic_cast<const IoError*>(&error) && has("cannot ") && has("voxgrad_test_")) << message;
  }
}

/// f() in which call n fails, or all from n on. Whether it returned.
inline bool returns_without(int64_t n, const std::function<void()>& f) {
  failed = false, calls_left = n;
  try {
    f();
    calls_left = -1;
    return true;
  } catch (const std::exception& error) {
    calls_left = -1;
    expect_names_failure(error);
    return false;
  }
}

/// What may leak besides allocations.
inline std::string open_files() {
  const std::filesystem::directory_iterator all("/proc/self/fd");
  return str(std::distance(begin(all), end(all)), " open files");
}
inline std::function<std::string()> resources = open_files;

/// Waits for threads that still drop what they shared with the last trial.
inline void expect_nothing_leaked(int64_t allocations, const std::string& others) {
  // First resources(), which frees what could not be freed before. Its text, an allocation too, is gone then.
  const auto same = [&] { return resources() == others; };
  for (int i = 0; i < 1000 && (!same() || live != allocations); ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  EXPECT_EQ(live - allocations, 0) << "allocations of the last trial were not freed";
  EXPECT_EQ(resources(), others);
}

/// For n = 0, stride, ... (stride_all where all fail) until call n is not reached: before(), which makes all
/// anew that a trial leaves; f() with failures; after(whether f returned). Once with one failure and once
/// with all from the n-th on.
inline void fail_each(Failing kind, const std::function<void()>& before, const std::function<void()>& f,
                      const std::function<void(bool)>& after, int64_t stride = 1, int64_t stride_all = 1) {
  before();
  f();  // makes what lives as long as the program
  after(true);
  const bool recovers = kind == Failing::interrupt || kind == Failing::short_transfer;
  for (const bool only_one : {true, false}) {
    if (recovers && !only_one) break;  // nobody recovers from endless interrupts
    failing = kind, one_fails = only_one;
    int64_t n = 0, allocations = -1;
    std::string others;
    do {
      SCOPED_TRACE(str("call ", n, only_one ? "" : " and all that follow"));
      before();
      if (allocations < 0) others = resources(), allocations = live;
      expect_nothing_leaked(allocations, others);
      const bool returned = returns_without(n, f);
      n += only_one ? stride : stride_all;
      EXPECT_TRUE(returned || !recovers);
      after(returned);
    } while (failed && !::testing::Test::HasFailure());
    EXPECT_GT(n, only_one ? stride : stride_all) << "no such call";
  }
}

}  // namespace vox::testing
