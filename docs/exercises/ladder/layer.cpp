#include "docs/exercises/ladder/layer.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <limits>
#include <string>

#include "docs/exercises/steps.h"

namespace exercise {

void by_definition(const float* input, const float* weight, float* output) {
  for (int row = 0; row < rows; ++row)
    for (int cell = 0; cell < cells; ++cell) {
      float sum = 0;
      for (int c = 0; c < in_channels; ++c) sum += weight[c * rows + row] * input[c * cells + cell];
      output[output_index(row, cell)] = sum;
    }
}

Floats whole_numbers(size_t count, unsigned seed) {
  Floats numbers(count);
  for (float& number : numbers) {
    seed = seed * 1664525 + 1013904223;
    number = static_cast<float>(static_cast<int>(seed >> 16) % 9 - 4);
  }
  return numbers;
}

void expect_layer(size_t volumes, const std::function<Floats(const Floats&, const Floats&)>& layer) {
  constexpr size_t in = in_channels * cells, out = rows * cells, n = 2 * size;
  const Floats input = whole_numbers(volumes * in, 1), weight = whole_numbers(in_channels * rows, 2);
  const Floats got = layer(input, weight);
  Floats expected(out);
  for (size_t v = 0; v < volumes; ++v) {
    by_definition(input.data() + v * in, weight.data(), expected.data());
    for (size_t i = 0; i < out; ++i)
      expect(got.at(v * out + i) == expected[i], "the output of volume ", v, ", channel ", i / (n * n * n),
             " at (", i / (n * n) % n, ", ", i / n % n, ", ", i % n, ") is ", got[v * out + i],
             " instead of ", expected[i]);
  }
}

double seconds(const std::function<void()>& f, int runs) {
  using Clock = std::chrono::steady_clock;
  double best = std::numeric_limits<double>::infinity();
  for (int run = 0; run < runs; ++run) {
    const Clock::time_point start = Clock::now();
    f();
    best = std::min(best, std::chrono::duration<double>(Clock::now() - start).count());
  }
  return best;
}

Roofline cpu_roofline() {
  using Vector = float __attribute__((vector_size(__BIGGEST_ALIGNMENT__)));  // the widest here
  // A multiply-add waits for the one before it in its chain. Ten chains keep two units busy.
  constexpr int chains = 10, steps = 1 << 19;
  volatile float factor = 0.5, term = 1, kept = 0;
  const Vector a = Vector{} + factor, b = Vector{} + term;
  const double arithmetic = seconds([&] {
    Vector x[chains];
    for (int i = 0; i < chains; ++i) x[i] = b * static_cast<float>(i);
    for (int step = 0; step < steps; ++step)
      for (Vector& chain : x) chain = chain * a + b;
    for (const Vector& chain : x) kept = kept + chain[0];
  });
  const std::vector<char> from(1 << 26, 1);
  std::vector<char> to(from.size());
  const double copy = seconds([&] { std::memcpy(to.data(), from.data(), to.size()); });
  return {2.0 * chains * steps * (sizeof(Vector) / sizeof(float)) / arithmetic, 2.0 * (1 << 26) / copy};
}

double print_roofline(const Roofline& roofline, int volumes, int input_bytes) {
  const double operations = 2.0 * volumes * in_channels * rows * cells;
  const double bytes =
      1.0 * input_bytes * in_channels * (volumes * cells + rows) + 4.0 * volumes * rows * cells;
  const double arithmetic = operations / roofline.operations, memory = bytes / roofline.bytes;
  std::printf("\nThis machine: %.4g GFLOP/s, %.4g GB/s. The layer, %d volume(s): %.4g GFLOP, %.4g MB.\n",
              roofline.operations / 1e9, roofline.bytes / 1e9, volumes, operations / 1e9, bytes / 1e6);
  std::printf("Arithmetic takes %.4g ms at least, memory %.4g ms. The larger is the floor.\n",
              1e3 * arithmetic, 1e3 * memory);
  return std::max(arithmetic, memory);
}

void print_bar(const char* name, double floor, double seconds) {
  const double share = floor / seconds;
  const std::string bar(static_cast<size_t>(std::clamp(std::lround(40 * share), 0L, 40L)), '#');
  std::printf("  %-15s%10.4g ms  |%-40s| %.3g %% of the floor\n", name, 1e3 * seconds, bar.c_str(),
              100 * share);
}

}  // namespace exercise
