#include <voxgrad/cuda/conv3d/common/recent.h>

#include "tests/support/test.h"

namespace vox::cuda::conv {
namespace {

TEST(Recent, MakesWhatIsNotAmongTheLastKeysAndNothingElse) {
  Recent<int, int, 2> squares;
  int made = 0;
  const auto square = [&](int key) { return squares.of(key, [&] { return ++made, key * key; }); };
  EXPECT_EQ(square(3), 9);
  EXPECT_EQ(square(4), 16);
  EXPECT_EQ(square(3), 9);
  EXPECT_EQ(made, 2);
  EXPECT_EQ(square(5), 25);  // replaces 3, the oldest
  EXPECT_EQ(square(4), 16);
  EXPECT_EQ(square(5), 25);
  EXPECT_EQ(made, 3);
  EXPECT_EQ(square(3), 9);
  EXPECT_EQ(made, 4);
}

TEST(Recent, WhatThrewIsNotRemembered) {
  Recent<int, int, 1> recent;
  const auto fail = []() -> int { throw std::runtime_error("no"); };
  EXPECT_THROW(recent.of(1, fail), std::runtime_error);
  EXPECT_EQ(recent.of(1, [] { return 7; }), 7);
  EXPECT_THROW(recent.of(2, fail), std::runtime_error);
  EXPECT_EQ(recent.of(1, [] { return 8; }), 7);
}

int products_made = 0;
int product_of(int a, int b) { return ++products_made, a * b; }
int sum_of(int a, int b) { return a + b; }

TEST(Recall, KeepsWhatEachFunctionMadeOfItsArguments) {
  EXPECT_EQ(recall<product_of>(3, 4), 12);
  EXPECT_EQ(recall<product_of>(4, 4), 16);
  EXPECT_EQ(recall<sum_of>(3, 4), 7);
  EXPECT_EQ(recall<product_of>(3, 4), 12);
  EXPECT_EQ(products_made, 2);
}

// Each step of a training loop asks for the same keys in the same order.
TEST(Recall, KeepsTheProblemsOfADeepNetwork) {
  products_made = 0;
  for (int step = 0; step < 3; ++step)
    for (int problem = 0; problem < 200; ++problem) EXPECT_EQ(recall<product_of>(problem, 7), problem * 7);
  EXPECT_EQ(products_made, 200);
}

}  // namespace
}  // namespace vox::cuda::conv
