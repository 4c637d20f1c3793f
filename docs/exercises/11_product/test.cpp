#include <limits>

#include "docs/exercises/11_product/exercise.h"
#include "docs/exercises/steps.h"

namespace {

using exercise::Floats;

STEP("every output, of whole numbers") {
  exercise::expect_layer(1, [](const Floats& input, const Floats& weight) {
    Floats output(exercise::rows * exercise::cells, std::numeric_limits<float>::quiet_NaN());
    exercise::conv_transpose3d(input.data(), weight.data(), output.data());
    return output;
  });
}

void print_bars() {
  using namespace exercise;
  const Floats input(in_channels * cells, 1), weight(in_channels * rows, 1);
  Floats output(rows * cells);
  const double floor = print_roofline(cpu_roofline(), 1, sizeof(float));
  const auto bar = [&](const char* name, auto* layer, int runs) {
    print_bar(name, floor, seconds([&] { layer(input.data(), weight.data(), output.data()); }, runs));
  };
  bar("by definition", by_definition, 1);
  bar("your product", conv_transpose3d, 10);
}
const bool is_listed = exercise::list_afterwards(print_bars);

}  // namespace
