#include "docs/exercises/steps.h"

// The test of an exercise names the step that crashes: here the second one overflows the stack.

namespace {

int depth(volatile int* caller) {
  volatile int mine = *caller + 1;
  return mine == 0 ? 0 : depth(&mine) + mine;
}

STEP("a step that passes") {}
STEP("a step that overflows the stack") {
  volatile int zero = 0;
  exercise::expect(depth(&zero) == 0, "no end");
}
STEP("a step that is not reached") {}

}  // namespace
