#include <utility>
#include <vector>

#include "tests/cuda/conv3d/support.h"

// For compute-sanitizer: one small geometry for each edge case of every kernel of the table, forced by name.
// Inputs are whole numbers, and results equal the reference.

namespace vox {
namespace {

using namespace vox::testing;

class Conv3dKernelsSanitizeCuda : public KernelTest {};
INSTANTIATE_TEST_SUITE_P(, Conv3dKernelsSanitizeCuda, ::testing::ValuesIn(kernel_modes()), mode_name);

TEST_P(Conv3dKernelsSanitizeCuda, EveryEdge) {
  std::vector<Conv3dGeometry> geometries;
  for (const TransposeCase& c : awkward_cases()) geometries.push_back(c.geometry());
  const auto add = [&](const Shape& input, const Shape& weight, const ConvTranspose3dOptions& options) {
    geometries.push_back(geometry(input, weight, options));
  };
  // One for each width of a tile of channels, and several tiles of cells.
  for (const int64_t out : {8, 16, 24, 31, 48, 64, 70})
    add({2, 9, 3, 5, 7}, {9, out, 2, 3, 1}, {.stride = {1, 2, 1}, .padding = {0, 1, 0}});
  // Taps along w: more than share a tile, and taps so far apart that none do.
  for (const auto& [taps, dilation, stride] : {Triple(8, 1, 1), Triple(9, 1, 1), Triple(3, 4, 1),
                                               Triple(3, 5, 1), Triple(2, 9, 1), Triple(19, 1, 2)})
    add({2, 3, 1, 2, 5}, {3, 4, 1, 2, taps},
        {.stride = {1, 1, stride}, .padding = {0, 0, taps / 2}, .dilation = {1, 1, dilation}});
  // The flat product: more depths than a tile has, with a remainder; two blocks of channels; taps along d in
  // several groups, and far apart; rows so long that a window holds one row of taps.
  add({1, 9, 14, 3, 4}, {9, 17, 3, 2, 3}, {.padding = {1, 0, 2}});
  add({3, 3, 9, 4, 5}, {3, 24, 3, 3, 3}, {});
  add({2, 17, 5, 3, 4}, {17, 72, 2, 2, 2}, {});
  add({1, 4, 3, 3, 3}, {4, 40, 5, 2, 1}, {});
  add({1, 4, 5, 3, 3}, {4, 8, 4, 1, 2}, {.dilation = {3, 2, 1}});
  add({1, 3, 2, 5, 300}, {3, 5, 2, 3, 3}, {});
  add({2, 3, 2, 3, 180}, {3, 5, 1, 5, 2}, {.padding = {0, 2, 1}});
  // Strides with more taps than fit shared memory at once (strided/plan_test.cpp says how each is cut).
  add({1, 17, 4, 5, 9}, {17, 32, 5, 5, 5}, {.stride = 2, .padding = 2});
  add({1, 9, 3, 4, 5}, {9, 16, 7, 7, 7}, {.stride = 2, .padding = 3});
  add({1, 33, 3, 4, 20}, {33, 48, 7, 7, 5}, {.stride = {2, 2, 1}, .padding = {3, 3, 0}});
  // Both phases along w in one product: rows that lie within a tile, rows of several tiles and of a few
  // cells; rows that begin with the second phase; stride 1 along d and h; groups.
  add({1, 9, 2, 5, 64}, {9, 32, 3, 3, 3}, {.stride = 2, .padding = 1});
  add({1, 9, 2, 2, 200}, {9, 32, 2, 3, 4}, {.stride = 2, .padding = {0, 1, 1}});
  add({2, 8, 3, 5, 3}, {8, 24, 3, 4, 4}, {.stride = 2, .padding = {1, 2, 1}, .output_padding = 1});
  add({1, 17, 2, 7, 33}, {17, 32, 1, 1, 5}, {.stride = {1, 1, 2}, .padding = {0, 0, 2}});
  add({1, 20, 9, 40, 128}, {20, 31, 2, 1, 3}, {.stride = {2, 1, 2}, .padding = {0, 0, 1}, .groups = 2});
  // The same with two tiles of cells for a warpgroup: rows stored with the beginning of the next, except the
  // last; a window with a few positions more than producers bring in rounds.
  add({1, 40, 5, 14, 128}, {40, 31, 2, 3, 3}, {.stride = 2, .padding = {0, 1, 1}, .groups = 4});
  add({1, 18, 3, 45, 128}, {18, 32, 1, 3, 4}, {.stride = {1, 2, 2}, .padding = {0, 1, 1}, .groups = 2});
  // Strides of 3 and 4: three phases along w, four, and two live ones.
  add({2, 9, 3, 4, 7}, {9, 16, 4, 3, 5}, {.stride = 3, .padding = 1});
  add({1, 24, 2, 3, 20}, {24, 17, 4, 5, 4}, {.stride = 4});
  add({1, 8, 2, 3, 5}, {8, 8, 1, 2, 2}, {.stride = {1, 3, 4}});
  // Gathered cells: each tile of the kernel (blocks of channels, depths that a plane serves), with planes,
  // rows and columns outside, tiles that cut rows, and rows that begin anywhere.
  for (const int64_t taps : {1, 3, 5})
    for (const int64_t in : {16, 32, 48, 64})
      add({2, in, 2, 7, 21}, {in, 8, taps, 3, 2}, {.stride = 2, .padding = {taps / 2, 1, 0}});
  add({1, 70, 3, 3, 3}, {70, 19, 3, 3, 3}, {.stride = {2, 3, 1}, .padding = 1, .dilation = {2, 1, 2}});
  add({1, 17, 5, 2, 130}, {17, 16, 2, 5, 5}, {.stride = {3, 1, 2}, .padding = {0, 2, 2}});
  add({2, 9, 7, 5, 33}, {9, 50, 3, 3, 5}, {.padding = {3, 0, 5}, .dilation = {1, 2, 1}});
  // Sums that roll along d: each tile of the kernel, and planes outside the input.
  for (const int64_t taps : {2, 3, 5})
    for (const int64_t out : {16, 24, 32, 48, 64})
      add({2, 9, 4, 5, 6}, {9, out, taps, 2, 3}, {.padding = {1, 0, 1}});
  add({1, 8, 4, 12, 13}, {8, 17, 3, 3, 3}, {.padding = {2, 1, 1}, .dilation = {1, 2, 3}});
  // Few channels: each number of taps along h and each stride that a thread keeps in registers, and others;
  // rows of several tiles; each block of channels.
  for (const int64_t taps : {1, 2, 3, 4, 5, 6})
    for (const int64_t stride : {1, 2, 3})
      add({1, 3, 3, 11, 9}, {3, 1, 2, taps, 3}, {.stride = stride, .padding = {0, taps / 2, 1}, .groups = 3});
  add({2, 4, 2, 9, 70}, {4, 1, 3, 3, 3}, {.padding = 1, .groups = 4});
  add({1, 1, 5, 17, 150}, {1, 2, 3, 3, 2}, {.stride = {1, 1, 2}});
  for (const int64_t out : {2, 3, 5, 9})
    add({1, 4, 3, 5, 6}, {4, out, 3, 2, 3}, {.stride = {2, 1, 2}, .groups = 2});
  // Patches: every kernel, by the taps along w, and by the channels of both sides; rows that are joined; the
  // last cells of a warp missing; several blocks of rows.
  if (of_patches(kernel())) {
    for (const auto& [in, out] : {std::pair(2, 3), {3, 40}, {20, 2}, {33, 20}, {64, 8}, {130, 70}, {20, 300}})
      for (const Triple& size : {Triple(2), {1, 2, 2}, {2, 1, 1}, {3, 2, 1}, {1, 1, 2}, {1, 1, 1}})
        add({2, in, 1, 3, 24}, {in, out, size.d, size.h, size.w}, {.stride = size});
    add({3, 9, 2, 2, 2}, {9, 17, 1, 1, 1}, {});
    add({1, 32, 3, 6, 4}, {32, 2, 2, 1, 2}, {.stride = {2, 1, 2}});
    add({2, 200, 1, 1, 8}, {200, 64, 2, 2, 2}, {.stride = 2});
    add({1, 256, 1, 2, 8}, {256, 128, 2, 2, 2}, {.stride = 2});
  }
  for (const Conv3dGeometry& g : geometries) {
    for (const Conv3dPass pass : all_passes) {
      if (!takes(pass, g)) continue;
      compare(GetParam(), pass, g, false);
      if (pass != Conv3dPass::weight_grad) compare(GetParam(), pass, g, true);
    }
  }
}

// 16-bit numbers are read and written as words where possible. These cases have rows that begin at odd
// elements, because their length, a plane's, a channel's or the tensor's offset is odd; rows of one cell;
// padding that puts a word across two rows of the kernel's numbering; cropping that cuts a word; and cells
// two apart.
TEST_P(Conv3dKernelsSanitizeCuda, RowsThatBeginAnywhere) {
  const Conv3dGeometry geometries[]{
      geometry({2, 9, 4, 4, 32}, {9, 17, 3, 3, 3}, {}),             // even everywhere
      geometry({2, 9, 3, 4, 32}, {9, 8, 3, 3, 3}, {.padding = 1}),  // taps from -1 on
      geometry({3, 9, 3, 3, 31}, {9, 8, 1, 2, 2}, {}),              // odd rows and planes
      geometry({3, 9, 3, 4, 31}, {9, 8, 1, 2, 2}, {}),              // odd rows, even planes
      geometry({2, 17, 3, 3, 16}, {17, 24, 1, 1, 2}, {}),           // a pitch put up to an even one
      geometry({3, 8, 5, 7, 1}, {8, 40, 3, 2, 1}, {}),              // rows of one cell
      geometry({3, 8, 3, 1, 1}, {8, 8, 2, 1, 1}, {}),               // planes of one cell
      geometry({2, 8, 3, 5, 2}, {8, 64, 1, 2, 1}, {}),              // rows of one word
      geometry({2, 8, 4, 3, 18}, {8, 8, 1, 1, 1}, {}),              // no zeros between rows and images
      geometry({2, 8, 3, 9, 20}, {8, 8, 1, 2, 3}, {.padding = {0, 2, 3}}),  // cropped by an odd number
      geometry({2, 8, 3, 9, 20}, {8, 8, 1, 2, 3}, {.padding = {0, 2, 4}}),  // by an even one
      geometry({2, 8, 3, 4, 18}, {8, 8, 2, 3, 4}, {.stride = {1, 1, 2}, .padding = {0, 1, 1}}),
      geometry({1, 16, 3, 4, 22}, {16, 8, 3, 2, 3}, {.groups = 2, .dilation = {1, 2, 3}}),
      geometry({1, 8, 2, 5, 300}, {8, 8, 2, 3, 3}, {.padding = {0, 0, 1}}),  // a window of one row of taps
      geometry({2, 8, 3, 4, 18}, {8, 17, 2, 2, 3}, {.stride = 2, .dilation = 2}),  // phases without taps
      geometry({1, 8, 2, 21, 37}, {8, 8, 1, 1, 1}, {.stride = 2}),                 // and tiles that cut rows
      // Both phases along w in one product; in the third case rows begin with the second phase.
      geometry({1, 8, 2, 3, 64}, {8, 31, 2, 2, 3}, {.stride = 2, .padding = {0, 0, 1}}),
      geometry({1, 8, 2, 5, 35}, {8, 32, 1, 2, 3}, {.stride = {1, 2, 2}}),
      geometry({1, 8, 2, 3, 66}, {8, 32, 2, 2, 4}, {.stride = 2, .padding = {0, 1, 1}}),
      // Patches.
      geometry({2, 9, 2, 3, 8}, {9, 8, 2, 2, 2}, {.stride = 2}),
      geometry({2, 9, 2, 3, 8}, {9, 3, 1, 1, 1}, {}),
  };
  for (const Conv3dGeometry& g : geometries)
    for (const Conv3dPass pass : all_passes)
      for (const int64_t offset : {0, 1, 2, 3})
        if (takes(pass, g))
          compare(GetParam(), pass, g, offset % 2 == 1 && pass != Conv3dPass::weight_grad, offset);
}

}  // namespace
}  // namespace vox
