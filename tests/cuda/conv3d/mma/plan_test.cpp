#include <voxgrad/cuda/conv3d/mma/plan.h>
#include <voxgrad/cuda/conv3d/mma/weight_grad_plan.h>
#include <voxgrad/cuda/conv3d/model/jobs.h>
#include <voxgrad/cuda/conv3d/model/machine.h>

#include "tests/cuda/conv3d/evaluate.h"

namespace vox::cuda::conv::mma {
namespace {

constexpr int of_16_bits = 1, f16x3 = 2;  // parts

/// As kernel.cuh: jobs, tables, steps. Windows and items hold numbers of granules.
struct Walk {
  const Planned& planned;
  const Plan& p = planned.plan;
  int of_granule;  // channels
  Evaluation& products;
  std::vector<int> window{};  // of the k-block, by places

  void run() {
    for (int number = 0; number < p.jobs; ++number) {
      const Job j = job_of(p, number);
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
    const Steps steps = steps_of(p, j, items_of(p, taps_of(p, phases, 0)));
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
    const CellRange range = inputs_of(p, j, phases, taps_of(p, phases, slice % p.classes));
    const int cells = p.batch * p.groups * p.axis[0].in * p.axis[1].in * p.axis[2].in;
    for (int position = 0; position < p.window_cells; ++position)
      for (int granule = 0; granule < p.k_granules; ++granule) {
        const CellEntry cell = window_cell(p, position);
        const int of_cell = slice / p.classes * p.k_granules + granule;
        int& to = window.at(static_cast<size_t>(granule * p.window_cells + position));
        EXPECT_EQ(to, -2);
        to = range.holds(cell) && of_cell < p.granules
                 ? of_cell * cells + static_cast<int>(range.first) + cell.offset
                 : -1;
      }
  }

  void multiply(const Job& j, const Phases& phases, int k_block, const Item& item, int of_item) {
    const int k_items = p.k_granules / p.item_granules;
    EXPECT_EQ(item.window % 16, 0);
    for_each_output(j, phases, [&](int64_t output, int position, int out) {
      const int place = position + item.window / 16 + of_item * p.window_cells;
      const int granule = window.at(static_cast<size_t>(place));
      EXPECT_NE(granule, -2);
      if (granule < 0 || item.weights < 0) return;
      const auto [of_cell, sample, d, h, w] =
          digits(granule, {p.batch * p.groups, p.axis[0].in, p.axis[1].in, p.axis[2].in});
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
    const int first = j.column_block * p.columns, end = std::min(first + p.columns, p.out_per_group);
    const CellRange range = outputs_of(p, j, phases, first);
    for (int row = 0; row < planned.tile.rows(); ++row) {
      const Row at = row_at(p, row);
      EXPECT_LT(at.position, p.window_cells);
      for (int out = first; out < end && range.holds(at.output); ++out)
        f(range.first + at.output.offset + (out - first) * cells, at.position, out);
    }
  }
};

/// The properties of a plan that the kernel relies on.
void expect_fits(const Planned& planned, int parts) {
  const auto& [tile, p, cycles] = planned;
  EXPECT_TRUE(has_kernel(tile, parts));
  EXPECT_NE(std::ranges::find(tile_shapes, tile), std::end(tile_shapes));
  EXPECT_LE(p.box_rows, tile.rows());
  EXPECT_EQ(p.columns, tile.columns());
  EXPECT_EQ(p.item_bytes, p.columns * 16 * parts);
  EXPECT_EQ(p.stage_items % 2, 0);
  EXPECT_EQ(p.stage_bytes, p.stage_items * p.item_bytes);
  EXPECT_EQ(p.window_bytes, p.window_cells * p.k_granules * 16);
  EXPECT_GE(p.shared_bytes,
            p.tables_at + 8 * p.window_cells + 12 * tile.rows() + p.classes * (16 + 8 * p.items + 4));
  EXPECT_GE(p.tables_at, 2 * (p.window_bytes + p.stage_bytes));
  EXPECT_GE(p.tables_at, 4 * 8 * (tile.rows() + 16));  // the sums of 8 channels, with gaps
  EXPECT_EQ(p.tables_at % 16, 0);
  EXPECT_LE(p.shared_bytes, 96 << 10);
  EXPECT_GT(cycles, 0);
  for (const Axis& a : p.axis) EXPECT_GE(a.tiles * a.box * a.out_step, a.out);
  const Axis& w = p.axis[2];
  EXPECT_TRUE(!p.quads || (w.out % 4 == 0 && w.box % 4 == 0 && w.out_step == 1));
}

void expect_reference(const Planned& planned, const Conv3dGeometry& g, int parts) {
  testing::evaluate(g, planned.plan.transposed, [&](Evaluation& products) {
    Walk{planned, planned.plan, 8 / parts, products}.run();
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
    const int parts = i % 3 ? of_16_bits : f16x3;
    const auto planned = make_plan(*g, transposed, parts, i % 4 != 0, since_sm_80);
    ASSERT_TRUE(planned);
    expect_fits(*planned, parts);
    expect_reference(*planned, *g, parts);
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
        for (const int parts : {of_16_bits, f16x3}) {
          const auto g = geometry(transposed, {2, channels, cells, cells, cells}, channels, kernel,
                                  {.stride = stride, .padding = (kernel - 1) / 2});
          const auto planned = make_plan(*g, transposed, parts, true, since_sm_80);
          ASSERT_TRUE(planned) << channels << ' ' << kernel;
          expect_fits(*planned, parts);
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
  EXPECT_FALSE(plan(false, {2, 8, 1024, 1024, 1024}, 1, {}));  // 2^31 granules
}

/// The elements that a block has in shared memory for a step, in place of numbers: as Copies loads them.
struct Loaded {
  Ints big, small;
};
Loaded load(const Evaluation& e, const WeightGradPlan& p, const WeightGradJob& job, int step) {
  const StepBox box = box_at(p, step);
  Loaded at;
  const auto fill = [&](Ints& elements, int octets, int pitch, const CellRange& cells, int number,
                        const CellEntry& entry, const auto& element, int d, int h, int w) {
    elements.resize(static_cast<size_t>(octets * pitch * 8), outside);
    if (!cells.holds(entry)) return;
    const auto [image, in_d, in_h, in_w] = digits(cells.first + entry.offset, {d, h, w});
    for (int c = 0; c < octets * 8; ++c)
      elements.at(static_cast<size_t>((c / 8 * pitch + number) * 8 + c % 8)) =
          element(image / p.groups, image % p.groups, c, Evaluation::Cell{in_d, in_h, in_w});
  };
  const auto of_big = [&](int n, int group, int c, const Evaluation::Cell& cell) {
    const int channel = job.first_octet * 8 + c;
    return channel < p.big_per_group ? e.big(n, group * p.big_per_group + channel, cell) : outside;
  };
  const auto of_small = [&](int n, int group, int c, const Evaluation::Cell& cell) {
    const int channel = job.first_row + c;
    return channel < p.small_per_group ? e.small(n, group * p.small_per_group + channel, cell) : outside;
  };
  for (int i = 0; i < p.window_cells; ++i)
    fill(at.big, p.octets, p.window_pitch, big_cells(p, job, box), i, window_entry(p, i), of_big, p.d.big,
         p.h.big, p.w.big);
  for (int i = 0; i < p.k_steps * p.k; ++i)
    fill(at.small, 2 * p.row_tiles, p.small_pitch, small_cells(p, job, box), i, box_entry(p, i), of_small,
         p.d.small, p.h.small, p.w.small);
  return at;
}

/// As mma/weight_grad.cuh: jobs, splits, steps, warps and their columns, and cells.
void walk(Evaluation& e, const WeightGradPlan& p) {
  std::vector<Bools> covered;  // columns of blocks, by teams
  const int64_t floats_of_job = p.split_floats() / p.jobs;
  for (int number = 0; number < p.jobs; ++number)
    for (int split = 0; split < p.splits; ++split) {
      const int64_t begin = int64_t{split} * p.steps / p.splits,
                    end = (split + 1) * int64_t{p.steps} / p.splits;
      EXPECT_LT(begin, end);
      for (int64_t step = begin; step < end; ++step) {
        const Loaded at = load(e, p, job_at(p, number), static_cast<int>(step));
        for (int warp = 0; warp < p.column_warps; ++warp)
          for (int c = warp * p.warp_octets; c < std::min((warp + 1) * p.warp_octets, p.columns()); ++c) {
            const Column column = column_at(p, c);
            const int first = column.octet * p.window_pitch + p.tap_shift(column.d, column.h, column.w);
            for (int i = 0; i < p.row_tiles * 128; ++i) {  // sums
              const Weight weight = weight_at(p, number * floats_of_job + c * p.row_tiles * 128 + i);
              if (weight.at < 0) continue;
              const int lane = i / 4 % 32, row = i / 128 * 16 + i % 4 / 2 * 8 + lane / 4,
                        channel = lane % 4 * 2 + i % 2;
              for (int cell = 0; cell < p.k_steps * p.k; ++cell) {
                const int position = p.position(p.box_cell(cell < p.box_cells ? cell : 0));
                e.multiply(at.big.at(static_cast<size_t>((first + position) * 8 + channel)),
                           at.small.at(static_cast<size_t>((row / 8 * p.small_pitch + cell) * 8 + row % 8)),
                           weight.at);
              }
            }
          }
      }
    }
  for (int64_t i = 0; i < p.split_floats(); ++i)
    if (const Weight weight = weight_at(p, i); weight.at >= 0) e.store(weight.at);
}

TEST(MmaWeightGradPlan, EvaluatesTheDefinition) {
  struct Case {
    Shape input, weight;
    ConvTranspose3dOptions options;
  };
  const Case cases[]{
      {{1, 2, 4, 4, 4}, {2, 3, 3, 3, 3}, {.padding = 1}},
      {{1, 9, 3, 5, 18}, {9, 10, 3, 3, 3}, {.padding = 1}},  // two octets of both
      {{1, 1, 2, 41, 53}, {1, 1, 3, 3, 3}, {.padding = 1}},  // boxes that overlap
      {{3, 3, 2, 3, 4}, {3, 2, 2, 3, 4}, {.stride = {2, 1, 3}, .padding = {1, 0, 2}}},
      {{1, 2, 3, 4, 9}, {2, 3, 3, 3, 5}, {.stride = 2, .padding = 1, .output_padding = 1}},
      {{2, 2, 3, 4, 5}, {2, 2, 3, 3, 3}, {.stride = {4, 2, 6}, .dilation = {2, 4, 4}}},  // units of 2
      {{1, 2, 4, 5, 6}, {2, 2, 1, 2, 3}, {.stride = {3, 1, 1}, .dilation = {1, 5, 3}}},
      {{2, 70, 2, 3, 3}, {70, 2, 1, 1, 1}, {.stride = 2}},  // rows in two blocks
      {{1, 2, 2, 3, 3}, {2, 460, 1, 1, 1}, {}},             // columns in two blocks
      {{1, 1, 3, 4, 6}, {1, 1, 5, 7, 7}, {.padding = 3}},   // taps in several groups
      {{1, 2, 2, 3, 4}, {2, 2, 1, 1, 11}, {.padding = {0, 0, 5}, .dilation = {1, 1, 4}}},
      {{2, 27, 1, 2, 3}, {27, 5, 2, 1, 2}, {.groups = 3}},
      {{65, 1, 1, 2, 2}, {1, 1, 2, 2, 2}, {}},  // boxes of several images
  };
  int splits = 0, teams = 0, overlaps = 0;
  for (const Case& c : cases)
    for (const int parts : {1, 2}) {
      const Conv3dGeometry g = detail::conv_transpose3d_geometry("plan", c.input, c.weight, c.options);
      const auto p = make_weight_grad_plan(g, parts);
      ASSERT_TRUE(p) << c.weight;
      EXPECT_LE(p->shared_bytes(), any_block_shared_bytes);
      EXPECT_LE(p->warp_octets, p->kernel_octets);
      EXPECT_GE(p->column_warps * p->warp_octets, p->columns());
      EXPECT_LE(p->row_tiles, most_row_tiles(parts));
      testing::evaluate(g, Conv3dPass::weight_grad, [&](Evaluation& e) { walk(e, *p); });
      splits += p->splits > 1, teams += p->teams > 1;
      overlaps += p->h.small % p->h.box != 0 || p->w.small % p->w.box != 0;
    }
  EXPECT_GT(splits, 0);
  EXPECT_GT(teams, 0);
  EXPECT_GT(overlaps, 0);
}

TEST(MmaWeightGradPlan, KeepsItsLimits) {
  const auto plan = [](const Shape& input, const Shape& weight, const ConvTranspose3dOptions& options) {
    return make_weight_grad_plan(detail::conv_transpose3d_geometry("plan", input, weight, options), 1);
  };
  const auto many = plan({2, 512, 8, 8, 8}, {512, 512, 3, 3, 3}, {.padding = 1});
  ASSERT_TRUE(many);
  EXPECT_TRUE(many->splits == 1 || many->splits * many->split_floats() * 4 <= 32 << 20);
  EXPECT_TRUE(plan({9, 8, 32, 1024, 1024}, {8, 8, 1, 1, 2}, {}));  // more than 2^31 elements
  EXPECT_TRUE(plan({1, 8, 4, 4, 4}, {8, 8, 1, 1, 3}, {.dilation = {1, 1, 100'000}}));
  EXPECT_FALSE(plan({0, 64, 4, 4, 4}, {64, 64, 3, 3, 3}, {}));
  EXPECT_FALSE(plan({1, 1, 2048, 1024, 1024}, {1, 1, 1, 1, 1}, {}));  // 2^31 cells of a channel
}

}  // namespace
}  // namespace vox::cuda::conv::mma
