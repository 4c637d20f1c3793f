#pragma once

#include <functional>
#include <vector>

#include <voxgrad/core/host_device.h>

// The layer of exercises 11 to 13, a transposed convolution as in the second half of a U-Net: a weight of
// shape (128, 64, 2, 2, 2), stride 2, volumes of 16^3 cells. Stride and kernel are equal, so no two cells
// write the same output, and the layer is one matrix product:
//
//     result[row][cell] = sum over c of weight[c][row] * input[c][cell]
//
// A row is an output channel and one of its 8 taps. Both operands lie in memory as this formula reads them.

namespace exercise {

constexpr int in_channels = 128, out_channels = 64, size = 16;
constexpr int cells = size * size * size;  // of one channel of the input
constexpr int rows = out_channels * 8;     // row = (channel, kd, kh, kw), the last index is the fastest

/// Where result[row][cell] is in the output of one volume, of shape (64, 32, 32, 32).
VOX_HOST_DEVICE constexpr int output_index(int row, int cell) {
  const int channel = row / 8, kd = row / 4 % 2, kh = row / 2 % 2, kw = row % 2;
  const int d = cell / (size * size), h = cell / size % size, w = cell % size;
  return ((channel * 2 * size + 2 * d + kd) * 2 * size + 2 * h + kh) * 2 * size + 2 * w + kw;
}

using Floats = std::vector<float>;

/// The layer as its definition says: for each output, a sum over the input channels.
void by_definition(const float* input, const float* weight, float* output);

/// `layer(input, weight)` must return what by_definition does. All are whole numbers, so every sum is exact.
void expect_layer(size_t volumes,
                  const std::function<Floats(const Floats& input, const Floats& weight)>& layer);
/// Whole numbers from -4 to 4.
Floats whole_numbers(size_t count, unsigned seed);

/// The best time of some runs, in seconds.
double seconds(const std::function<void()>& f, int runs = 5);

/// What a machine can do in a second at most, measured.
struct Roofline {
  double operations, bytes;
};
Roofline cpu_roofline();  ///< of one thread
/// Prints the least time for `volumes` volumes whose inputs have `input_bytes` bytes a number, the floor, and
/// returns it in seconds.
double print_roofline(const Roofline& roofline, int volumes, int input_bytes);
void print_bar(const char* name, double floor, double seconds);

/// Exercises 12 and 13: runs the reader's kernel, on a GPU (on_gpu.cu) or without (emulated.cpp).
Floats run_kernel(const Floats& input, const Floats& weight);
void print_kernel_bars();

}  // namespace exercise
