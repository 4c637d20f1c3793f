#pragma once

// What nearly every test needs. In namespace vox, names of vox::testing need no prefix.

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <numbers>
#include <numeric>
#include <optional>
#include <random>
#include <set>
#include <sstream>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <voxgrad/voxgrad.h>

#include "tests/data_dir.h"
#include "tests/support/devices.h"
#include "tests/support/errors.h"
#include "tests/support/layouts.h"
#include "tests/support/limit_memory.h"
#include "tests/support/numbers.h"
#include "tests/support/temporary_folder.h"
#include "tests/support/values.h"

namespace vox {
using namespace testing;

namespace testing {

inline constexpr double inf = std::numeric_limits<double>::infinity(),
                        nan = std::numeric_limits<double>::quiet_NaN();

/// The names of parameters, modules and other pairs of a name and a thing.
inline std::vector<std::string> names_of(const auto& named) {
  std::vector<std::string> names;
  for (const auto& [name, thing] : named) names.push_back(name);
  return names;
}

/// Expects that the first and second gradients of f agree with difference quotients.
inline void expect_gradients(const autograd::TensorFunction& f, const std::vector<Tensor>& inputs,
                             const std::string& what = "") {
  EXPECT_NO_THROW(autograd::gradcheck(f, inputs)) << what;
  EXPECT_NO_THROW(autograd::gradgradcheck(f, inputs)) << what;
}

}  // namespace testing
}  // namespace vox
