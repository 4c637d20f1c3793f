#include <voxgrad/cuda/conv3d/gather/plan.h>

#include "tests/cuda/conv3d/evaluate.h"

// How gather evaluates its plan, on the CPU by loops: jobs, planes and slots, rows copied as they are, cells
// and taps by offsets and bits.

namespace vox::cuda::conv::gather {
namespace {

constexpr int k_block_channels = 8;
constexpr int64_t nothing = -2;  // what a stage holds beside elements

template <class Array>
decltype(auto) at(Array& a, int64_t i) {
  return a.at(static_cast<size_t>(i));
}

/// As kernel.cuh. Stages hold numbers of elements.
struct Walk {
  const TileShape& t;
  const Plan& p;
  Evaluation& products;
  int base;           // elements before the input in the 16 bytes that it begins in
  int64_t in_memory;  // elements of the input, and those before it
  // The current block of channels of the output; the current stage: its k-block, where the channel of each k
  // begins in it, and the tap along d of each slot.
  int group = 0, out0 = 0, here = 0, s = 0;
  Ints stage = Ints(static_cast<size_t>(k_block_channels * p.channel_bytes / 4));
  std::array<int, k_block_channels> begins{};
  Live live{};
  // What a slot's sums add up, until their depth is complete: cell and channel, input, weight.
  std::array<std::vector<std::array<int64_t, 3>>, most_slots> sums{};
  Tile tile{};
  Rows rows{};
  int cells = 0;

  Walk(const Planned& planned, int misaligned, Evaluation& to)
      : t(planned.tile),
        p(planned.plan),
        products(to),
        base(misaligned),
        in_memory(misaligned + int64_t{p.batch} * p.groups * p.in_per_group * p.in_channel) {
    for (int column = 0; column < p.groups * p.channel_blocks; ++column) {
      group = column / p.channel_blocks, out0 = column % p.channel_blocks * t.channels;
      here = std::min(p.out_per_group - out0, t.channels);
      for (int b = 0; b < p.blocks; ++b) {
        int begun = 0, done = 0;
        walk(
            p, t, b, p.blocks, [&](const Tile& next) { begin_tile(next); },
            [&](int slot) {
              at(sums, slot).clear();
              EXPECT_LE(++begun - done, t.slots);
            },
            [&](int plane, const Live& taps) {
              live = taps;
              for (s = 0; s < p.k_blocks; ++s) multiply_stage(plane);
            },
            [&](int slot, int depth) {
              store(slot, depth);
              ++done;
            });
        EXPECT_EQ(begun, done);
      }
    }
  }

  void begin_tile(const Tile& next) {
    tile = next, rows = rows_of(next, cells_of(t), p), cells = std::min(cells_of(t), p.cells - next.cell);
    EXPECT_TRUE(tile.image < p.batch && tile.cell < p.cells);
  }

  void multiply_stage(int plane) {
    for (int k = 0; k < k_block_channels; ++k) {
      const int own = channel_of(k, p.neighbours),
                in = std::min(s * k_block_channels + own, p.in_per_group - 1);
      const int row = base + ((tile.image * p.groups + group) * p.in_per_group + in) * p.in_channel +
                      plane * p.in_plane + rows.first * p.w.in;
      copy(row, rows.count, own);
      // Channels that are 8 apart have the same place within 16 bytes; the last channel may be repeated.
      if (s == 0 || (s + 1) * k_block_channels > p.in_per_group)
        at(begins, k) = own * p.channel_bytes + row % 4 * 4;
    }
    for (int i = tile.cell; i < tile.cell + cells; ++i) multiply(cell_at(i));
  }

  /// Copies rows of a channel, which begin at `row` of the memory, from and to multiples of 16 bytes, except
  /// for memory beyond the end of the tensor.
  void copy(int row, int count, int channel) {
    const int word = row % 4, words = word + count * p.w.in, from = row - word;
    int whole = (words + 3) / 4 * 4;
    EXPECT_LE(whole * 4, p.channel_bytes);
    const auto to = stage.begin() + channel * (p.channel_bytes / 4);
    std::fill_n(to, p.channel_bytes / 4, nothing);
    const auto in_tensor = [&](int i) { return i < base ? nothing : int64_t{i} - base; };
    if (from + whole > in_memory) {
      whole -= 4;
      for (int i = std::max(whole, word); i < words; ++i) to[i] = in_tensor(from + i);
    }
    EXPECT_LE(from + whole, in_memory);
    for (int i = 0; i < whole; ++i) to[i] = in_tensor(from + i);
  }

  /// A cell of the output: the offset in bytes of its first tap in a channel's rows, and which taps are
  /// outside.
  struct Cell {
    int number, offset;
    uint32_t outside = 0;
  };
  Cell cell_at(int number) const {
    const int row = first_of(number / p.w.out, p.h), column = first_of(number % p.w.out, p.w);
    Cell cell{number - tile.cell, ((row - rows.first) * p.w.in + column) * 4};
    const auto inside = [](int i, int size) { return i >= 0 && i < size; };
    for (int k = 0; k < p.h.kernel; ++k)
      if (!inside(row + k * p.h.dilation, p.h.in)) cell.outside |= 1u << k;
    for (int k = 0; k < p.w.kernel; ++k)
      if (!inside(column + k * p.w.dilation, p.w.in)) cell.outside |= 1u << (16 + k);
    return cell;
  }

  using Eight = std::array<int64_t, k_block_channels>;  // of k

  Eight gather(const Cell& cell, const Tap& tap) const {
    Eight values;
    values.fill(testing::outside);
    for (int k = 0; k < k_block_channels && !(cell.outside & tap.where); ++k) {
      const int byte = at(begins, k) + cell.offset + tap.offset;
      EXPECT_EQ(byte / p.channel_bytes, channel_of(k, p.neighbours));
      at(values, k) = at(stage, byte / 4);
      EXPECT_NE(at(values, k), nothing);
    }
    return values;
  }

  void multiply_tap(const Cell& cell, const Eight& a, int tap) {
    const int taps = p.d.kernel * p.taps;
    for (int slot = 0; slot < t.slots; ++slot)
      for (int k = 0; k < k_block_channels && live.tap(slot) >= 0; ++k) {
        const int in = s * k_block_channels + channel_of(k, p.neighbours),
                  number = live.tap(slot) * p.taps + tap;
        if (in >= p.in_per_group || at(a, k) == testing::outside) continue;  // a weight of 0
        for (int o = 0; o < here; ++o)
          at(sums, slot)
              .push_back({cell.number * here + o, at(a, k),
                          products.weight(group, in, out0 + o, p.transposed ? taps - 1 - number : number)});
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

  void store(int slot, int depth) {
    const auto output = [&](int64_t i) {
      const int64_t cell = tile.cell + i / here;
      return products.output(tile.image, group * p.out_per_group + out0 + i % here,
                             {depth, cell / p.w.out, cell % p.w.out});
    };
    for (int i = 0; i < cells * here; ++i) products.store(output(i));
    for (const auto& [i, input, weight] : at(sums, slot)) products.add(output(i), input, weight);
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
  EXPECT_EQ(p.slot_weights, p.taps * k_block_channels * t.channels * (t.split ? 8 : 4));
  EXPECT_LE(k_block_channels * p.channel_bytes + t.slots * p.slot_weights, p.stage_bytes);
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
    if (!g || testing::products_of(*g) > 1'000'000) continue;
    const auto planned =
        make_plan(*g, transposed, split,
                  with_multiprocessors(std::array{1, 7, 132}[static_cast<size_t>(random(0, 2))]));
    const bool few_depths = (kernel.d - 1) * o.dilation.d / o.stride.d < most_slots;
    EXPECT_EQ(planned.has_value(), few_depths);
    if (!planned) continue;
    expect_fits(*planned);
    testing::evaluate(*g, transposed, [&](Evaluation& products) {
      Walk(*planned, static_cast<int>(random(0, 3)), products);
    });
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
      const Plan p = make_plan(*g, false, false, h200)->plan;
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
    const auto g = geometry(transposed, input, out, kernel,
                            {.stride = stride, .padding = triple(0, 1), .dilation = dilation});
    if (!g) continue;
    const auto planned = make_plan(*g, transposed, split, h200);
    for (const int multiprocessors : {1, 114, 131})
      EXPECT_EQ(make_plan(*g, transposed, split, with_multiprocessors(multiprocessors)).has_value(),
                planned.has_value());
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
    return make_plan(*geometry(transposed, input, 16, kernel, options), transposed, split, h200).has_value();
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
  // Numbers must fit their types, and blocks of channels are blocks of a launch.
  EXPECT_TRUE(takes(input, 1, {.stride = 4096}));
  EXPECT_FALSE(takes(input, 1, {.stride = 4097}));
  EXPECT_TRUE(takes({(1 << 24) - 1, 1, 64, 1, 1}, 1, {}));
  EXPECT_FALSE(takes({1 << 24, 1, 64, 1, 1}, 1, {}));
  const auto takes_outputs = [](int64_t out) {
    return make_plan(*geometry(false, {1, 1, 2, 2, 2}, out, 1, {}), false, false, h200).has_value();
  };
  EXPECT_TRUE(takes({1, 65535 * 8 + 1, 2, 2, 2}, 1, {}));
  EXPECT_TRUE(takes_outputs(65535 * 64));
  EXPECT_FALSE(takes_outputs(65535 * 64 + 1));
}

}  // namespace
}  // namespace vox::cuda::conv::gather
