// 12: what a GPU is waiting for. The least time of an op on one H200, and how near kernels come to it.

#include <algorithm>
#include <iomanip>
#include <iostream>
#include <map>
#include <string>

#include <voxgrad/voxgrad.h>

constexpr double operations_per_ms = 356e9;  // TF32 products of the tensor cores, measured
constexpr double bytes_per_ms = 4.3e9;       // between the chip and its memory, measured

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

int main() {
  std::cout << std::setprecision(3);
  report_transposed("68", {16, 32, 64, 64, 64}, {16, 64, 66, 68, 68}, 3 * 5 * 5,
                    {{339, "direct"}, {11.7, "mma"}, {4.63, "flat"}, {3.76, "rolling"}});
  report_transposed("73", {4, 32, 32, 64, 128}, {4, 32, 63, 127, 255}, 3 * 3 * 3,
                    {{27.3, "direct"}, {1.97, "mma"}, {0.471, "strided"}});
}
