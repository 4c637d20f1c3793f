#include <gtest/gtest.h>

#include <voxgrad/cuda/conv3d/gather/plan.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <random>
#include <utility>

#include "tests/support/conv3d.h"

// How gather evaluates its plan, on the CPU by loops: jobs, planes and slots, rows copied as they are, cells
// and taps by offsets and bits.

namespace vox::cuda::conv::gather {
namespace {

using testing::geometry;
using testing::Random;
using testing::Values;

constexpr int slab = 8;
constexpr double nothing = std::numeric_limits<double>::quiet_NaN();

template <class Array>
decltype(auto) at(Array& a, int64_t i) {
  return a.at(static_cast<size_t>(i));
}

int cells_of(const TileShape& t) { return warpgroups * t.tiles * 64; }
int first_of(int cell, const Axis& axis) { return cell * axis.stride - axis.padding; }

struct Walk {
  const TileShape& t;
  const Plan& p;
  const Values& weight;
  Values memory;  // the input, behind `base` elements of the 16 bytes that it begins in
  int base;
  Values out = Values(static_cast<size_t>(p.batch * p.groups * p.out_per_group * p.out_channel), nothing);
  // The current block of channels of the output; the current stage: its slab, where the channel of each k
  // begins in it, and the tap along d of each slot, or -1.
  int group = 0, out0 = 0, here = 0, s = 0;
  Values stage = Values(static_cast<size_t>(slab * p.channel_bytes / 4));
  std::array<int, slab> begins{};
  std::array<int, most_slots> live{};
  std::array<Values, most_slots> sums{};

  Walk(const Planned& planned, int misaligned, const Values& in, const Values& weights)
      : t(planned.tile), p(planned.plan), weight(weights), memory(in), base(misaligned) {
    memory.insert(memory.begin(), static_cast<size_t>(base), nothing);
    for (int column = 0; column < p.groups * p.channel_blocks; ++column) {
      group = column / p.channel_blocks, out0 = column % p.channel_blocks * t.channels;
      here = std::min(p.out_per_group - out0, t.channels);
      for (int b = 0; b < p.blocks; ++b)
        for (int job = b; job < p.jobs; job += p.blocks) walk(job);
    }
  }

  double weight_at(int in, int o, int tap) const {
    const int taps = p.d.kernel * p.taps;
    const int row = p.transposed ? (group * p.in_per_group + in) * p.out_per_group + o
                                 : (group * p.out_per_group + o) * p.in_per_group + in;
    return in < p.in_per_group ? at(weight, row * taps + (p.transposed ? taps - 1 - tap : tap)) : 0;
  }

  /// The rows of the input that cells from `cell` on touch.
  struct Rows {
    int first, count;
  };
  Rows rows_of(int cell, int cells) const {
    const int last = first_of((cell + cells - 1) / p.w.out, p.h) + (p.h.kernel - 1) * p.h.dilation;
    const int low = std::clamp(first_of(cell / p.w.out, p.h), 0, p.h.in - 1);
    return {low, std::max(std::min(last, p.h.in - 1) - low, 0) + 1};
  }

  /// Copies rows of a channel, which begin at `row` of the memory, from and to multiples of 16 bytes, except
  /// for memory beyond the end of the tensor.
  void copy(int row, int count, int channel) {
    const int word = row % 4, words = word + count * p.w.in, from = row - word;
    int whole = (words + 3) / 4 * 4;
    EXPECT_LE(whole * 4, p.channel_bytes);
    const auto to = stage.begin() + channel * (p.channel_bytes / 4);
    std::fill_n(to, p.channel_bytes / 4, nothing);
    if (from + whole > static_cast<int>(memory.size())) {
      whole -= 4;
      for (int i = std::max(whole, word); i < words; ++i) to[i] = at(memory, from + i);
    }
    EXPECT_LE(from + whole, static_cast<int>(memory.size()));
    std::copy_n(memory.begin() + from, whole, to);
  }

  /// A cell of the output: the offset in bytes of its first tap in a channel's rows, and which taps are
  /// outside.
  struct Cell {
    int number, offset;
    uint32_t outside = 0;
  };
  Cell cell_at(int number, int first_cell, int first_row) const {
    const int row = first_of(number / p.w.out, p.h), column = first_of(number % p.w.out, p.w);
    Cell cell{number - first_cell, ((row - first_row) * p.w.in + column) * 4};
    const auto inside = [](int i, int size) { return i >= 0 && i < size; };
    for (int k = 0; k < p.h.kernel; ++k)
      if (!inside(row + k * p.h.dilation, p.h.in)) cell.outside |= 1u << k;
    for (int k = 0; k < p.w.kernel; ++k)
      if (!inside(column + k * p.w.dilation, p.w.in)) cell.outside |= 1u << (16 + k);
    return cell;
  }

  using Eight = std::array<double, slab>;  // of k

  Eight gather(const Cell& cell, const Tap& tap) const {
    Eight values{};
    for (int k = 0; k < slab && !(cell.outside & tap.where); ++k) {
      const int byte = at(begins, k) + cell.offset + tap.offset;
      EXPECT_EQ(byte / p.channel_bytes, channel_of(k, p.neighbours));
      at(values, k) = at(stage, byte / 4);
    }
    return values;
  }

  void multiply_tap(const Cell& cell, const Eight& a, int tap) {
    for (int slot = 0; slot < t.slots; ++slot)
      for (int k = 0; k < slab && at(live, slot) >= 0; ++k) {
        const int in = s * slab + channel_of(k, p.neighbours);
        for (int o = 0; o < here; ++o)
          at(at(sums, slot), cell.number * here + o) +=
              at(a, k) * weight_at(in, out0 + o, at(live, slot) * p.taps + tap);
      }
  }

  /// Multiplies chunk after chunk, with the next tap's values read in advance.
  void multiply(const Cell& cell) {
    std::array<Eight, 2> a{gather(cell, p.tap[0])};
    for (int first = 0; first < p.taps;) {
      const int last = t.split ? std::min(first + p.chunk, p.taps) : p.taps;
      for (; first + 1 < last; first += 2)
        for (int n = 0; n < 2; ++n) {
          at(a, 1 - n) = gather(cell, p.tap[first + n + 1]);
          multiply_tap(cell, at(a, n), first + n);
        }
      if (first < last) multiply_tap(cell, a[0], first++);
    }
  }

  void walk(int job) {
    const int part = job / p.plane_tiles, image = part / p.parts, cell = job % p.plane_tiles * cells_of(t);
    const int first = part % p.parts * p.depths, last = std::min(first + p.depths, p.d.out);
    EXPECT_TRUE(image < p.batch && cell < p.cells && first < last);
    const int cells = std::min(cells_of(t), p.cells - cell), reach = (p.d.kernel - 1) * p.d.dilation;
    const Rows rows = rows_of(cell, cells);
    int opened = first, closed = first;
    for (int plane = first_of(first, p.d); plane <= first_of(last - 1, p.d) + reach; ++plane) {
      if (opened < last && plane == first_of(opened, p.d)) {
        at(sums, opened++ % t.slots).assign(static_cast<size_t>(cells * here), 0);
        EXPECT_LE(opened - closed, t.slots);
      }
      live.fill(-1);
      for (int k = 0; k < p.d.kernel; ++k) {
        const int touched = plane + p.d.padding - k * p.d.dilation, depth = touched / p.d.stride;
        if (touched < 0 || touched % p.d.stride != 0 || depth < first || depth >= last) continue;
        EXPECT_TRUE(depth >= closed && depth < opened);
        EXPECT_EQ(std::exchange(at(live, depth % t.slots), k), -1);
      }
      const bool any = plane >= 0 && plane < p.d.in && std::ranges::max(live) >= 0;
      for (s = 0; any && s < p.slabs; ++s) {
        for (int k = 0; k < slab; ++k) {
          const int own = channel_of(k, p.neighbours), in = std::min(s * slab + own, p.in_per_group - 1);
          const int row = base + ((image * p.groups + group) * p.in_per_group + in) * p.in_channel +
                          plane * p.in_plane + rows.first * p.w.in;
          copy(row, rows.count, own);
          // Channels that are 8 apart have the same place within 16 bytes; the last channel may be repeated.
          if (s == 0 || (s + 1) * slab > p.in_per_group) at(begins, k) = own * p.channel_bytes + row % 4 * 4;
        }
        for (int i = cell; i < cell + cells; ++i) multiply(cell_at(i, cell, rows.first));
      }
      if (closed < last && plane == first_of(closed, p.d) + reach) {
        for (int i = 0; i < cells * here; ++i) {
          const int channel = (image * p.groups + group) * p.out_per_group + out0 + i % here;
          double& to = at(out, channel * p.out_channel + closed * p.cells + cell + i / here);
          EXPECT_TRUE(std::isnan(std::exchange(to, at(at(sums, closed % t.slots), i))));
        }
        ++closed;
      }
    }
    EXPECT_TRUE(opened == last && closed == last);
  }
};

/// The properties of a plan that the kernel relies on.
void expect_fits(const Planned& planned) {
  const auto& [t, p] = planned;
  EXPECT_TRUE(has_kernel(t));
  EXPECT_TRUE(p.stages >= 2 && p.stages <= 8);
  EXPECT_EQ(p.shared_bytes, p.stages * p.stage_bytes);
  EXPECT_LE(p.shared_bytes, 227 * 1024 - 1024);
  EXPECT_EQ(p.channel_bytes % 16, 0);
  EXPECT_EQ(p.stage_bytes % 128, 0);
  EXPECT_EQ(p.slot_weights, p.taps * slab * t.channels * (t.split ? 8 : 4));
  EXPECT_LE(slab * p.channel_bytes + t.slots * p.slot_weights, p.stage_bytes);
  EXPECT_TRUE(p.chunk == p.taps || (p.chunk % 2 == 0 && p.chunk > 0 && p.chunk < p.taps));
  EXPECT_TRUE(p.tap[p.taps].offset == 0 && p.tap[p.taps].where == ~0u);
  EXPECT_TRUE(p.blocks >= 1 && p.blocks <= p.jobs);
}

TEST(Conv3dGatherPlan, WalksEqualTheReference) {
  Random random{std::mt19937_64(7)};
  int compared = 0;
  for (int i = 0; i < 2000; ++i) {
    const bool transposed = i % 2 == 0, split = i % 4 < 2, many_channels = i % 5 == 0;
    const Triple kernel = random.triple(1, i % 7 ? 4 : 8);
    const Conv3dOptions o{.stride = transposed ? 1 : random.triple(1, i % 3 ? 2 : 4),
                          .padding = random.triple(0, 6),
                          .dilation = random.triple(1, 3),
                          .groups = i % 3 ? 1 : random(1, 3)};
    const int64_t most = (many_channels ? 70 : 12) / o.groups, width = many_channels ? 6 : i % 3 ? 30 : 140;
    const Shape input{random(1, 3), random(1, most) * o.groups, random(1, 7),
                      random(1, many_channels ? 3 : 9), random(1, width)};
    const auto g = geometry(transposed, input, random(1, most) * o.groups, kernel, o);
    if (!g || g->batch * g->small_channels * g->small_cells() * g->big_per_group() * g->taps() > 1'000'000)
      continue;
    const auto planned =
        make_plan(*g, transposed, split, std::array{1, 7, 132}[static_cast<size_t>(random(0, 2))]);
    const bool few_depths = (kernel.d - 1) * o.dilation.d / o.stride.d < most_slots;
    EXPECT_EQ(planned.has_value(), few_depths);
    if (!planned) continue;
    expect_fits(*planned);
    const Values in = testing::integers(testing::numel(input), 1),
                 weight = testing::integers(testing::numel(g->weight_shape()), 2);
    const Walk walk(*planned, static_cast<int>(random(0, 3)), in, weight);
    const auto r = testing::reference_of(*g);
    EXPECT_TRUE(walk.out ==
                (transposed ? reference::conv_transpose3d(r, in, weight) : reference::conv3d(r, in, weight)))
        << "big " << g->big_shape() << " weight " << g->weight_shape() << " groups " << o.groups << " stride "
        << o.stride << " padding " << o.padding << " dilation " << o.dilation
        << (transposed ? " transposed" : "") << (split ? " split" : "");
    ++compared;
  }
  EXPECT_GT(compared, 500);
}

// The most words that a warp reads from one bank of shared memory at once: those of 8 cells of a row in the
// channels of 4 k. The table is indexed by the stride along w and by a channel's elements modulo 4.
TEST(Conv3dGatherPlan, WarpsFindTheirCellsInDifferentBanks) {
  constexpr std::array<std::array<int, 4>, 4> ways{{{1, 2, 2, 2}, {2, 1, 2, 1}, {1, 3, 2, 2}, {4, 2, 2, 2}}};
  for (const Triple& input : {Triple(4, 5, 32), Triple(3, 7, 31), Triple(3, 6, 45), Triple(5, 3, 9)})
    for (int64_t i = 0; i < 64; ++i) {
      const int64_t stride = i % 4 + 1, width = input.w + i / 4;
      const auto g =
          geometry(false, {1, 16, input.d, input.h, width}, 16, 3, {.stride = {1, 1, stride}, .padding = 1});
      const Plan p = make_plan(*g, false, false, 132)->plan;
      int most = 0;
      for (const int first_k : {0, 4})
        for (int start = 0; start < 4; ++start) {
          std::array<int, 32> words{};
          for (int lane = 0; lane < 32; ++lane) {
            const int own = channel_of(first_k + lane % 4, p.neighbours);
            const int begin = own * p.channel_bytes / 4 + (start + own * p.in_channel) % 4;
            most = std::max(most, ++at(words, (begin + lane / 4 * p.w.stride) % 32));
          }
        }
      EXPECT_EQ(most, at(at(ways, stride - 1), p.in_channel % 4)) << g->big_shape() << " stride " << stride;
    }
}

// Counts fit their types, and the existence of a plan does not depend on the multiprocessors.
TEST(Conv3dGatherPlan, TakesNumbersThatFitTheirTypes) {
  constexpr std::array<int64_t, 7> limits{4096, 4097, 65536, 1 << 20, 1 << 25, (1LL << 31) - 1, 1LL << 32};
  Random random{std::mt19937_64(8)};
  const auto any = [&](int64_t low, int64_t high) {
    return random(0, 4) ? random(low, high) : at(limits, random(0, limits.size() - 1));
  };
  const auto triple = [&](int64_t low, int64_t high) {
    return Triple{any(low, high), any(low, high), any(low, high)};
  };
  int taken = 0;
  for (int i = 0; i < 20'000; ++i) {
    const bool transposed = i % 2 == 0, split = i % 3 == 0;
    const Shape input{any(1, 2), any(1, 9), any(1, 64), any(1, 9), any(1, 30)};
    const Triple kernel = triple(1, 3), stride = transposed ? 1 : triple(1, 2), dilation = triple(1, 2);
    const int64_t out = any(1, 9);
    const auto g = geometry(transposed, input, out, kernel, {stride, triple(0, 1), dilation});
    if (!g) continue;
    const auto planned = make_plan(*g, transposed, split, 132);
    for (const int multiprocessors : {1, 114, 131})
      EXPECT_EQ(make_plan(*g, transposed, split, multiprocessors).has_value(), planned.has_value());
    if (!planned) continue;
    const auto& [t, p] = *planned;
    expect_fits(*planned);
    EXPECT_EQ(p.in_channel, transposed ? g->small_cells() : g->big_cells());
    EXPECT_EQ(p.out_channel, transposed ? g->big_cells() : g->small_cells());
    EXPECT_EQ(p.jobs, g->batch * p.plane_tiles * p.parts);
    EXPECT_GE(int64_t{p.plane_tiles} * cells_of(t), p.cells);
    EXPECT_EQ(p.tap[p.taps - 1].offset,
              4 * ((kernel.h - 1) * dilation.h * p.w.in + (kernel.w - 1) * dilation.w));
    EXPECT_GE(int64_t{p.parts} * p.depths, p.d.out);
    ++taken;
  }
  EXPECT_GT(taken, 400);
}

TEST(Conv3dGatherPlan, TakesWhatItsKernelsCan) {
  const auto takes = [](const Shape& input, const Triple& kernel, const Conv3dOptions& options,
                        bool transposed = false, bool split = false) {
    return make_plan(*geometry(transposed, input, 16, kernel, options), transposed, split, 132).has_value();
  };
  const Shape input{1, 16, 8, 20, 40};
  EXPECT_TRUE(takes(input, 3, {}));
  EXPECT_FALSE(takes({0, 16, 8, 20, 40}, 3, {}));
  // conv_transpose3d has stride 1 only.
  EXPECT_TRUE(takes(input, 3, {.stride = 2}));
  EXPECT_TRUE(takes(input, 3, {}, true));
  EXPECT_FALSE(takes(input, 3, {.stride = {1, 1, 2}}, true));
  // At most 3 depths of the output touch a plane of the input.
  EXPECT_FALSE(takes(input, {4, 3, 3}, {}));
  EXPECT_TRUE(takes(input, {6, 3, 3}, {.stride = {2, 1, 1}}));
  EXPECT_FALSE(takes(input, {7, 3, 3}, {.stride = {2, 1, 1}}));
  EXPECT_FALSE(takes(input, 3, {.dilation = {2, 1, 1}}));
  // Each tap has a bit, and the plan holds a limited number of taps.
  EXPECT_TRUE(takes(input, {1, 1, 16}, {}));
  EXPECT_FALSE(takes(input, {1, 1, 17}, {}));
  EXPECT_TRUE(takes(input, {1, 8, 8}, {}));
  EXPECT_FALSE(takes(input, {1, 5, 13}, {}));
  // Two stages of rows and weights must fit.
  EXPECT_TRUE(takes(input, {1, 8, 8}, {}, false, true));
  EXPECT_FALSE(takes(input, {2, 8, 8}, {}, false, true));
  EXPECT_TRUE(takes({1, 16, 8, 20, 750}, 3, {}));
  EXPECT_FALSE(takes({1, 16, 8, 20, 850}, 3, {}));
  // Numbers must fit their types, and slabs of channels are blocks of a launch.
  EXPECT_TRUE(takes(input, 1, {.stride = 4096}));
  EXPECT_FALSE(takes(input, 1, {.stride = 4097}));
  EXPECT_TRUE(takes({(1 << 24) - 1, 1, 64, 1, 1}, 1, {}));
  EXPECT_FALSE(takes({1 << 24, 1, 64, 1, 1}, 1, {}));
  EXPECT_TRUE(takes({1, 65535 * 8, 2, 2, 2}, 1, {}));
  EXPECT_FALSE(takes({1, 65535 * 8 + 1, 2, 2, 2}, 1, {}));
}

}  // namespace
}  // namespace vox::cuda::conv::gather
