#include <gtest/gtest.h>

#include <voxgrad/cuda/conv3d/mma/weight_grad_plan.h>
#include <voxgrad/cuda/conv3d/model/machine.h>

#include <vector>

#include "tests/cuda/conv3d/evaluate.h"

namespace vox::cuda::conv::mma {
namespace {

using testing::Evaluation;
using testing::outside;

/// The elements that a block has in shared memory for a step, in place of numbers: as Copies loads them.
struct Loaded {
  std::vector<int64_t> big, small;
};
Loaded load(const Evaluation& e, const WeightGradPlan& p, const WeightGradJob& job, int step) {
  const StepBox box = box_at(p, step);
  Loaded at;
  const auto fill = [&](std::vector<int64_t>& elements, int octets, int pitch, const StepCells& cells,
                        int number, const CellEntry& entry, const auto& element, int d, int h, int w) {
    elements.resize(static_cast<size_t>(octets * pitch * 8), outside);
    if (!Coordinates::within(entry.coordinates, cells.low, cells.high)) return;
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
  std::vector<std::vector<bool>> covered;  // columns of blocks, by teams
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
