#include <voxgrad/cuda/conv3d/strided/plan.h>

#include <span>

#include "tests/cuda/conv3d/evaluate.h"

namespace vox::cuda::conv::strided {
namespace {

/// As kernel.cuh: tiles, the windows of kinds in a stage, items as shifts in them, slots, and dead phases.
struct Walk {
  Evaluation& products;
  const Planned& planned;
  const TileShape& shape;
  const Plan& p = planned.plan;
  const int per_row = shape.slots > 1 && shape.form != Form::wide ? 2 : 1, rows = shape.slots / per_row;
  Ints window = {};  // numbers of the input's cells, in the order of a stage

  static constexpr int64_t unknown = -2;

  void load(const Tile& tile, const Kind& kind) {
    window.assign(static_cast<size_t>(kind.granule_pitch) + 4096, unknown);
    for (int phase = 0; phase < (p.transposed ? 1 : p.phases_w); ++phase)
      for (int i = 0; i < kind.planes * kind.plane; ++i) {
        const auto [plane, in_plane] = digits(i, {kind.plane});
        const Place at = place_of(tile.position + in_plane, p);
        const int64_t d = (tile.depth + kind.low_d + plane) * p.d.in_step + kind.phase_d,
                      h = (at.row + kind.low_h) * p.h.in_step + kind.phase_h,
                      w = (at.column + p.low_w) * p.w.in_step + (p.transposed ? 0 : p.phase_w[phase]);
        const bool inside = products.input(0, 0, {d, h, w}) != outside;
        window.at(static_cast<size_t>(phase * kind.phase_pitch + i)) =
            inside ? (d * p.h.in + h) * p.w.in + w : outside;
      }
  }

  int64_t output(int group, int channel, const Tile& tile, const Place& at, const PhasePair& row,
                 int w) const {
    if (channel >= p.out_per_group) return outside;
    return products.output(tile.image, group * p.out_per_group + channel,
                           {tile.depth * p.d.out_step + row.d, at.row * p.h.out_step + row.h,
                            at.column * p.w.out_step + w - p.origin_w});
  }

  /// As store/wide.cuh: the outputs of a cell, all phases.
  void store_wide(int group, int channel, const Tile& tile, const Place& at) const {
    for (int row = 0; row < p.rows; ++row)
      for (int w = 0; w < 2; ++w)
        if (const int64_t element = output(group, channel, tile, at, p.row[row], w); element != outside)
          products.store(element);
  }

  /// As store/rows.cuh: what a warp with `cells` cells from a position on stores in a channel.
  struct Warp {
    int position, cells;
    int part, parts;  // of depths without taps
  };
  void store(int64_t channel, const Tile& tile, const Warp& warp) const {
    const bool words = phases_are_words(shape.bytes.storage, p);
    const int phases = words ? 1 : p.w.out_step;
    for (const PhasePair& row : std::span(p.row, static_cast<size_t>(p.rows)))
      for (int i = 0; i < 32 * chunks_of(shape.tiles, phases); ++i) {
        const auto [chunk, lane_row, of_lane] = digits(i, {8, 4});
        const Element e = element_of(phases, chunk, lane_row, of_lane);
        const Target to = target_of(e, warp.cells, place_of(warp.position, p), tile.depth, p);
        if (!(to.exists >> (2 * row.d + row.h) & 1)) continue;
        const Place at = place_of(warp.position + e.cell, p);
        const int64_t d = tile.depth * p.d.out_step + row.d, h = at.row * p.h.out_step + row.h,
                      w = at.column * p.w.out_step + e.phase;
        const int64_t first = channel + to.offset + (row.d * p.h.out + row.h) * p.w.out;
        ASSERT_EQ(first, channel + (d * p.h.out + h) * p.w.out + w);
        for (int n = 0; n <= words; ++n) products.store(first + n);
      }
    for (int row = 0; row < p.rows && p.dead_row >= 0; ++row) {
      const int64_t d = tile.depth * p.d.out_step + p.row[row].d;
      const Interval of = filled_rows(warp.position, warp.cells, p);
      for (int h = 2 * of.first + p.dead_row; h < std::min(2 * of.end, p.h.out) && d < p.d.out; h += 2)
        for (int w = 0; w < p.w.out; ++w) products.store(channel + (d * p.h.out + h) * p.w.out + w);
    }
  }
  /// The part of a warpgroup in the depths without taps; channels lie anywhere in their sectors.
  void fill(int64_t channel, const Tile& tile, const Warp& warp) const {
    const int elements = p.h.out * p.w.out;
    const int per_sector = 32 / shape.bytes.storage;
    for (int i = 0; i < p.dead_depths; ++i) {
      const int64_t d = tile.depth * p.d.out_step + p.dead_depth[i], plane = channel + d * int64_t{elements};
      const Interval of = in_sectors(part_of(elements, warp.part, warp.parts), elements,
                                     static_cast<int>(plane % per_sector), per_sector);
      for (int64_t e = of.first; e < of.end && d < p.d.out; ++e) products.store(plane + e);
    }
  }
  void store_rows(int group, int channel, const Tile& tile) const {
    if (channel >= p.out_per_group) return;
    const int64_t first =
        ((int64_t{tile.image} * p.groups + group) * p.out_per_group + channel) * p.out_channel;
    const int cells = 16 * shape.tiles;
    for (int warp = 0; warp < 8; ++warp) {
      const int warpgroup = warp / 4, part = p.depths == 2 ? 0 : warpgroup;
      const Tile of{tile.image, tile.depth + (p.depths == 2 ? warpgroup : 0), tile.position};
      const Warp w{tile.position + part * 4 * cells + warp % 4 * cells, cells,
                   tile.position / (4 * cells) + part, p.plane_tiles * (p.depths == 2 ? 1 : 2)};
      store(first, of, w);
      if (warp % 4 == 0) fill(first, of, w);
    }
  }

  /// The products of an item with a cell; `w` is the output's phase along w.
  void multiply(int group, int first_channel, const Tile& tile, const Place& at, const PhasePair& row, int w,
                int64_t cell, uint16_t tap) const {
    if (tap == no_tap || cell == outside) return;
    for (int c = first_channel; c < first_channel + shape.channels; ++c) {
      const int64_t element = output(group, c, tile, at, row, w);
      if (element == outside) continue;
      ASSERT_NE(cell, unknown);
      for (int in = 0; in < p.in_per_group; ++in) {
        const int64_t channel = (int64_t{tile.image} * p.groups + group) * p.in_per_group + in;
        products.add(element, channel * p.in_channel + cell, products.weight(group, in, c, tap));
      }
    }
  }

  void walk(int group, int first_channel, Tile tile) {
    const int positions = 128 * shape.tiles / p.depths;
    for (int block = 0; block < p.row_blocks; ++block)
      for (int k = p.first_kind[block]; k < p.first_kind[block + 1]; ++k) {
        const Kind& kind = p.kind[k];
        load(tile, kind);
        for (int i = 0; i < 128 * shape.tiles; ++i) {
          const auto [depth, position] = digits(i, {positions});
          const Tile of{tile.image, tile.depth + depth, tile.position};
          const Place at = place_of(tile.position + position, p);
          for (int slot = 0; slot < shape.slots; ++slot)
            for (int number = kind.first[slot]; number < kind.first[slot + 1]; ++number) {
              const PhasePair row = p.transposed ? p.row[block * rows + slot / per_row] : PhasePair{};
              const int w = !p.transposed ? 0 : per_row == 2 ? slot % 2 : p.phase_w[0];
              const int64_t cell =
                  window.at(p.item[number].position + static_cast<size_t>(depth * kind.plane + position));
              multiply(group, first_channel, of, at, row, w, cell, planned.taps.of[number]);
              multiply(group, first_channel, of, at, row, 1, cell, planned.taps.second[number]);
            }
        }
      }
    for (int c = first_channel; c < first_channel + shape.channels; ++c) {
      if (shape.form == Form::rows) store_rows(group, c, tile);
      for (int i = 0; i < 128 * shape.tiles && shape.form == Form::wide; ++i) {
        const auto [depth, position] = digits(i, {positions});
        store_wide(group, c, {tile.image, tile.depth + depth, tile.position},
                   place_of(tile.position + position, p));
      }
    }
  }

  void all() {
    for (int column = 0; column < p.groups * p.channel_blocks; ++column)
      for (int tile = 0; tile < p.batch * p.depth_blocks * p.plane_tiles; ++tile)
        walk(column / p.channel_blocks, column % p.channel_blocks * shape.channels,
             tile_of(tile, 128 * shape.tiles / p.depths, p));
  }
};

TEST(Conv3dStridedPlan, EvaluatesTheDefinition) {
  Random random{std::mt19937_64(9)};
  int compared = 0;
  std::array<int, 2> of_form{};
  int dead_rows = 0, dead_depths = 0;
  for (int i = 0; i < 1500; ++i) {
    const bool transposed = i % 3 > 0, wide = i % 5 == 0;
    const Conv3dOptions o{.stride = wide ? Triple(random(1, 2), 2, 2) : random.triple(1, transposed ? 2 : 4),
                          .padding = random.triple(0, 3),
                          .dilation = i % 4 ? Triple(1) : random.triple(1, 3),
                          .groups = i % 7 ? 1 : 2};
    const Shape input{random(1, 2), random(1, wide ? 2 : 9) * o.groups, random(1, 4), random(1, 6),
                      random(1, wide    ? 40
                                : i % 6 ? 20
                                        : 150)};
    const auto g = testing::geometry(transposed, input, (wide ? 32 : random(1, 20)) * o.groups,
                                     random.triple(1, i % 4 ? 4 : 6), o);
    if (!g || testing::products_of(*g) > 200'000) continue;
    const Bytes bytes = i % 2 ? Bytes{2, 2} : Bytes{4, 4};
    const TileShape shape = tile_for(*g, transposed, bytes);
    const auto planned = make_plan(*g, transposed, shape);
    if (!planned) continue;
    const Plan& p = planned->plan;
    EXPECT_GE(p.k_blocks * p.k_steps * 32 / bytes.operand, p.in_per_group);
    testing::evaluate(*g, transposed, [&](Evaluation& products) { Walk{products, *planned, shape}.all(); });
    ++compared;
    ++of_form.at(static_cast<size_t>(shape.form));
    dead_rows += p.dead_row >= 0, dead_depths += p.dead_depths > 0;
  }
  EXPECT_GT(compared, 300);
  EXPECT_GT(dead_rows, 20);
  EXPECT_GT(dead_depths, 20);
  for (const int count : of_form) EXPECT_GT(count, 20);
}

// Before lanes exchange values, a lane has value i of a chunk in row 8 h + lane / 4 of instruction t. After
// it, four lanes times eight have 32 neighbours.
TEST(Conv3dStridedPlan, StoresNeighboursAtOnce) {
  for (const int tiles : {1, 2, 4})
    for (const int phases : {1, 2}) {
      std::vector<int> elements;
      for (int chunk = 0; chunk < chunks_of(tiles, phases); ++chunk)
        for (int row = 0; row < 8; ++row)
          for (int i = 0; i < 4; ++i) {
            const auto [cell, phase] = element_of(phases, chunk, row, i);
            EXPECT_EQ(cell % 8, row);
            EXPECT_EQ(cell / 8, element_of(phases, chunk, 0, i).cell / 8);
            EXPECT_EQ((cell * phases + phase) / 32, chunk);
            elements.push_back(cell * phases + phase);
          }
      std::ranges::sort(elements);
      for (int e = 0; e < std::ssize(elements); ++e) EXPECT_EQ(elements[static_cast<size_t>(e)], e);
      EXPECT_GE(std::ssize(elements), 16 * tiles * phases);
    }
}

// CUDA must accept the launch: a block of Hopper has 227 KiB of shared memory, part of which the kernel's
// barriers and its alignment take.
TEST(Conv3dStridedPlan, LeavesSharedMemoryForTheKernelsOwn) {
  int plans = 0;
  for (const int64_t channels : {8, 17, 24, 32, 33, 48, 64, 100}) {
    for (const Triple& kernel : {Triple(2), Triple(3), Triple(4), Triple(5), Triple(7), Triple(1, 3, 7)}) {
      for (const Triple& stride :
           {Triple(1), Triple(2), Triple(1, 2, 2), Triple(1, 1, 2), Triple(3), Triple(2, 3, 4)}) {
        for (const int64_t dilation : {1, 2}) {
          const auto g =
              testing::geometry({2, channels, 9, 16, 33}, {channels, channels, kernel.d, kernel.h, kernel.w},
                                {.stride = stride, .padding = 0, .dilation = dilation});
          for (const Bytes bytes : {Bytes{4, 4}, Bytes{2, 4}, Bytes{2, 2}, Bytes{4, 4, true}}) {
            for (const bool transposed : {false, true}) {
              const TileShape tile = tile_for(g, transposed, bytes);
              const auto planned = make_plan(g, transposed, tile);
              if (!planned) continue;
              ++plans;
              EXPECT_LE(planned->plan.shared_bytes, 227 * 1024 - 512)
                  << channels << " channels, kernel " << kernel << ", stride " << stride << ", dilation "
                  << dilation << ", transposed " << transposed << ", operands of " << bytes.operand
                  << " bytes, tensors of " << bytes.storage << ", scaled " << bytes.scaled;
            }
          }
        }
      }
    }
  }
  EXPECT_GT(plans, 900);
}

// Where the window and the weights of all shifts do not fit shared memory, a plan takes some at a time. Every
// tap occurs once.
TEST(Conv3dStridedPlan, CutsShiftsThatDoNotFit) {
  struct Case {
    int64_t in, out;
    Triple kernel, stride;
    int kinds, kinds_transposed;
  };
  for (const Case& c :
       {Case{32, 48, 3, 2, 4, 4},  // nothing is cut: a kind for each phase
        Case{17, 32, 5, 2, 6, 3},  // 3 shifts along d, and 2 of the other phase, two at a time
        Case{9, 16, 7, 2, 14, 4},  // 4 and 3, one at a time; one block of all phases
        Case{33, 48, Triple(7, 7, 5), Triple(2, 2, 1), 8, 8},
        Case{32, 32, 4, 3, 12, 0},  // only conv3d has strides 3 and 4; 2 + 1 + 1 shifts along d, 3 phases
        Case{17, 48, 7, 4, 28, 0}}) {
    const auto g = testing::geometry({1, c.in, 9, 10, 30}, {c.in, c.out, c.kernel.d, c.kernel.h, c.kernel.w},
                                     {.stride = c.stride});
    for (const bool transposed : {false, true}) {
      const auto planned = make_plan(g, transposed, tile_for(g, transposed));
      if (transposed && c.kinds_transposed == 0) {
        EXPECT_FALSE(planned) << c.kernel;
        continue;
      }
      ASSERT_TRUE(planned) << c.kernel << ' ' << transposed;
      const Plan& p = planned->plan;
      EXPECT_EQ(p.kinds, transposed ? c.kinds_transposed : c.kinds) << c.kernel << ' ' << transposed;
      EXPECT_EQ(p.first_kind[p.row_blocks], p.kinds);
      std::vector<int> times(static_cast<size_t>(g.taps()));
      for (int i = 0; i < p.kind[p.kinds - 1].first[most_slots]; ++i)
        for (const uint16_t tap : {planned->taps.of[i], planned->taps.second[i]})
          if (tap != no_tap) ++times[tap];
      EXPECT_TRUE(std::ranges::all_of(times, [](int n) { return n == 1; })) << c.kernel << ' ' << transposed;
    }
  }
}

// Where items serve both phases along w, cells begin with the phase for which most items have both taps.
TEST(Conv3dStridedPlan, PairsTapsOfBothPhases) {
  struct Case {
    int64_t kernel, padding;
    int origin, items, half_items;  // items of a pair of phases with one tap along d and h
  };
  for (const Case& c : {Case{2, 0, 0, 1, 0}, Case{2, 1, 1, 1, 0}, Case{3, 0, 0, 2, 2}, Case{3, 1, 0, 2, 1},
                        Case{4, 0, 0, 2, 0}, Case{4, 1, 1, 2, 0}, Case{4, 3, 1, 2, 0}, Case{5, 2, 0, 3, 2}}) {
    const auto g = testing::geometry({1, 8, 5, 6, 64}, {8, 32, 2, 2, c.kernel},
                                     {.stride = 2, .padding = {0, 0, c.padding}});
    const auto planned = make_plan(g, true, {32, 2, 2, {}, Form::wide});
    ASSERT_TRUE(planned) << c.kernel << ' ' << c.padding;
    const Plan& p = planned->plan;
    EXPECT_EQ(p.origin_w, c.origin) << c.kernel << ' ' << c.padding;
    EXPECT_EQ(p.kind[0].first[1], c.items) << c.kernel << ' ' << c.padding;
    EXPECT_EQ(p.half_items, c.half_items) << c.kernel << ' ' << c.padding;
    EXPECT_EQ(p.pitch % 2, 0);
  }
}

// What is read behind a window that ends with a row, and multiplied by zero, is the same on every run: after
// a window come zeros, or the stage's own weights.
TEST(Conv3dStridedPlan, HasZerosBehindWindowsThatEndWithRows) {
  struct Case {
    int64_t width, kernel, padding;
    bool cut;
  };
  for (const Case& c : {Case{64, 3, 1, true}, Case{128, 3, 1, true}, Case{64, 3, 0, false},  // a pitch of 66
                        Case{65, 3, 1, false}}) {
    const auto g = testing::geometry({4, 32, 16, 16, c.width}, {32, 32, 3, 3, c.kernel},
                                     {.stride = 2, .padding = {1, 1, c.padding}});
    const TileShape tile = tile_for(g, true);
    ASSERT_EQ(tile.form, Form::wide);
    const auto planned = make_plan(g, true, tile);
    ASSERT_TRUE(planned);
    const Plan& p = planned->plan;
    EXPECT_EQ(p.zero_bytes > 0, c.cut) << c.width << ' ' << c.kernel;
    const int64_t furthest = 16 * (c.kernel / 2);
    EXPECT_TRUE(!c.cut || p.zero_bytes >= furthest);
    EXPECT_GE(p.stage_bytes, p.window_bytes + p.zero_bytes);
    for (int i = 0; i < p.kinds; ++i) {
      const int window = p.k_steps * p.kind[i].granule_pitch * 32;
      if (c.cut)
        EXPECT_EQ(p.kind[i].begin + window, p.window_bytes);
      else
        EXPECT_EQ(p.kind[i].begin, 0);
    }
  }
}

// The kernel counts the bytes of a channel in 32 bits, for input and output.
TEST(Conv3dStridedPlan, IsForChannelsOfAtMost4GiB) {
  const auto has_plan = [](const Shape& input, int64_t stride, bool transposed) {
    const auto g = detail::conv3d_geometry("test", input, {16, 16, 3, 3, 3},
                                           {.stride = Triple(1, stride, stride), .padding = 1});
    return make_plan(g, transposed, tile_for(g, transposed)).has_value();
  };
  for (const bool transposed : {false, true}) {
    for (const int64_t stride : {1, 2}) {
      EXPECT_TRUE(has_plan({1, 16, 4096, 4096, 64}, stride, transposed));
      EXPECT_FALSE(has_plan({1, 16, 4096, 4096, 65}, stride, transposed));
      EXPECT_FALSE(has_plan({1, 16, 6144, 4096, 64}, stride, transposed));
      EXPECT_FALSE(has_plan({1, 16, 8191, 4096, 64}, stride, transposed));
    }
  }
}

// The packed weights of a block of channels are counted in 31 bits.
TEST(Conv3dStridedPlan, IsForWeightsThatFitItsNumbers) {
  const auto has_plan = [](int64_t channels, const Triple& kernel) {
    const auto g = detail::conv3d_geometry("test", {1, channels, 8, 8, 8},
                                           {64, channels, kernel.d, kernel.h, kernel.w}, {.stride = 2});
    return make_plan(g, false, tile_for(g, false)).has_value();
  };
  EXPECT_TRUE(has_plan(1 << 16, 3));
  EXPECT_TRUE(has_plan(1 << 20, Triple(1)));
  EXPECT_FALSE(has_plan((1 << 20) + 1, Triple(1)));
  EXPECT_TRUE(has_plan(300'000, 3));   // 37,500 k-blocks x 64 channels x 27 taps x 32 bytes: 2.07e9
  EXPECT_FALSE(has_plan(320'000, 3));  // 2.2e9
}

}  // namespace
}  // namespace vox::cuda::conv::strided
