#include <gtest/gtest.h>

#include <voxgrad/cuda/conv3d/mma/plan.h>
#include <voxgrad/cuda/conv3d/model/jobs.h>

#include <algorithm>
#include <random>
#include <set>
#include <vector>

#include "tests/cuda/conv3d/evaluate.h"

namespace vox::cuda::conv::mma {
namespace {

using testing::Evaluation;
using testing::geometry;
using testing::products_of;
using testing::Random;

constexpr OperandKind of_16_bits{2, 1}, tf32{4, 1}, f16x3{4, 2};

/// As kernel.cuh: jobs, tables, steps. Windows and items hold numbers of granules.
struct Walk {
  const Planned& planned;
  const Plan& p = planned.plan;
  int of_granule;  // channels
  Evaluation& products;
  std::vector<int> window{};  // of the k-block, by places

  void run() {
    for (int block = 0; block < p.blocks; ++block) {
      const Job j = job_of(p, block);
      Phases phases{};
      bool exists = true;
      for (size_t i = 0; i < 3; ++i) {
        EXPECT_LT(j.number.at(i), p.axis.at(i).phases);
        phases.at(i) = phase_of(p.axis.at(i), p.transposed, j.number.at(i));
        exists &= j.q.at(i) < phases.at(i).cells;
      }
      if (exists) compute(j, phases);
    }
  }

  void compute(const Job& j, const Phases& phases) {
    const Steps steps = steps_of(p, j, phases);
    int loaded = -1;
    for (int step = steps.begin; step < steps.end; ++step) {
      const int slice = step / steps.of_slice, k_block = slice / p.classes, number = slice % p.classes;
      if (loaded != slice) load(j, phases, loaded = slice);
      const ClassTaps taps = taps_of(p, phases, number);
      const int items = items_of(p, taps), first = step % steps.of_slice * p.stage_items;
      EXPECT_EQ(items % 2, 0);
      EXPECT_LE(items, std::min(p.items, steps.of_slice * p.stage_items));
      for (int i = first; i < std::min(items, first + p.stage_items); ++i)
        for (int granule = 0; granule < p.item_granules; ++granule)
          multiply(j, phases, k_block, item_at(p, phases, taps, i), granule);
    }
    if (j.split == 0) for_each_output(j, phases, [&](int64_t output, int, int) { products.store(output); });
  }

  void load(const Job& j, const Phases& phases, int slice) {
    window.assign(static_cast<size_t>(p.window_bytes / 16), -2);
    for (int position = 0; position < p.window_cells; ++position)
      for (int granule = 0; granule < p.k_granules; ++granule) {
        const int from = input_at(p, j, phases, slice % p.classes * p.window_cells + position),
                  of_cell = slice / p.classes * p.k_granules + granule;
        const int place = place_of(p, position, granule);
        EXPECT_EQ(place % 16, 0);
        int& to = window.at(static_cast<size_t>(place / 16));
        EXPECT_EQ(to, -2);
        to = from >= 0 && of_cell < p.granules ? from + of_cell : -1;
      }
  }

  void multiply(const Job& j, const Phases& phases, int k_block, const Item& item, int of_item) {
    const int k_items = p.k_granules / p.item_granules;
    for_each_output(j, phases, [&](int64_t output, int position, int out) {
      const int place = place_of(p, position + item.window / 8, item.window % 8 + of_item);
      if (of_item == 1) {  // high and low parts lie side by side
        EXPECT_EQ(place, place_of(p, position + item.window / 8, item.window % 8) ^ 16);
      }
      const int granule = window.at(static_cast<size_t>(place / 16));
      EXPECT_NE(granule, -2);
      if (granule < 0 || item.weights < 0) return;
      const auto [sample, d, h, w, of_cell] =
          digits(granule, {p.axis[0].in, p.axis[1].in, p.axis[2].in, p.granules});
      EXPECT_EQ(sample % p.groups, j.group);
      const int of_k_block = item.weights % k_items * p.item_granules + of_item;
      const int in0 = (k_block * p.k_granules + of_k_block) * of_granule;
      EXPECT_EQ(in0, of_cell * of_granule);
      for (int in = in0; in < std::min(in0 + of_granule, p.in_per_group); ++in)
        products.add(output, products.input(sample / p.groups, j.group * p.in_per_group + in, {d, h, w}),
                     products.weight(j.group, in, out, item.weights / k_items));
    });
  }

  /// f(output, position in the window, channel of the group)
  template <class F>
  void for_each_output(const Job& j, const Phases& phases, F f) {
    const int64_t cells = int64_t{p.axis[0].out} * p.axis[1].out * p.axis[2].out;
    for (int row = 0; row < planned.tile.rows(); ++row) {
      const RowPlace at = row_at(p, j, phases, row);
      EXPECT_LT(at.position, p.window_cells);
      const int first = j.column_block * p.columns, end = std::min(first + p.columns, p.out_per_group);
      for (int out = first; out < end && at.output >= 0; ++out) f(at.output + out * cells, at.position, out);
    }
  }
};

/// The properties of a plan that the kernel relies on.
void expect_fits(const Planned& planned, const OperandKind& kind) {
  const auto& [tile, p, cycles] = planned;
  EXPECT_TRUE(has_kernel(tile, kind.split()));
  EXPECT_NE(std::ranges::find(tile_shapes, tile), std::end(tile_shapes));
  EXPECT_LE(p.box_rows, tile.rows());
  EXPECT_EQ(p.columns, tile.columns());
  EXPECT_EQ(p.item_bytes, p.columns * 16 * kind.weight_parts);
  EXPECT_EQ(p.stage_items % 2, 0);
  EXPECT_EQ(p.stage_bytes, p.stage_items * p.item_bytes);
  EXPECT_EQ(p.window_bytes, p.window_cells * p.k_granules * 16);
  EXPECT_GE(p.shared_bytes,
            p.tables_at + 16 * tile.rows() + p.classes * (8 * p.items + 4 + 4 * p.window_cells));
  EXPECT_GE(p.tables_at, 2 * (p.window_bytes + p.stage_bytes));
  EXPECT_GE(p.tables_at, 4 * 8 * (tile.rows() + 16));  // the sums of 8 channels, with gaps
  EXPECT_EQ(p.tables_at % 16, 0);
  EXPECT_LE(p.shared_bytes, 96 << 10);
  EXPECT_GT(cycles, 0);
  for (const Axis& a : p.axis) EXPECT_GE(a.tiles * a.box * a.out_step, a.out);
  // Eight neighbouring cells meet every bank once.
  for (int first = 0; first + 8 <= p.window_cells && first < 8; ++first) {
    std::set<int> banks;
    for (int i = 0; i < 8; ++i) banks.insert(place_of(p, first + i, p.k_granules - 1) % 128);
    EXPECT_EQ(banks.size(), 8u);
  }
}

void expect_reference(const Planned& planned, const Conv3dGeometry& g, const OperandKind& kind) {
  testing::evaluate(g, planned.plan.transposed, [&](Evaluation& products) {
    Walk{planned, planned.plan, 16 / kind.bytes, products}.run();
  });
}

TEST(Conv3dMmaPlan, WalksEqualTheReference) {
  Random random{std::mt19937_64(7)};
  int compared = 0, with_splits = 0, with_images = 0;
  for (int i = 0; i < 1500; ++i) {
    const bool transposed = i % 2 == 0, many_channels = i % 5 == 0;
    const Conv3dOptions o{.stride = i % 3 ? random.triple(1, 4) : Triple(random(1, 2)),
                          .padding = random.triple(0, 3),
                          .dilation = i % 4 < 2 ? Triple(1) : random.triple(1, 4),
                          .groups = i % 3 ? 1 : random(1, 3)};
    const int64_t most = (many_channels ? 140 : 20) / o.groups, width = i % 7 ? 9 : 140;
    const Shape input{random(1, 3), random(1, most) * o.groups, random(1, 7),
                      random(1, many_channels ? 3 : 9), random(1, many_channels ? 6 : width)};
    const auto g =
        geometry(transposed, input, random(1, most) * o.groups, random.triple(1, i % 7 ? 4 : 8), o);
    if (!g || products_of(*g) > 100'000) continue;
    const OperandKind kind = i % 3 == 0 ? of_16_bits : i % 3 == 1 ? tf32 : f16x3;
    const auto planned = make_plan(*g, transposed, kind, i % 4 != 0, since_sm_80);
    ASSERT_TRUE(planned);
    expect_fits(*planned, kind);
    expect_reference(*planned, *g, kind);
    ++compared;
    with_splits += planned->plan.splits > 1;
    with_images += planned->plan.box_n > 1;
  }
  EXPECT_GT(compared, 400);
  EXPECT_GT(with_splits, 10);
  EXPECT_GT(with_images, 30);
}

TEST(Conv3dMmaPlan, FitsLayersOfNetworks) {
  for (const auto& [channels, cells] : {std::pair(32, 128), {64, 64}, {128, 32}, {256, 16}, {320, 4}})
    for (const bool transposed : {false, true})
      for (const auto& [kernel, stride] : {std::pair(3, 1), {3, 2}, {2, 2}, {4, 2}, {1, 1}, {5, 1}, {7, 1}})
        for (const OperandKind& kind : {of_16_bits, tf32, f16x3}) {
          const auto g = geometry(transposed, {2, channels, cells, cells, cells}, channels, kernel,
                                  {.stride = stride, .padding = (kernel - 1) / 2});
          const auto planned = make_plan(*g, transposed, kind, true, since_sm_80);
          ASSERT_TRUE(planned) << channels << ' ' << kernel;
          expect_fits(*planned, kind);
        }
}

// A dilation makes phases, and a stride sorts the window, so neither makes it much larger.
TEST(Conv3dMmaPlan, StridesAndDilationsHaveSmallWindows) {
  const auto positions = [](const Conv3dOptions& o) {
    const auto g = geometry(false, {1, 64, 64, 64, 64}, 64, 3, o);
    const Plan p = make_plan(*g, false, of_16_bits, true, since_sm_80)->plan;
    return static_cast<double>(p.window_cells) / p.box_rows;
  };
  EXPECT_LE(positions({}), 3);
  EXPECT_LE(positions({.dilation = 5}), 3);
  EXPECT_LE(positions({.stride = 2}), 2);  // of a class
}

TEST(Conv3dMmaPlan, RefusesWhatDoesNotFit) {
  const auto plan = [](bool transposed, const Shape& input, const Triple& kernel, const Conv3dOptions& o) {
    return make_plan(*geometry(transposed, input, 8, kernel, o), transposed, of_16_bits, true, since_sm_80)
        .has_value();
  };
  EXPECT_TRUE(plan(false, {1, 8, 20, 20, 20}, {1, 1, 17}, {.stride = 9}));
  EXPECT_TRUE(plan(true, {1, 8, 20, 20, 20}, {1, 1, 17}, {.stride = 9}));
  EXPECT_FALSE(plan(false, {1, 8, 30, 30, 30}, 30, {}));
  EXPECT_FALSE(plan(false, {0, 8, 4, 4, 4}, 2, {}));
  EXPECT_FALSE(plan(false, {1, 8, 1024, 1024, 1024}, 1, {}));  // 2^31 granules
}

}  // namespace
}  // namespace vox::cuda::conv::mma
