// 12: what a GPU is waiting for. The least time of an op on one H200 or, with an argument, on this CPU.

#include <chrono>
#include <iomanip>
#include <iostream>
#include <map>

#include <voxgrad/voxgrad.h>

double operations_per_ms = 356e9;  // TF32 products of the tensor cores, measured
double bytes_per_ms = 4.3e9;       // between the chip and its memory, measured

void report(const std::string& what, double operations, double bytes, std::map<double, std::string> kernels) {
  const double arithmetic = operations / operations_per_ms, memory = bytes / bytes_per_ms;
  const double floor = std::max(arithmetic, memory);
  std::cout << what << ": " << operations / bytes << " operations per byte, arithmetic " << arithmetic
            << " ms, memory " << memory << " ms\n";
  for (const auto& [ms, name] : kernels)
    std::cout << "  " << name << ": " << ms << " ms, " << 100 * floor / ms << " % of the floor\n";
}

double count(const vox::Shape& shape) { return static_cast<double>(vox::checked_numel("count", shape)); }

// An f32 transposed convolution from x to y: each element of x meets every tap and every output channel.
void report_transposed(const std::string& what, const vox::Shape& x, const vox::Shape& y, double taps,
                       const std::map<double, std::string>& kernels) {
  report(what, 2 * count(x) * taps * static_cast<double>(y[1]), 4 * (count(x) + count(y)), kernels);
}

double best_ms(const std::function<void()>& f) {
  using Clock = std::chrono::steady_clock;
  double best = 1e9;
  for (int run = 0; run < 10; ++run) {
    const Clock::time_point start = Clock::now();
    f();
    best = std::min(best, std::chrono::duration<double, std::milli>(Clock::now() - start).count());
  }
  return best;
}
int measure_this_cpu() {
  vox::Tensor big = vox::rand({1 << 25}), copy = vox::empty_like(big);
  const vox::Tensor x = vox::rand({1, 64, 26, 26, 26}), w = vox::rand({64, 64, 3, 3, 3});
  bytes_per_ms = 8 * count(big.shape()) / best_ms([&] { copy.copy_(big); });
  operations_per_ms = 2 * count(w.shape()) * 24 * 24 * 24 / best_ms([&] { vox::conv3d(x, w); });
  std::cout << "conv3d " << operations_per_ms / 1e9 << " TFLOP/s, copy " << bytes_per_ms / 1e9 << " TB/s\n";
  report("silu", count(big.shape()), 8 * count(big.shape()), {{best_ms([&] { vox::silu(big); }), "silu"}});
  const double ms = best_ms([&] { vox::conv_transpose3d(x, w, {}, {.stride = 2}); });
  report_transposed("stride 2", x.shape(), {1, 64, 53, 53, 53}, 27, {{ms, "conv_transpose3d"}});
  return 0;
}

int main(int argc, char**) {
  std::cout << std::setprecision(3);
  if (argc > 1) return measure_this_cpu();
  report_transposed("68", {16, 32, 64, 64, 64}, {16, 64, 66, 68, 68}, 3 * 5 * 5,
                    {{339, "direct"}, {12.1, "mma"}, {4.63, "flat"}, {3.76, "rolling"}});
  report_transposed("73", {4, 32, 32, 64, 128}, {4, 32, 63, 127, 255}, 3 * 3 * 3,
                    {{27.3, "direct"}, {1.72, "mma"}, {0.471, "strided"}});
}
